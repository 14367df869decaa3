"""Some rows of an attention call: cut out, and which keys they may see."""

import torch
from jaxtyping import Bool
from torch import Tensor

from lorgnette.attention.scores import Scores, causal_keys, part

_ALL = slice(None)


def cut(scores: Scores, texts: slice, rows: slice) -> Scores:
    """The scores of some rows of some texts; what causality forbids is in the mask now."""
    queries, keys = scores.shape[2:]
    rows = slice(*rows.indices(queries))
    allowed = None if scores.allowed is None else part(scores.allowed, texts, _ALL, rows)
    if scores.causal:
        behind = causal_keys(rows, queries, keys, scores.query.device)[None, None]
        allowed = behind if allowed is None else allowed & behind
    bias = None if scores.bias is None else part(scores.bias, texts, _ALL, rows)
    return Scores(scores.query[texts, :, rows], scores.key[texts], scores.scale, allowed, bias, False, scores.softcap)


def visible_keys(scores: Scores) -> Bool[Tensor, "batch heads query key"]:
    """Which keys each row may see; `heads` is 1 where all heads may see the same."""
    batch, _, queries, keys = scores.shape
    allowed = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=scores.query.device)
    if scores.allowed is not None:
        allowed = scores.allowed
    if scores.causal:
        allowed = allowed & causal_keys(slice(0, queries), queries, keys, scores.query.device)
    return allowed.expand(batch, -1, queries, keys)
