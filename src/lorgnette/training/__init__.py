"""Train classifiers, and fine-tune encoders, as ordinary Hugging Face checkpoints."""

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
