"""`lorgnette new lens NAME`: a package to begin with."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Begun(StrEnum):
    lens = "lens"


def new(
    what: Annotated[Begun, typer.Argument(help="What to create.")],
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _ and -.", metavar="NAME")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write.", show_default="NAME")] = None,
) -> None:
    """Create a small package with a lens of your own: the lens, its test, its report and pyproject.toml.

    It works as generated: install it, and look, report, compare and list know the lens. Then replace the formula with
    your own.

    [bold]Examples[/bold]

      lorgnette new lens my_lens
      lorgnette new lens my_lens --out ~/code/my-lens
    """
    from lorgnette.lens.template import new_lens

    folder = new_lens(name, out)
    typer.echo(folder)
    typer.echo(f"Then: pip install -e {folder} && python -m pytest {folder / 'tests'}", err=True)
