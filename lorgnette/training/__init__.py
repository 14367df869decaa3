"""Train classifiers, and fine-tune encoders, as ordinary Hugging Face checkpoints."""

from lorgnette.training.demo import DEMO, quick
from lorgnette.training.penalties import EntropyPenalty, HeuristicPenalty, Penalty, RationalePenalty
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.run import Trained, train, train_seeds
from lorgnette.training.settings import Splits, TrainingSettings

__all__ = [
    "DEMO",
    "EntropyPenalty",
    "HeuristicPenalty",
    "Penalty",
    "Prepared",
    "RationalePenalty",
    "Splits",
    "Trained",
    "TrainingSettings",
    "prepare",
    "quick",
    "train",
    "train_seeds",
]
