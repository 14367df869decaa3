"""Which heads need the long context? Their attention near and far, and the loss when they see sinks and a window."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.constraints import Interval, NotEmpty
from lorgnette.errors import UserError
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.base import Lens
from lorgnette.lens.context.retrieval import SCORES, retrieval_scores
from lorgnette.lens.context.windowed import Stream, WindowedContexts, places_of
from lorgnette.lens.losses import IGNORED, mean_losses, right_tokens, task_of
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.types import ModelOutput

MASSES = ("sink_mass", "local_mass", "far_mass")
CHANGES = ("loss_change", "shared_change")
_DESCRIPTIONS = {
    "sink_mass": "weight on the first tokens of the text, mean over queries that have keys beyond sinks and window",
    "local_mass": "weight on the last tokens, the query's own among them, mean over the same queries",
    "far_mass": "weight on all keys between them, mean over the same queries",
    "retrieval": "share of queries at which the head's largest weight is on a token far before them that comes next, "
    "of those whose next token stands there",
    "retrieval_control": "the same if the next tokens of the text were assigned to its queries at random",
    "retrieval_excess": "retrieval minus its control, mean over texts",
    "loss_change": "loss if the head sees only sinks and window, minus the loss of the intact model (nats per token)",
    "shared_change": "the same if all heads that share its keys and values see only sinks and window",
    "loss": "loss of the intact model at these tokens, mean over texts (nats per token)",
}


class Context(Lens):
    """How much attention each head of a causal model pays to distant tokens, and what the model loses without it.

        sink_mass    Σ_j<s α_ij                 on the first s tokens (`sinks`)
        local_mass   Σ_{i−w<j≤i} α_ij           on the last w tokens, for each of `windows`
        far_mass     Σ_{s≤j≤i−w} α_ij           on what a streaming cache of both would have dropped
        retrieval    share of queries i with h's largest weight on a far key j, x_j = x_{i+1} (Wu et al. 2024)
        loss_change  L(x; head h sees only sinks and `window`) − L(x)

    Masses are means over the queries that have such distant keys (position ≥ s + w), then over texts; the retrieval
    score over those whose next token stands among them, with `window`. Its control deals the next tokens of the text to
    its queries at random, and `retrieval_excess` is the difference. The loss is the mean cross-entropy of the tokens
    that distant queries predict, so that it does not depend on how long a text is. The head's scores are masked before
    the softmax, and everything behind it is computed anew: exact. `shared_change` masks all heads that share keys and
    values, as only together they let the cache drop a key (grouped-query attention). Texts of at most `sinks` +
    `window` tokens count for nothing. `losses=False` leaves out the passes with a masked head, `"shared"` those with a
    single one where keys are shared; with `layers` (counted from 1) only heads of these layers are masked.

    What it does not tell you: that several heads can be masked together. And a head that this corpus does not need far
    away may be needed for other texts.
    """

    name: ClassVar[str] = "context"
    summary: ClassVar[str] = "which heads need the long context: mass on distant tokens, and the loss without them"
    reads = frozenset({"cpu"})

    def __init__(
        self,
        sinks: Annotated[int, Interval(0)] = 4,
        windows: Annotated[Sequence[Annotated[int, Interval(1)]], NotEmpty()] = (16, 64, 256),
        window: Annotated[int, Interval(1)] = 64,
        losses: bool | Literal["shared"] = True,
        layers: Annotated[Sequence[Annotated[int, Interval(1)]], NotEmpty()] | None = None,
    ) -> None:
        super().__init__()
        self.stream = Stream(sinks, window)
        self.streams: list[Stream] = [Stream(sinks, size) for size in sorted({*windows, window})]
        self.losses = losses
        self.layers: tuple[int, ...] | None = None if layers is None else tuple(sorted(set(layers)))

    def allocate(self, subject: Subject) -> None:
        _refuse_other_than_causal(subject)
        self._refuse_missing_layers()
        sizes = {axes.WINDOW: [stream.window for stream in self.streams]}
        self.of_masses: Moments = Moments(self, MASSES, sizes)
        self.of_retrieval: Moments = Moments(self, SCORES)
        self.retrieval_pairs: Pairs = Pairs(self.of_retrieval, "retrieval_excess")
        if self.losses:
            self.grouped: bool = any(each.groups < each.heads for each in subject.text_attention)
            together = CHANGES[1:] if self.losses == "shared" else CHANGES
            self.changes: tuple[str, ...] = together if self.grouped else CHANGES[:1]
            self.of_changes: Moments = Moments(self, self.changes)
            self.pairs: list[Pairs] = [Pairs(self.of_changes, name) for name in self.changes]
            self.of_loss: Moments = Moments(self, "loss", at="corpus")

    def cost(self) -> str:
        if not self.losses:
            return ""
        sites = [each for each in self.subject.text_attention if self._masks(each.site)]
        masked = sum(len(self._jobs(each.heads, each.groups)) for each in sites)
        return (
            f"for each batch one more pass, and {masked:,} with masked heads, each from the layer of the heads on; "
            "losses=false leaves them out, layers=1+2+… all but those of some layers"
        )

    def _masks(self, site: Site) -> bool:
        return self.layers is None or site.layer + 1 in self.layers

    def _refuse_missing_layers(self) -> None:
        last = 1 + max(site.layer for site in self.sites)
        if self.layers is not None and self.layers[-1] > last:
            raise UserError(
                f"The 'layers' of context must be at most {last}, the last layer of {self.subject.name!r}. Got "
                f"{self.layers[-1]} instead."
            )

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        return (Wanted(block=self._masses(call, batch), peak=True, positions=True),)

    def _masses(self, call: Call, batch: Batch) -> "Masses":
        """The masses of a call, which are added up while its rows are swept."""
        return call.once(f"context {id(self)}", lambda: Masses(call, batch.queries(call.site), self.streams))

    def update(self, call: Call, batch: Batch) -> None:
        (rows,) = self.measured(call, batch)
        masses = self._masses(call, batch)
        counts = masses.far.sum(-1).double().T  # [text window]
        means = masses.sums / counts.clamp(min=1)[:, None, :, None]
        exists = (counts > 0).double()[:, None]
        self.of_masses.add(call.site, **{name: (means[..., row], exists) for row, name in enumerate(MASSES)})
        scores, copies = retrieval_scores(rows["peak_position"], batch.queries(call.site), self.stream)
        weight = copies.double()[:, None]
        self.of_retrieval.add(call.site, **{name: (scores[..., row], weight) for row, name in enumerate(SCORES)})

    @torch.no_grad()
    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass that is kept, then one per site, with a copy of the batch for every head that is masked."""
        if not self.losses:
            return
        labels = right_tokens(self.subject, "causal", batch).masked_fill(~self.stream.far(batch.source), IGNORED)
        sites = [site for site in self.sites if self._masks(site)]
        tap, rerun = WindowedContexts(places_of(batch.source), self.stream, sites), Rerun(self.subject, batch)
        with self.subject.tapped(tap), rerun.recording():
            logits = self.subject.run(batch, **rerun.options).logits
        intact, exists = mean_losses(logits, labels)
        self.of_loss.add(loss=(intact, exists))
        for site in sites:
            context = tap.contexts[site]
            changes = intact.new_zeros(len(self.changes), len(batch), context.shape[1])
            jobs = self._jobs(context.shape[1], tap.groups[site]) if bool(exists.any()) else []  # else none is long
            replaced = [Replacement(heads, context[:, heads]) for _, heads in jobs]
            for (row, heads), logits in zip(jobs, rerun.each(site, replaced), strict=True):
                changes[row, :, heads] = (mean_losses(logits, labels)[0] - intact)[:, None]
            numbers = zip(self.changes, changes, strict=True)
            self.of_changes.add(site, **{name: (each, exists[:, None]) for name, each in numbers})

    def _jobs(self, heads: int, groups: int) -> list[tuple[int, slice]]:
        """Which of `changes`, and which heads are masked together: each alone, then those that share their keys."""
        sizes = {"loss_change": 1, "shared_change": heads // groups}
        steps = [(row, sizes[name]) for row, name in enumerate(self.changes)]
        return [(row, slice(start, start + each)) for row, each in steps for start in range(0, heads, each)]

    def compute(self) -> Result:
        """Masses by window, and the change of the loss for each head, alone and with those that share its keys."""
        variables = self.of_masses.arrays() | self.of_retrieval.arrays() | self.retrieval_pairs.q()
        if self.losses:
            variables |= self.of_changes.arrays() | self.of_loss.arrays()
            for pairs in self.pairs:
                variables |= pairs.q()
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"sinks": self.stream.sinks, "size": self.stream.window}
        return result


class Masses:
    """Weight on sinks, on the last tokens and between them, summed over the distant queries of a text by stream.

    It is shown the weights of some rows at a time, as `Wanted.block`.
    """

    def __init__(self, call: Call, tokens: Tokens, streams: Sequence[Stream]) -> None:
        texts, heads = call.scores.shape[:2]
        self.streams, self.places = streams, places_of(tokens)
        self.far = torch.stack([stream.far(tokens) for stream in streams])
        self.sums = torch.zeros(texts, heads, len(streams), len(MASSES), dtype=torch.float64, device=tokens.mask.device)

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        places, total = self.places[texts], weights.sum(-1)
        first = (places < self.streams[0].sinks)[:, None, None].to(weights)
        sinks = (weights * first).sum(-1)
        behind = places[:, rows, None] - places[:, None]
        for number, stream in enumerate(self.streams):
            local = (weights * (behind < stream.window)[:, None].to(weights)).sum(-1)
            counted = self.far[number, texts, rows][:, None].to(weights)
            masses = torch.stack([sinks, local, total - sinks - local], -1) * counted[..., None]
            self.sums[texts, :, number] += masses.sum(2).double()


def _refuse_other_than_causal(subject: Subject) -> None:
    if not subject.anatomy.causal or task_of(subject) != "causal":
        raise UserError(
            f"{subject.name!r} is not a causal language model: the lens 'context' asks which heads need the tokens far "
            "before them. Give a decoder with its output head, such as SmolLM2."
        )
