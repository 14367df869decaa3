"""`lorgnette report RUN`: a page from results."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options


def report(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option(help="The page to write; RUN/report.html if not given.", show_default=False)
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(help="Also write every figure for a paper, in these formats: png, svg, pdf.", metavar="FORMATS"),
    ] = None,
) -> None:
    """Write the results of a run as one HTML page that needs no network.

    With --figures, the charts are also written one by one, in a folder beside the page.

    [bold]Examples[/bold]

      lorgnette report runs/bert
      lorgnette report runs/bert --out bert.html
      lorgnette report runs/bert --figures png,pdf
    """
    from lorgnette.figures.drawing import known_formats
    from lorgnette.reporting import Report
    from lorgnette.reporting import figures as draw
    from lorgnette.results import Results

    formats = None if figures is None else known_formats(figures)
    results = Results.load(run)
    page = Report(run).write(out or run / "report.html")
    typer.echo(page)
    if formats is not None:
        for path in draw(results, page.parent / "figures", formats):
            typer.echo(path)
