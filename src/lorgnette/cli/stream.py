"""`lorgnette stream MODEL -c CORPUS`: which key heads can forget the middle of a long text."""

from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    import pandas as pd


_SHOWN = 6
"""Key heads of either kind that are printed."""


@unpacked
def stream(
    model: options.Model,
    corpus: options.Corpus,
    loss: Annotated[float, typer.Option(min=0, help="By how much the loss may rise, in nats per token.")] = 0.01,
    sinks: Annotated[int, typer.Option(min=0, metavar="N", help="First tokens that a streaming head keeps.")] = 4,
    window: Annotated[int, typer.Option(min=1, metavar="N", help="Last tokens that it keeps.")] = 64,
    draws: Annotated[int, typer.Option(min=1, metavar="N", help="Random sets of each size to compare with.")] = 3,
    development: Annotated[float, typer.Option(help="Share of the texts to rank heads on.")] = 0.5,
    split: options.Split = None,
    text_column: options.TextColumn = "text",
    limit: options.Limit = None,
    truncate: options.Truncate = False,
    out: options.Out = None,
    seed: options.Seed = 0,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Find the key heads of a causal model that need only the first and the last tokens of a long text.

    Ranks key heads on one part of the texts by how much the loss rises without their distant context, masks the least
    needed together, and lets as many stream as raise the loss by at most --loss. The table compares such sets with
    random sets of key heads on the other part of the texts. With --out, writes full_attention_heads.tsv and config.json
    in DuoAttention's format, which kvpress reads too, and heads.csv, curve.csv, a page (report.html) and a figure
    (heads.svg).

    [bold]Examples[/bold]

      lorgnette stream HuggingFaceTB/SmolLM2-135M -c long.txt --out runs/pattern
      lorgnette stream HuggingFaceTB/SmolLM2-135M -c wikitext2 --limit 40 --window 256 --loss 0.02
    """
    from lorgnette.figures.drawing import can_draw
    from lorgnette.looking.streaming import stream as find
    from lorgnette.texts import corpus as open_corpus

    texts = open_corpus(corpus, split=split, data=data, limit=limit, text_column=text_column)
    subject = opening.load(model)
    found = find(
        subject, texts, loss=loss, sinks=sinks, window=window, draws=draws, development=development, seed=seed,
        truncate=truncate,
    )  # fmt: skip
    _show(found.curve(), f"increase of the loss on {found.texts[1]:,} texts (nats per token, 95 % CI)")
    total, change = len(found.needs), found.change
    typer.echo(
        f"{found.chosen} of {total} key heads stream: they raise the loss on {found.texts[0]:,} development texts by "
        f"at most {loss:g}, on the other {found.texts[1]:,} by {change.value:.4f} ({change.low:.4f} to "
        f"{change.high:.4f}). Of the cache for 4,096 tokens {found.saved(4096):.0%} is saved, for 32,768 tokens "
        f"{found.saved(32768):.0%}."
    )
    _show_heads(found.to_dataframe())
    if out is not None:
        typer.echo(f"The pattern is in {found.save(out)}")
        typer.echo(f"The page is {found.page(out / 'report.html')}")
        if can_draw():
            found.plot().save(out / "heads.svg")


def _show_heads(frame: "pd.DataFrame") -> None:
    """The key heads that need their context most, and those that stream, by layer.key head."""
    from rich.table import Table

    from lorgnette.cli.consoles import out

    table = Table(box=None, pad_edge=False)
    for name, side in (
        ("kind", "left"),
        ("key heads", "right"),
        ("layer.key head: increase of the loss alone", "left"),
    ):
        table.add_column(name, justify="right" if side == "right" else "left")
    for kind in ("retrieval", "streaming"):
        own = frame[frame["kind"] == kind]
        own = own.iloc[::-1] if kind == "retrieval" else own  # the most needed first; of the others the least needed
        shown = [f"{row.layer}.{row.key_head}: {row.change:+.4f}" for row in own.head(_SHOWN).itertuples()]
        more = f", and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        table.add_row(kind, str(len(own)), ", ".join(shown) + more)
    out().print(table)


def _show(frame: "pd.DataFrame", title: str) -> None:
    from rich.table import Table

    from lorgnette.cli.consoles import out

    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    for name in ("key heads", "share", "least needed", "random", "random − least needed"):
        table.add_column(name, justify="right")
    for row in frame.to_dict("records"):
        pairs = [("change", "low", "high"), ("random", "random_low", "random_high"),
                 ("under_random", "under_random_low", "under_random_high")]  # fmt: skip
        cells = [f"{row[value]:+.4f} ({row[low]:+.4f} to {row[high]:+.4f})" for value, low, high in pairs]
        table.add_row(str(row["key_heads"]), f"{row['share']:.0%}", *cells)
    out().print(table)
