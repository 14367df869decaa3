"""The one driver of lenses: a batch goes through the model and counts as a whole or not at all."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from lorgnette.attending import Call, Tap
from lorgnette.errors import UserError, shown
from lorgnette.lens.base import Lens
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

Snapshot = list[Mapping[str, Tensor]]
"""The states of every lens before a batch."""


class Driver:
    """Runs lenses on batches of a model: for `look`, `lo.watch`, `lo.LensCallback` and `lorgnette.testing`.

        begin(batch)        the parts of all lenses hear of the batch
        run(batch)          the forward pass; at each attention call, what the lenses want is computed once, then each
                            lens reads it; at the end, each reads the outputs
        commit()            what they added goes into their states
        discard(before)     or, if anything failed, nothing of the batch stays

    `whole` puts these together. `taps` see and edit the calls before the lenses do.
    """

    def __init__(self, subject: Subject, lenses: Sequence[Lens], taps: Sequence[Tap] = ()) -> None:
        self.subject, self.lenses, self.taps = subject, tuple(lenses), tuple(taps)
        caches = subject.anatomy.causal and hasattr(subject.model.config, "use_cache")
        self.options: dict[str, object] = {"return_dict": True, **({"use_cache": False} if caches else {})}
        """No cache: a decoder would keep keys and values of all layers, which nobody reads."""
        self.paths: set[str] = set()
        """On a GPU, how the statistics of rows were computed: provenance says it."""

    def reads(self, what: str) -> bool:
        """Whether any lens reads this."""
        return any(what in lens.reads for lens in self.lenses)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """One batch, which reaches the states as a whole or not at all."""
        before = self.snapshot()
        try:
            yield
        except BaseException:
            self.discard(before)
            raise
        self.commit()

    def take(self, batch: Batch) -> None:
        """One batch, from beginning to end."""
        with self.whole():
            self.begin(batch)
            self.run(batch)

    def begin(self, batch: Batch) -> None:
        """A batch is about to go through the model."""
        for lens in self.lenses:
            for part in lens.states.parts:
                part.begin(batch)

    def run(self, batch: Batch) -> ModelOutput:
        """The forward pass, watched by the lenses; skipped if they read nothing but tokens."""
        outputs = None
        with torch.set_grad_enabled(self.reads("gradients")):
            if not all("tokens" in lens.reads for lens in self.lenses):
                with self.tapped(batch):
                    hidden = self.reads("hidden states")
                    outputs = self.subject.run(batch, output_hidden_states=hidden, **self.options)
            self.finish(batch, outputs)
        return outputs

    @contextmanager
    def tapped(self, batch: Batch) -> Iterator[None]:
        """Let the lenses watch the model for one pass of this batch."""
        own = [tap for lens in self.lenses for tap in lens.taps(batch)]
        with self.subject.tapped(*own, *self.taps, _LookingOn(self, batch)):
            yield

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """The forward pass is over."""
        for lens in self.lenses:
            lens.finish(batch, outputs)

    def snapshot(self) -> Snapshot:
        """A copy of the states to return to."""
        return [lens.states.snapshot() for lens in self.lenses]

    def discard(self, before: Snapshot) -> None:
        """Forget a batch that failed. Half a batch in the states would be counted twice when it is run again."""
        for lens, states in zip(self.lenses, before, strict=True):
            lens.states.discard(states)

    def commit(self) -> None:
        """Take what the lenses added into their states."""
        for lens in self.lenses:
            lens.states.commit()
            lens.states.note_use()  # a lens that reads only tokens has seen the batch too


class _LookingOn(Tap):
    """Passes each call to the lenses."""

    def __init__(self, driver: Driver, batch: Batch) -> None:
        self.driver, self.batch = driver, batch
        self.wants_residual: bool = driver.reads("residual")
        self.sites = set(driver.subject.text_sites)

    def see(self, call: Call) -> None:
        if call.site not in self.sites:  # a vision tower, whose rows are not texts
            return
        lenses = self.driver.lenses
        with torch.no_grad():
            call.ask({id(lens): lens.wants(call, self.batch) for lens in lenses})
        self.driver.paths |= call.paths if call.query.is_cuda else set()
        for lens in lenses:
            lens.update(call, self.batch)
        call.forget()


def refuse_odd_keep(keep: object) -> None:
    """Raise a UserError unless `keep` is "texts" or None."""
    if keep is not None and not (isinstance(keep, str) and keep == "texts"):
        raise UserError(f"keep can be 'texts': each text's numbers. Got {shown(keep)} instead.")


def refuse_used(lens: Lens, subject: Subject) -> None:
    """UserError if a lens was bound to another model, or holds numbers already: `look` begins from nothing."""
    if not lens.bound:
        return
    if lens.subject.model is not subject.model:
        raise UserError(f"The lens {lens.name!r} has already been used with another model; create a new lens.")
    if lens.states.used or not lens.states.at_start():
        raise UserError(
            f"The lens {lens.name!r} already holds the numbers of other texts; create a new lens, or call its "
            "reset() first. To accumulate over several passes, use lo.watch, or merge_state of a second lens."
        )


def looks(lens: Lens) -> bool:
    """Whether a lens takes anything from a batch, and is not made from results alone."""
    return any(getattr(type(lens), name) is not getattr(Lens, name) for name in ("update", "finish", "taps"))
