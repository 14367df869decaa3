"""What dividing the scores by √d does to the gradient at the queries, before training and at many widths."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.layers import SelfAttention
from reproductions.frame.running import rounded
from reproductions.frame.settings import Machine

DIVIDED, UNDIVIDED = "divided", "undivided"


def gradients(*, machine: Machine, widths: list[int], texts: int, tokens: int, seed: int) -> dict[str, Any]:
    """By way and width: ‖∂L/∂q‖ of a token, and H of its weights over log n, mean over tokens.

    One head whose maps are as a layer of the practical draws them, on standard normal vectors; L = Σ_i y_i · g_i with
    g_i standard normal over √d, so that what comes from above does not depend on the width.
    """
    torch.manual_seed(seed)
    found: dict[str, Any] = {DIVIDED: {}, UNDIVIDED: {}}
    for width in widths:
        layer = SelfAttention(SelfAttentionClassifierConfig(width=width, heads=1), 0).double()
        states = torch.randn(texts, tokens, width, dtype=torch.float64)
        above = torch.randn_like(states) / width**0.5
        for way, scaling in ((DIVIDED, layer.scaling), (UNDIVIDED, 1.0)):
            query, key, value = (getattr(layer, name)(states).detach() for name in ("query", "key", "value"))
            found[way][str(width)] = _of(query, key, value, above, scaling)
    return rounded(found)


def _of(query: Tensor, key: Tensor, value: Tensor, above: Tensor, scaling: float) -> dict[str, float]:
    query = query.requires_grad_()
    weights: Float[Tensor, "text query key"] = (query @ key.transpose(1, 2) * scaling).softmax(-1)
    (gradient,) = torch.autograd.grad(((weights @ value) * above).sum(), query)
    entropy = torch.special.entr(weights.detach()).sum(-1) / torch.tensor(float(key.shape[1])).log()
    return {"gradient": float(gradient.norm(dim=-1).mean()), "entropy": float(entropy.mean())}
