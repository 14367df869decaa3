"""Attention between the parts of a text."""

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.errors import UserError
from lorgnette.models.anatomy import AttentionSite
from lorgnette.subject.trace import Trace

MEASURES = ("weights", "norms")
REST = "other"
"""The name for tokens outside all parts, which the tokenizer adds."""


def by_part(trace: Trace, measure: str = "weights", *, stack: str | None = None) -> xr.DataArray:
    """[layer head query_part key_part]: how much of what a part's tokens read is in each part.

    "weights": Σ_j α_ij over the tokens j of a part, mean over the queries i of a part; rows add up to one, but for a
    learnt sink. "norms": Σ_j ‖α_ij f(x_j)‖ likewise, in the model's own units (Kobayashi et al. 2020). A text without
    parts is one part.

    What it does not tell you: a long part gets more than a short one if nobody chooses; compare with the number of its
    tokens.
    """
    if measure not in MEASURES:
        raise UserError(f"Parts can be measured by {' or '.join(MEASURES)}. Got {measure!r} instead.")
    name = trace.stacks[0] if stack is None else trace.known_stack(stack)
    queries, keys = trace.tokens(name)
    sides = [tokens.part_names() or ["text"] * len(tokens.pieces[0]) for tokens in (queries, keys)]
    names = [list(dict.fromkeys(part or REST for part in side)) for side in sides]
    masks = [
        torch.tensor([[(part or REST) == one for part in side] for one in own], dtype=torch.float64)
        for side, own in zip(sides, names, strict=True)
    ]
    sites = [site for site in trace.calls if site.name == name]
    attentions = {site: trace.subject.anatomy[site] for site in sites}
    heads = max(each.total for each in attentions.values())
    shape = (1 + max(site.layer for site in sites), heads, len(names[0]), len(names[1]))
    out = torch.full(shape, torch.nan, dtype=torch.float64)
    for site in sites:
        read_by = _read(trace.calls[site], attentions[site], measure, masks[1])
        mean = masks[0] / masks[0].sum(-1, keepdim=True)
        out[site.layer, list(attentions[site].numbers)] = mean @ read_by
    labels = {axes.LAYER: range(1, shape[0] + 1), axes.HEAD: range(1, heads + 1)}
    parts = {"query_part": names[0], "key_part": names[1]}
    return xr.DataArray(out.numpy(), dims=(axes.LAYER, axes.HEAD, *parts), coords={**labels, **parts}, name=measure)


def _read(
    call: Call, attention: AttentionSite, measure: str, parts: Float[Tensor, "part key"]
) -> Float[Tensor, "head query part"]:
    """Each query's attention to each part, Σ_j α_ij or Σ_j α_ij ‖f(x_j)‖, without the n×n matrix."""
    features = parts.T[None].to(call.query)
    if measure == "norms" and call.gate is not None:
        return _behind_gate(call, call.gate, attention, parts)
    if measure == "norms":
        value = call.value[0].detach()
        value = value.to(torch.promote_types(value.dtype, torch.float32))
        lengths = (value @ attention.output_weights()[0].detach().to(value.dtype)).norm(dim=-1)
        features = lengths[None, ..., None].to(features) * features[:, None]
    with torch.no_grad():
        return call.average(features)[0].cpu().double()


def _behind_gate(
    call: Call,
    gate: Float[Tensor, "batch head query dim"],
    attention: AttentionSite,
    parts: Float[Tensor, "part key"],
) -> Float[Tensor, "head query part"]:
    """Σ_j α_ij ‖(g_i ⊙ v_j) W_O‖: another vector for each query, so query by query."""
    output = attention.output_weights(gated=True)[0].detach()
    output = output.to(torch.promote_types(output.dtype, torch.float32))
    weights, value, by_query = (each[0].detach().to(output) for each in (call.weights, call.value, gate))
    with torch.no_grad():
        lengths = [((one[:, None] * value) @ output).norm(dim=-1) for one in by_query.unbind(1)]
        return (weights * torch.stack(lengths, 1)).cpu().double() @ parts.T
