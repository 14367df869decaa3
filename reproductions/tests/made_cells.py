"""Finished cells with made-up results, in place of hours of training."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reproductions.frame.finished import Finished
from reproductions.frame.settings import Settings
from reproductions.frame.study import Study


def finished(study: Study, result: Callable[[dict[str, Any]], Any], **settings: Any) -> Finished:
    """Every cell of the grid with the result that `result(labels)` gives; None is a cell that is missing."""
    told = Settings(**{"out": Path(), "seeds": study.seeds, **settings})
    done: dict[str, Any] = {}
    tried: dict[str, Any] = {}
    while True:
        grid = study.grid(told, done)
        tried |= {key: result(dict(cell.labels)) for key, cell in grid.items() if key not in tried}
        before, done = done, {key: tried[key] for key in grid if tried[key] is not None}
        if len(done) == len(before):
            return Finished(told, grid, done, {key: {} for key in done})


def with_results(study: Study, results: Mapping[str, Any], **settings: Any) -> Finished:
    """The grid with these results, by key; all other cells are missing."""
    told = Settings(**{"out": Path(), "seeds": study.seeds, **settings})
    grid = study.grid(told, {})
    unknown = set(results) - set(grid)
    assert not unknown, f"the grid has no cell {unknown}"
    return Finished(told, grid, results, {key: {} for key in results})
