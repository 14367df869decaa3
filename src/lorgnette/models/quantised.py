"""Quantised maps beside the plain ones that their weights stand for: what only rounds may differ, and by how much."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.errors import UserError
from lorgnette.models.linear import (
    TOLERANCE,
    beyond_rounding,
    is_quantised_map,
    linear_weights,
    refusal,
    rounds,
    vectors,
)
from lorgnette.models.switching import run_as

_SLOPE = 0.1
"""The largest relative difference of a gradient through a map from that of x W."""


def unexplained(module: nn.Module, given: Float[Tensor, "*rest in"], output: Float[Tensor, "*rest out"]) -> float:
    """How far x W + b is from what a quantised map gave, in units of what rounding explains: of x, or of the result."""
    weight, bias = linear_weights(module)
    x, y = given.flatten(0, -2), output.flatten(0, -2)
    if rounds(module):
        return beyond_rounding(x, weight, bias, y)
    expected = x.to(weight) @ weight if bias is None else x.to(weight) @ weight + bias
    scale = TOLERANCE.get(y.dtype, 1e-4) * y.abs().max().clamp(min=1e-30)
    return float((expected.to(y) - y).abs().max() / scale)


@contextmanager
def unrounded(model: nn.Module) -> Iterator[None]:
    """The maps that round their inputs act as x W + b: what is left of the model can be compared to the last digit.

    Otherwise the least difference is rounded to another step, and grows from layer to layer.
    """
    with ExitStack() as undo:
        for module in list(model.modules()):
            if is_quantised_map(module) and refusal(module) is None and rounds(module):
                weight, bias = linear_weights(module)
                undo.callback(run_as(module, partial(_mapped, weight=weight, bias=bias)))
        yield


def _mapped(x: Tensor, *, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.to(x.dtype) if bias is None else x @ weight.to(x.dtype) + bias.to(x.dtype)


def refuse_no_gradients(name: str, model: nn.Module) -> None:
    """UserError if the gradient of a map is not that of x W: rounding stops it, or leaves nothing of it."""
    kinds = {type(module): module for module in model.modules() if is_quantised_map(module) and refusal(module) is None}
    for kind, module in kinds.items():
        with torch.enable_grad():
            x = vectors(module, 1).requires_grad_()
            output = module.forward(x)  # past the hooks
            weight = linear_weights(module)[0].detach()
            expected = weight.sum(1).float()
            slope = torch.autograd.grad(output.sum(), x)[0][0].float() if output.requires_grad else 0 * expected
        if not float((slope - expected).norm() / expected.norm()) <= _SLOPE:
            raise UserError(
                f"Gradients do not pass through {name!r}: its {kind.__name__} rounds inputs. Quantise the weights "
                "alone, or use what needs no gradients (weights, norms, effects by ablation, occlusion)."
            )
