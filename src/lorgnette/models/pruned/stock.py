"""A pruned model in the shape of its family again, with zeros where heads were: plain transformers opens it."""

from typing import Any

import torch
from torch import Tensor

from lorgnette.models.pruned.slicing import slice_heads
from lorgnette.types import PretrainedConfig, PreTrainedModel


@torch.no_grad()
def stock_model(pruned: PreTrainedModel) -> PreTrainedModel:
    """The same function with all heads in their places: those that were removed have only zeros and add nothing.

    It is as large and as slow as the whole model. Every number of a stock model is replaced by its own address, and
    that model is pruned alike: what is left says where each number of the pruned model belongs.
    """
    base: Any = type(pruned).__mro__[1]
    whole = base(_stock_config(pruned.config)).to(device=pruned.device, dtype=pruned.dtype)
    addresses = base(whole.config).to(torch.float64)  # exact up to 2⁵³
    start, starts = 0, {}
    for name, parameter in addresses.named_parameters():
        parameter.copy_(torch.arange(start, start + parameter.numel(), dtype=torch.float64).view(parameter.shape))
        starts[name], start = start, start + parameter.numel()
    slice_heads(addresses, pruned.config.kept_heads)
    memory = torch.zeros(start, dtype=pruned.dtype, device=pruned.device)
    own = dict(pruned.named_parameters())
    for name, address in addresses.named_parameters():
        memory[address.long().flatten()] = own[name].detach().flatten()
    for name, parameter in whole.named_parameters():
        parameter.copy_(memory[starts[name] : starts[name] + parameter.numel()].view(parameter.shape))
    _copy_buffers(whole, pruned)
    return whole.eval()


def _stock_config(config: PretrainedConfig) -> PretrainedConfig:
    base: Any = type(config).__mro__[1]
    fields = {name: value for name, value in config.to_dict().items() if name not in ("kept_heads", "model_type")}
    plain = base.from_dict(fields)
    plain.architectures = [name.removeprefix("Pruned") for name in config.architectures or ()]
    return plain


def _copy_buffers(whole: PreTrainedModel, pruned: PreTrainedModel) -> None:
    buffers: dict[str, Tensor] = dict(whole.named_buffers())
    for name, buffer in pruned.named_buffers():
        if name in buffers and buffers[name].shape == buffer.shape:
            buffers[name].copy_(buffer)
    if getattr(pruned, "generation_config", None) is not None:
        whole.generation_config = pruned.generation_config
