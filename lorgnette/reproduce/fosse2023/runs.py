"""The parts of Fosse et al. 2023 run cell by cell, and put together on one page."""

import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError
from lorgnette.reproduce.cells import Cell, Cells, cells_of, scratch_of
from lorgnette.reproduce.fosse2023 import PARTS, Part

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Reproduction, Settings

NAME = "fosse2023"
_HOME = "lorgnette.reproduce.fosse2023"


def modules(settings: "Settings") -> dict[str, ModuleType]:
    """The modules of the parts to run: all, or the one that `only` names."""
    return {name: import_module(f"{_HOME}.{name}") for name in settings.part(PARTS)}


def wanted_cells(settings: "Settings") -> dict[str, dict[str, Cell]]:
    """The cells of each part, by key."""
    return {name: module.cells(settings.quick, settings.seeds) for name, module in modules(settings).items()}


def opened(settings: "Settings") -> Cells:
    return cells_of(settings, models=settings.models)


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells of all parts, as far as the time goes; how many are left."""
    wanted = wanted_cells(settings)
    every = in_order(settings, wanted)
    cells = opened(settings)
    done = cells.done(every)
    if len(done) < len(every):
        for name, module in modules(settings).items():
            waiting = {key: cell for key, cell in wanted[name].items() if key not in done}
            if waiting and hasattr(module, "prepare"):
                print(f"{NAME}: preparing {name} …", file=sys.stderr, flush=True)
                module.prepare(settings, waiting)
        done = cells.run(every, jobs=settings.jobs, until=until, name=NAME)
    left = len(every) - len(done)
    if not left:
        shutil.rmtree(scratch_of(settings), ignore_errors=True)
    return left


def in_order(settings: "Settings", wanted: Mapping[str, Mapping[str, Cell]]) -> dict[str, Cell]:
    """All cells, part by part; those that a part can do without (its `later` says so) come after all parts."""
    first: dict[str, Cell] = {}
    last: dict[str, Cell] = {}
    for name, module in modules(settings).items():
        later = getattr(module, "later", lambda key: False)
        for key, cell in wanted[name].items():
            (last if later(key) else first)[key] = cell
    return first | last


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it; with `partial`, what the finished cells give."""
    wanted = wanted_cells(settings)
    if not settings.partial and train_cells(settings):
        raise UserError(_failed(settings, wanted))
    cells = opened(settings)
    parts = {}
    for name, module in modules(settings).items():
        done = cells.done(wanted[name])
        if done:
            parts[name] = module.part(settings, done)
    if not parts:
        raise UserError(f"{cells.folder} holds no finished cell. Run it without --partial.")
    from lorgnette.reproduce.fosse2023.page import page_of

    return page_of(settings, parts, _missing(wanted, cells))


def _missing(wanted: Mapping[str, Mapping[str, Cell]], cells: Cells) -> dict[str, tuple[int, int]]:
    """Part → (cells not run, cells in all), of those that are not complete."""
    counts = {name: (len(part) - len(cells.done(part)), len(part)) for name, part in wanted.items()}
    return {name: count for name, count in counts.items() if count[0]}


def _failed(settings: "Settings", wanted: Mapping[str, Mapping[str, Cell]]) -> str:
    failures: dict[str, Any] = {}
    for part in wanted.values():
        failures |= opened(settings).failures(part)
    key, error = next(iter(failures.items()), ("a cell", "it was not run"))
    return f"{NAME} is not complete: {key} failed ({error}); {len(failures)} failed in all. Run it again to go on."


__all__ = ["NAME", "Part", "reproduce", "train_cells"]
