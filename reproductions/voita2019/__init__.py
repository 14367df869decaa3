"""Voita et al. 2019: what the heads of a translation model do (part `heads`), and how few are needed (`pruning`)."""

from typing import TYPE_CHECKING

from reproductions.frame.parts import Whole

if TYPE_CHECKING:
    from reproductions.frame.record import Reproduction, Settings

PARTS = ("heads", "pruning")
WHOLE = Whole(
    name="voita2019",
    parts=PARTS,
    title="Voita et al. 2019: specialised heads do the heavy lifting, the rest can be pruned",
    question="Which heads of a translation model do the work, what do they do, and how few are needed?",
)


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells of all parts, as far as the time goes; how many are left."""
    return WHOLE.train_cells(settings, until)


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, claims."""
    return WHOLE.reproduce(settings)
