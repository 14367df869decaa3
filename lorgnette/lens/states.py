"""How the states of a lens come together: those of two lenses, and those of several processes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

Merge = Callable[[Iterable[Tensor]], Tensor]
"""From the states of several parts of a corpus that of all of them."""


def merged(merge: Any, states: Sequence[Tensor]) -> Tensor:
    """One state from several, by the rule it was declared with; states of growing samples may differ in length."""
    if merge is dim_zero_cat:
        return torch.cat(list(states))
    alike = len({state.shape for state in states}) == 1
    return merge(torch.stack(list(states)) if alike else states)


def gathered(states: Mapping[str, Tensor], group: Any = None) -> list[dict[str, Tensor]]:
    """The states of every process, on the CPU, in the order of the processes."""
    out: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(out, {name: state.cpu() for name, state in states.items()}, group=group)
    return out
