"""Offloaded weights: accelerate (device_map) keeps them on the CPU or on disk until a module needs them.

They are brought in for each module's forward and taken away again. Passes are exact; what reads weights by itself asks
here.
"""

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from lorgnette.errors import UserError


def is_offloaded(module: nn.Module) -> bool:
    """Whether this module's own weights are loaded for its forward."""
    return bool(getattr(getattr(module, "_hf_hook", None), "offload", False))


def parameter(module: Any, name: str) -> Tensor | None:
    """A weight of a module as a tensor, fetched if it is offloaded."""
    tensor = getattr(module, name, None)
    if tensor is None or not tensor.is_meta:
        return tensor
    from accelerate.utils import align_module_device

    with align_module_device(module):
        return getattr(module, name).detach().clone()


def tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """All parameters and buffers of a checkpoint by name; offloaded ones are in memory one at a time."""
    kept = {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    for name, tensor in sorted(kept.items()):
        path, _, leaf = name.rpartition(".")
        fetched = parameter(model.get_submodule(path), leaf) if tensor.is_meta else tensor
        assert fetched is not None
        yield name, fetched


def refuse_offloaded(model: nn.Module, what: str) -> None:
    """Refuse an operation that reads or changes weights in place."""
    away = next((name for name, tensor in model.named_parameters() if tensor.is_meta), None)
    if away is not None:
        raise UserError(
            f"{what} needs all weights in memory, but part of this model was offloaded for lack of memory "
            f"({away}). Load it in bfloat16, on more GPUs, or on the CPU (--device cpu)."
        )
