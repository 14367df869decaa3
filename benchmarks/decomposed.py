"""DecompX as its paper has it: each token's part of every state as a vector, carried forward through a BERT classifier.

Modarressi, Fayyaz, Aghazadeh, Yaghoobzadeh, Pilehvar 2023, "DecompX: Explaining Transformers Decisions by Propagating
Token Decomposition", ACL. Biases are a source of their own, the last one (`include_bias_token` of the released code).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

Parts = Float[Tensor, "token source model"]


def linear(parts: Parts, layer: nn.Linear) -> Parts:
    """W x_{i←k}; b joins what biases gave before."""
    out = parts @ layer.weight.T
    out[:, -1] += layer.bias
    return out


def norm(parts: Parts, layer: nn.LayerNorm) -> Parts:
    """γ ⊙ (x_{i←k} − mean(x_{i←k})) / s(x_i), β to the biases (equation 7)."""
    deviation = (parts.sum(1).var(-1, unbiased=False) + layer.eps).sqrt()
    out = (parts - parts.mean(-1, keepdim=True)) / deviation[:, None, None] * layer.weight
    out[:, -1] += layer.bias
    return out


def activation(parts: Parts, function: nn.Module) -> Parts:
    """f(z)/z ⊙ z_{i←k}, z = Σ_k z_{i←k}: a line through the origin and the point (equation 10)."""
    whole = parts.sum(1)
    return parts * (function(whole) / whole)[:, None]


def attention(parts: Parts, layer: nn.Module, heads: int) -> Parts:
    """Concat_h Σ_j α^h_ij (W_V^h x_{j←k}) with the weights as they are (equation 3)."""
    states = parts.sum(1)
    query, key = (project(states).unflatten(-1, (heads, -1)) for project in (layer.query, layer.key))
    weights = (torch.einsum("ihd,jhd->hij", query, key) * query.shape[-1] ** -0.5).softmax(-1)
    value = linear(parts, layer.value).unflatten(-1, (heads, -1))
    return torch.einsum("hij,jkhd->ikhd", weights, value).flatten(2)


@torch.no_grad()
def decomposed(model: nn.Module, ids: Int[Tensor, " token"]) -> Float[Tensor, "source class"]:
    """What each token, and last the biases, give to each logit of a `BertForSequenceClassification`; one text."""
    bert, heads, length = model.bert, model.config.num_attention_heads, len(ids)
    states = bert.embeddings(input_ids=ids[None])[0]
    parts = states.new_zeros(length, length + 1, states.shape[-1])
    parts[range(length), range(length)] = states
    for layer in bert.encoder.layer:
        attended = linear(attention(parts, layer.attention.self, heads), layer.attention.output.dense)
        parts = norm(parts + attended, layer.attention.output.LayerNorm)
        inner = activation(linear(parts, layer.intermediate.dense), layer.intermediate.intermediate_act_fn)
        parts = norm(parts + linear(inner, layer.output.dense), layer.output.LayerNorm)
    pooled = activation(linear(parts[:1], bert.pooler.dense), bert.pooler.activation)
    return linear(pooled, model.classifier)[0]
