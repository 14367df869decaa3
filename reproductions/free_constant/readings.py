"""Numbers of every encoder, and of the classifiers by seed."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float
from scipy.stats import spearmanr

from lorgnette.looking.controls import RANDOM, TRAINED
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.seeds import learnt
from reproductions.frame.statistics import mean_of
from reproductions.free_constant.grid import CORPUS, ENCODERS, PLAIN

MODELS = "models"
Layers = Float[np.ndarray, " layer"]


class Readings:
    """SIM of the encoders; each model counts once."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.models = [name for name in ENCODERS if cells.of(model=name, condition=TRAINED)]

    @property
    def has_controls(self) -> bool:
        return all(self.cells.of(model=name, condition=RANDOM) for name in self.models)

    def sim(self, model: str, vector: str, kind: str, condition: str = TRAINED) -> Layers:
        """By layer, mean over blocks."""
        cell = self.cells.one(model=model, condition=condition)
        return np.asarray(cell["sim"].sel(vector=vector, kind=kind).mean("block"))

    def by_block(self, model: str, vector: str, kind: str) -> Float[np.ndarray, " block"]:
        """Mean over layers."""
        cell = self.cells.one(model=model, condition=TRAINED)
        return np.asarray(cell["sim"].sel(vector=vector, kind=kind).mean("layer"))

    def share(self, model: str, vector: str) -> Layers:
        """How much of the mean squared length is the constant's."""
        return np.asarray(self.cells.one(model=model, condition=TRAINED)["share"].sel(vector=vector))

    def level(self, vector: str, kind: str, condition: str = TRAINED) -> float:
        return float(np.mean([self.sim(model, vector, kind, condition).mean() for model in self.models]))

    def rise(self, model: str, vector: str, kind: str) -> float:
        layers = self.sim(model, vector, kind)
        return float(layers[-1] - layers[0])

    def mean_rise(self, vector: str, kind: str) -> float:
        return float(np.mean([self.rise(model, vector, kind) for model in self.models]))

    def order(self, model: str, vector: str) -> float:
        """ρ over layers of SIM as it is and centred."""
        return float(spearmanr(self.sim(model, vector, "raw"), self.sim(model, vector, "centred")).statistic)

    def learnt(self, model: str, vector: str) -> float:
        """Centred SIM less that with random weights, mean over layers."""
        return float((self.sim(model, vector, "centred") - self.sim(model, vector, "centred", RANDOM)).mean())

    def over_models(self, read: Callable[[str], float], ends: tuple[float, float] | None = None) -> Estimate:
        return mean_of([read(model) for model in self.models], MODELS, ends)


Run = dict[str, Any]


class Trainings:
    """The classifiers, paired by seed: runs of one seed start from the same weights."""

    VALUES: ClassVar[Sequence[str]] = ("value", "value_centred")

    def __init__(self, cells: Finished) -> None:
        self.cells = cells

    def seeds(self, arm: str) -> dict[int, Run]:
        return {int(str(cell.labels["seed"])): cell.result for cell in self.cells.of(part="classifiers", arm=arm)}

    def values(
        self, read: Callable[[Run], float], arms: Sequence[str]
    ) -> tuple[Float[np.ndarray, " seed"], Bool[np.ndarray, " seed"]]:
        """A number of every run of one arm, and whether it is above chance."""
        (arm,) = arms
        runs = list(self.seeds(arm).values())
        return np.array([read(run) for run in runs]), learnt([run["accuracy"]["test"] for run in runs], CORPUS)

    def effect(
        self, arm: str, read: Callable[[Run], float]
    ) -> tuple[Float[np.ndarray, " seed"], Bool[np.ndarray, " seed"]]:
        """An arm less plain, for every seed that has both, and whether both are above chance."""
        one, other = self.seeds(arm), self.seeds(PLAIN)
        shared = [seed for seed in one if seed in other]
        above = learnt([[side[seed]["accuracy"]["test"] for side in (one, other)] for seed in shared], CORPUS)
        return np.array([read(one[seed]) - read(other[seed]) for seed in shared]), above.reshape(-1, 2).all(1)

    def mean(self, arm: str, name: str) -> Layers:
        """By layer, over seeds."""
        return np.mean([run[name] for run in self.seeds(arm).values()], axis=0)

    def accuracy(self, arm: str, part: str = "test") -> Float[np.ndarray, " seed"]:
        return np.array([run["accuracy"][part] for run in self.seeds(arm).values()])

    def at_chance(self, arm: str) -> int:
        return int((~learnt(self.accuracy(arm), CORPUS)).sum())
