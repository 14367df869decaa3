"""`lorgnette report RUN`: a page from results."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="The folder that look wrote.", metavar="RUN")],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; RUN/report.html if not given.", show_default=False)
    ] = None,
) -> None:
    """Write the results of a run as one HTML page that needs no network.

    [bold]Examples[/bold]

      lorgnette report runs/bert
      lorgnette report runs/bert --out bert.html
    """
    from lorgnette.results import Results

    results = Results.load(run)
    from lorgnette.report import Report

    path = out or run / "report.html"
    Report(results).write(path)
    typer.echo(path)
