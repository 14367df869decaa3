"""The grid of Nguyen et al. 2022, run cell by cell."""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError
from reproductions.frame.cells import cells_of, scratch_of
from reproductions.nguyen2022 import grid

if TYPE_CHECKING:
    from reproductions.frame.record import Reproduction, Settings


@dataclass(frozen=True)
class Outcome:
    """All that the cells gave."""

    size: grid.Size
    seeds: tuple[int, ...]
    results: Mapping[str, Any]

    def of(self, corpus: str, vectors: str, strength: float) -> list[Any]:
        """The results at one point, one for each seed."""
        return [self.results[grid.Run(corpus, vectors, strength, seed).key] for seed in self.seeds]


def size_of(settings: "Settings") -> grid.Size:
    return grid.QUICK if settings.quick else grid.FULL


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells, as far as the time goes; how many are left."""
    size = size_of(settings)
    wanted = grid.cells(size, settings.seeds)
    cells = cells_of(settings)
    done = cells.done(wanted)
    if len(done) < len(wanted):
        from reproductions.nguyen2022.cell import prepare_texts

        for corpus in size.corpora:
            print(f"nguyen2022: reading and tokenising {corpus} …", file=sys.stderr, flush=True)
            first = next(cell for cell in wanted.values() if cell.arguments["corpus"] == corpus)
            prepare_texts(first.arguments, settings.data, scratch_of(settings))
        done = cells.run(wanted, jobs=settings.jobs, until=until, name="nguyen2022")
    left = len(wanted) - len(done)
    if not left:
        shutil.rmtree(scratch_of(settings), ignore_errors=True)
    return left


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, claims."""
    if settings.only is not None:
        raise UserError(
            "nguyen2022 has no parts; to train without making the page: python -m reproductions.frame.cells nguyen2022."
        )
    size = size_of(settings)
    wanted = grid.cells(size, settings.seeds)
    if train_cells(settings):
        failures = cells_of(settings).failures(wanted)
        key, error = next(iter(failures.items()), ("a cell", "it was not run"))
        raise UserError(f"nguyen2022 is not complete: {key} failed ({error}); {len(failures)} failed. Run it again.")
    from reproductions.nguyen2022.page import page_of

    return page_of(settings, Outcome(size, settings.seeds, cells_of(settings).done(wanted)))
