"""A study: a grid of cells, claims, tables and figures read off the finished ones, and a page."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError, near
from reproductions.frame.cells import Cell, Cells
from reproductions.frame.settings import Machine, Settings

if TYPE_CHECKING:
    from reproductions.frame.finished import Finished
    from reproductions.frame.page import Outcome

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, kw_only=True)
class Study:
    """What a paper asked, and what is needed to ask it again; the docstring of `reproductions.frame` says how to write
    one. `only` is the label of the cells by which `--only` chooses; `headline` are ids of claims."""

    name: str
    title: str
    question: str
    headline: Sequence[str]
    seeds: tuple[int, ...] = (0,)
    only: str = ""
    published_setting: str = ""
    """What `--published` runs, and the files that it needs; nothing if it runs nothing."""

    @property
    def home(self) -> Path:
        """The folder of its code, its cells and its page."""
        return ROOT / self.name

    def module(self, name: str) -> ModuleType:
        """A module of its package; imported late, since what trains needs nothing that draws."""
        return import_module(f"reproductions.{self.name}.{name}")

    def grid(self, settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
        """The cells that are known when those in `done` are finished; with `--only`, also those of other parts."""
        return dict(self.module("grid").grid(settings, done))

    def cells(self, settings: Settings) -> Cells:
        machine = Machine(settings.data, settings.models, settings.scratch, settings.device)
        return Cells(settings.out / "cells", local={"machine": machine}, device=settings.device)

    def measure(self, settings: Settings) -> int:
        """Runs what is not finished, round after round, until the grid names nothing new; how many are left."""
        wanted = self._chosen(settings, self.grid(settings, {}))
        with self.cells(settings) as folder:
            while True:
                done = folder.done(wanted)
                self._prepare(settings, {key: cell for key, cell in wanted.items() if key not in done})
                done = folder.run(wanted, jobs=settings.jobs, until=settings.until, name=self.name)
                grown = self._chosen(settings, self.grid(settings, done))
                if len(done) < len(wanted) or list(grown) == list(wanted):
                    break
                wanted = grown
        if len(done) == len(wanted):
            shutil.rmtree(settings.scratch, ignore_errors=True)
        return len(wanted) - len(done)

    def finished(self, settings: Settings) -> "Finished":
        """The finished cells, whoever ran them and wherever they are kept; nothing is run."""
        from reproductions.frame.finished import Finished

        folder = self.cells(settings)
        done: dict[str, Any] = {}
        while True:
            grid = self.grid(settings, done)
            before, done = done, folder.done(grid)
            if len(done) == len(before):
                break
        if not done:
            raise UserError(
                f"{folder.folder} and {folder.table} hold no finished cell of {self.name}. Run it without --partial."
            )
        grid = {key: cell for key, cell in grid.items() if key in done or not cell.optional}
        return Finished(settings, grid, done, folder.documents(grid))

    def reproduce(self, settings: Settings) -> "Outcome":
        """Measures what is not finished (unless `partial`), puts it into the table, and makes the page of it."""
        from reproductions.frame.page import Outcome

        if not settings.partial and (left := self.measure(settings)):
            self._complain(settings, left)
        cells = self.finished(settings)
        self.cells(settings).gather(cells.grid)
        return Outcome.of(self, cells)

    def _chosen(self, settings: Settings, grid: Mapping[str, Cell]) -> dict[str, Cell]:
        """The cells to run: those of the part that `--only` names; optional ones as far as they can be run here."""
        if settings.only is not None:
            parts = list(
                dict.fromkeys(str(cell.labels[self.only]) for cell in grid.values() if self.only in cell.labels)
            )
            if settings.only not in parts:
                there = f"There are: {', '.join(parts)}." if parts else f"{self.name} has no parts."
                raise UserError(f"There is no part {settings.only!r}.{near(settings.only, parts)} {there}")
            grid = {key: cell for key, cell in grid.items() if str(cell.labels.get(self.only)) == settings.only}
        done = self.cells(settings).done(grid)
        return {key: cell for key, cell in grid.items() if key in done or self._reachable(settings, cell)}

    def _reachable(self, settings: Settings, cell: Cell) -> bool:
        return not cell.optional or bool(self.module("grid").reachable(settings, cell))

    def _prepare(self, settings: Settings, waiting: Mapping[str, Cell]) -> None:
        prepare = getattr(self.module("grid"), "prepare", None)
        if waiting and prepare is not None:
            print(f"{self.name}: preparing …", file=sys.stderr, flush=True)
            prepare(Machine(settings.data, settings.models, settings.scratch, settings.device), waiting)

    def _complain(self, settings: Settings, left: int) -> None:
        folder = self.cells(settings)
        failures = folder.failures(self.grid(settings, folder.done(self.grid(settings, {}))))
        key, error = next(iter(failures.items()), ("a cell", "it was not run"))
        raise UserError(
            f"{self.name}: {left} cells are left; {key}: {error}. Run it again to go on, or with --partial."
        )
