"""Published findings, measured again: one module each, and what came out beside what was printed.

record     → `Settings` of a run; `Claim`, `Table`, `Figure`, `Reproduction`: what it leaves in a folder
published/ → the papers' numbers, as JSON, each with where it was read
"""

from importlib import import_module
from typing import TYPE_CHECKING

from lorgnette.errors import UserError, near

if TYPE_CHECKING:
    from collections.abc import Callable

    from reproductions.frame.record import Reproduction, Settings

REPRODUCTIONS = {
    "kobayashi2020": (
        "reproductions.kobayashi2020",
        "attention is not only a weight: norms of transformed vectors, residual and LayerNorm",
    ),
    "clark2019": (
        "reproductions.clark2019",
        "what heads look at: separators, neighbours, entropy, families; relations and trees",
    ),
    "raganato2018": (
        "reproductions.raganato2018",
        "encoders of translation models: trees, patterns, what each layer knows",
    ),
    "tp9": ("reproductions.tp9", "self-attention on IMDB: residuals, positions, <cls>, depth (AMAL TP 9)"),
    "nguyen2022": ("reproductions.nguyen2022", "an entropy penalty on attention, and how plausible it becomes"),
    "fosse2023": ("reproductions.fosse2023", "geometry of self-attention: anisotropy, cones, and the weights"),
    "voita2019": (
        "reproductions.voita2019",
        "heads of a translation model: what they do, and how few are needed",
    ),
}
"""name → (module, one line); the module's `reproduce(settings)` does it."""

DEFAULT_SEEDS: dict[str, tuple[int, ...]] = {
    "tp9": (0, 1, 2),
    "nguyen2022": (0, 1, 2),
    "fosse2023": (0, 1, 2, 3, 4),
    "voita2019": (0, 1, 2),
}
"""Seeds of a reproduction that has more than the one of all others, 0."""

PARTIAL = frozenset({"tp9", "fosse2023", "voita2019", "clark2019", "raganato2018"})
"""Those whose page can be made before all of it was run."""


def find(name: str) -> "Callable[[Settings], Reproduction]":
    """The function that does a reproduction."""
    if name not in REPRODUCTIONS:
        raise UserError(
            f"There is no reproduction {name!r}.{near(name, REPRODUCTIONS)} There are: {', '.join(REPRODUCTIONS)}."
        )
    module, _ = REPRODUCTIONS[name]
    return import_module(module).reproduce
