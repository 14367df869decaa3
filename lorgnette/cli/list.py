"""`lorgnette list`: what there is to look at, on, and with."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


class Kind(StrEnum):
    models = "models"
    corpora = "corpora"
    lenses = "lenses"
    all = "all"


def list_(
    what: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.all,
) -> None:
    """List the model families, corpora and lenses that are known.

    [bold]Examples[/bold]

      lorgnette list
      lorgnette list lenses
    """
    from lorgnette.cli.consoles import out

    tables = {Kind.models: _models, Kind.corpora: _corpora, Kind.lenses: _lenses}
    for kind, table in tables.items():
        if what in (kind, Kind.all):
            out().print(table())


def _table(title: str, *rows: tuple[str, str]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _models() -> "Table":
    from lorgnette.models.layouts import model_types

    families = ((name, "") for name in model_types())
    return _table("Model families (a folder or a hub name of any of them)", *families)


def _corpora() -> "Table":
    from lorgnette.corpora import corpus_names

    rows = ((name, "") for name in corpus_names())
    return _table("Corpora (or a file: .txt .csv .tsv .jsonl .conllu, also .gz and .xz)", *rows)


def _lenses() -> "Table":
    from lorgnette import lenses

    rows = ((name, (lenses.get(name).__doc__ or "").strip().split("\n")[0]) for name in lenses.names())
    return _table("Lenses", *rows)
