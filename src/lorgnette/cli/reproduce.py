"""`lorgnette reproduce NAME`: a published finding, measured again."""

import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lorgnette.cli import options
from lorgnette.errors import UserError

if TYPE_CHECKING:
    from types import ModuleType


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="The study; without a name, all are listed.", metavar="[NAME]")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small trial that takes minutes instead of hours.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="The paper's own setting, if you have its data and its model.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Write the page from the cells measured so far; measure nothing."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder for the results.", show_default="reproductions/NAME"),
    ] = None,
    data: options.Data = None,
    models: Annotated[
        Path | None, typer.Option(envvar="LORGNETTE_MODELS", help="The folder that holds the models.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, comma-separated.", metavar="N,N…", show_default="the study's own")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Measure only this part.", metavar="PART")] = None,
    device: options.Device = None,
    jobs: Annotated[int, typer.Option(min=1, help="Number of parallel processes.", metavar="N")] = 1,
    budget_seconds: Annotated[
        float | None, typer.Option(min=0, help="Start no new cell after this many seconds.", metavar="S")
    ] = None,
) -> None:
    """Reproduce a published finding, and compare the result with the published numbers.

    Writes README.md (the outcome), APPENDIX.md (the set-up, all claims and tables), results.json (every number) and
    figures/. Results of --quick go to out/NAME and should not be quoted.

    [bold]Examples[/bold]

      lorgnette reproduce
      lorgnette reproduce clark2019 --quick
      lorgnette reproduce kobayashi2020 --models ./models --data ./data
    """
    reproductions = _reproductions()
    if name is None:
        return _list(reproductions)
    from reproductions.frame.page import refuse_other_folder
    from reproductions.frame.settings import Settings

    study = reproductions.find(name)
    if published and (quick or not study.published_setting):
        whole = "--published is the whole of the paper's setting; leave out --quick."
        raise UserError(whole if quick else f"{name} cannot run its source's own setting: its page says what differs.")
    named = f"{name}-published" if published else name
    folder = out or (Path("out") / named if quick or published else study.home)
    if quick and folder.resolve().is_relative_to(study.home.parent):
        raise UserError(f"A quick run does not go into {study.home.parent}: its numbers must not be kept.")
    if published and folder.resolve() == study.home.resolve():
        raise UserError(f"{folder} holds the cells of our own setting; give another --out.")
    refuse_other_folder(folder)
    settings = Settings(
        quick=quick,
        published=published,
        partial=partial,
        out=folder,
        data=None if data is None else str(data),
        models=None if models is None else str(models),
        seeds=_seeds(seeds) if seeds is not None else study.seeds,
        only=only,
        device=device,
        jobs=jobs,
        until=None if budget_seconds is None else time.monotonic() + budget_seconds,
    )
    if published:
        typer.echo(f"The published setting: {study.published_setting}.", err=True)
    if quick:
        typer.echo("A quick run: a small part of the data. Its numbers are not to be quoted.", err=True)
    outcome = study.reproduce(settings)
    for claim in outcome.claims:
        typer.echo(f"{claim.verdict}: {claim.text}")
    typer.echo(outcome.write(folder) / "README.md")


def _reproductions() -> "ModuleType":
    """The package of studies: it is no part of the installed library, and lies beside it in a checkout."""
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "reproductions" / "frame").is_dir():
        sys.path[:0] = [str(checkout)] if str(checkout) not in sys.path else []
    elif find_spec("reproductions") is None:
        raise UserError(
            "The reproductions are not in the installed package but in the folder reproductions/ of the source; "
            "run this command from a checkout of it."
        )
    import reproductions

    return reproductions


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"--seeds takes whole numbers between commas, such as 0,1,2. Got {text!r} instead.") from None


def _list(reproductions: "ModuleType") -> None:
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.cli.consoles import out

    table = Table(show_header=False, box=None, padding=(0, 2))
    for name in reproductions.STUDIES:
        table.add_row(name, escape(reproductions.find(name).question))
    out().print(table)
