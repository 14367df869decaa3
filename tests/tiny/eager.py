"""The weights that a model's own eager attention computes, whatever its modules return."""

import sys

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from lorgnette.models.ways import numbers_of

ORACLE = "oracle"
_SEEN: list[tuple[nn.Module, Tensor]] = []


def _oracle(module: nn.Module, *arguments, **keywords):
    """The function that the model's own file calls eager, with a note of its weights."""
    names = type(module).forward.__code__.co_names  # a tower may have one of its own (Llama 4)
    eager = next((name for name in names if name.endswith("eager_attention_forward")), "eager_attention_forward")
    output, weights = getattr(sys.modules[type(module).__module__], eager)(module, *arguments, **keywords)
    _SEEN.append((module, weights))
    return output, weights


AttentionInterface.register(ORACLE, _oracle)
AttentionMaskInterface.register(ORACLE, eager_mask)


def own_weights(model: nn.Module, inputs: dict[str, Tensor]) -> tuple[dict[nn.Module, Tensor], Tensor]:
    """The weights of every module that attends, pieces of a packed row on the diagonal, and the output."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    before = {number: config._attn_implementation_internal for number, config in configs.items()}
    for config in configs.values():
        config._attn_implementation_internal = ORACLE
    _SEEN.clear()
    try:
        with torch.no_grad():
            output = model(**inputs)
    finally:
        for number, config in configs.items():
            config._attn_implementation_internal = before[number]
    pieces: dict[nn.Module, list[Tensor]] = {}
    for module, weights in _SEEN:
        pieces.setdefault(module, []).append(weights)
    joined = {
        module: each[0] if len(each) == 1 else _diagonal([piece[0] for piece in each])[None]
        for module, each in pieces.items()
    }
    return joined, first_states(output)


def _diagonal(blocks: list[Tensor]) -> Tensor:
    heads = zip(*blocks, strict=True)
    return torch.stack([torch.block_diag(*head) for head in heads])


def first_states(output) -> Tensor:
    return numbers_of(output)[0]
