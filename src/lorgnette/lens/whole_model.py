"""The accuracy and the loss of the whole model on the texts, to be read beside numbers about its decisions."""

from collections.abc import Sequence
from typing import ClassVar

import torch
import torch.nn.functional as F
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.lens.parts import Waiting
from lorgnette.results import Result
from lorgnette.results.result import WHOLE_MODEL
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import Json, ModelOutput


class WholeModel(Lens):
    """Accuracy and cross-entropy of a classifier over the texts that have a label.

    `look` brings it along for every classifier. What it does not tell you:
    which classes are confused (see `cones`).
    """

    name: ClassVar[str] = WHOLE_MODEL

    def allocate(self, subject: Subject) -> None:
        self.answers: Waiting[tuple[Batch, Tensor]] = Waiting(self, self._take, on_cpu=True)
        self.moments: Moments = Moments(self, ("loss", "accuracy"), at="corpus")
        self.sums("beyond", 1)  # labels that are none of the classes

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        self.answers.add((batch, outputs.logits.detach()))

    def _take(self, answers: Sequence[tuple[Batch, Tensor]]) -> None:
        """Compare the logits of a batch with its labels, which are on the CPU."""
        for batch, logits in answers:
            self._compare(batch, logits.double())

    def _compare(self, batch: Batch, logits: Float[Tensor, "text label"]) -> None:
        given = [-1 if example.label is None else example.label for example in batch.examples]
        labels = torch.tensor(given, device=logits.device)
        self.beyond += (labels >= logits.shape[-1]).sum().to(self.beyond)
        known = (labels >= 0) & (labels < logits.shape[-1])
        labels = labels.where(known, 0)
        right = (logits.argmax(-1) == labels).double()
        weight = known.double()
        self.moments.add(loss=(F.cross_entropy(logits, labels, reduction="none"), weight), accuracy=(right, weight))

    def compute(self) -> Result:
        return self.result(self.moments.arrays() | {"beyond": xr.DataArray(int(self.beyond.sum()))})


def attributes(result: Result) -> Json:
    """The loss and the accuracy as an attribute; empty if no text has a label, or some have labels of other classes."""
    texts = int(result.data["accuracy_count"])
    if not texts or int(result.data["beyond"]):
        return {}
    return {WHOLE_MODEL: {**{name: float(result.data[name]) for name in ("accuracy", "loss")}, "texts": texts}}
