"""The grid of TP 9, run in two steps: settings are chosen on validation reviews, then every model for every seed."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError
from reproductions.frame.cells import Cell, Cells, cells_of, scratch_of
from reproductions.tp9 import grid

if TYPE_CHECKING:
    from reproductions.frame.record import Reproduction, Settings


@dataclass(frozen=True)
class Outcome:
    """All that the cells gave; of a page that is made early, only some of the finals are there."""

    size: grid.Size
    seeds: tuple[int, ...]
    searches: Mapping[str, Any]
    chosen: Mapping[tuple[str, str], grid.Choice]
    scales: Mapping[tuple[str, str], float]
    finals: Mapping[str, Any]
    tfidf: Any | None

    def of(self, model: grid.Model) -> list[Any]:
        """The results of a model, one for each seed that was run."""
        keys = [f"{model.key}-seed{seed}" for seed in self.seeds]
        return [self.finals[key] for key in keys if key in self.finals]

    def complete(self, model: grid.Model) -> bool:
        return len(self.of(model)) == len(self.seeds)

    def enough(self, *models: grid.Model) -> bool:
        """Whether these models can be compared: two seeds each, where more than one was asked for."""
        return all(len(self.of(model)) >= min(2, len(self.seeds)) for model in models)


def size_of(settings: "Settings") -> grid.Size:
    return grid.QUICK if settings.quick else grid.FULL


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells that train, as far as the time goes; how many are left."""
    size = size_of(settings)
    searches = grid.searches(size, settings.seeds[0])
    with cells_of(settings) as cells:
        _prepare(searches, cells, settings)
        found = cells.run(searches, jobs=settings.jobs, until=until, name="tp9, settings")
        if len(found) < len(searches):
            return len(searches) - len(found) + len(grid.models(size)) * len(settings.seeds)
        finals = grid.finals(size, grid.choices(size, found), grid.scales(size, found), settings.seeds)
        left = len(finals) - len(cells.run(finals, jobs=settings.jobs, until=until, name="tp9"))
    if not left:
        shutil.rmtree(scratch_of(settings), ignore_errors=True)
    return left


def _prepare(searches: Mapping[str, Cell], cells: Cells, settings: "Settings") -> None:
    """Tokenises once for all; nothing to do if the settings are chosen and every final cell is there."""
    size = size_of(settings)
    found = cells.done(searches)
    if len(found) == len(searches):
        finals = grid.finals(size, grid.choices(size, found), grid.scales(size, found), settings.seeds)
        if len(cells.done(finals)) == len(finals):
            return
    from reproductions.tp9.cell import prepare_texts

    for embeddings in size.embeddings:
        print(f"tp9: reading and tokenising, vectors {embeddings} …", file=sys.stderr, flush=True)
        first = next(cell for key, cell in searches.items() if f"-{embeddings}-" in key)
        prepare_texts(first.arguments, settings.data, scratch_of(settings))


def outcome_of(settings: "Settings") -> Outcome:
    """Everything, trained now where it is not there yet; a UserError if a cell failed."""
    size = size_of(settings)
    left = train_cells(settings)
    searches = grid.searches(size, settings.seeds[0])
    cells = cells_of(settings)
    found = cells.done(searches)
    if left and len(found) < len(searches):
        raise UserError(_failed(cells, searches))
    chosen, scales = grid.choices(size, found), grid.scales(size, found)
    finals = grid.finals(size, chosen, scales, settings.seeds)
    if left:
        raise UserError(_failed(cells, finals))
    words = _words(size)
    tfidf = cells.run(words, name="tp9, TF-IDF")
    if not tfidf:
        raise UserError(_failed(cells, words))
    return Outcome(size, settings.seeds, found, chosen, scales, cells.done(finals), tfidf["tfidf"])


def outcome_so_far(settings: "Settings") -> Outcome:
    """What is there; nothing is run. A UserError if it is too little for a page."""
    size, cells = size_of(settings), cells_of(settings)
    searches = grid.searches(size, settings.seeds[0])
    found = cells.done(searches)
    if len(found) < len(searches):
        raise UserError(
            f"{cells.folder} holds {len(found)} of the {len(searches)} runs that choose the settings: too few for a "
            "page. Run it without --partial."
        )
    chosen, scales = grid.choices(size, found), grid.scales(size, found)
    finals = cells.done(grid.finals(size, chosen, scales, settings.seeds))
    words = cells.done(_words(size)).get("tfidf")
    outcome = Outcome(size, settings.seeds, found, chosen, scales, finals, words)
    if not any(outcome.complete(model) for model in grid.models(size)):
        raise UserError(f"{cells.folder} holds no model that was run for every seed. Run it without --partial.")
    return outcome


def _words(size: grid.Size) -> dict[str, Cell]:
    arguments = {"limit": size.limit, "test_limit": size.test_limit}
    return {"tfidf": Cell("reproductions.tp9.cell:tfidf", arguments)}


def _failed(cells: Cells, wanted: Mapping[str, Cell]) -> str:
    failures = cells.failures(wanted)
    key, error = next(iter(failures.items()), ("a cell", "it was not run"))
    return f"tp9 is not complete: {key} failed ({error}); {len(failures)} failed in all. Run it again to go on."


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, answers."""
    if settings.only is not None:
        raise UserError("tp9 has no parts; to train without making the page: python -m reproductions.frame.cells tp9.")
    from reproductions.tp9.page import page_of

    return page_of(settings, outcome_so_far(settings) if settings.partial else outcome_of(settings))
