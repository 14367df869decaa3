"""`lorgnette reproduce NAME`: a published finding, measured again."""

from pathlib import Path
from typing import Annotated

import typer

from lorgnette.cli import options
from lorgnette.errors import UserError

_HOME = "reproductions"


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="Which one; without a name they are listed.", metavar="[NAME]")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Minutes, not hours: a small part, to see that it works.")
    ] = False,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Train nothing: the page from the runs that are there, saying what is not."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The folder for the outcome.", show_default="reproductions/NAME"),
    ] = None,
    data: options.Data = None,
    models: Annotated[
        Path | None, typer.Option(envvar="LORGNETTE_MODELS", help="The folder that holds the models.")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds, between commas.", metavar="N,N…", show_default="the reproduction's own")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only this part of it.", metavar="PART")] = None,
    device: options.Device = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes for what can run side by side.", metavar="N")] = 1,
) -> None:
    """Measure a published finding again, and write what came out beside what was printed.

    The folder gets README.md (claims with verdicts, tables, figures), results.json (every number, with provenance) and
    figures/. With --quick it goes to out/NAME and must not be quoted.

    [bold]Examples[/bold]

      lorgnette reproduce
      lorgnette reproduce clark2019 --quick
      lorgnette reproduce kobayashi2020 --models ./models --data ./data
    """
    if name is None:
        return _list()
    from reproductions import DEFAULT_SEEDS, PARTIAL, find
    from reproductions.frame.record import Settings, refuse_other_folder

    run = find(name)
    if partial and name not in PARTIAL:
        raise UserError(f"{name} is not made from parts of its runs; --partial is for {', '.join(sorted(PARTIAL))}.")
    folder = out or Path("out" if quick else _HOME) / name
    if quick and _HOME in folder.resolve().parts:
        raise UserError(f"A quick run does not go into {_HOME}/: its numbers are not to be kept. Give another --out.")
    refuse_other_folder(folder)
    settings = Settings(
        quick=quick,
        partial=partial,
        out=folder,
        data=None if data is None else str(data),
        models=None if models is None else str(models),
        seeds=_seeds(seeds) if seeds is not None else DEFAULT_SEEDS.get(name, (0,)),
        only=only,
        device=device,
        jobs=jobs,
    )
    if quick:
        typer.echo("A quick run: a small part of the data. Its numbers are not to be quoted.", err=True)
    outcome = run(settings)
    for claim in outcome.claims:
        typer.echo(f"{claim.verdict}: {claim.text}")
    typer.echo(outcome.write(folder) / "README.md")


def _seeds(text: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise UserError(f"--seeds takes whole numbers between commas, such as 0,1,2. Got {text!r} instead.") from None


def _list() -> None:
    from rich.markup import escape
    from rich.table import Table

    from lorgnette.cli.consoles import out
    from reproductions import REPRODUCTIONS

    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, (_, line) in REPRODUCTIONS.items():
        table.add_row(name, escape(line))
    out().print(table)
