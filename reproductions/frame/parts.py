"""A reproduction made of parts: each runs cell by cell, and all are put together on one page.

A part is a module of the reproduction's package that says what is run and what came of it:

    cells(quick, seeds) -> dict[str, Cell]      its runs, the important ones first; keys begin with the part's name
    prepare(settings, waiting) -> None          optional: once, before its unfinished cells run (tokenise into scratch)
    later(key) -> bool                          optional: cells that run after those of all parts
    part(settings, done) -> Part                from the finished cells, by key; with --partial some may be missing,
                                                and a table or claim that needs them is left out

A module's own imports are light (a GPU machine may have neither pandas nor altair): what trains is imported by the
functions that the cells name, what draws by `part`. Every cell is called with its own arguments and with `data`,
`models` (folders, or None) and `scratch` (a folder below which `prepare` may write).
"""

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError
from reproductions.frame.cells import Cell, Cells, cells_of, scratch_of

if TYPE_CHECKING:
    from reproductions.frame.record import Claim, Figure, Reproduction, Settings, Table


@dataclass(frozen=True, kw_only=True)
class Part:
    """What a part adds to the page; `title` begins its paragraphs, `summary` says what holds and what does not."""

    title: str
    setup: Sequence[str] = ()
    summary: Sequence[str] = ()
    claims: "Sequence[Claim]" = ()
    tables: "Sequence[Table]" = ()
    figures: "Sequence[Figure]" = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Whole:
    """A reproduction in parts: `parts` are modules of its package, in the order of the page and of the runs."""

    name: str
    parts: Sequence[str]
    title: str
    question: str

    def modules(self, settings: "Settings") -> dict[str, ModuleType]:
        """The modules of the parts to run: all, or the one that `only` names."""
        return {name: import_module(f"reproductions.{self.name}.{name}") for name in settings.part(self.parts)}

    def cells(self, settings: "Settings") -> dict[str, dict[str, Cell]]:
        """The cells of each part, by key."""
        return {name: module.cells(settings.quick, settings.seeds) for name, module in self.modules(settings).items()}

    def train_cells(self, settings: "Settings", until: float | None = None) -> int:
        """Runs the cells of all parts, as far as the time goes; how many are left."""
        wanted = self.cells(settings)
        every = self.in_order(settings, wanted)
        cells = cells_of(settings, models=settings.models)
        done = cells.done(every)
        if len(done) < len(every):
            for name, module in self.modules(settings).items():
                waiting = {key: cell for key, cell in wanted[name].items() if key not in done}
                if waiting and hasattr(module, "prepare"):
                    print(f"{self.name}: preparing {name} …", file=sys.stderr, flush=True)
                    module.prepare(settings, waiting)
            done = cells.run(every, jobs=settings.jobs, until=until, name=self.name)
        left = len(every) - len(done)
        if not left:
            shutil.rmtree(scratch_of(settings), ignore_errors=True)
        return left

    def in_order(self, settings: "Settings", wanted: Mapping[str, Mapping[str, Cell]]) -> dict[str, Cell]:
        """All cells, part by part; those that a part can do without (its `later` says so) come after all parts."""
        first: dict[str, Cell] = {}
        last: dict[str, Cell] = {}
        for name, module in self.modules(settings).items():
            later = getattr(module, "later", lambda key: False)
            for key, cell in wanted[name].items():
                (last if later(key) else first)[key] = cell
        return first | last

    def reproduce(self, settings: "Settings") -> "Reproduction":
        """The whole of it; with `partial`, what the finished cells give."""
        wanted = self.cells(settings)
        cells = cells_of(settings, models=settings.models)
        if not settings.partial and self.train_cells(settings):
            raise UserError(self._failed(cells, wanted))
        done = {name: cells.done(part) for name, part in wanted.items()}
        parts = {n: module.part(settings, done[n]) for n, module in self.modules(settings).items() if done[n]}
        if not parts:
            raise UserError(f"{cells.folder} holds no finished cell. Run it without --partial.")
        missing = {name: (len(part) - len(done[name]), len(part)) for name, part in wanted.items()}
        return self.page(settings, parts, {name: count for name, count in missing.items() if count[0]})

    def page(
        self, settings: "Settings", parts: Mapping[str, Part], missing: Mapping[str, tuple[int, int]]
    ) -> "Reproduction":
        """All parts one after the other; what was not run (part → cells missing, cells in all) is said first."""
        from reproductions.frame.record import Reproduction, origin, published

        some = list(parts.values())
        gaps = ", ".join(f"{left} of the {count} runs of *{name}*" for name, (left, count) in missing.items())
        said = [f"**Not all of it was run**: {gaps} are missing; tables and claims are without them."] if gaps else []
        return Reproduction(
            name=self.name,
            title=self.title,
            reference=published(self.name)["reference"],
            question=self.question,
            setup=[paragraph for part in some for paragraph in part.setup],
            summary=[*said, *(paragraph for part in some for paragraph in part.summary)],
            claims=[claim for part in some for claim in part.claims],
            tables=[table for part in some for table in part.tables],
            figures=[figure for part in some for figure in part.figures],
            provenance=origin(settings, self.name, **{name: dict(part.provenance) for name, part in parts.items()}),
        )

    def _failed(self, cells: Cells, wanted: Mapping[str, Mapping[str, Cell]]) -> str:
        failures: dict[str, str] = {}
        for part in wanted.values():
            failures |= cells.failures(part)
        key, error = next(iter(failures.items()), ("a cell", "it was not run"))
        return (
            f"{self.name} is not complete: {key} failed ({error}); {len(failures)} failed in all. "
            "Run it again to go on."
        )
