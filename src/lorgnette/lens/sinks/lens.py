"""Sinks: tokens that receive most of a head's weight, what they contribute, and the loss without them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.attending.sweep import Wanted
from lorgnette.constraints import NotEmpty, Share
from lorgnette.contributions.gated import ArrivingNorms
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import transformed_norms_of
from lorgnette.figures.finding import HALF
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.losses import TASKS, masked, task_of, text_losses
from lorgnette.lens.moments import TOTAL, WEIGHT, Moments
from lorgnette.lens.pairs import Pairs, extreme_q
from lorgnette.lens.signals import Signal, opposite, variable
from lorgnette.lens.sinks.kinds import KINDS, candidates
from lorgnette.lens.sinks.removal import CHANGES, Keys, Removed, middle_keys
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import ModelOutput

PLACES = ("all", *CATEGORIES)
_OF_SINKS = ("arrives", "value_ratio", "activation_ratio")
_DESCRIPTIONS = {
    "rate": "share of texts in which a token of this category receives more than the threshold of the weight",
    "arrives": "share of the summed norms ‖αf(x)‖ that the sink supplies, mean over texts with a sink",
    "value_ratio": "norm ‖f(x)‖ of the sink divided by the mean over the other tokens, mean over texts with a sink",
    "activation_ratio": "largest component of the sink's state, in absolute value, over that of the median token, "
    "mean over texts with a sink",
    "learnt": "weight on a learnt sink (which is not a token), mean over queries",
    "kind_top_q": "q of the difference from the category that is a sink most often: paired, corrected over all pairs",
    "loss": "loss of the intact model, mean over texts",
    "loss_change": "loss minus intact loss, without the values or keys of these tokens in all heads with a sink",
}


class Sinks(CentredLens):
    """Sink rates of every head, the contribution and activations of the sink, and the loss without it.

        s_j = (1/n) Σ_i α_ij          the share of a head's weight over the text that token j receives
        rate(ε)                       share of texts with max_j s_j > ε (Gu et al. 2025, with means over all queries)
        arrives                       s_k ‖f(x_k)‖ / Σ_j s_j ‖f(x_j)‖, k = argmax_j s_j (Kobayashi et al. 2020)
        activation_ratio              max_d |x_kd| / median_j max_d |x_jd| (massive activations: Sun et al. 2024)

    `arrives`, `value_ratio` and `activation_ratio` are over texts whose strongest token takes more than `threshold`.
    With `effect` the model runs again on every batch: the sink's value is set to zero, or its key hidden and the other
    weights renormalised, in all heads that have a sink; and the same for the token in the middle of the text.

    With `centred`, `arrives` and `value_ratio` are of values less their mean over the corpus, per head, which is read
    once before (docs/gauge.md): a sink whose value is zero differs from a mean that is not.

    Behind a gate, which gives each query i another vector of the key, ‖f(x_j)‖ is the mean over queries as they attend
    to it: Σ_i α_ij ‖f_i(x_j)‖ / Σ_i α_ij.

    What it does not tell you: whether the model needs the sink (see `effect`). A sink that contributes nothing lets a
    head attend to nothing. In short texts the shares are larger: one of n tokens receives at least 1/n.
    """

    task: str
    name: ClassVar[str] = "sinks"
    summary: ClassVar[str] = (
        "sinks: tokens that receive most of a head's weight, their contribution, and the loss without them"
    )
    reads = frozenset({"residual"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "no_sink": Signal(
            "1 − share of texts in which one token takes more than 30 % of the weight",
            opposite(variable("rate", {axes.THRESHOLD: 0.3, axes.CATEGORY: "all"})),
        ),
    }

    def __init__(
        self,
        thresholds: Annotated[Sequence[Share], NotEmpty()] = (0.2, 0.3, 0.5, 0.8),
        threshold: Share = 0.3,
        effect: bool = False,
        centred: bool = False,
        parts: Sequence[str] = (),
    ) -> None:
        """`parts`: further categories, the named parts of the texts (image, text, special; user, assistant, …)."""
        super().__init__(centred)
        self.places: tuple[str, ...] = (*PLACES, *parts)
        self.thresholds, self.threshold, self.effect = tuple(thresholds), threshold, effect
        self.reads = self.reads | ({"cpu"} if effect or centred else set())
        self._projections: SiteWeights | None = None
        self.sinks: dict[Site, Keys] = {}

    @property
    def projections(self) -> SiteWeights:
        """W_V and W_O of every layer."""
        if self._projections is None:
            self._projections = SiteWeights(self.subject, layer_norm=False, gated=True)
        return self._projections

    def allocate(self, subject: Subject) -> None:
        _ = self.projections  # a model without known projections is refused here
        self.rates: Moments = Moments(self, "rate", {axes.THRESHOLD: self.thresholds, axes.CATEGORY: self.places})
        # The threshold that the report shows.
        self.nearest: float = min(self.thresholds, key=lambda each: abs(each - self.threshold))
        self.pairs: Pairs = Pairs(self.rates, "rate", {axes.THRESHOLD: self.nearest, axes.CATEGORY: KINDS})
        self.of_sinks: Moments = Moments(self, _OF_SINKS)
        self.learnt: Moments = Moments(self, "learnt")
        if self.effect:
            self.task = task_of(subject)
            self.changes: Moments = Moments(self, "loss_change", {axes.CHANGE: tuple(CHANGES)}, at="corpus")
            self.apart: Moments = Moments(self, [f"{what}_difference" for what in ("value", "key")], at="corpus")
            self.intact: Moments = Moments(self, "loss", at="corpus")

    def update(self, call: Call, batch: Batch) -> None:
        site = call.site
        queries, keys = batch.queries(site), batch.keys(site)
        query = queries.mask.to(torch.float32)
        counts = query.sum(-1)
        has_sink = call.scores.sink is not None
        arriving = self._arriving(call, query)
        rows = call.measure(Wanted(received=query, sink=has_sink, block=arriving))
        share = (rows["received"] / counts.clamp(min=1)[:, None, None]).masked_fill(~keys.mask[:, None], 0.0)
        self._rates(site, share, keys)
        top = share.max(-1)
        sink = Keys(top.indices, top.values > self.threshold)
        lengths = None if arriving is None else arriving.lengths(rows["received"])
        self._of_sinks(call, share, sink, keys, lengths)
        if has_sink:
            taken = (rows["sink"] * query[:, None]).sum(-1) / counts.clamp(min=1)[:, None]
            self.learnt.add(site, learnt=(taken, (counts > 0).to(taken.dtype)[:, None]))
        if self.effect:
            self.sinks[site] = sink

    def _rates(self, site: Site, share: Float[Tensor, "text head key"], keys: Tokens) -> None:
        """For every kind of token, whether one of them takes more than each threshold; texts that have such tokens."""
        kinds = torch.cat([keys.mask[..., None], keys.kinds(self.places[1:])], -1).transpose(1, 2)
        largest = share[:, :, None].masked_fill(~kinds[:, None], -1.0).amax(-1)  # [text head kind]
        over = torch.stack([largest > limit for limit in self.thresholds], 2).to(share.dtype)
        self.rates.add(site, rate=(over, kinds.any(-1).to(share.dtype)[:, None, None]))

    def _arriving(self, call: Call, query: Float[Tensor, "text query"]) -> ArrivingNorms | None:
        """What arrives behind a gate, which is another vector for each query; None without one."""
        gate = self.projections.gate_of(call)
        return None if gate is None else ArrivingNorms(self.centring(call), self.projections[call.site], gate, query)

    def _of_sinks(
        self,
        call: Call,
        share: Float[Tensor, "text head key"],
        sink: Keys,
        keys: Tokens,
        lengths: Float[Tensor, "text head key"] | None,
    ) -> None:
        """What the strongest token of each text sends, and how large its state is; `lengths`: ‖f(x)‖ behind a gate."""
        f = transformed_norms_of(self.centring(call), self.projections[call.site]) if lengths is None else lengths
        f = f.masked_fill(~keys.mask[:, None], 0.0)
        sent = share.to(f.dtype) * f
        all_sent, others = sent.sum(-1), (keys.mask.sum(-1) - 1).to(f.dtype)[:, None]
        own = sink.pick(f)
        mean = (f.sum(-1) - own) / others.clamp(min=1)
        exists = sink.exists.to(f.dtype)
        values = {
            "arrives": (sink.pick(sent) / all_sent.where(all_sent > 0, 1.0), exists * (all_sent > 0)),
            "value_ratio": (own / mean.where(mean > 0, 1.0), exists * (mean > 0) * (others > 0)),
        }
        if call.site.kind == "self" and call.has_residual:
            size = call.residual.abs().amax(-1).to(f.dtype)
            typical = _median(size, keys.mask)[:, None]
            ratio = sink.pick(size[:, None].expand(f.shape)) / typical.where(typical > 0, 1.0)
            values["activation_ratio"] = (ratio, exists * (typical > 0))
        else:
            values["activation_ratio"] = (torch.zeros_like(own), torch.zeros_like(exists))
        self.of_sinks.add(call.site, **values)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """With `effect`: the loss as it is, and with values or keys of the sinks, or of the middle token, removed."""
        if not self.effect:
            return
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch)
        intact, exists = self._losses(batch, labels)
        self.intact.add(loss=(intact, exists))
        some = torch.stack([keys.exists.any(-1) for keys in self.sinks.values()]).any(0).to(exists.dtype)
        changes = []
        for whose, what in CHANGES.values():
            keys = self.sinks
            if whose == "middle":
                keys = {site: middle_keys(sink, batch.keys(site).mask) for site, sink in self.sinks.items()}
            changes.append(self._losses(batch, labels, Removed(keys, what))[0] - intact)
        self.changes.add(loss_change=(torch.stack(changes, -1), (exists * some)[:, None]))
        by_name = dict(zip(CHANGES, changes, strict=True))
        for what in ("value", "key"):
            apart = by_name[f"sink_{what}"] - by_name[f"middle_{what}"]
            self.apart.add(**{f"{what}_difference": (apart, exists * some)})
        self.sinks = {}

    def _losses(
        self, batch: Batch, labels: Tensor | None, *taps: Removed
    ) -> tuple[Float[Tensor, " text"], Float[Tensor, " text"]]:
        with torch.no_grad(), self.subject.tapped(*taps):
            outputs = self.subject.run(batch, return_dict=True)
        return text_losses(self.subject, self.task, batch, outputs, labels)

    def compute(self) -> Result:
        """Rates by threshold and kind of token, what sinks send, and the loss without them."""
        variables = self.rates.arrays() | self.of_sinks.arrays() | self._kinds_apart()
        if bool((learnt := self.learnt.arrays())["learnt_count"].any()):
            variables |= learnt
        if self.effect:
            variables |= self.intact.arrays() | self.changes.arrays() | self.apart.arrays()
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"threshold": self.threshold}
        if self.effect:
            result.data.attrs |= {"task": self.task, "loss": TASKS[self.task]}
        return self.centring.mark(result)

    def _kinds_apart(self) -> dict[str, xr.DataArray]:
        """How sure it is that each kind of token differs from the one that is a sink most often.

        Rates are means over the heads with a sink in most texts, as the report gives them.
        """
        if not self.pairs.few:
            return {}
        rates, stacks = self.pairs.means(), self.by_head.stacks  # [site head kind]
        sums = self.rates.sums()[:, 0, :, :, self.thresholds.index(self.nearest), PLACES.index("all")]
        with_sink = (sums[TOTAL] / sums[WEIGHT]).numpy() > HALF
        q, texts = (np.full((len(stacks), len(self.places)), start) for start in (np.nan, 0.0))
        for number, stack in enumerate(stacks):
            own = np.array([site.name == stack for site in self.sites])[:, None]
            has_sink = own & with_sink
            by_kind = {kind: rates[..., at][has_sink] for at, kind in enumerate(KINDS)}
            found = candidates({kind: _mean(some[~np.isnan(some)]) for kind, some in by_kind.items()})
            rows = np.zeros((len(found), *rates.shape))
            for row, kind in zip(rows, found, strict=True):
                at = KINDS.index(kind)
                known = has_sink & ~np.isnan(rates[..., at])
                row[..., at] = known / known.sum()
            if found:
                means, shared = self.pairs.contrasts(rows)
                places = [PLACES.index(kind) for kind in found]
                q[number, places] = extreme_q(means.value, shared, means.count, means.count > 1, largest=True)
                texts[number, places] = means.count
        labels = {axes.STACK: stacks, axes.CATEGORY: list(self.places)}
        arrays = {"kind_top_q": q, "kind_top_q_count": np.where(np.isnan(q), 0, texts).astype("int64")}
        return {name: xr.DataArray(cells, labels, (axes.STACK, axes.CATEGORY)) for name, cells in arrays.items()}


def _median(values: Float[Tensor, "text token"], mask: Bool[Tensor, "text token"]) -> Float[Tensor, " text"]:
    """The median over the tokens that count, NaN if there are none; `nanquantile` would look at values on the CPU."""
    ordered = values.masked_fill(~mask, torch.inf).sort(-1).values
    last = (mask.sum(-1, keepdim=True) - 1).clamp(min=0)
    low, high = (ordered.gather(-1, place)[:, 0] for place in (last // 2, (last + 1) // 2))
    return (low + (high - low) * 0.5).where(mask.any(-1), torch.nan)


def _mean(values: Float[np.ndarray, " head"]) -> float:
    return float(values.mean()) if len(values) else float("nan")
