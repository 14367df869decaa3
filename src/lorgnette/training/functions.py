"""`lo.train` and `lo.prune`: the commands as functions."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import ParamSpec, TypeVar

from lorgnette.errors import UserError
from lorgnette.training.pruning.prune import Pruned
from lorgnette.training.pruning.prune import prune as prune_by
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.training.run import Trained, train_seeds
from lorgnette.training.settings import TrainKeywords

Given = ParamSpec("Given")
Settings = TypeVar("Settings")
Outcome = TypeVar("Outcome")


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
    """A name or a folder: a run with a model in memory could be neither recorded nor resumed."""
    if isinstance(model, str | os.PathLike):
        return str(os.fspath(model))
    raise UserError(
        "The model must be a name or a folder. Save a model in memory first (model and tokenizer, "
        f".save_pretrained(FOLDER)). Got {type(model).__name__} instead."
    )


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
        """The standard deviation of the accuracy over seeds, with n − 1 in the denominator; None for one seed."""
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
    return trained(options)


def trained(options: TrainKeywords) -> Runs:
    """A run for each seed."""
    return Runs(train_seeds(options.settings(), list(options.seeds or [options.seed])))


@keywords_of(PruningSettings)
def prune(settings: PruningSettings) -> Pruned:
    """Make a trained model smaller permanently, and measure the cost and the gain: the command `lorgnette prune`.

        >>> pruned = lo.prune("runs/minilm-sst2", "sst2", "runs/small", keep=0.5)      # doctest: +SKIP
        >>> pruned.record["difference"], lo.load(pruned.folder)                        # doctest: +SKIP

    Fine-tunes with gates on heads, feed-forward units and layers (Voita et al. 2019, Xia et al. 2022), or ranks heads
    and units (`method="importance"`, Michel et al. 2019), removes those with closed gates or low ranks until the budget
    (`keep`, `size`, `speed`) is met, and writes a smaller checkpoint, its tokenizer, training.json and model.onnx.
    `sweep=[0.75, 0.5]` prunes to several shares and `seeds=[0, 1, 2]` with several seeds, into a folder each; the
    record is then the rows of a table.
    `only=["heads"]` makes `keep` a share of the heads. Options are the fields of `lorgnette.training.PruningSettings`.

    What it does not tell you: that the removed parts did nothing; others may have taken over their function.
    """
    runs = settings.runs
    if len(runs) == 1:
        return prune_by(runs[0])
    from lorgnette.training.pruning.sweep import sweep

    return sweep(settings)
