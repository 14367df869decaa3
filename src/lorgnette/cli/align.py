"""`lorgnette align MODEL -c CORPUS`: choose heads that align words, test them, write links."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.cli.fields import unpacked

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.texts.example import Example


@unpacked
def align(
    model: options.Model,
    corpus: options.Corpus,
    test: Annotated[
        str | None, typer.Option(help="Texts to test on.", metavar="CORPUS", show_default="some of --corpus")
    ] = None,
    gold: Annotated[
        Path | None, typer.Option(help="The gold links.", metavar="FILE", show_default="those of the corpus")
    ] = None,
    test_gold: Annotated[
        Path | None, typer.Option(help="The gold links of --test.", metavar="FILE", show_default="those of the corpus")
    ] = None,
    first: Annotated[int, typer.Option(min=0, max=1, help="The number of the first word in gold files.")] = 0,
    development: Annotated[float, typer.Option(help="Without --test: share of the texts to choose heads on.")] = 0.5,
    most: Annotated[int, typer.Option(min=2, metavar="N", help="Try up to N heads together.")] = 8,
    texts: Annotated[
        str | None, typer.Option(help="Texts whose links are written.", metavar="CORPUS", show_default="--corpus")
    ] = None,
    target_column: Annotated[
        str, typer.Option(help="The column of a file with the translations.", rich_help_panel="The corpus")
    ] = "target",
    split: options.Split = None,
    limit: options.Limit = None,
    out: options.Out = None,
    data: options.Data = None,
    *,
    opening: options.Opening,
) -> None:
    """Choose the cross-attention heads of a translation model that align words best, and write word links.

    Compares heads, layers and small sets of heads on the development texts, by weights and by norms, and prints their
    error rates on the test texts, with 95 % intervals over texts. With --out, writes rates.csv, the links of all texts
    (links.txt, in Pharaoh's format: a text on each line, source-target words from 0), a page (report.html) and a figure
    (rates.svg).

    [bold]Examples[/bold]

      lorgnette align Helsinki-NLP/opus-mt-en-fr -c hansards_en_fr --out runs/links
      lorgnette align ./my-model -c dev.jsonl --gold dev.talp --first 1 --texts multi30k:en-fr:val
    """
    from lorgnette.figures.drawing import can_draw
    from lorgnette.looking.aligning import align as choose
    from lorgnette.progress import tell_cost
    from lorgnette.texts import as_examples
    from lorgnette.texts import corpus as open_corpus

    def opened(name: str, **more: "str | int | None") -> "list[Example]":
        column = target_column if Path(name).is_file() else None  # a named corpus has its own
        return as_examples(open_corpus(name, data=data, target_column=column, **more))  # type: ignore[arg-type]

    examples = opened(corpus, split=split, limit=limit)
    tests = None if test is None else opened(test)
    wanted = examples if texts is None else opened(texts)
    subject = opening.load(model)
    if out is not None:
        tell_cost("links", f"in the end, one pass over the {len(wanted):,} texts whose links are written")
    aligner = choose(
        subject, examples, tests, gold=gold, test_gold=test_gold, first=first, development=development, most=most
    )
    frame = aligner.to_dataframe()
    _show(frame, f"{aligner.development:,} texts to choose on, {aligner.test:,} to test on")
    typer.echo(f"chosen: {aligner.chosen}")
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        frame.to_csv(out / "rates.csv", index=False)
        typer.echo(f"The page is {aligner.page(out / 'report.html')}")
        if can_draw():
            aligner.plot().save(out / "rates.svg")
        typer.echo(f"Links are in {aligner.save(out / 'links.txt', wanted)}")


def _show(frame: "pd.DataFrame", title: str) -> None:
    from rich.table import Table

    from lorgnette.cli.consoles import out

    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    table.add_column("heads")
    for name in ("measure", "row"):
        table.add_column(name)
    for name in ("AER, development", "AER, test", "95 % CI", "precision", "recall", "minus the chosen"):
        table.add_column(name, justify="right")
    for row in frame.to_dict("records"):
        numbers = [f"{row['development']:.3f}", f"{row['error']:.3f}", f"{row['low']:.3f} to {row['high']:.3f}"]
        shares = [f"{row['precision']:.3f}", f"{row['recall']:.3f}"]
        apart = f"{row['difference']:+.3f} ± {row['difference_high'] - row['difference']:.3f}"
        same = row["difference_low"] == row["difference_high"] == 0
        table.add_row(row["heads"], row["measure"], row["row"], *numbers, *shares, "–" if same else apart)
    out().print(table)
