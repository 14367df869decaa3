"""How the states of a lens come together: those of two lenses, and those of several processes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

Merge = Callable[[Iterable[Tensor]], Tensor]
"""From the states of several parts of a corpus that of all of them."""


def zeros(*shape: int) -> Float[Tensor, "*shape"]:
    """Zeros in float64 that take no room, to start a state with."""
    return torch.zeros((), dtype=torch.float64).expand(shape)


def filled(start: Shaped[Tensor, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """A copy on a device; of what is only repeated, one is sent, and it is repeated there."""
    few = start[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in start.stride())]
    if not few.any():
        return torch.zeros(start.shape, dtype=start.dtype, device=device)  # nothing is sent
    return few.to(device).expand(start.shape).clone(memory_format=torch.contiguous_format)


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
