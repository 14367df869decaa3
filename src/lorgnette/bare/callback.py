"""`lo.LensCallback`: lenses during training with the Trainer of transformers."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
import xarray as xr
from torch import nn
from transformers import (
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from lorgnette.axes import HEAD, Selected
from lorgnette.constraints import checked
from lorgnette.display import plot_of
from lorgnette.errors import UserError, shown, whole_number
from lorgnette.looking.look import look
from lorgnette.looking.steps import with_steps
from lorgnette.looking.texts import Texts
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts import texts_of
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

if TYPE_CHECKING:
    from transformers import Trainer

    from lorgnette.figures.plot import Plot


class LensCallback(TrainerCallback):
    """Runs lenses on some texts every N steps, logs the mean of each variable, and stores the results by step.

        >>> callback = lo.LensCallback(["weights"], corpus=texts, every=100, tokenizer=tokenizer)
        >>> callback.attach(trainer)                        # doctest: +SKIP
        >>> trainer.train()                                 # doctest: +SKIP
        >>> callback.by_step("weights")["entropy"]          # doctest: +SKIP
        >>> callback.plot("weights", "entropy").save("entropy.svg")     # doctest: +SKIP

    `attach` adds it to a trainer and logs to whatever the trainer reports to (TensorBoard, W&B, MLflow), under names
    such as `lens/weights/entropy`, the mean over heads. Passed as `callbacks=[…]`, it stores its results and logs
    nothing. The lenses run in evaluation mode without gradients, and the random state is restored, so training is
    unaffected.
    """

    lenses: list[str]
    every: int
    tokenizer: PreTrainedTokenizerBase | None
    batch_tokens: int

    def __init__(
        self,
        lenses: Sequence[str],
        corpus: Texts,
        *,
        every: int = 100,
        tokenizer: PreTrainedTokenizerBase | None = None,
        batch_tokens: int = 4096,
    ) -> None:
        whole_number(every, "every", at_least=1)
        if isinstance(lenses, str):
            lenses = [lenses]
        if not isinstance(lenses, Sequence) or not all(isinstance(lens, str) for lens in lenses):
            raise UserError(f"lenses must be names, such as ['weights']. Got {shown(lenses)} instead.")
        self.lenses, self.every, self.tokenizer, self.batch_tokens = list(lenses), every, tokenizer, batch_tokens
        self.corpus: Corpus | list[Example | str] = (
            given if isinstance(given := texts_of(corpus), Corpus) else list(given)
        )
        if isinstance(self.corpus, list) and not self.corpus:
            raise UserError("The corpus has no texts: pass at least one.")
        self.results: dict[int, dict[str, Result]] = {}
        self.trainer: Trainer | None = None

    def attach(self, trainer: "Trainer") -> "LensCallback":
        """Add the callback to a trainer, and log to the trainer's log."""
        trainer.add_callback(self)
        self.trainer = trainer
        return self

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: object
    ) -> None:
        if state.global_step == 0:
            self._look(state.global_step, given)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: object
    ) -> None:
        if state.global_step % self.every == 0:
            self._look(state.global_step, given)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: object
    ) -> None:
        if state.global_step not in self.results:
            self._look(state.global_step, given)

    @checked
    def by_step(self, lens: str) -> xr.Dataset:
        """The results of a lens with a leading step axis."""
        steps = [step for step, results in self.results.items() if lens in results]
        if not steps:
            raise UserError(f"There is no result of {lens!r} yet. This callback has: {', '.join(self.lenses)}.")
        return with_steps({step: self.results[step][lens].data for step in steps}, lens)

    @checked
    def plot(self, lens: str, variable: str, **selection: Selected) -> "Plot":
        """A variable over training steps, one line per layer: `callback.plot("weights", "entropy").save("x.svg")`."""
        return plot_of(self, lens, variable, **selection)

    def _look(self, step: int, given: dict[str, object]) -> None:
        tokenizer = self.tokenizer or given.get("processing_class")
        if tokenizer is None:
            raise UserError("LensCallback needs a tokenizer: pass tokenizer=, or processing_class= to the Trainer.")
        model = given["model"]
        assert isinstance(model, nn.Module)
        subject = Subject(model, tokenizer)
        devices = [subject.device] if subject.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            results = look(subject, self.corpus, self.lenses, batch_tokens=self.batch_tokens, progress=False)
        self.results[step] = dict(results)
        if self.trainer is not None:
            self.trainer.log(_means(results.values()))


def _means(results: Iterable[Result]) -> dict[str, float]:
    """The mean over heads of every variable that has one number for each head."""
    out = {}
    for result in results:
        for name, array in result.data.data_vars.items():
            plain = array.dtype.kind == "f" and not str(name).endswith("_se")
            if plain and HEAD in array.dims and array.ndim <= 3 and bool(array.notnull().any()):
                out[f"lens/{result.lens}/{name}"] = float(np.nanmean(array.values))
    return out
