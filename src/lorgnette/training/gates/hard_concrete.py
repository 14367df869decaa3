"""The hard concrete distribution: numbers in [0, 1] that are exactly 0 or 1 with positive probability.

u ~ U(0, 1); s = σ((log u − log(1−u) + log α)/β); z = min(1, max(0, s(ζ−γ)+γ)) with γ < 0 and ζ > 1.
Louizos, Welling, Kingma 2018 (β = 2/3); Voita et al. 2019 (β = .33); both (γ, ζ) = (−.1, 1.1).
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = 1e-6
"""u stays this far from 0 and 1."""


def sampled(
    log_alpha: Float[Tensor, "*gate"], uniform: Float[Tensor, "*gate"], temperature: float, stretch: tuple[float, float]
) -> Float[Tensor, "*gate"]:
    """z for noise u in [0, 1]: differentiable in log α where 0 < z < 1, with zero gradient where it is 0 or 1."""
    low, high = stretch
    u = uniform * (1 - 2 * EPSILON) + EPSILON
    s = torch.sigmoid((u.log() - torch.log1p(-u) + log_alpha) / temperature)
    return (s * (high - low) + low).clamp(0, 1)


def deterministic(log_alpha: Float[Tensor, "*gate"], stretch: tuple[float, float]) -> Float[Tensor, "*gate"]:
    """ẑ = clip(σ(log α)(ζ−γ)+γ, 0, 1), the gate of evaluation.

    It has no β, so it is not the mean of z: 0 iff log α ≤ log(−γ/ζ), 1 iff log α ≥ log((1−γ)/(ζ−1)), which for
    (−.1, 1.1) are ∓ln 11.
    """
    low, high = stretch
    return (torch.sigmoid(log_alpha) * (high - low) + low).clamp(0, 1)


def probability_open(
    log_alpha: Float[Tensor, "*gate"], temperature: float, stretch: tuple[float, float]
) -> Float[Tensor, "*gate"]:
    """P(z ≠ 0) = σ(log α − β log(−γ/ζ))."""
    low, high = stretch
    return torch.sigmoid(log_alpha - temperature * math.log(-low / high))


def probability_one(
    log_alpha: Float[Tensor, "*gate"], temperature: float, stretch: tuple[float, float]
) -> Float[Tensor, "*gate"]:
    """P(z = 1) = σ(log α − β log((1−γ)/(ζ−1)))."""
    low, high = stretch
    return torch.sigmoid(log_alpha - temperature * math.log((1 - low) / (high - 1)))


def even_odds(temperature: float, stretch: tuple[float, float]) -> float:
    """The log α at which P(z = 0) = P(z = 1): β/2 (log(−γ/ζ) + log((1−γ)/(ζ−1))), which for (−.1, 1.1) is 0."""
    low, high = stretch
    return round(temperature / 2 * (math.log(-low / high) + math.log((1 - low) / (high - 1))), 12)
