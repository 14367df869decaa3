"""Shannon's entropy, in the one form used throughout the package."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def entropy(distribution: Float[Tensor, "*rest item"]) -> Float[Tensor, "*rest"]:
    """H = −Σ_j p_j log p_j in nats over the last axis, 0 log 0 = 0.

    The smallest normal number stands in for 0 inside the logarithm, so that the gradient is finite where p is 0
    (padding); `torch.special.entr` has an infinite one there. It does not see which items have the mass.
    """
    return -(distribution * distribution.clamp(min=torch.finfo(distribution.dtype).tiny).log()).sum(-1)


def normalised_entropy(
    nats: Float[Tensor, "*rest"], count: Int[Tensor, "*rest"] | Float[Tensor, "*rest"]
) -> Float[Tensor, "*rest"]:
    """H / log n, n the number of items (keys a row may see): 0 for one item, 1 for an even distribution.

    Fosse et al. 2023 and Nguyen et al. 2022. A row with one key has entropy 0 and n counts as 2 there, so that it
    gives 0. The same H/log n can be a few keys of a short text or many of a long one.
    """
    return nats / largest_entropy(count, nats.dtype)


def largest_entropy(count: Int[Tensor, "*rest"] | Float[Tensor, "*rest"], dtype: torch.dtype) -> Float[Tensor, "*rest"]:
    """log n, at least log 2: what an entropy is divided by to be normalised."""
    return count.clamp(min=2).to(dtype).log()
