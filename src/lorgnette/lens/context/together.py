"""The loss when several key heads see only sinks and a window together."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.lens.ablation.copies import copies_together
from lorgnette.lens.base import Lens
from lorgnette.lens.context.windowed import Stream, places_of
from lorgnette.lens.losses import IGNORED, mean_losses, right_tokens
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

KeyHead = tuple[Site, int]
"""A site, and the number (from 0) of keys and values there that one or several heads share."""
LEAST, RANDOM = "least needed", "random"
CHOICE, COUNT = "choice", "key_heads"


class StreamedTogether(Lens):
    """How far the loss rises when several key heads see only sinks and window, in one pass for each set.

        change        L(x; the heads of the set see only what the stream keeps) − L(x)
        under_random  mean change of the random sets − change of the least needed, as many key heads each

    `sets` has for each size the least needed key heads, then random ones. The loss is that of the tokens that distant
    queries predict, as in the lens `context`.
    """

    name: ClassVar[str] = "together"
    reads = frozenset({"cpu"})

    def __init__(self, stream: Stream, sets: Mapping[int, Sequence[Sequence[KeyHead]]]) -> None:
        super().__init__()
        self.stream, self.sets = stream, dict(sets)

    def allocate(self, subject: Subject) -> None:
        drawn = any(len(each) > 1 for each in self.sets.values())
        sizes = {COUNT: list(self.sets)}
        self.of_changes: Moments = Moments(self, "change", {CHOICE: [LEAST, RANDOM][: 1 + drawn], **sizes}, at="corpus")
        self.of_gains: Moments | None = Moments(self, "under_random", sizes, at="corpus") if drawn else None
        self.of_loss: Moments = Moments(self, "loss", at="corpus")

    @torch.no_grad()
    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        labels = right_tokens(self.subject, "causal", batch).masked_fill(~self.stream.far(batch.source), IGNORED)
        intact, exists = mean_losses(outputs.logits, labels)
        self.of_loss.add(loss=(intact, exists))
        every = [one for each in self.sets.values() for one in each]
        changes = iter((self._losses(batch, labels, every) - intact).double())
        values = []
        for each in self.sets.values():
            least, *others = (next(changes) for _ in each)
            values.append([least, torch.stack(others).mean(0)] if others else [least])
        change = torch.stack([torch.stack(one) for one in values]).permute(2, 1, 0)  # [text choice size]
        self.of_changes.add(change=(change.contiguous(), exists[:, None, None]))
        if self.of_gains is not None:
            self.of_gains.add(under_random=(change[:, 1] - change[:, 0], exists[:, None]))

    def _losses(
        self, batch: Batch, labels: Int[Tensor, "text token"], sets: Sequence[Sequence[KeyHead]]
    ) -> Float[Tensor, "set text"]:
        """The losses with each set, which has a copy of the batch to itself; many copies run at a time."""
        out, together = [], copies_together(batch)
        caches = {"use_cache": False} if hasattr(self.subject.model.config, "use_cache") else {}
        for start in range(0, len(sets), together):
            some = sets[start : start + together]
            inputs = {
                name: tensor.repeat(len(some), *(1,) * (tensor.dim() - 1)) for name, tensor in batch.inputs.items()
            }
            with self.subject.tapped(StreamingHeadsTap(some, places_of(batch.source), self.stream)):
                logits = self.subject.model(**inputs, return_dict=True, **caches).logits
            out += [mean_losses(each, labels)[0] for each in logits.unflatten(0, (len(some), len(batch)))]
        return torch.stack(out)

    def compute(self) -> Result:
        """`change` by choice and number of key heads, and `under_random`."""
        gains = {} if self.of_gains is None else self.of_gains.arrays()
        return self.result({**self.of_changes.arrays(), **self.of_loss.arrays(), **gains})


class StreamingHeadsTap(Tap):
    """In each copy of a batch other key heads, with all heads that share them, see only what the stream keeps."""

    def __init__(self, sets: Sequence[Sequence[KeyHead]], places: Int[Tensor, "text token"], stream: Stream) -> None:
        self.sets, self.places, self.stream = sets, places, stream

    def scores(
        self, call: Call, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        groups = call.scores.key.shape[1]
        streaming = torch.zeros(len(self.sets), groups, dtype=torch.bool)
        for copy, each in enumerate(self.sets):
            streaming[copy, [group for site, group in each if site == call.site]] = True
        if not bool(streaming.any()):
            return scores
        heads = streaming.to(scores.device).repeat_interleave(scores.shape[1] // groups, 1)
        copies = scores.unflatten(0, (len(self.sets), -1))
        return copies.masked_fill(heads[:, None, :, None, None] & ~self._seen, -torch.inf).flatten(0, 1)

    @property
    def _seen(self) -> Bool[Tensor, "text 1 query key"]:
        return self.stream.keys(self.places, slice(None))
