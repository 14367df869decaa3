"""Explanations that only follow how tokens are mixed: weights of attention, rollouts of weights, norms and others.

They are the same whatever class is asked about, and never negative: they say what was read, not what it spoke for.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Recorder, Site
from lorgnette.contributions.flow import attention_flow
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.layer import LayerNorms
from lorgnette.contributions.layer_mixing import mixing_of, rollable
from lorgnette.contributions.measures import Alti, GlobEnc, further_measures
from lorgnette.contributions.norms import all_heads_norms
from lorgnette.contributions.rollout import rolled_out, row_shares
from lorgnette.contributions.value_zeroing import zeroing_distances
from lorgnette.errors import UserError
from lorgnette.explaining.explanation import Explanation, masked
from lorgnette.explaining.target import Target, explained, named, pooling, positions
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.padding import is_first, is_last
from lorgnette.types import ModelOutput

Mixing = Float[Tensor, "batch query key"]
Maps = dict[Site, Mixing]


def mixing_explanation(subject: Subject, batch: Batch, method: str, target: Target = None) -> Explanation:
    """Weights of the last layer, or the rollout of one of the measures, read from where the prediction is made."""
    if method != "attention":
        subject.anatomy.require("mixing")
    rolling = rollable(subject.text_sites)
    # A decoder's look at the encoder, or the pooler of our own classifier.
    readers = {site for site in subject.text_sites if site.kind == "cross"}
    layer = _Layer(subject, batch, MEASURES[method])
    recorder = Recorder(layer, readers if method == "value_zeroing" else readers | rolling, residual=True)
    with torch.no_grad():
        with subject.tapped(recorder):
            outputs = subject.run(batch, return_dict=True)
        start = explained(subject, batch, outputs, target)
        maps = {site: mixing for site, mixing in recorder.records.items() if site in rolling}
        reader = next((mixing for site, mixing in reversed(recorder.records.items()) if site in readers), None)
        if method == "value_zeroing":
            maps = {site: row_shares(c) for site, c in zeroing_distances(subject, batch) if site in rolling}
        rows = _reading(reader, predicting_rows(subject, batch, outputs, target))
        if not maps and reader is None:
            raise UserError(
                f"{subject.name!r} has no self-attention over its text, which this method needs ({method})."
            )
        if method == "attention":
            tokens = rows if reader is not None else _through(rows, next(reversed(maps.values())))
        elif method == "attention_flow":
            tokens = _flowed(maps, rows, batch)
        else:
            tokens = _rolled(maps, rows)
    names = tuple(named(subject, batch, outputs.logits, target))
    return Explanation(method, start, masked(tokens.to(start.dtype), batch.source), explained=names)


class _Layer:
    """How a layer mixes its tokens, by a measure; the mean of its heads' weights where there is none."""

    def __init__(self, subject: Subject, batch: Batch, measure: Callable[..., Mixing | None] | None) -> None:
        self.subject, self.batch, self.measure = subject, batch, measure
        plain = measure in (None, _weights)
        self.projections = None if plain else SiteWeights(subject, layer_norm=True, gated=True)

    def __call__(self, call: Call) -> Mixing:
        if self.measure is None or call.site.kind == "cross":
            return call.weights.mean(1)
        mixing = self.measure(call, self.projections, self.batch)
        if mixing is None:
            raise UserError(
                f"{call.site} of {self.subject.name!r} is not x + attention with a known norm: this method "
                "has no terms there. Use rollout, or a propagation method."
            )
        return mixing


def _reading(reader: Mixing | None, rows: Float[Tensor, "batch row"]) -> Float[Tensor, "batch token"]:
    """How much of each of the source's last states goes into the prediction: where it is made, or read from."""
    if reader is None:
        return rows
    return _through(rows if reader.shape[1] > 1 else rows.new_ones(len(rows), 1), reader)


def _rolled(maps: Maps, rows: Float[Tensor, "batch query"]) -> Float[Tensor, "batch key"]:
    return rows if not maps else _through(rows, rolled_out(_in_order(maps))[-1])


def _flowed(maps: Maps, rows: Float[Tensor, "batch query"], batch: Batch) -> Float[Tensor, "batch key"]:
    """The maximum flow of each text, over its real tokens."""
    out = torch.zeros_like(rows)
    mixing = _in_order(maps) if maps else rows.new_zeros(0, *rows.shape, rows.shape[-1])
    for text, mask in enumerate(batch.source.mask):
        real = mask.nonzero()[:, 0].to(rows.device)
        out[text, real] = attention_flow(mixing[:, text][:, real][:, :, real], rows[text, real]).to(rows)
    return out


def _in_order(maps: Maps) -> Float[Tensor, "layer batch query key"]:
    return torch.stack([maps[site] for site in sorted(maps, key=lambda site: site.layer)])


def _through(rows: Float[Tensor, "batch query"], mixing: Mixing) -> Float[Tensor, "batch key"]:
    return (rows[:, None].to(mixing.dtype) @ mixing)[:, 0]


def predicting_rows(
    subject: Subject, batch: Batch, outputs: ModelOutput, target: Target
) -> Float[Tensor, "batch query"]:
    """Where the prediction is made, as shares that add up to one."""
    logits = outputs.logits
    if logits.dim() == 3:
        rows = positions(subject, batch, target)
    else:
        mask = batch.source.mask
        if pooling(subject) == "mean":
            rows = mask
        elif subject.anatomy.causal:
            rows = is_last(mask)
        else:
            rows = is_first(mask)
    shares = rows.to(logits.dtype)
    return shares / shares.sum(-1, keepdim=True).clamp(min=1)


def _weights(call: Call, projections: SiteWeights | None, batch: Batch) -> Mixing | None:
    return mixing_of(call, None)["weights"]


def _norms(call: Call, projections: SiteWeights, batch: Batch) -> Mixing | None:
    return mixing_of(call, projections).get("norms")


def _alti(call: Call, projections: SiteWeights, batch: Batch) -> Mixing | None:
    layer = LayerNorms(call, projections, batch, gram=False, residual=True)
    measure = further_measures(layer, ["alti"]).get("alti")
    if not isinstance(measure, Alti):
        return None
    weights = call.weights.to(layer.wide)
    out = torch.empty_like(weights[:, 0])
    for text in range(len(out)):
        for row in torch.arange(out.shape[1], device=out.device).split(64):
            out[text, row] = measure.contributions(weights[text, None, :, row], text, row)
    return row_shares(out)


def _globenc(call: Call, projections: SiteWeights, batch: Batch) -> Mixing | None:
    layer = LayerNorms(call, projections, batch, gram=False, residual=True)
    measure = further_measures(layer, ["globenc"]).get("globenc")
    if not isinstance(measure, GlobEnc):
        return None
    weights = call.weights.to(layer.wide)
    norms = all_heads_norms(weights, measure.gram)
    norms.diagonal(dim1=-2, dim2=-1).copy_(measure.own_norm(weights.diagonal(dim1=-2, dim2=-1)))
    return row_shares(norms)


MEASURES: dict[str, Callable[..., Mixing | None] | None] = {
    "attention": None,
    "rollout": _weights,
    "attention_flow": _weights,
    "norm_rollout": _norms,
    "globenc": _globenc,
    "alti": _alti,
    "value_zeroing": None,
}
