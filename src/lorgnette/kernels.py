"""The one door to `lorgnette.gpu`: whatever it does faster is found here, and imported where a GPU first needs it.

The code that it speeds up does not name a GPU: a function is marked `by_device`, and a part of a lens is made by what
`made_for` finds for the device of the model.
"""

from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

if TYPE_CHECKING:
    import torch

    from lorgnette.gpu.recording import Recordings
    from lorgnette.lens.base import Lens
    from lorgnette.subject import Subject

P = ParamSpec("P")
T = TypeVar("T")
Kind = TypeVar("Kind")

FASTER = {
    "lorgnette.contributions.layer.LayerNorms": "layer.FusedLayerNorms",
    "lorgnette.lens.distances.divergence.sums_of_pairs": "divergence.sums",
    "lorgnette.lens.geometry.cloud.Clouds": "clouds.FusedClouds",
    "lorgnette.lens.norms.pair_sample.PairSample": "pairs.DrawnPairSample",
}
"""Functions and classes, and what `lorgnette.gpu` has in their place: the same arguments, the same numbers."""


class Room(NamedTuple):
    """How many numbers are worked on at a time: what a CPU keeps in its cache, and what keeps a GPU busy."""

    cpu: int
    gpu: int

    def on(self, device: "torch.device") -> int:
        return self.gpu if is_gpu(device) else self.cpu


def is_gpu(device: "torch.device") -> bool:
    """Whether kernels run on this device."""
    return device.type == "cuda"


def faster(thing: Callable[P, T]) -> Callable[P, T] | None:
    """What a GPU uses in the place of a function or a class; None if there is nothing, or no Triton."""
    place = FASTER.get(f"{thing.__module__}.{thing.__qualname__}")
    if place is None:
        return None
    module, name = place.split(".")
    found = kernels(module)
    return None if found is None else getattr(found, name)


def by_device(function: Callable[P, T]) -> Callable[P, T]:
    """Of a function of tensors: what is faster is called where the first of them is on a GPU."""

    @wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        device: torch.device = arguments[0].device  # type: ignore[attr-defined]
        quick = faster(function) if is_gpu(device) else None
        return (function if quick is None else quick)(*arguments, **options)

    return called


def made_for(kind: type[Kind], device: "torch.device") -> type[Kind]:
    """The class itself, or on a GPU the subclass of it that is faster there."""
    quick = faster(kind) if is_gpu(device) else None
    return quick if isinstance(quick, type) else kind


def recordings(subject: "Subject", lenses: "Sequence[Lens]", paths: set[str]) -> "Recordings | None":
    """Passes of these lenses that are recorded and replayed; None where nothing can be recorded."""
    found: Recordings | None = import_module("lorgnette.gpu.recording").Recordings.of(subject, lenses, paths)
    return found


@cache
def kernels(name: str) -> ModuleType | None:
    """A module of `lorgnette.gpu` that uses Triton, which comes with torch for CUDA; None without it."""
    return None if find_spec("triton") is None else import_module(f"lorgnette.gpu.{name}")
