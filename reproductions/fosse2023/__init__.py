"""Fosse, Nguyen, Sébillot and Gravier 2023: the geometry of self-attention in classification."""

from typing import TYPE_CHECKING

from reproductions.frame.parts import Whole

if TYPE_CHECKING:
    from reproductions.frame.record import Reproduction, Settings

PARTS = ("attention", "pretrained", "classes", "tagging")
WHOLE = Whole(
    name="fosse2023",
    parts=PARTS,
    title="Fosse et al. 2023: when geometry replaces attention",
    question=(
        "Are the vectors of self-attention anisotropic, how does that come about, and does it say more of the class "
        "than the weights of attention do?"
    ),
)


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells of all parts, as far as the time goes; how many are left."""
    return WHOLE.train_cells(settings, until)


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, claims."""
    return WHOLE.reproduce(settings)
