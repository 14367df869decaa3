"""The states of a lens: how they are declared, saved, restored and merged over processes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from lorgnette.errors import UserError, reason

if TYPE_CHECKING:
    from lorgnette.lens.base import Lens
    from lorgnette.lens.parts import Part

T = TypeVar("T")
Merge = Callable[[Iterable[Tensor]], Tensor]
"""A function that merges the states of several parts of a corpus into one."""


class States:
    """The states of one lens, and its parts, which hold the numbers of a batch until the batch has succeeded."""

    def __init__(self, lens: "Lens") -> None:
        self.lens = lens
        self.parts: list[Part[Any]] = []
        self.device: torch.device = torch.device("cpu")
        """The model's device, and the states kept on it."""
        self.on_device: set[str] = set()
        self.in_place: set[str] = set()
        self.large: set[str] = set()

    def declare(
        self, name: str, start: Tensor, merge: "str | Merge", *, on_device: bool, in_place: bool, large: bool
    ) -> None:
        """Add a state to the lens; see `Lens.state`."""
        lens = self.lens
        if name in lens._defaults:
            raise ValueError(f"the lens {lens.name!r} has a state {name!r} already")
        # An empty one, as torchmetrics fills, copies and keeps all that it is given.
        lens.add_state(name, start.new_empty(0), dist_reduce_fx=merge)
        lens._defaults[name] = start
        setattr(lens, name, filled(start, self.device if on_device else torch.device("cpu")))
        self.on_device |= {name} if on_device else set()
        self.in_place |= {name} if in_place else set()
        self.large |= {name} if large else set()

    def __getitem__(self, name: str) -> Tensor:
        return getattr(self.lens, name)

    @property
    def used(self) -> bool:
        """Whether anything has been added to the lens, as torchmetrics counts it."""
        return self.lens._update_count > 0

    def note_use(self) -> None:
        """Count an update: something was added to the lens, or it was merged."""
        self.lens._update_count = max(self.lens._update_count, 1)

    @property
    def names(self) -> list[str]:
        """The names of all states."""
        return list(self.lens._defaults)

    def at_start(self) -> bool:
        """Whether nothing has been added yet."""
        starts = self.lens._defaults
        alike = ((state, starts[name]) for name, state in self.tensors().items())
        return all(state.shape == start.shape and torch.equal(state.cpu(), start.cpu()) for state, start in alike)

    def tensors(self) -> dict[str, Tensor]:
        """All states by name, to save or restore."""
        self.commit()
        return {name: self[name] for name in self.lens._defaults}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore saved states."""
        self.discard()
        for name in self.lens._defaults:
            setattr(self.lens, name, tensors[name].to(self[name].device, copy=True))
        self.lens._computed = None
        self.note_use()

    def snapshot(self) -> dict[str, Tensor]:
        """The states before a batch; only those that a batch changes in place are copied."""
        return {name: state.clone() if name in self.in_place else state for name, state in self.tensors().items()}

    def commit(self) -> None:
        """Add the numbers of a batch that has succeeded to the states."""
        for part in self.parts:
            part.commit()

    def discard(self, snapshot: Mapping[str, Tensor] | None = None) -> None:
        """Drop a failed batch and restore the states from before it."""
        for part in self.parts:
            part.discard()
        for name, state in (snapshot or {}).items():
            setattr(self.lens, name, state)
        self.lens._computed = None

    def take_in(self, several: Sequence[Mapping[str, Tensor]]) -> None:
        """Become the states of several processes together, each by the rule it was declared with."""
        for name, merge in self.lens._reductions.items():
            device = self[name].device
            setattr(self.lens, name, merged(merge, [tensors[name].to(device) for tensors in several]))

    def move(self, device: torch.device | str) -> None:
        """Move the states beside the model. (`Module.to` would take along whatever part of the model a lens holds.)"""
        for name in self.on_device - (self.large if device == "cpu" else set()):
            setattr(self.lens, name, self[name].to(device))


def description(lens: "Lens") -> str:
    """Name, settings and shapes of the states, which must be equal for a lens to resume from saved states."""
    plain = {name: value for name, value in vars(lens).items() if _is_plain(value) and name[0] != "_"}
    settings = {name: repr(value) for name, value in plain.items() if name not in ("bound", "sites", "training")}
    shapes = sorted((name, list(state.shape)) for name, state in lens.states.tensors().items())
    return f"{lens.name} {sorted(settings.items())} {shapes}"


def _is_plain(value: object) -> bool:
    """Whether a value is a number, a string or a tuple of these, and so looks the same in another process."""
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, str | int | float)


def zeros(*shape: int) -> Float[Tensor, "*shape"]:
    """Zeros in float64 that take no memory: the start of a state."""
    return torch.zeros((), dtype=torch.float64).expand(shape)


def filled(start: Shaped[Tensor, "*shape"], device: torch.device) -> Shaped[Tensor, "*shape"]:
    """A copy on a device; an expanded tensor is sent once and expanded there."""
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
    return from_all({name: state.cpu() for name, state in states.items()}, group)


def from_all(mine: T, group: "dist.ProcessGroup | None" = None) -> list[T]:
    """The objects of all processes, in the order of the processes; a UserError if one of them has ended."""
    out: list[Any] = [None] * dist.get_world_size(group)
    try:
        dist.all_gather_object(out, mine, group=group)
    except RuntimeError as error:  # gloo: the connection was closed
        raise process_ended(reason(error)) from error
    return out


def process_ended(why: str) -> UserError:
    """The error that the other processes raise if one of them has ended."""
    return UserError(
        f"Another process of this run has ended before its work was done ({why}). With --out, what the others have "
        "analysed is saved: the same command with --resume goes on from there, with any number of processes."
    )
