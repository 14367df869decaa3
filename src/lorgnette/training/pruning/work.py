"""What one pruning has at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorgnette.attending import Site
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.settings import PruningSettings


@dataclass
class Work:
    """What one pruning has at hand: `root` keeps what an interrupted one leaves."""

    settings: PruningSettings
    ready: Prepared
    root: Path
    heads: Mapping[Site, Sequence[int]]
    """Those that could go."""
    notes: list[str] = field(default_factory=list)
