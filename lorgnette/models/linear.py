"""Linear maps: which modules are one, and their weights."""

from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D


def is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def is_transposed(module: nn.Module) -> bool:
    """GPT-2 keeps the weights of its linear maps as [in, out]."""
    return isinstance(module, Conv1D)


def linear_weights(module: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight as [in, out] and bias."""
    weight, bias = module.weight, module.bias
    assert isinstance(weight, Tensor)
    return weight if is_transposed(module) else weight.T, bias if isinstance(bias, Tensor) else None
