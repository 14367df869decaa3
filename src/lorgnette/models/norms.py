"""Norms: which modules are norms, and of what form. Proved by running a copy of the module, not by its name.

    norm(x) = (offset + weight) ⊙ (x − centred · mean(x)) / s + bias

s² is the variance (centred) or the mean square of x, plus ε. Gemma keeps γ − 1 as its weight: offset 1.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.offloading import parameter

EPSILONS = ("eps", "variance_epsilon", "epsilon")


@dataclass(frozen=True)
class NormForm:
    centred: bool
    offset: float = 0.0

    def gain(self, module: Any, rate: Tensor) -> Tensor:
        """γ / s of every component, from 1 / s."""
        weight = parameter(module, "weight")
        if weight is None:
            return rate
        return rate * (self.offset + weight.detach() if self.offset else weight.detach())


_LAYER_NORM = NormForm(centred=True)
_FORMS = (NormForm(centred=False), NormForm(centred=False, offset=1.0), _LAYER_NORM, NormForm(True, 1.0))
_KNOWN: dict[tuple[type, bool], NormForm | None] = {}


def norm_form(module: nn.Module) -> NormForm | None:
    """The form of a norm over the last axis; None if the module is not a known norm."""
    if isinstance(module, nn.LayerNorm | PureNorm):
        return _LAYER_NORM
    key = (type(module), getattr(module, "weight", None) is not None)
    if key not in _KNOWN:
        _KNOWN[key] = _tried(module)
    return _KNOWN[key]


def is_norm(module: nn.Module) -> bool:
    return norm_form(module) is not None


def epsilon(module: Any) -> float:
    return float(next(getattr(module, name) for name in EPSILONS if hasattr(module, name)))


def norm_rate(module: Any, x: Tensor) -> Tensor:
    """1 / s of every token."""
    x = x.detach()
    if isinstance(module, PureNorm):
        spread = variance(x, unbiased=True)[..., None]
        constant = (x.amax(-1, keepdim=True) == x.amin(-1, keepdim=True)) | (spread == 0)
        return torch.where(constant, 0.0, spread.rsqrt())
    form = norm_form(module)
    if form is not None and form.centred:
        return (variance(x)[..., None] + epsilon(module)).rsqrt()
    wide = x.float() if x.dtype.itemsize < 4 else x
    return (wide.square().mean(-1, keepdim=True) + epsilon(module)).rsqrt().to(x.dtype)


def variance(x: Float[Tensor, "*any model"], *, unbiased: bool = False) -> Float[Tensor, "*any"]:
    """Variance over the last axis, in two passes: on a CPU twenty times as fast as `torch.var`."""
    wide = x.float() if x.dtype.itemsize < 4 else x
    squares = (wide - wide.mean(-1, keepdim=True)).square().sum(-1)
    return (squares / (x.shape[-1] - unbiased)).to(x.dtype)


def _tried(module: nn.Module) -> NormForm | None:
    """Run a copy with random weights on vectors of two sizes, in one of which ε counts, and compare."""
    parameters = dict(module.named_parameters())  # their sizes alone
    if not any(hasattr(module, name) for name in EPSILONS) or set(parameters) - {"weight", "bias"}:
        return None
    if any(parameter.dim() != 1 for parameter in parameters.values()) or any(True for _ in module.children()):
        return None
    width = next((len(parameter) for parameter in parameters.values()), 8)
    generator = torch.Generator().manual_seed(0)
    own: Any = copy.copy(module)
    own._parameters = {
        name: None if parameter is None else nn.Parameter(torch.randn(width, generator=generator))
        for name, parameter in module._parameters.items()
    }
    x = torch.randn(1, 3, width, generator=generator) * torch.tensor([[[3.0], [1.0], [epsilon(module) ** 0.5]]])
    try:
        with torch.no_grad():
            value = type(own).forward(own, x)
    except Exception:  # takes something else than one tensor: no norm of this kind
        return None
    return next((form for form in _FORMS if _equal(form, own, x, value)), None)


def _equal(form: NormForm, module: Any, x: Tensor, value: Tensor) -> bool:
    centre = x - x.mean(-1, keepdim=True) if form.centred else x
    rate = (centre.square().mean(-1, keepdim=True) + epsilon(module)).rsqrt()
    expected = centre * form.gain(module, rate)
    if getattr(module, "bias", None) is not None:
        expected = expected + module.bias.detach()
    return value.shape == expected.shape and torch.allclose(value, expected, rtol=1e-4, atol=1e-5)
