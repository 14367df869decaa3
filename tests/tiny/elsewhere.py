"""A device that is not there: tensors that say they are on it, compute on the CPU, and refuse the CPU's company.

What runs on a GPU only if every tensor is made on the model's device runs here too, or says which operation mixed two
devices, on a machine that has no GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from lorgnette.subject import Subject

ELSEWHERE = torch.device("lazy", 0)
"""A device type that torch knows and that needs no driver."""
_MAY_MIX = (
    "aten._to_copy", "aten.copy_", "aten.index.Tensor", "aten.index_put_", "aten.index_put.", "aten._index_put_impl_",
    "aten._unsafe_index",
)  # fmt: skip
"""What copies between devices, and what takes indices from the CPU on a GPU too."""


class There(Tensor):
    """A tensor on the other device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "There":
        return Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype,
            device=ELSEWHERE, requires_grad=False,
        )  # fmt: skip

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return _run(function, arguments, keywords or {})

    def __repr__(self) -> str:  # type: ignore[override]
        return f"There({self.inner})"


class _Making(TorchDispatchMode):
    """Makes what is asked for on the other device there."""

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        return _run(function, arguments, keywords or {})


class _Reading(TorchFunctionMode):
    """Makes tensors of Python's numbers on the CPU, as torch does, and takes them there."""

    def __torch_function__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        keywords = keywords or {}
        if function is Tensor.tolist:
            return arguments[0].detach().cpu().tolist()
        if function is Tensor.data_ptr and isinstance(arguments[0], There):
            return arguments[0].inner.data_ptr()
        if function is Tensor.new_tensor:
            like, numbers = arguments
            function, arguments, keywords = (
                torch.tensor,
                (numbers,),
                {"dtype": like.dtype, "device": like.device, **keywords},
            )
        if function in (torch.tensor, torch.as_tensor) and keywords.get("device") is not None:
            device = torch.device(keywords["device"])
            return function(*arguments, **{**keywords, "device": "cpu"}).to(device)
        if function in (Tensor.__getitem__, Tensor.__setitem__) and isinstance(arguments[0], There):
            tensor, index, *rest = arguments
            arguments = (tensor, _indices(index), *rest)
        return function(*arguments, **keywords)


def _indices(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_indices, index))
    return torch.tensor(index) if isinstance(index, list | range) and len(index) else index


def _run(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    given = [one for one in tree_flatten((arguments, keywords))[0] if isinstance(one, Tensor)]
    there = [one for one in given if isinstance(one, There)]
    asked = keywords.get("device")
    goes = torch.device(asked) == ELSEWHERE if asked is not None else bool(there)
    if asked is not None and torch.device(asked).type == ELSEWHERE.type:
        goes, keywords = True, {**keywords, "device": torch.device("cpu")}
    name = str(function)
    if there and not name.startswith(_MAY_MIX):
        here = [one for one in given if not isinstance(one, There) and one.dim()]
        if here:
            raise AssertionError(f"{name} mixes devices: {[tuple(one.shape) for one in here]} is on the CPU")
    changed = name.split(".")[1].endswith("_") and not name.split(".")[1].endswith("__")
    opened = tree_map_only(There, lambda one: one.inner, (arguments, keywords))
    out = function(*opened[0], **opened[1])
    if changed and given and out is not None:
        return arguments[0]
    if not goes or (name.startswith("aten.copy_") and not isinstance(arguments[0], There)):
        return out
    return tree_map_only(Tensor, There, out)


@contextmanager
def elsewhere(subject: Subject) -> Iterator[Subject]:
    """Take a subject to the other device."""
    moved: dict[int, Tensor] = {}

    def there(tensor: Tensor) -> Tensor:
        if id(tensor) not in moved:
            inner = There(tensor.detach())
            moved[id(tensor)] = nn.Parameter(inner, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else inner
        return moved[id(tensor)]

    for module in subject.model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = there(tensor)
    known = torch.is_autocast_enabled

    def casts(kind: str | None = None) -> bool:
        return kind != ELSEWHERE.type and (known() if kind is None else known(kind))

    with _Making(), _Reading(), patch.object(torch, "is_autocast_enabled", casts):
        yield subject
