"""What one pruning has at hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorgnette.attending import Site
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.score import Score
from lorgnette.training.pruning.settings import PruningSettings


@dataclass
class Work:
    """What one pruning has at hand: `root` keeps what an interrupted one leaves."""

    settings: PruningSettings
    ready: Prepared
    root: Path
    heads: Mapping[Site, Sequence[int]]
    """Those that could go."""
    tuned: dict[int, Score] = field(default_factory=dict)
    """Scores of the whole model by the epochs that it was trained for."""
    notes: list[str] = field(default_factory=list)
