"""Other weights in the place of those that attention computed: even, shuffled, or the worst for a class.

All stay in the simplex: never negative, rows sum to 1, nothing on keys that a row may not see.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Seen = Bool[Tensor, "batch #head query key"]


def uniform(seen: Seen) -> Float[Tensor, "batch #head query key"]:
    """1/n on each of the n keys that a row may see; zeros in a row that may see none."""
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


def permuted(
    weights: Float[Tensor, "batch head query key"], seen: Seen, generator: torch.Generator
) -> Float[Tensor, "batch head query key"]:
    """The weights of each row in another order over the keys that it may see, drawn anew for each row.

    As sharp as before, so it is the choice of keys that is taken away, not the sharpness. The draw is made on the
    generator's device and does not depend on the weights.
    """
    noise = torch.rand(weights.shape, generator=generator, device=generator.device).to(weights.device)
    # Keys that are seen first, in random order and in their own: the k-th of one goes to the place of the k-th other.
    drawn = noise.masked_fill(~seen, 2.0).argsort(-1)
    own = (~seen).to(torch.int8).expand_as(weights).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, own, weights.gather(-1, drawn))


def all_on_least(values: Float[Tensor, "batch #head query key"], seen: Seen) -> Float[Tensor, "batch head query key"]:
    """All the weight of a row on the key whose value is least: argmin over the simplex of Σ_j a_j values_j."""
    least = values.masked_fill(~seen, torch.inf).argmin(-1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, least, 1.0) * seen
