"""The state that the steps of one pruning share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lorgnette.attending import Site
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.score import Score
from lorgnette.training.pruning.settings import PruningSettings


@dataclass
class Work:
    """The settings, prepared texts and removable heads of one pruning; `root` keeps what an interrupted run leaves."""

    settings: PruningSettings
    ready: Prepared
    root: Path
    heads: Mapping[Site, Sequence[int]]
    """The heads that may be removed."""
    tuned: dict[int, Score] = field(default_factory=dict)
    """Scores of the whole model, by the number of epochs of its fine-tuning."""
    notes: list[str] = field(default_factory=list)

    @property
    def epochs(self) -> int:
        """How long the pruned model is trained at most, while gates close and afterwards."""
        settings = self.settings
        if settings.train == "none":
            return 0
        return (settings.training.epochs or 0 if settings.method == "gates" else 0) + settings.settling
