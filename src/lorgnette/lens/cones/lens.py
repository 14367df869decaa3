"""Whether the texts of each class share a direction: one cone per class?"""

from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.attending import Tap
from lorgnette.constraints import Interval, Seed
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.cones.outcome import Sample, cone_variables
from lorgnette.lens.hidden_states import any_text, hidden_states
from lorgnette.lens.losses import classifies
from lorgnette.results import Result
from lorgnette.statistics.hash_sample import NAME, Column, HashSample, as_names
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.padding import first_positions, last_positions
from lorgnette.types import ModelOutput, PreTrainedModel

CLASSIFIERS = ("classifier", "score", "classification_head")
"""What transformers calls the module that turns a text's vector into classes, in every family."""


def classification_head(model: PreTrainedModel) -> nn.Module | None:
    """The module that turns a text's vector into classes, if the model has one of a known name."""
    return next((getattr(model, name) for name in CLASSIFIERS if hasattr(model, name)), None)


class Cones(Lens):
    """cos(x, r_c) of every text with representatives r_c of every class c (Fosse et al. 2023).

    x is the input of the classification head (`vector="head"`), or the last state of the first token (`"cls"`). r_c is
    the vector of a correctly classified text of class c: `representative="random"` averages over up to `draws` of them,
    `"first"` takes the first by id. With `keep`, a representative is also compared with itself (cosine 1). The same is
    computed with class means as representatives: all class×class cosines, AUROC of own against other class, correlation
    with accuracy over classes, and the nearest texts of another class. Up to `size` texts are kept, a random sample
    that is the same in every run; accuracies are over all texts.

    What it does not tell you: that the classifier uses the direction. Length and bias count too, and classes that a
    linear layer separates may all lie in one narrow cone.
    """

    name: ClassVar[str] = "cones"
    summary: ClassVar[str] = "whether the texts of each class share a direction (cosine, AUROC)"
    reads = frozenset({"labels", "cpu"})
    confusion: Tensor

    def __init__(
        self,
        *,
        representative: Literal["random", "first"] = "random",
        keep: bool = False,
        draws: Annotated[int, Interval(1)] = 20,
        vector: Literal["head", "cls"] = "head",
        size: Annotated[int, Interval(2)] = 20_000,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        self.representative, self.keep, self.vector = representative, keep, vector
        self.draws, self.size, self.seed = (1 if representative == "first" else draws), size, seed
        if vector == "cls":
            self.reads = self.reads | {"hidden states"}

    def allocate(self, subject: Subject) -> None:
        self.classes: tuple[str, ...] = _classes(subject)
        self.head = _head(subject)
        self.causal: bool = subject.anatomy.causal
        self.precision: torch.dtype = torch.float64 if subject.dtype == torch.float64 else torch.float32
        self.entered: Tensor | None = None
        batch = any_text(subject)
        self.taps(batch)
        with torch.no_grad():
            outputs = subject.run(batch, output_hidden_states=True, return_dict=True)
        width = self._vectors(batch, outputs).shape[1]
        self.sampled(width)
        self.sums("confusion", len(self.classes), len(self.classes))

    def sampled(self, width: int) -> None:
        """Declare the sample of texts with vectors of this width."""
        known = Column(dtype=torch.int64)
        columns = {"id": NAME, "label": known, "predicted": known, "vector": Column((width,), self.precision)}
        self.texts: HashSample = HashSample(self, "texts_kept", columns, size=self.size)

    def add_texts(
        self, ids: list[str], labels: Int[Tensor, " text"], predicted: Int[Tensor, " text"], vectors: Tensor
    ) -> None:
        """Offer texts to the sample."""
        numbers = torch.tensor([text_key("texts_kept", self.seed, name) >> 16 for name in ids])
        self.texts.add(numbers, id=as_names(ids), label=labels, predicted=predicted, vector=vectors)

    def taps(self, batch: Batch) -> tuple[Tap, ...]:
        """No tap on attention; a hook on the classification head records its input in the next pass."""
        self.entered = None
        if self.vector == "head":
            handle: Any = None

            def note(_: object, given: tuple[Tensor, ...]) -> None:
                self.entered = given[0].detach()
                handle.remove()

            handle = self.head.register_forward_pre_hook(note)
        return ()

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Keep the vector, label and prediction of every text."""
        labels = self._labels(batch)
        predicted = outputs.logits.detach().argmax(-1).cpu()
        where = tuple(part.to(self.confusion.device) for part in (labels, predicted))
        self.confusion.index_put_(where, self.confusion.new_ones(len(batch)), accumulate=True)
        self.add_texts([example.id for example in batch.examples], labels, predicted, self._vectors(batch, outputs))
        self.entered = None

    def _vectors(self, batch: Batch, outputs: ModelOutput) -> Float[Tensor, "text dim"]:
        if self.vector == "cls":
            (states,) = hidden_states(outputs, self.causal).values()
            at = first_positions(batch.source.mask).to(states[-1].device)
            return states[-1][torch.arange(len(batch), device=at.device), at].detach()
        if self.entered is None:
            raise UserError(
                f"The classification head {type(self.head).__name__} was not called; use Cones(vector='cls')."
            )
        if self.entered.dim() == 2:
            return self.entered
        # A head that is given all tokens reads one of them: the first, or in a decoder the last real one.
        mask = batch.source.mask
        at = last_positions(mask) if self.causal else first_positions(mask)
        return self.entered[torch.arange(len(batch)), at.to(self.entered.device)]

    def _labels(self, batch: Batch) -> Int[Tensor, " text"]:
        for example in batch.examples:
            if example.label is None:
                raise UserError(
                    f"The text {example.id!r} has no label, but cones compare classes. Give a labelled corpus (of a "
                    "table: --label-column)."
                )
            if not 0 <= example.label < len(self.classes):
                raise UserError(
                    f"The text {example.id!r} has label {example.label}, but the model has {len(self.classes)} classes "
                    "(counted from 0). Give the corpus that it was trained for."
                )
        return torch.tensor([example.label for example in batch.examples])

    def compute(self) -> Result:
        """Cosines by class of the direction and class of the text, and what follows from them."""
        present = [name for name, row in zip(self.classes, self.confusion.cpu(), strict=True) if row.sum() > 0]
        if len(present) < 2:
            raise UserError(
                f"Cones compare classes, but all texts have class {', '.join(present)!r}. "
                "Give a corpus with texts of at least two classes."
            )
        rows = self.texts.rows()
        ids = rows.names()
        sample = Sample.of(ids, rows["label"], rows["predicted"], rows["vector"])
        variables = cone_variables(sample, self)
        result = self.result(variables)
        result.data.attrs |= {
            "representative": self.representative,
            "keep": self.keep,
            "vector": self.vector,
            "texts_kept": len(ids),
            "zero_vectors": len(ids) - len(sample.ids),
        }
        return result


def _classes(subject: Subject) -> tuple[str, ...]:
    if subject.labels is None or not classifies(subject):
        raise UserError(
            f"The lens 'cones' needs a text classifier with at least two classes; {subject.name!r} "
            f"({type(subject.model).__name__}) is not one. Use a sequence classification checkpoint, or train one with "
            "`lorgnette train`."
        )
    return subject.labels


def _head(subject: Subject) -> Any:
    head = classification_head(subject.model)
    if head is None:
        raise UserError(
            f"{type(subject.model).__name__} of {subject.name!r} has no known classification head "
            f"({', '.join(CLASSIFIERS)}). Use a model that has one."
        )
    return head
