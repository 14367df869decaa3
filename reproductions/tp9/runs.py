"""The finished runs of TP 9 by model: accuracies over seeds, what was chosen, and which models there are."""

from statistics import mean

import numpy as np

from lorgnette.errors import UserError
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished, Measured
from reproductions.frame.statistics import difference, mean_of
from reproductions.tp9 import grid
from reproductions.tp9.grid import Model

NAMES = {
    "mean": "mean of the words (TP 8)",
    "attention-pooling": "one query for all (TP 8)",
    "query-pooling": "query from the mean (TP 8)",
    "bilstm-attention": "BiLSTM + attention",
    "base": "base: x ← g(f(x))",
    "residual": "residual: x ← g(x + f(LN x))",
}


CHANCE = 0.52
"""Of two classes: a run with no more has learnt nothing."""


class Runs:
    """Of a page that is made early, only some of the models are there."""

    def __init__(self, cells: Finished) -> None:
        self.cells, self.size, self.seeds = cells, grid.size_of(cells.settings), cells.settings.seeds
        self.searches = cells.of(step="search")
        results = {cell.key: cell.result for cell in self.searches}
        if not set(grid.searches(self.size, self.seeds[0])) <= set(results):
            raise UserError("The runs of tp9 that choose the settings are not all there. Run it without --partial.")
        self.chosen, self.scales = grid.choices(self.size, results), grid.scales(self.size, results)
        self._of: dict[Model, list[Measured]] = {}
        if not any(self.complete(model) for model in self.main_models()):
            raise UserError("No model of tp9 was run for every seed. Run it without --partial.")

    def of(self, model: Model) -> list[Measured]:
        """The runs of a model, one for each seed that was run."""
        if model not in self._of:
            self._of[model] = self.cells.of(step="final", **vars(model))
        return self._of[model]

    def complete(self, model: Model) -> bool:
        return len(self.of(model)) == len(self.seeds)

    def enough(self, *models: Model) -> bool:
        """Whether these models can be compared: two seeds each, where more than one was asked for."""
        return all(len(self.of(model)) >= min(2, len(self.seeds)) for model in models)

    def values(self, model: Model, path: str) -> list[float]:
        """One number for each seed."""
        return [float(run.value(path)) for run in self.of(model)]

    def accuracies(self, model: Model, part: str = "test") -> list[float]:
        return self.values(model, f"metrics.{part}.accuracy")

    def accuracy(self, model: Model, part: str = "test") -> Estimate:
        return mean_of(self.accuracies(model, part))

    def gap(self, first: Model, second: Model, *, learnt: bool = False) -> Estimate:
        """Test accuracy of the first less that of the second; `learnt`: of the runs that learnt something."""
        least = CHANCE if learnt else 0.0
        one, other = ([a for a in self.accuracies(model) if a > least] for model in (first, second))
        return difference(one, other) if one and other else Estimate(value=None, n=0, over="seeds")

    def searched(self, model: Model, dropout: float) -> list[float]:
        """Validation accuracies of the runs that chose the settings, with this rate of dropout."""
        found = [run for run in self.searches if run.labels.get("positions") == "none"]
        told = {"family": model.family, "embeddings": model.embeddings, "dropout": dropout}
        chosen = [run for run in found if told.items() <= dict(run.labels).items()]
        return [float(run.value("metrics.validation.accuracy")) for run in chosen]

    def at_chance(self, model: Model) -> list[bool]:
        """Of each seed, whether it learnt nothing."""
        return [accuracy <= CHANCE for accuracy in self.accuracies(model)]

    def dead(self, model: Model) -> int:
        """How many seeds are at chance."""
        return sum(self.at_chance(model))

    def kept(self, model: Model, part: str) -> float:
        """Accuracy at the epoch whose weights were kept, mean over seeds.

        On the training reviews it is measured while that epoch was trained, so with dropout and before its last step.
        """
        return mean(float(at_best(run)[part]["accuracy"]) for run in self.of(model))

    def last(self, model: Model, part: str) -> float:
        return mean(float(run.result["curve"][-1][part]["accuracy"]) for run in self.of(model))

    def main_models(self) -> list[Model]:
        """The baselines and the three-layer models, without those of the depth study."""
        order = {family: place for place, family in enumerate(NAMES)}
        chosen = [model for model in grid.models(self.size) if model.layers in (None, 3)]
        # The chosen scale may be the literal one: then it is the same model.
        chosen = [m for m in chosen if m.positions != "scaled" or self.scales[m.family, m.embeddings] != 1.0]
        return sorted(chosen, key=lambda m: (order[m.family], m.embeddings, m.pooling != "mean"))

    def best_model(self) -> Model | None:
        """The highest mean over seeds on the *validation* reviews, so that the test reviews choose nothing."""
        complete = [m for m in self.main_models() if self.complete(m)]
        return max(complete, key=lambda m: float(np.mean(self.accuracies(m, "validation"))), default=None)

    def position_name(self, model: Model) -> str:
        if model.positions == "scaled":
            return f"sinusoidal × {self.scales[model.family, model.embeddings]:g}"
        return model.positions

    def named(self, model: Model) -> str:
        """A model in words."""
        short = NAMES[model.family].split(":")[0]
        if model.layers is None:
            return f"{short}, {model.embeddings} vectors"
        positions = "no" if model.positions == "none" else self.position_name(model)
        pooling = "`<cls>`" if model.pooling == "cls" else model.pooling
        return f"{short}, {positions} positions, {pooling}, {model.embeddings} vectors"


def at_best(run: Measured) -> dict[str, dict[str, float]]:
    """The entry of the curve whose weights were kept."""
    return next(entry for entry in run.result["curve"] if entry["epoch"] == run.result["best"]["epoch"])
