"""`lorgnette list`: what there is to look at, on, and with."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


class Kind(StrEnum):
    models = "models"
    families = "families"
    presets = "presets"
    corpora = "corpora"
    lenses = "lenses"
    explanations = "explanations"
    all = "all"


def list_(
    what: Annotated[Kind, typer.Argument(help="What to list.")] = Kind.all,
) -> None:
    """List the available models, model families, presets, corpora, lenses and explanation methods.

    [bold]Examples[/bold]

      lorgnette list
      lorgnette list lenses
    """
    from lorgnette.cli.consoles import out

    console = out()
    tables = {
        Kind.models: _models,
        Kind.families: _families,
        Kind.presets: _presets,
        Kind.corpora: _corpora,
        Kind.lenses: _lenses,
        Kind.explanations: _explanations,
    }
    if what is Kind.all:  # more than two hundred lines on families would hide the rest
        tables[Kind.families] = _families_by_outcome
    for kind, rows in tables.items():
        if what in (kind, Kind.all):
            console.print(f"[bold]{_TITLES[kind]}[/bold]")
            console.print(_table(rows()))


_TITLES = {
    Kind.models: "Models on this machine; any folder or hub name of one of the families works too",
    Kind.families: "Families: the result of `lorgnette check` on a tiny model of each architecture (docs/models.md)",
    Kind.presets: "Presets: classifiers and translation models for `lorgnette train`",
    Kind.corpora: "Corpora: one of these names, a file (.txt .csv .tsv .jsonl .parquet .tar .conllu), or more",
    Kind.lenses: "Lenses: `lorgnette lens NAME` shows what a lens measures, and its options",
    Kind.explanations: "Explanations of a prediction: `lorgnette trace … --explain NAME`",
}


def _table(rows: list[tuple[str, str]]) -> "Table":
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, padding=(0, 2))
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _models() -> list[tuple[str, str]]:
    from lorgnette.models.opening import known_names

    return [(name, "") for name in known_names()] or [("none", "LORGNETTE_MODELS can name a folder of models")]


def _families() -> list[tuple[str, str]]:
    from lorgnette import families

    return list(families().items())


def _families_by_outcome() -> list[tuple[str, str]]:
    """The families in a few lines: those that are exact, those that are refused."""
    from lorgnette.models.families.verified import table

    names: dict[str, list[str]] = {}
    for row in table()[1]:
        names.setdefault(row.outcome, []).append(row.model_type)
    rows = [(f"{len(types)} {outcome}", ", ".join(types)) for outcome, types in names.items()]
    return [*rows, ("", "`lorgnette list families` says what an exact family lacks, and why one is refused")]


def _presets() -> list[tuple[str, str]]:
    from lorgnette.models.classifier.presets import PRESETS
    from lorgnette.models.marian_small import TRANSLATORS

    return [(name, preset.description) for name, preset in {**PRESETS, **TRANSLATORS}.items()]


def _corpora() -> list[tuple[str, str]]:
    from lorgnette import corpora

    return list(corpora().items())


def _lenses() -> list[tuple[str, str]]:
    from lorgnette import lenses

    return list(lenses().items())


def _explanations() -> list[tuple[str, str]]:
    from lorgnette import explanations

    return list(explanations().items())
