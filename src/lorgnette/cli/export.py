"""`lorgnette export RUN`: the numbers of a run as tidy tables."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options


def export(
    run: options.Run,
    out: Annotated[Path | None, typer.Option(help="The folder for the tables.", show_default="RUN/tables")] = None,
    parquet: Annotated[bool, typer.Option("--parquet/--csv", help="The file format.")] = False,
) -> None:
    """Write the numbers of a run as tables, for R, pandas or a spreadsheet.

    Numbers with the same axes share a table: weights.heads.csv has a row for every head, weights.heads-category.csv one
    for every head and kind of token; a mean has its standard error (_se) and its number of texts (_count) beside it.
    What look kept of each text (--keep texts) is in LENS.texts.

    [bold]Examples[/bold]

      lorgnette export runs/bert
      lorgnette export runs/bert --parquet --out tables
    """
    from lorgnette.results import Results
    from lorgnette.results.tables import export as write

    for path in write(Results.load(run), out or run / "tables", "parquet" if parquet else "csv"):
        typer.echo(path)
