"""`lorgnette rationales MODEL --corpus C`: explanations against people's marks and against the model."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    from lorgnette.results import Result

_TOP = 5  # where there is no other split to tell how many words people mark
_TOP_CORPORA = {"hatexplain": 5}  # whose authors take so many words for the rationale of any text


@unpacked
def rationales(
    model: options.Model,
    corpus: options.Corpus,
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", "-m", help="An explanation method, or 'all'; repeatable.", show_default="the fast ones"
        ),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Take the N top-scoring words as the rationale.", metavar="N")
    ] = None,
    share: Annotated[float | None, typer.Option(help="Take this fraction of each text's words instead.")] = None,
    share_from: Annotated[
        str, typer.Option(help="Take the fraction marked by annotators in this split instead.")
    ] = "val",
    gold: Annotated[
        str, typer.Option(help="Gold words: majority or union of the annotators, or corpus (as given).")
    ] = ("majority"),
    perturbation: Annotated[str, typer.Option(help="How words are removed: delete or mask.")] = "delete",
    class_name: Annotated[
        str | None,
        typer.Option("--class", help="The class to explain.", metavar="NAME", show_default="the predicted class"),
    ] = None,
    split: options.Split = None,
    text_column: options.TextColumn = "text",
    words_column: options.WordsColumn = None,
    rationale_column: options.RationaleColumn = None,
    labels: options.Labels = None,
    limit: options.Limit = None,
    truncate: options.Truncate = False,
    out: options.Out = None,
    batch_tokens: options.BatchTokens = 4096,
    seed: options.Seed = 0,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Compare explanations with human rationales (plausibility) and with what the classifier needs (faithfulness).

    Baselines are random words, the first words and the last words. The rationale has 5 words for HateXplain and for a
    file, otherwise the fraction that annotators mark in another split. The default split is test, where there is one.
    With --out, the results and report.html are written to a folder.

    [bold]Examples[/bold]

      lorgnette rationales ./my-classifier -c hatexplain
      lorgnette rationales ./my-classifier -c yelphat --split test50 --method all --out runs/yelphat
      lorgnette rationales ./my-classifier -c hatexplain --class hatespeech
      lorgnette rationales ./my-classifier -c eraser_movies --truncate --perturbation mask
      lorgnette rationales ./my-classifier -c marked.jsonl --words-column words --rationale-column marked
    """
    from lorgnette.texts import corpus as open_corpus
    from lorgnette.texts.labels import mapping_of
    from lorgnette.texts.named import name_and_split

    one_file = Path(corpus).is_file()
    name, named = (corpus, None) if one_file else name_and_split(corpus)
    if split is None and not one_file:
        split = named or "test"
    texts = open_corpus(corpus, split=split, data=data, limit=limit, text_column=text_column,
                        words_column=words_column, rationale_column=rationale_column)  # fmt: skip
    if top is None and share is None:
        top = _TOP_CORPORA.get(name, _TOP if one_file else None)
    from lorgnette.cli.look import write_report
    from lorgnette.lens.rationales.gold import gold_share
    from lorgnette.lens.rationales.lens import CHEAP, Rationales
    from lorgnette.looking.look import look
    from lorgnette.looking.short_texts import short_texts
    from lorgnette.looking.texts import TokenizedTexts
    from lorgnette.reporting import Report

    if top is None and share is None:
        share = gold_share(open_corpus(name, split=share_from, data=data), gold)
    wanted = "all" if method == ["all"] else tuple(method or CHEAP)
    lens = Rationales(
        wanted, top=top, share=share, gold=gold, perturbation=perturbation, seed=seed, class_name=class_name
    )
    subject = opening.load(model)
    tokenized = TokenizedTexts(subject, texts, truncate=truncate)
    results = look(
        subject,
        tokenized,
        [lens],
        batch_tokens=batch_tokens,
        out=out,
        labels=mapping_of(labels),
        seed=seed,
        command=options.command_line(),
    )
    _show(results["rationales"])
    if out is not None:
        write_report(Report(results), tokenized.subject, lambda: short_texts(tokenized), out)


_MEANS = {"auprc": "AUPRC", "auroc": "AUROC", "token_f1": "token F1", "comprehensiveness": "compr.",
          "sufficiency": "suff."}  # fmt: skip


def _with_interval(value: float, half: float) -> str:
    """ "0.412 ±.021"; a dash where there is no number, and no ± where there is no error."""
    if value != value:
        return "–"
    return f"{value:.3f}" + (f" ±{half:.3f}".replace("±0.", "±.") if half == half else "")


def _show(result: "Result") -> None:
    from rich.table import Table

    from lorgnette.cli.consoles import out
    from lorgnette.reporting.contents import whole_model
    from lorgnette.statistics.estimate import Estimate

    if (whole := whole_model({result.lens: result})) is not None:
        out().print(whole.text, markup=False)
    data = result.data
    table = Table(box=None, pad_edge=False)
    table.add_column("explanation")
    for title in (*_MEANS.values(), "pooled AUPRC", "IOU F1", "s/text"):
        table.add_column(title, justify="right")
    for name in data["explanation"].values.tolist():
        row = data.sel(explanation=name)
        means = Estimate.of(row, "score", {"measure": list(_MEANS)})
        pairs = zip(means.value.values.tolist(), means.half.values.tolist(), strict=True)
        cells = [*pairs, *((row[pooled].item(), math.nan) for pooled in ("pooled_auprc", "iou_f1"))]
        cost = f"{row['seconds_per_text'].item():.4f}"
        table.add_row(name, *(_with_interval(*cell) for cell in cells), cost)
    out().print(table)
    out().print(
        "± half a 95 % interval over texts; "
        f"{data['texts'].item():,} texts with gold, {data['texts_without_gold'].item():,} without; chance: "
        f"AUPRC {data['chance'].item():.3f}, pooled {data['pooled_chance'].item():.3f}; k = {data.attrs['k']}; "
        f"explained: {data.attrs['explained']}",
        markup=False,
        soft_wrap=True,
    )
    if lost := data["gold_cut"].item():
        out().print(f"{lost:,} gold words ({data['gold_cut_share'].item():.0%}) were cut off with the ends of texts.")
