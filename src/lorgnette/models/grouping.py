"""Query heads that share keys and values, and which of them are left when heads are removed."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.models.linear import is_transposed


@dataclass(frozen=True)
class GroupsLeft:
    """The groups of keys and values that some query heads need."""

    kept: tuple[int, ...]
    """the original numbers of the groups"""
    owners: tuple[int, ...] | None
    """of each query head its place in `kept`, where groups are of unequal size; None: equal parts, in order"""
    arriving: int
    """heads of keys and values that reach the attention function"""


def groups_left(numbers: Sequence[int], total: int, groups: int) -> GroupsLeft:
    """What is left of `groups` groups of `total` query heads with these heads; equal shares need no map."""
    per = total // groups
    owner = [number // per for number in numbers]
    kept = sorted(set(owner))
    if len({owner.count(group) for group in kept}) == 1:
        return GroupsLeft(tuple(kept), None, len(kept))
    return GroupsLeft(tuple(kept), tuple(kept.index(group) for group in owner), len(numbers))


def alternating(module: nn.Module, which: int, heads: int, groups: int) -> Int[Tensor, " out"]:
    """The outputs of a fused map that holds, group by group, its queries (0), its key (1) and its value (2)."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    out = int(weight.shape[1 if is_transposed(module) else 0])
    each = heads // groups
    return torch.arange(out).view(groups, each + 2, -1).split([each, 1, 1], dim=1)[which].flatten()


class Regrouped(nn.Linear):
    """Keys or values of some groups, handed to every query head that reads them, since the groups are unequal."""

    owners: tuple[int, ...]

    def forward(self, input: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch out"]:
        groups = super().forward(input).unflatten(-1, (max(self.owners) + 1, -1))
        return groups[..., list(self.owners), :].flatten(-2)
