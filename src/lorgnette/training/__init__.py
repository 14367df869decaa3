"""Train classifiers, and fine-tune encoders, as ordinary Hugging Face checkpoints."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lorgnette.training.demo import DEMO, quick
    from lorgnette.training.gates.gates import HeadGates
    from lorgnette.training.penalties import EntropyPenalty, HeuristicPenalty, Penalty, RationalePenalty
    from lorgnette.training.preparation import Prepared, prepare
    from lorgnette.training.pruning.prune import Pruned, prune
    from lorgnette.training.pruning.removal import prune_by_gates, remove_heads
    from lorgnette.training.pruning.settings import PruningSettings
    from lorgnette.training.run import Trained, train, train_seeds
    from lorgnette.training.settings import Splits, TrainingSettings

__all__ = [
    "DEMO",
    "EntropyPenalty",
    "HeadGates",
    "HeuristicPenalty",
    "Penalty",
    "Prepared",
    "Pruned",
    "PruningSettings",
    "RationalePenalty",
    "Splits",
    "Trained",
    "TrainingSettings",
    "prepare",
    "prune",
    "prune_by_gates",
    "quick",
    "remove_heads",
    "train",
    "train_seeds",
]
_HOME = {
    "demo": ("DEMO", "quick"),
    "gates.gates": ("HeadGates",),
    "penalties": ("EntropyPenalty", "HeuristicPenalty", "Penalty", "RationalePenalty"),
    "preparation": ("Prepared", "prepare"),
    "pruning.prune": ("Pruned", "prune"),
    "pruning.removal": ("prune_by_gates", "remove_heads"),
    "pruning.settings": ("PruningSettings",),
    "run": ("Trained", "train", "train_seeds"),
    "settings": ("Splits", "TrainingSettings"),
}
"""Loaded when first used: the command line reads the settings, for its help, without torch."""


def __getattr__(name: str) -> object:
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"lorgnette.training.{module}"), name)
    raise AttributeError(f"module 'lorgnette.training' has no attribute {name!r}")
