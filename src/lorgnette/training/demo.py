"""A classifier that learns the planted reviews in seconds, negation included."""

from pathlib import Path
from typing import Any

import torch

from lorgnette.training.run import Trained, train
from lorgnette.training.settings import TrainingSettings
from lorgnette.types import Json

DEMO: Json = {
    "model": "tp9-residual",
    "corpus": "planted",
    "embeddings": "random",
    # Relative positions, because what counts is that "not" stands just before its adjective, wherever that is; two
    # layers, because the first must bring the two together before the second reads the result.
    "overrides": {"layers": 2, "heads": 4, "width": 64, "positions": "relative", "max_offset": 4},
    "epochs": 12,
    "patience": 4,
    "learning_rate": 3e-3,
}
"""Fields of `TrainingSettings`: ≥ 95 % on held-out planted text and ≥ 90 % on the minimal pairs, seed after seed."""


def quick(out: str | Path, **changes: Any) -> Trained:
    """Trains the demo's classifier into `out`; `changes` replace fields of its settings.

    `overrides={"positions": "none"}` is the control: without positions the same bag of words gives the same answer, so
    exactly half of the minimal pairs are right.
    """
    overrides = {**DEMO["overrides"], **changes.pop("overrides", {})}
    settings = TrainingSettings(**{**DEMO, **changes, "overrides": overrides, "out": out})
    # Ten seconds on one thread. Two take seven on idle cores, but minutes if something else runs on one of them: in a
    # model this small, threads mostly wait for one another, and they wait spinning.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return train(settings)
    finally:
        torch.set_num_threads(threads)
