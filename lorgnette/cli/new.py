"""`lorgnette new lens NAME`: a package to begin with."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Begun(StrEnum):
    lens = "lens"


def new(
    what: Annotated[Begun, typer.Argument(help="What to begin.")],
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits, _ and -.", metavar="NAME")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder to write.", show_default="NAME")] = None,
) -> None:
    """Write a small package with a lens of your own: the lens, its oracle test, its report and pyproject.toml.

    It works as it stands: install it, and look, report, compare and list know the lens. Then put your own formula in
    the place of the one that is there.

    [bold]Examples[/bold]

      lorgnette new lens my_lens
      lorgnette new lens my_lens --out ~/code/my-lens
    """
    from lorgnette.lens.template import new_lens

    folder = new_lens(name, out)
    typer.echo(folder)
    typer.echo(f"Then: pip install -e {folder} && python -m pytest {folder / 'tests'}", err=True)
