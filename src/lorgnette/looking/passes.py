"""One batch through the model with the lenses looking on; if it does not fit into memory, its halves."""

from collections.abc import Sequence
from threading import Event

import torch

from lorgnette.attending import Call, Tap
from lorgnette.errors import Unreplayable, UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.memory import let_go, out_of_memory
from lorgnette.looking.replay import Replays, Watched
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.sides import Encoded
from lorgnette.types import ModelOutput

STEP = 32
"""Tokens that lengths are multiples of where passes are recorded."""


class Looking(Tap):
    """Hands each call to the lenses."""

    lenses: Sequence[Lens]
    batch: Batch

    def __init__(self, lenses: Sequence[Lens], batch: Batch) -> None:
        self.lenses, self.batch = lenses, batch
        self.wants_residual: bool = any(lens.wants_residual for lens in lenses)

    def see(self, call: Call) -> None:
        with torch.no_grad():
            call.ask({id(lens): lens.wants(call, self.batch) for lens in self.lenses})
        for lens in self.lenses if call.query.is_cuda else ():
            lens.paths |= call.paths
        for lens in self.lenses:
            lens.update(call, self.batch)


class Passes:
    """Takes the batches of a corpus through a model, one after the other."""

    def __init__(self, subject: Subject, lenses: Sequence[Lens]) -> None:
        self.subject, self.lenses = subject, lenses
        self.replays: Replays | None = Replays.of(subject, lenses)
        self.launched = Event()
        """Whether any pass was launched."""
        self.batches: int | None = 0
        """How many batches of the corpus the states hold; None while one of them is only partly in."""
        self._without: int | None = 0
        """What `batches` is once the texts that are being analysed are forgotten."""

    @property
    def step(self) -> int:
        """What lengths of batches are multiples of: where passes are recorded, few shapes count more than padding."""
        return 1 if self.replays is None else STEP

    def close(self) -> None:
        """Let go of what was recorded, and its memory: it refers to this object, and would stay until it is found."""
        self.replays = None

    def take(self, encoded: list[Encoded], batch: Batch | None = None, number: int = 0) -> None:
        """These texts, as this batch, which has this number in the corpus.

        Halves run once the failed batch is forgotten: an exception holds, by its traceback, all that did not fit.
        """
        waiting, self._without = [encoded], self.batches
        while waiting:
            texts = waiting.pop()
            fitted = self._fitted(texts, batch if texts is encoded else None)
            if fitted:
                continue
            let_go()
            half = (len(texts) + 1) // 2
            waiting += [texts] if fitted is None else [texts[half:], texts[:half]]
        self.batches = number + 1

    def _fitted(self, encoded: list[Encoded], batch: Batch | None) -> bool | None:
        """Whether the batch went through; if not, the states are as before it. None: it should be tried once more.

        Memory ran out, or the pass of such batches cannot be recorded, which is not tried again.
        """
        snapshots = [lens.snapshot() for lens in self.lenses]
        self.batches = None
        try:
            watched = self._look_at(self.subject.encoder.collate(encoded) if batch is None else batch)
        except BaseException as error:
            # Whatever stopped the pass, half a batch must not stay in the states: it would be counted twice.
            for lens, states in zip(self.lenses, snapshots, strict=True):
                lens.forget(states)
            self.batches = self._without
            self.replays = None  # what it has recorded adds to states that are not there any more, and takes memory
            if isinstance(error, Unreplayable):
                return None
            if not out_of_memory(error):
                raise
            if len(encoded) == 1:
                raise _too_large(encoded[0], error) from error
            return False
        self._without = None  # from here on, nothing takes these texts out of the states again
        if watched is not None:
            watched.commit()
        for lens in self.lenses:
            lens.commit()  # nothing is left if it was replayed
            lens.committed()
        return True

    def _look_at(self, batch: Batch) -> Watched | None:
        """One pass with the lenses looking on; none where all of them read tokens only. Gives how it was taken."""
        watched = None if self.replays is None else self.replays.ready(batch, self._run)
        batch = batch.to(self.subject.device) if watched is None else watched.taken(batch)
        for lens in self.lenses:
            lens.begin(batch)
        with torch.set_grad_enabled(any(lens.wants_gradients for lens in self.lenses)):
            outputs = self._run(batch) if watched is None else watched.run()
            self.launched.set()
            for lens in self.lenses:
                lens.finish(batch, outputs)
        return watched

    def _run(self, batch: Batch) -> ModelOutput:
        """The forward pass, and `update` of every lens at every call."""
        if all(lens.tokens_only for lens in self.lenses):
            return None
        hidden = any(lens.wants_hidden_states for lens in self.lenses)
        own = [tap for lens in self.lenses for tap in lens.taps(batch)]
        with self.subject.tapped(*own, Looking(self.lenses, batch)):
            outputs = self.subject.run(batch, output_hidden_states=hidden, return_dict=True)
        for lens in self.lenses:
            lens.take_outputs(batch, outputs)
        return outputs


def _too_large(text: Encoded, error: BaseException) -> UserError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(
        f"The text {text.example.id!r} ({text.tokens} tokens) does not fit into memory by itself ({first}). "
        "Split it, use --truncate, or a machine with more memory."
    )
