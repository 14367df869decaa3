"""A one-layer BERT classifier gone through backwards by hand: every rule as shares of relevance, no gradient anywhere.

Achtibat et al. 2024 (ε = 0), Ali et al. 2022 and Voita et al. 2019, App. A, written from the papers.
"""

import torch
from shares import apart_from_zero


def linear(x, layer, r, biased=True):
    """R_i = x_i Σ_j W_ji R_j / z_j; in the ratios of Voita et al. 2019 z has no bias in it."""
    z = layer(x) if biased else x @ layer.weight.T
    return x * ((r / (z if biased else apart_from_zero(z))) @ layer.weight)


def added(a, b, r):
    return a / (a + b) * r, b / (a + b) * r


def normed(x, layer, r, biased=True):
    """Identity through the scale 1/s; shares of what is centred, times γ, and β where it counts."""
    y = layer(x)
    rate = (x.var(-1, unbiased=False, keepdim=True) + layer.eps).rsqrt()
    width = x.shape[-1]
    centring = torch.eye(width, dtype=x.dtype) - 1 / width
    parts = x[..., :, None] * centring * (rate * layer.weight)[..., None, :]
    whole = y if biased else apart_from_zero(y - layer.bias)
    return (parts / whole[..., None, :]) @ r[..., None]


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(-2, -3)


def attention(x, layer, heads, r, method, biased):
    """R of x through one text's self-attention, given R of the heads' output [token model]."""
    q, k, v = (split(project(x), heads) for project in (layer.query, layer.key, layer.value))
    scale = q.shape[-1] ** -0.5
    scores = scale * q @ k.transpose(-1, -2)
    alpha = scores.softmax(-1)
    out, r = alpha @ v, split(r, heads)
    to_q = to_k = None
    if method == "ah":
        to_v = v * (alpha.transpose(-1, -2) @ (r / out))
    elif method == "voita2019":
        parts = alpha[..., None] * v[:, None] / out[:, :, None] * r[:, :, None]  # [head query key dim]
        to_v = (parts * v[:, None] / apart_from_zero(alpha[..., None] + v[:, None])).sum(1)
    else:
        to_v = v * (alpha.transpose(-1, -2) @ (r / (2 * out)))  # Prop. 3.3
        to_alpha = alpha * ((r / (2 * out)) @ v.transpose(-1, -2))
        to_scores = scores * (to_alpha - alpha * to_alpha.sum(-1, keepdim=True))  # Prop. 3.1
        shares = scale * q[:, :, None] * k[:, None] / scores[..., None] * to_scores[..., None] / 2
        to_q, to_k = shares.sum(2), shares.sum(1)
    total = torch.zeros_like(x)
    for project, found in ((layer.query, to_q), (layer.key, to_k), (layer.value, to_v)):
        if found is not None:
            total = total + linear(x, project, found.transpose(0, 1).flatten(1), biased)
    return total


@torch.no_grad()
def explicit(model, ids, label, method):
    """R of (words, positions, types) [token] and of every head, for one text without padding."""
    biased = method != "voita2019"
    bert, layer = model.bert, model.bert.encoder.layer[0]
    table = bert.embeddings
    length, heads = len(ids), model.config.num_attention_heads
    word, place = table.word_embeddings(ids), table.position_embeddings.weight[:length]
    kind = table.token_type_embeddings.weight[0].expand(length, -1)
    first = table.LayerNorm(word + place + kind)
    attended = _context(layer.attention.self, first, heads)
    projected = layer.attention.output.dense(attended)
    second = layer.attention.output.LayerNorm(first + projected)
    wide = layer.intermediate.dense(second)
    active = layer.intermediate.intermediate_act_fn(wide)
    narrow = layer.output.dense(active)
    third = layer.output.LayerNorm(second + narrow)
    pooled = bert.pooler(third[None])
    r = torch.zeros(1, model.config.num_labels, dtype=third.dtype)
    r[0, label] = model.classifier(pooled)[0, label]
    r = linear(pooled, model.classifier, r, biased)
    r_top = torch.zeros_like(third)
    r_top[0] = linear(third[:1], bert.pooler.dense, r, biased)[0]  # tanh passes everything on
    r = normed(second + narrow, layer.output.LayerNorm, r_top, biased)[..., 0]
    r_second, r = added(second, narrow, r)
    r = linear(active, layer.output.dense, r, biased)  # as does the activation
    r_second = r_second + linear(second, layer.intermediate.dense, r, biased)
    r = normed(first + projected, layer.attention.output.LayerNorm, r_second, biased)[..., 0]
    r_first, r = added(first, projected, r)
    r_heads = linear(attended, layer.attention.output.dense, r, biased)
    r_first = r_first + attention(first, layer.attention.self, heads, r_heads, method, biased)
    whole = word + place + kind
    r = normed(whole, table.LayerNorm, r_first, biased)[..., 0]
    by_head = split(r_heads, heads).sum((-1, -2))
    return {"words": (word / whole * r).sum(-1), "positions": ((place + kind) / whole * r).sum(-1), "heads": by_head}


def _context(layer, x, heads):
    q, k, v = (split(project(x), heads) for project in (layer.query, layer.key, layer.value))
    out = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(-1) @ v
    return out.transpose(0, 1).flatten(1)
