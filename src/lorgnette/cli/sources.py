"""`lorgnette sources MODEL prompts.jsonl`: which parts of its prompt an answer used."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.results import Result

_SHOWN = 3
"""Prompts whose parts are printed."""


@unpacked
def sources(
    model: options.Model,
    prompts: Annotated[
        Path, typer.Argument(help="A JSONL file with one prompt in named parts on each line.", metavar="PROMPTS")
    ],
    among: Annotated[
        list[str] | None,
        typer.Option(
            help="A part that is compared as a source, or a pattern such as 'document *'; repeatable.",
            show_default="every part but the last",
        ),
    ] = None,
    generate: Annotated[
        int, typer.Option(min=1, metavar="N", help="Where no answer is given, let the model answer with N tokens.")
    ] = 32,
    method: Annotated[str, typer.Option(help="Relevance: attnlrp, ah or gradient_x_input.")] = "attnlrp",
    heads: Annotated[
        bool,
        typer.Option(help="With --out, write what every part has at every head: attention, norm and relevance."),
    ] = True,
    limit: options.Limit = None,
    out: options.Out = None,
    resume: options.Resume = False,
    *,
    opening: options.Opening,
) -> None:
    """Show which parts of its prompt an answer used, and which signals and heads reveal it.

    For every part: its share of attention and of the norm at the rows that predict the answer, its relevance, how
    far the log-probability of the answer falls when the part is masked out in every layer (drop), and how far it
    rises when it is the only source (alone). Over several prompts: how well each signal, and each head, ranks the
    sources as masking them does. With --out, results, report.html, a table of all parts (sources.csv) and one of all
    parts at all heads (heads.csv) are written to a folder.

    A line of PROMPTS is {"parts": {"document 1": "…", "question": "…"}, "answer": " …"}, or has "text" with the
    name, start and end of each of its "parts", or "messages" for a chat, whose contents may be given in parts. "gold"
    may name the part that holds the answer.

    [bold]Examples[/bold]

      lorgnette sources ./my-chat-model prompts.jsonl
      lorgnette sources ./my-chat-model prompts.jsonl --among 'document *' --out runs/sources
    """
    if resume and out is None:
        raise typer.BadParameter("--resume needs the --out of the run that was interrupted.")
    from lorgnette.cli.look import show, write_report
    from lorgnette.explaining.sources.parts import cost, planned
    from lorgnette.lens.sources.lens import SourceSignals
    from lorgnette.looking.look import look
    from lorgnette.looking.short_texts import short_texts
    from lorgnette.looking.texts import TokenizedTexts
    from lorgnette.reporting import Report
    from lorgnette.texts.prompts import prompt_corpus

    lens = SourceSignals(among, generate, method, heads and out is not None)
    texts = prompt_corpus(prompts)
    texts = texts if limit is None else texts.take(limit)
    subject = opening.load(model)
    plans = [planned(subject, example, among) for example in texts]  # a prompt that cannot be measured is refused here
    lens.announced, texts.most = cost(plans), len(plans)
    tokenized = TokenizedTexts(subject, texts)
    # Each prompt is a batch of its own: its copies are run together anyway, and progress is told prompt by prompt.
    results = look(
        subject, tokenized, [lens], out=out, resume=resume, batch_tokens=1, command=options.command_line()
    )  # fmt: skip
    page = Report(results)
    show(results, page, table=False)
    _show_parts(results["sources"])
    if out is not None:
        write_report(page, subject, lambda: short_texts(tokenized), out)
        _parts(results["sources"]).to_csv(out / "sources.csv", index=False)
        if heads:
            _heads(results["sources"]).to_csv(out / "heads.csv", index=False, float_format="%.6g")


def _parts(result: "Result") -> "pd.DataFrame":
    names = ["tokens", "compared", "attention", "norm", "relevance", "drop", "alone"]
    return _by_prompt(result.data[names].to_dataframe().reset_index())


def _heads(result: "Result") -> "pd.DataFrame":
    """A row for every part and head, with the prompt and the part in front."""
    names = {f"head_{name}": name for name in ("attention", "norm", "relevance")}
    data = result.data[list(names)].rename(names).transpose("source", "stack", "layer", "head")
    return _by_prompt(data.to_dataframe().reset_index().drop(columns="stack").dropna())


def _by_prompt(frame: "pd.DataFrame") -> "pd.DataFrame":
    """The label of a source as two columns: its prompt and its part."""
    names = [label.rsplit(": ", 1) for label in frame.pop("source")]
    frame.insert(0, "prompt", [name for name, _ in names])
    frame.insert(1, "part", [part for _, part in names])
    return frame


def _show_parts(result: "Result") -> None:
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.cli.consoles import out
    from lorgnette.explaining.sources.measuring import rests
    from lorgnette.lens.sources.lens import PROMPTS
    from lorgnette.texts.readable import readable

    frame = _parts(result)
    prompts = list(dict.fromkeys(frame["prompt"]))
    for name in prompts[:_SHOWN]:
        about = result.data.attrs[PROMPTS][str(name)]
        out().print(
            f"prompt {name}: the answer {readable(about['answer'])!r} has log P {_number(about['log_probability'], 2)} "
            f"nats, {_number(about['without_any'], 2)} without any source", markup=False, soft_wrap=True,
        )  # fmt: skip
        table = Table(box=None, pad_edge=False)
        table.add_column("part")
        for title in ("tokens", "attention", "norm", "relevance", "drop", "alone"):
            table.add_column(title, justify="right")
        for row in frame[frame["prompt"] == name].to_dict("records"):
            cells = [_number(row[key], digits) for key, digits in _DIGITS.items()]
            table.add_row(escape(str(row["part"])), str(row["tokens"]), *cells)
        out().print(table)
        if about["beginning"] is not None:
            out().print(f"Note: {rests(about['beginning'])}", markup=False, soft_wrap=True)
    out().print(
        "drop: nats that the log-probability of the answer falls by when the part is masked out; alone: nats that it "
        "rises by when this is the only source.", markup=False, soft_wrap=True,
    )  # fmt: skip
    if len(prompts) > _SHOWN:
        out().print(f"{len(prompts) - _SHOWN:,} more prompts: with --out, sources.csv has them all.")


_DIGITS = {"attention": 3, "norm": 3, "relevance": 2, "drop": 2, "alone": 2}


def _number(value: float, digits: int) -> str:
    return "–" if value != value else f"{value:.{digits}f}".replace("-", "−")
