"""How a study is run."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lorgnette.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Settings:
    """`quick` is minutes on two cores and shows nothing but that it works; `partial` measures nothing: the page is made
    from the cells that are there and says what is not; `only` measures one part of the grid; after `until` (of
    `time.monotonic`) no new cell is started."""

    quick: bool = False
    published: bool = False
    """The paper's own setting, for those who have its data."""
    partial: bool = False
    out: Path
    data: str | None = None
    models: str | None = None
    seeds: tuple[int, ...] = (0,)
    only: str | None = None
    device: str | None = None
    jobs: int = 1
    until: float | None = None

    def command(self, name: str) -> str:
        """The command that repeats it; where data and models lie is the reader's own affair, and so is the speed."""
        words = ["lorgnette", "reproduce", name, *(["--quick"] if self.quick else [])]
        words += ["--published"] if self.published else []
        words += ["--seeds", ",".join(map(str, self.seeds)), *(["--only", self.only] if self.only else [])]
        return shlex.join(words)

    @property
    def scratch(self) -> Path:
        """Where a study may keep token ids until all its cells are done: beside the outcome."""
        return self.out.with_name(f".{self.out.name}.unfinished")


@dataclass(frozen=True)
class Machine:
    """Where things lie on the machine that measures; told to every cell, and no part of what the cell is."""

    data: str | None = None
    models: str | None = None
    scratch: Path = Path()
    device: str | None = None

    def require(self, models: Iterable[str]) -> None:
        """UserError where one of these models is not on this machine: before the work, not after it."""
        from lorgnette.models.opening import find

        for model in dict.fromkeys(models):
            if not (self.models and Path(self.models, model).is_dir()) and find(model) is None:
                raise UserError(
                    f"The model {model} is not here. Give --models, the folder that holds it, or run another part with "
                    "--only."
                )
