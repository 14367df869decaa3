"""Voita et al. 2019: what the heads of a translation model do (part `heads`), and how few are needed (`pruning`).

A part is a module of this package with `cells(quick, seeds)`, optionally `prepare(settings, waiting)`, and
`part(settings, done) -> Part`, as in `lorgnette.reproduce.fosse2023`. Its own imports are light: what trains is
imported by the functions that the cells name, what draws by `part`.
"""

from typing import TYPE_CHECKING

from lorgnette.reproduce.fosse2023 import Part

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Reproduction, Settings

PARTS = ("heads", "pruning")
"""Modules of this package, in the order of the page and of the runs."""


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells of all parts, as far as the time goes; how many are left."""
    from lorgnette.reproduce.voita2019.runs import train_cells as train

    return train(settings, until=until)


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, claims."""
    from lorgnette.reproduce.voita2019.runs import reproduce as whole

    return whole(settings)


__all__ = ["PARTS", "Part", "reproduce", "train_cells"]
