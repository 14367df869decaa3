"""`lorgnette report RUN`: a page from results."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options


def report(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write.", show_default="RUN/report.html")
    ] = None,
    figures: Annotated[
        str | None,
        typer.Option(help="Also write every figure to a file, in these formats: png, svg, pdf.", metavar="FORMATS"),
    ] = None,
    width: Annotated[
        str | None,
        typer.Option(help="Fit figures to this width: column (240 pt), page (500 pt), or points.", metavar="WIDTH"),
    ] = None,
    figure: Annotated[
        str | None, typer.Option(help="Write only this figure, such as weights-mass (PDF by default).", metavar="NAME")
    ] = None,
) -> None:
    """Write the results of a run as one HTML page that needs no network.

    With --figures, each chart is also written to a file, in the folder figures beside the page; --width fits it to the
    column of a paper.

    [bold]Examples[/bold]

      lorgnette report runs/bert
      lorgnette report runs/bert --out bert.html
      lorgnette report runs/bert --figures png,pdf
      lorgnette report runs/bert --figure weights-mass --width column
    """
    from lorgnette import report as write
    from lorgnette.figures.drawing import NOT_DRAWN, can_draw

    for path in write(run, out, figures=figures, width=width, figure=figure):
        typer.echo(path)
    if not can_draw():
        typer.echo(NOT_DRAWN, err=True)
