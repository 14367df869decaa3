"""`lorgnette compare RUN RUN`: what differs between two runs."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options


def compare(
    before: options.Run,
    after: options.Run,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Also write a page with figures and tables.", show_default=False),
    ] = None,
) -> None:
    """Compare two runs head by head: before and after fine-tuning, or two models with the same layers and heads.

    Prints the largest differences of every lens that both runs have, with 95 % intervals; with --out, writes all of
    them as one HTML page. Runs on the same texts with --keep texts are paired.

    [bold]Examples[/bold]

      lorgnette compare runs/before runs/after
      lorgnette compare runs/before runs/after --out compare.html
    """
    from lorgnette import compare as compared_runs

    compared = compared_runs(before, after, out)
    if (whole := compared.whole_models()) is not None:
        typer.echo(whole.text)
    typer.echo(compared.method().text)
    for finding in compared.findings():
        typer.echo(f"- {finding.text}")
    for note in compared.differences().notes:
        typer.echo(f"Note: {note}.")
    if out is not None:
        typer.echo(out)
