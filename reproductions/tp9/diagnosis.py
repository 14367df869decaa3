"""Where a richer model of TP 9 is worse than the simpler one that it extends, and what its curves say about why."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pandas as pd

from reproductions.frame.estimates import Estimate, difference, verdict_above
from reproductions.frame.record import Table
from reproductions.tp9.grid import BLOCKS, Model, plain
from reproductions.tp9.runs import Outcome
from reproductions.tp9.tables import (
    NAMES,
    accuracies,
    accuracy,
    at_best,
    main_models,
    position_name,
    train_accuracy,
)

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


def named(outcome: Outcome, model: Model) -> str:
    """A model in words."""
    short = NAMES[model.family].split(":")[0]
    if model.layers is None:
        return f"{short}, {model.embeddings} vectors"
    positions = "no" if model.positions == "none" else position_name(model, outcome)
    pooling = "`<cls>`" if model.pooling == "cls" else model.pooling
    return f"{short}, {positions} positions, {pooling}, {model.embeddings} vectors"


def gap(outcome: Outcome, first: Model, second: Model) -> Estimate:
    return difference(accuracies(outcome.of(first)), accuracies(outcome.of(second)))


@dataclass(frozen=True)
class Loss:
    """A model that is clearly worse than the simpler one."""

    model: Model
    simpler: Model
    test: float
    reading: str


def losses(outcome: Outcome) -> list[Loss]:
    """At least half a point, with an interval over seeds that leaves no doubt of the sign."""
    found = []
    for model in main_models(outcome):
        simpler = _simpler(model)
        if simpler is None or not outcome.enough(model, simpler):
            continue
        step = gap(outcome, model, simpler)
        if verdict_above(step) == "does not hold" and step.mean <= -CLEAR:
            found.append(Loss(model, simpler, step.mean, _reading(outcome, model, simpler)))
    return found


def _reading(outcome: Outcome, model: Model, simpler: Model) -> str:
    results = outcome.of(model)
    later = {part: last(results, part) - kept(results, part) for part in ("train", "validation")}
    if later["train"] > _BY_HEART and later["validation"] < 0:
        return "over-fitted"
    dropout = [outcome.chosen[one.family, one.embeddings].dropout for one in (model, simpler)]
    # With another dropout the two training accuracies are not measured alike.
    if dropout[0] == dropout[1]:
        learnt = train_accuracy(outcome, model) - train_accuracy(outcome, simpler)
        if abs(learnt) > CLEAR:
            return "over-fitted" if learnt > 0 else "harder to train"
    step = accuracy(outcome, model, "validation").mean - accuracy(outcome, simpler, "validation").mean
    return "test only" if step > -_SAME else "open"


def kept(results: Sequence[Any], part: str) -> float:
    return mean(float(at_best(one)[part]["accuracy"]) for one in results)


def last(results: Sequence[Any], part: str) -> float:
    return mean(float(one["curve"][-1][part]["accuracy"]) for one in results)


def diagnosis_table(outcome: Outcome) -> Table:
    rows = []
    for loss in losses(outcome):
        results = outcome.of(loss.model)
        validation = [accuracy(outcome, one, "validation").mean for one in (loss.model, loss.simpler)]
        rows.append(
            {
                "model": named(outcome, loss.model),
                "worse than": named(outcome, loss.simpler),
                "test, points": loss.test * 100,
                "validation, points": (validation[0] - validation[1]) * 100,
                "train, kept epoch": kept(results, "train"),
                "train, last epoch": last(results, "train"),
                "validation, kept": kept(results, "validation"),
                "validation, last": last(results, "validation"),
                "train of the simpler": train_accuracy(outcome, loss.simpler),
                "dropout": " against ".join(
                    f"{outcome.chosen[m.family, m.embeddings].dropout:g}" for m in (loss.model, loss.simpler)
                ),
                "reading": loss.reading,
            }
        )
    note = "Readings: " + "; ".join(f"*{name}*: {text}" for name, text in READINGS.items()) + "."
    return Table("Richer and worse", pd.DataFrame(rows), note)


def _simpler(model: Model) -> Model | None:
    """The model that this one adds one thing to."""
    if model.family not in BLOCKS:
        return None if model.family == "mean" else plain("mean", model.embeddings)
    if model.pooling == "cls":
        return Model(model.family, model.embeddings, model.positions, "mean", 3)
    if model.positions != "none":
        return plain(model.family, model.embeddings)
    return plain("base" if model.family == "residual" else "mean", model.embeddings)


def worse(outcome: Outcome) -> list[str]:
    """The paragraph, a sentence for each reading."""
    found = losses(outcome)
    if not found:
        return ["**Richer and worse?** No model is clearly worse than the simpler one that it extends."]
    parts = []
    for name, text in READINGS.items():
        members = [one for one in found if one.reading == name]
        if members:
            each = "\n".join(f"  - {_sentence(outcome, one)}" for one in members)
            parts.append(f"- *{name[0].upper()}{name[1:]}*: {text}.\n{each}")
    said = [
        "**Richer and worse.** By at least half a point, and by more than the noise of the seeds:\n\n"
        + "\n".join(parts)
    ]
    if any(one.reading == "test only" for one in found):
        said.append(
            "Why on the test reviews alone? No film of the test reviews is among those of the training reviews "
            "(Maas et al. 2011), while the validation reviews are cut from the training reviews and "
            "may share their films: words that go with a film count for validation and not for the test. "
            f"{_between(outcome)} That fits; it was not tested."
        )
    return said


def _sentence(outcome: Outcome, loss: Loss) -> str:
    results = outcome.of(loss.model)
    said = f"{named(outcome, loss.model)}: {-loss.test * 100:.1f} points worse than {named(outcome, loss.simpler)}"
    if loss.reading == "over-fitted":
        epochs = f"{mean(one['best']['epoch'] for one in results):.1f}"
        curve = ", ".join(f"{p} {kept(results, p):.3f} → {last(results, p):.3f}" for p in ("train", "validation"))
        said += f"; kept at epoch {epochs} on average, from there to the last: {curve}"
    else:
        validation = [accuracy(outcome, one, "validation").mean for one in (loss.model, loss.simpler)]
        said += f"; validation {validation[0]:.3f} against {validation[1]:.3f}"
    dropout = {outcome.chosen[one.family, one.embeddings].dropout for one in (loss.model, loss.simpler)}
    train = [train_accuracy(outcome, one) for one in (loss.model, loss.simpler)]
    if len(dropout) == 1 and (train[0] > train[1] or loss.reading == "harder to train"):
        said += f"; training accuracy {train[0]:.3f} against {train[1]:.3f}"
    return said


def _between(outcome: Outcome) -> str:
    """How much better validation is than test, by kind of vectors."""
    shares = []
    for embeddings in outcome.size.embeddings:
        members = [m for m in main_models(outcome) if m.embeddings == embeddings and outcome.complete(m)]
        if members:
            drops = [(accuracy(outcome, m, "validation").mean - accuracy(outcome, m).mean) * 100 for m in members]
            shares.append(f"{min(drops):.1f} to {max(drops):.1f} points with {embeddings} vectors")
    return f"Validation accuracy is above test accuracy by {', '.join(shares)}."
