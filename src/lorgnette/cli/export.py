"""`lorgnette export RUN`: the numbers of a run as tidy tables."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options


def export(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The folder for the tables.", show_default="RUN/tables")
    ] = None,
    parquet: Annotated[bool, typer.Option("--parquet/--csv", help="The file format.")] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Write one LaTeX table per lens instead: means ± errors, highest heads.")
    ] = False,
    lens: Annotated[str | None, typer.Option(help="With --latex: the table of this lens only.")] = None,
) -> None:
    """Write the numbers of a run as tables, for R, pandas or a spreadsheet.

    Numbers with the same axes share a table: weights.heads.csv has a row for every head, weights.heads-category.csv one
    for every head and kind of token; a mean has its standard error (_se) and its number of texts (_count) beside it.
    What look kept of each text (--keep texts) is in LENS.texts.

    [bold]Examples[/bold]

      lorgnette export runs/bert
      lorgnette export runs/bert --parquet --out tables
      lorgnette export runs/bert --latex --lens weights --out paper/tables
    """
    if latex and parquet:
        raise typer.BadParameter("--latex and --parquet are two formats; choose one.")
    if lens is not None and not latex:
        raise typer.BadParameter("--lens chooses a table of --latex.")
    from lorgnette.results import Results

    results, folder = Results.load(run), out or run / "tables"
    if latex:
        from lorgnette.reporting.latex import write_latex

        paths = write_latex(results, folder, lens)
    else:
        from lorgnette.results.tables import export as write

        paths = write(results, folder, "parquet" if parquet else "csv")
    for path in paths:
        typer.echo(path)
