"""`lo.train` and `lo.prune`: the commands as functions."""

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ParamSpec, TypeVar

from lorgnette.errors import UserError
from lorgnette.training.penalties import EntropyPenalty, HeuristicPenalty, Penalty, RationalePenalty
from lorgnette.training.pruning.prune import Pruned
from lorgnette.training.pruning.prune import prune as prune_by
from lorgnette.training.pruning.settings import HeadChoice, PruningSettings
from lorgnette.training.run import Trained, train_seeds
from lorgnette.training.settings import TrainingSettings

Given = ParamSpec("Given")
Settings = TypeVar("Settings")
Outcome = TypeVar("Outcome")

SIZES = ("layers", "heads", "width", "positions", "pooling", "dropout")
"""Fields of a preset's config that have a name of their own."""


def keywords_of(
    kind: Callable[Given, Settings],
) -> Callable[[Callable[[Settings], Outcome]], Callable[Given, Outcome]]:
    """Makes a function of the fields of a dataclass from a function of the dataclass: every option is said once."""

    def made(function: Callable[[Settings], Outcome]) -> Callable[Given, Outcome]:
        signature = inspect.signature(kind)

        def call(*arguments: Given.args, **keywords: Given.kwargs) -> Outcome:
            given = signature.bind_partial(*arguments, **keywords)
            if "model" in given.arguments:
                given.arguments["model"] = _model_name(given.arguments["model"])
            return function(kind(*given.args, **given.kwargs))

        call.__name__ = call.__qualname__ = function.__name__
        call.__doc__, call.__module__ = function.__doc__, function.__module__
        out = inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=out)  # type: ignore[attr-defined]
        return call

    return made


def _model_name(model: object) -> str:
    """A name or a folder; what is only in memory could neither be recorded nor gone on from."""
    if isinstance(model, str | os.PathLike):
        return str(os.fspath(model))
    raise UserError(
        "The model must be a name or a folder. Save a model in memory first (model and tokenizer, "
        f".save_pretrained(FOLDER)). Got {type(model).__name__} instead."
    )


@dataclass(frozen=True, kw_only=True)
class TrainKeywords(TrainingSettings):
    """What `train` is told: `TrainingSettings`, several seeds, and by plain names what it has as objects."""

    seeds: Sequence[int] | None = None
    layers: int | None = None
    heads: int | None = None
    width: int | None = None
    positions: str | None = None
    pooling: str | None = None
    dropout: float | None = None
    entropy: float | None = None
    entropy_rows: str = "cls"
    entropy_layers: Sequence[int] | None = None
    rationale_weight: float | None = None
    rationale_loss: str = "jaccard"
    heuristic_weight: float | None = None

    def settings(self) -> TrainingSettings:
        """The same as the settings of one run: sizes are overrides, weights are penalties."""
        given: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(TrainingSettings)}
        sizes = {name: value for name in SIZES if (value := getattr(self, name)) is not None}
        given["overrides"] = {**self.overrides, **sizes}
        given["penalties"] = (*self.penalties, *self._penalties())
        return TrainingSettings(**given)

    def _penalties(self) -> list[Penalty]:
        """Those that were given a weight."""
        out: list[Penalty] = []
        if self.entropy is not None:
            out.append(EntropyPenalty(self.entropy, rows=self.entropy_rows, layers=self.entropy_layers))
        if self.rationale_weight is not None:
            out.append(RationalePenalty(self.rationale_weight, self.rationale_loss))
        if self.heuristic_weight is not None:
            out.append(HeuristicPenalty(self.heuristic_weight))
        return out


class Runs(tuple[Trained, ...]):
    """The runs of one training: a `Trained` for each seed, in order.

    >>> runs = lo.train("tp9-cls", "planted", "runs", seeds=[0, 1])        # doctest: +SKIP
    >>> runs.accuracy, runs.accuracy_sd, runs[0].curve                     # doctest: +SKIP
    """

    @property
    def folder(self) -> Path:
        """The folder of the model; with several seeds, the folder that contains theirs."""
        return self[0].folder if len(self) == 1 else self[0].folder.parent

    @property
    def accuracy(self) -> float:
        """Mean over seeds of the accuracy on the test texts (without them, the validation texts)."""
        return mean(run.accuracy for run in self)

    @property
    def accuracy_sd(self) -> float | None:
        """Its standard deviation over seeds, n − 1 in the denominator; None for one seed."""
        return stdev(run.accuracy for run in self) if len(self) > 1 else None


@keywords_of(TrainKeywords)
def train(options: TrainKeywords) -> Runs:
    """Train a classifier or a translation model, or fine-tune one: the command `lorgnette train`.

        >>> size = {"layers": 1, "heads": 2, "width": 8, "embeddings": "random"}
        >>> runs = lo.train("tp9-cls", "planted", "runs/cls", epochs=1, limit=40, test_limit=20, **size)
        >>> 0 <= runs.accuracy <= 1, len(runs[0].curve)
        (True, 1)

    Writes an ordinary Hugging Face checkpoint with its tokenizer and training.json to `out`, with several seeds one
    folder for each. The checkpoint is that of the best validation epoch; the test texts are used once. Options are the
    fields of `lorgnette.training.TrainingSettings`. `layers`, `heads`, `width`, `positions`, `pooling` and `dropout`
    configure a preset; `entropy`, `rationale_weight` and `heuristic_weight` are weights of penalties on attention.

    What accuracy does not tell you: whether two models differ; use several seeds and a paired test for that.
    """
    return Runs(train_seeds(options.settings(), _seeds(options)))


def _seeds(options: TrainKeywords) -> list[int]:
    if options.seeds is None:
        return [options.seed]
    if options.seed != 0:
        raise UserError("Set seed or seeds, not both.")
    if isinstance(options.seeds, str) or not all(isinstance(seed, int) for seed in options.seeds):
        raise UserError(f"seeds are whole numbers, such as [0, 1, 2]. Got {options.seeds!r} instead.")
    return list(options.seeds)


@dataclass(frozen=True, kw_only=True)
class PruneKeywords(HeadChoice, TrainingSettings):
    """What `prune` is told: which heads, and how the rest learns; a pruning is shorter than a training."""

    epochs: int = 3
    batch_size: int = 32

    def settings(self) -> PruningSettings:
        """The same as the settings of one pruning."""
        training = {each.name: getattr(self, each.name) for each in fields(TrainingSettings)}
        choice = {each.name: getattr(self, each.name) for each in fields(HeadChoice)}
        return PruningSettings(training=TrainingSettings(**training), **choice)


@keywords_of(PruneKeywords)
def prune(options: PruneKeywords) -> Pruned:
    """Remove heads from a trained model permanently, and measure the cost and the gain: the command `lorgnette prune`.

        >>> pruned = lo.prune("runs/minilm-sst2", "sst2", "runs/small", keep=0.3)      # doctest: +SKIP
        >>> pruned.record["difference"], lo.load(pruned.folder)                        # doctest: +SKIP

    Fine-tunes with gates on the heads (Voita et al. 2019), or ranks the heads (`method="importance"`, Michel et al.
    2019), removes those with closed gates or low ranks, and writes a checkpoint with smaller projections, its
    tokenizer, training.json and model.onnx. Options are the fields of `lorgnette.training.PruningSettings` and
    `TrainingSettings`.

    What it does not tell you: that the removed heads did nothing; others may have taken over their function.
    """
    return prune_by(options.settings())
