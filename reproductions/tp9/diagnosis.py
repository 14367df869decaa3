"""Where a richer model of TP 9 is worse than the simpler one that it extends, and what its curves say about why."""

from dataclasses import dataclass
from statistics import mean

from reproductions.frame.claims import FAILS, Bound
from reproductions.tp9.grid import BLOCKS, Model, plain
from reproductions.tp9.runs import Runs

CLEAR = 0.005  # half a point: what a reader would call a difference
_BY_HEART = 0.02  # of training accuracy, won after the kept epoch, while validation won nothing
_SAME = 0.002  # of validation accuracy: five reviews of 2,500

READINGS = {
    "over-fitted": "training accuracy rises by more than two points after the kept epoch while validation accuracy "
    "falls, or is higher than the simpler model's with the same dropout; other learning rates and dropouts, as far as "
    "tried, did no better on validation",
    "harder to train": "fits the training reviews worse too, with the same dropout: no over-fitting",
    "test only": "as good on the validation reviews, to 0.2 points: the loss is on the test reviews alone",
    "open": "the curves do not say",
}


@dataclass(frozen=True)
class Loss:
    """A model that is clearly worse than the simpler one."""

    model: Model
    simpler: Model
    test: float
    reading: str


def losses(runs: Runs) -> list[Loss]:
    """At least half a point, with an interval over seeds that leaves no doubt of the sign."""
    every = []
    for model in runs.main_models():
        simpler = _simpler(model)
        if simpler is None or not runs.enough(model, simpler):
            continue
        step = runs.gap(model, simpler)
        assert isinstance(step.value, float)
        if Bound.above(0.0).verdict(step) == FAILS and step.value <= -CLEAR:
            every.append(Loss(model, simpler, step.value, _reading(runs, model, simpler)))
    return every


def _reading(runs: Runs, model: Model, simpler: Model) -> str:
    later = {part: runs.last(model, part) - runs.kept(model, part) for part in ("train", "validation")}
    if later["train"] > _BY_HEART and later["validation"] < 0:
        return "over-fitted"
    dropout = [runs.chosen[one.family, one.embeddings].dropout for one in (model, simpler)]
    # With another dropout the two training accuracies are not measured alike.
    if dropout[0] == dropout[1]:
        learnt = runs.kept(model, "train") - runs.kept(simpler, "train")
        if abs(learnt) > CLEAR:
            return "over-fitted" if learnt > 0 else "harder to train"
    step = mean(runs.accuracies(model, "validation")) - mean(runs.accuracies(simpler, "validation"))
    return "test only" if step > -_SAME else "open"


def _simpler(model: Model) -> Model | None:
    """The model that this one adds one thing to."""
    if model.family not in BLOCKS:
        return None if model.family == "mean" else plain("mean", model.embeddings)
    if model.pooling == "cls":
        return Model(model.family, model.embeddings, model.positions, "mean", 3)
    if model.positions != "none":
        return plain(model.family, model.embeddings)
    return plain("base" if model.family == "residual" else "mean", model.embeddings)
