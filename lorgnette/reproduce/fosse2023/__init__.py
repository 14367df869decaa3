"""Fosse, Nguyen, Sébillot and Gravier 2023: the geometry of self-attention in classification.

The page is made of parts, each a module of this package that says what is trained and what came of it:

    cells(quick, seeds) -> dict[str, Cell]      its runs, the important ones first; keys begin with the part's name
    prepare(settings, waiting) -> None          optional: once, before its unfinished cells run (tokenise into scratch)
    later(key) -> bool                          optional: cells that run after those of all parts
    part(settings, done) -> Part                from the finished cells, by key; with --partial some may be missing,
                                                and a table or claim that needs them is left out

A module's own imports are light (a GPU machine may have neither pandas nor altair): what trains is imported by the
functions that the cells name, what draws by `part`. Every cell is called with its own arguments and with `data`,
`models` (folders, or None) and `scratch` (a folder below which `prepare` may write).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorgnette.reproduce.record import Claim, Figure, Reproduction, Settings, Table

PARTS = ("attention", "pretrained", "classes", "tagging")
"""Modules of this package, in the order of the page and of the runs."""


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


def train_cells(settings: "Settings", *, until: float | None = None) -> int:
    """Runs the cells of all parts, as far as the time goes; how many are left."""
    from lorgnette.reproduce.fosse2023.runs import train_cells as train

    return train(settings, until=until)


def reproduce(settings: "Settings") -> "Reproduction":
    """The whole of it: cells, tables, figures, claims."""
    from lorgnette.reproduce.fosse2023.runs import reproduce as whole

    return whole(settings)


__all__ = ["PARTS", "Part", "reproduce", "train_cells"]
