"""Linear maps as they act: their weights with everything that an adapter adds, or a refusal by name.

A plain `nn.Linear` (or GPT-2's transposed one) shows its parameters. Any other module that is used as a linear map (an
adapter around one, one whose weights lie elsewhere until they are needed) is known by what it does to the unit vectors:
W = f(I) − f(0), b = f(0), and a random vector proves that there is nothing else to it. Quantised and sharded maps are
refused: what they multiply by is not what they keep.
"""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from lorgnette.errors import CaptureError

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}
"""Largest relative difference that is rounding, by precision."""

CHUNK = 1024
"""Unit vectors that are sent through a map at a time."""


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def is_transposed(module: nn.Module) -> bool:
    """GPT-2 keeps the weights of its linear maps as [in, out]."""
    return isinstance(module, Conv1D)


def is_plain(module: nn.Module) -> bool:
    """x W + b with W and b as they are kept."""
    own = type(module).forward in (nn.Linear.forward, Conv1D.forward) and "forward" not in vars(module)
    return own and isinstance(module.weight, Tensor) and not module.weight.is_meta and refusal(module) is None


def linear_weights(module: nn.Module) -> tuple[Float[Tensor, "in out"], Float[Tensor, " out"] | None]:
    """Weight as [in, out] and bias, as the map acts now; views of the parameters where it is a plain one."""
    reason = refusal(module)
    if reason is not None:
        raise CaptureError(
            f"The weights of a {type(module).__name__} cannot be read: {reason}. Use a copy of the model with plain "
            "weights (dequantised, on one device), or lenses that do not need them."
        )
    if not is_plain(module):
        return _probed(module)
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    return weight if is_transposed(module) else weight.T, bias if isinstance(bias, Tensor) else None


def linear_state(module: nn.Module) -> Hashable:
    """Equal as long as the map is: which parameters it has, their versions, and what it does if that is not all."""
    parameters = [(id(p), p.data_ptr(), version(p)) for p in module.parameters()]
    if is_plain(module):
        return tuple(parameters)
    with torch.no_grad(), _evaluated(module):  # an adapter may be switched off without any parameter changing
        output = module.forward(_vectors(module, 1)).float().cpu()
    return (*parameters, output.numpy().tobytes())


def version(parameter: Tensor) -> int:
    """Counts the changes in place; 0 where nobody counts."""
    return 0 if parameter.is_inference() else parameter._version


def refusal(module: Any) -> str | None:
    """Why the weights of a map are not what it multiplies by; None if they are, or can be found out."""
    weight = getattr(module, "weight", None)
    if weight is None:
        return "it keeps none, or keeps them packed"
    if not isinstance(weight, Tensor):
        return f"they are a {type(weight).__name__}"
    if hasattr(weight, "device_mesh"):
        return "they are spread over several devices"
    if type(weight) not in (Tensor, nn.Parameter):
        return f"they are a {type(weight).__name__}, quantised or of another special kind"
    if not weight.is_floating_point() or weight.dtype.itemsize < 2:
        return f"they are quantised ({str(weight.dtype).removeprefix('torch.')})"
    return None


def _probed(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    like = _vectors(module, 1)
    width = like.shape[-1]
    with torch.no_grad(), _evaluated(module):
        zero = module.forward(torch.zeros_like(like))[0]
        rows = torch.arange(width, device=like.device)
        unit = [torch.nn.functional.one_hot(some, width).to(like.dtype) for some in rows.split(CHUNK)]
        weight = torch.cat([module.forward(some) - zero for some in unit])
        x = _vectors(module, 3)
        expected = module.forward(x)
        product = x.to(weight.device) @ weight  # a map kept on the CPU may work on a GPU
        difference = (product + zero - expected).abs().max() / expected.abs().max().clamp(min=1e-30)
    if not float(difference) <= TOLERANCE[like.dtype]:
        raise CaptureError(
            f"A {type(module).__name__} is used as a linear map but is not one: x W + b differs from what it gives by "
            f"{float(difference):.1e} of its size."
        )
    return weight, zero if bool(zero.any()) else None


def _vectors(module: Any, count: int) -> Float[Tensor, "count in"]:
    """Random vectors, always the same ones, that the map takes."""
    weight = module.weight
    width = getattr(module, "in_features", None) or weight.shape[0 if is_transposed(module) else 1]
    device = next((p.device for p in module.parameters() if not p.is_meta), weight.device)
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, width, generator=generator).to(device if device.type != "meta" else "cpu", weight.dtype)


@contextmanager
def _evaluated(module: nn.Module) -> Iterator[None]:
    """Without an adapter's dropout."""
    training = [each for each in module.modules() if each.training]
    for each in training:
        each.training = False
    try:
        yield
    finally:
        for each in training:
            each.training = True
