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
    from lorgnette import report as write

    for path in write(run, out, figures=figures):
        typer.echo(path)
