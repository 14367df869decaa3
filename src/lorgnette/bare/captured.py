"""Attention calls of a pass that ran elsewhere: lenses read them as they read those of a model."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from lorgnette.attending import Call, Site, Tap
from lorgnette.bare.layer_tensors import shape_of
from lorgnette.errors import CaptureError, UserError
from lorgnette.lens.base import Lens
from lorgnette.looking.choosing import chosen_lenses, in_order, needed_by, waiting, with_needed
from lorgnette.looking.conclusion import concluded
from lorgnette.looking.driver import Driver, looks
from lorgnette.models.anatomy import Anatomy
from lorgnette.results import Results
from lorgnette.results.provenance import Provenance
from lorgnette.subject import Subject
from lorgnette.subject.recorded import RecordedPass
from lorgnette.texts.batch import Batch


class Elsewhere(Subject):
    """The subject of calls that were captured elsewhere: sites and heads, and nothing that runs."""

    def __init__(self, anatomy: Anatomy, like: Tensor, name: str, tokenizer: PreTrainedTokenizerBase | None) -> None:
        self.model = _NoModel(name)
        self.name, self.anatomy, self.loaded = name, anatomy, None
        self._tokenizer, self._hashed = tokenizer, None
        self._like = like.new_empty(0)
        self._calls: Sequence[Call] = ()
        self._taps: tuple[Tap, ...] = ()

    @property
    def device(self) -> torch.device:
        return self._like.device

    @property
    def dtype(self) -> torch.dtype:
        return self._like.dtype

    @contextmanager
    def replaying(self, calls: Sequence[Call]) -> Iterator[None]:
        """Make a pass in this context consist of these calls."""
        self._calls = calls
        try:
            yield
        finally:
            self._calls = ()

    @contextmanager
    def tapped(self, *taps: Tap) -> Iterator[None]:
        edits = [tap for tap in taps if any(map(tap.edits, ("scores", "weights", "context")))]
        if edits:
            raise UserError(
                f"{type(edits[0]).__name__} changes what a model computes, and these calls were captured elsewhere: "
                "nothing runs here that could change. Use the model (lo.look)."
            )
        before, self._taps = self._taps, taps
        try:
            yield
        finally:
            self._taps = before

    def run(self, batch: Batch, **options: object) -> ModelOutput:
        if not self._calls:
            self.model()
        stack = next((call.site.stack for call in self._calls), "")  # lo.calls makes those of one
        for tap in self._taps:
            tap.open(stack)
        for call in self._calls:
            for tap in self._taps:
                tap.see(call)
        for tap in self._taps:
            tap.close(stack)
        return ModelOutput()


class _NoModel(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.config = name, PreTrainedConfig()

    def forward(self, *inputs: object, **keywords: object) -> ModelOutput:
        raise CaptureError(
            f"{self.name!r} cannot run here: its queries and keys were captured elsewhere. Use the model (lo.look)."
        )


class Calls(RecordedPass):
    """The attention calls of one pass that ran elsewhere, by site; `lo.calls` makes them.

        >>> calls = lo.calls(torch.rand(3, 1, 4, 9, 8), torch.rand(3, 1, 2, 9, 8), causal=True)
        >>> calls
        Calls('captured': 3 layers of 4 heads, 1 text of 9 tokens)
        >>> calls["decoder.2.weights"].shape                # [text head query key], computed when asked for
        torch.Size([1, 4, 9, 9])

    Iterating gives each `Call`, whose statistics never build the matrix.
    """

    def __init__(self, subject: Elsewhere, records: Mapping[Site, Call], batch: Batch | None) -> None:
        self.subject: Elsewhere = subject
        self.records: dict[Site, Call] = dict(records)
        self.batch = batch

    def __repr__(self) -> str:
        texts, heads, queries, keys = next(iter(self)).scores.shape
        tokens = f"{queries:,} tokens" if queries == keys else f"{queries:,} queries and {keys:,} keys"
        layers = "1 layer" if len(self) == 1 else f"{len(self)} layers"
        return (
            f"Calls({self.subject.name!r}: {layers} of {heads} heads, "
            f"{texts} {'text' if texts == 1 else 'texts'} of {tokens})"
        )

    @property
    def sites(self) -> tuple[Site, ...]:
        return tuple(self.records)

    @property
    def stored(self) -> tuple[str, ...]:
        parts = ("query", "key", "weights")
        return (*parts, "value", "context") if all(call.has_values for call in self) else parts

    def contexts(self) -> dict[Site, Tensor]:
        return {site: call.context for site, call in self.records.items() if call.has_values}

    def __iter__(self) -> Iterator[Call]:
        return iter(self.records.values())

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, name: str) -> Tensor:
        """One part by name: `decoder.3.weights` is [text head query key], `decoder.weights` has all layers."""
        sites, part = self.placed(name)
        calls = [self.records[site] for site in sites]
        tensors = [call.block() if part == "weights" else getattr(call, part) for call in calls]
        if name.count(".") == 2:
            return tensors[0]
        if len({tensor.shape for tensor in tensors}) > 1:
            raise UserError(f"The layers have {part} of different shapes: index one of them ({self.names()[0]!r}).")
        return torch.stack(tensors)

    def look(self, lenses: Sequence[Lens | str] | Lens | str) -> Results:
        """The results of lenses on these calls.

        >>> calls = lo.calls(torch.rand(3, 1, 4, 9, 8), torch.rand(3, 1, 2, 9, 8), causal=True)
        >>> calls.look("weights")["weights"].data["entropy"].sizes
        Frozen({'stack': 1, 'layer': 3, 'head': 4})
        """
        chosen = with_needed(chosen_lenses(lenses))
        if used := next((lens.name for lens in chosen if lens.bound), None):
            raise UserError(f"The lens {used!r} has been used before: give its name, or add to it with calls.feed.")
        tokens = self._tokens()
        provenance = Provenance(
            model=self.subject.name,
            texts=len(tokens),
            tokens=int(tokens.lengths.sum()),
            dtype=self.subject.precision,
            device=str(self.subject.device),
            notes=("queries and keys were captured elsewhere",),
        )
        needy = waiting(chosen)
        if needy:  # a first pass, over the same calls
            before = self._concluded(in_order(needed_by(needy)), provenance)
            for lens in needy:
                lens.take(before)
        return self._concluded(chosen, provenance)

    def _concluded(self, lenses: Sequence[Lens], provenance: Provenance) -> Results:
        """The results of these lenses after one pass over the calls."""
        self._pass([lens for lens in lenses if looks(lens)])
        for lens in lenses:
            lens.bind(self.subject)
        return concluded(lenses, provenance, (), None)

    def feed(self, *lenses: Lens) -> None:
        """Add these calls to lenses, which accumulate over the calls of several passes; `lens.compute()` concludes.

        >>> lens, states = lo.lens.get("weights"), torch.rand(2, 1, 4, 9, 8)
        >>> for tokens in (9, 5):
        ...     lo.calls(states[..., :tokens, :], states[..., :tokens, :], causal=True).feed(lens)
        >>> int(lens.compute().data["entropy_count"].max())
        2
        """
        for lens in lenses:
            if isinstance(lens, Lens) and waiting([lens]):
                raise UserError(
                    f"The lens {lens.name!r} reads the texts twice, so it cannot take them one after the other: use "
                    "calls.look, or lo.look on the model."
                )
        self._pass(lenses)

    def _pass(self, lenses: Sequence[Lens]) -> None:
        for lens in lenses:
            self._refuse(lens)
        tokens = self._tokens()
        for site, call in self.records.items():
            expected = (len(tokens), tokens.queries(site).mask.shape[1], tokens.keys(site).mask.shape[1])
            given = (call.scores.shape[0], *call.scores.shape[2:])
            if expected != given:
                raise UserError(
                    f"The call of {site} has {shape_of(given)} positions (texts × queries × keys), and its batch "
                    f"{shape_of(expected)}. Give lo.calls the batch of these tokens, and the queries of all of them."
                )
        for lens in lenses:
            lens.bind(self.subject)
        if lenses:
            with torch.no_grad(), self.subject.replaying(tuple(self)):
                Driver(self.subject, lenses).take(tokens)

    def _tokens(self) -> Batch:
        if self.batch is None:
            raise UserError(
                "Lenses must know which positions are tokens: pass batch=lo.batch(inputs, tokenizer) to lo.calls where "
                "queries are fewer than keys, in cross-attention, and with a mask of four dimensions."
            )
        return self.batch

    def _refuse(self, lens: object) -> None:
        """Refuse lenses that attention calls alone are not enough for."""
        if not isinstance(lens, Lens):
            raise UserError(f"Give lenses, such as lo.lens.get('weights'). Got {type(lens).__name__}.")
        lacking = next((what for what in ("hidden states", "gradients") if what in lens.reads), None)
        if lacking is not None:
            raise UserError(
                f"The lens {lens.name!r} reads {lacking}, and these are attention calls without a model: use lo.look."
            )
        if "residual" in lens.reads and not all(call.has_residual for call in self):
            raise UserError(
                f"The lens {lens.name!r} reads the state that the heads' output is added to: pass residual=… to "
                "lo.calls, or options of the lens that do without it."
            )
