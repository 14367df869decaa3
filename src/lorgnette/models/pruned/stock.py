"""A pruned model as an ordinary one of its family, which transformers opens, in the smallest shape that holds it."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import anatomy_of, family_of, record_of
from lorgnette.models.families.layers import layers_of, modules_of
from lorgnette.models.families.reading import HeadsKept, submodule
from lorgnette.models.families.record import Stack
from lorgnette.models.grouping import Regrouped
from lorgnette.models.pruned.checkpoint import TABLES, kept_layers, kept_units
from lorgnette.models.pruned.slicing import slice_heads
from lorgnette.models.pruned.units import slice_units
from lorgnette.types import Json, PretrainedConfig, PreTrainedModel


@torch.no_grad()
def stock_model(pruned: PreTrainedModel) -> PreTrainedModel:
    """The same function as an ordinary model of the family.

    Layers that were removed are not there, and the others are numbered anew. Every feed-forward part has as many units
    as the largest that is left. All heads are in their places, and those that were removed have only zeros; where every
    layer has as many heads left, and the config may say so, only these are there.

    Every number of an ordinary model is replaced by its own address, and that model is pruned alike: what is left says
    where each number of the pruned model belongs.
    """
    base: Any = type(pruned).__mro__[1]
    whole = base(_stock_config(pruned)).to(device=pruned.device, dtype=pruned.dtype)
    addresses = base(whole.config).to(torch.float64)  # exact up to 2⁵³
    start, starts = 0, {}
    for name, parameter in addresses.named_parameters():
        parameter.copy_(torch.arange(start, start + parameter.numel(), dtype=torch.float64).view(parameter.shape))
        starts[name], start = start, start + parameter.numel()
    own_names = dict(_own_names(pruned, addresses))  # before modules that run as several layers are sliced
    _slice_alike(addresses, pruned)
    memory = torch.zeros(start, dtype=pruned.dtype, device=pruned.device)
    own = dict(pruned.named_parameters())
    for name, address in addresses.named_parameters():
        memory[address.long().flatten()] = own[_renamed(name, own_names)].detach().flatten()
    for name, parameter in whole.named_parameters():
        parameter.copy_(memory[starts[name] : starts[name] + parameter.numel()].view(parameter.shape))
    _copy_buffers(whole, pruned)
    if cache_is_short(whole):
        whole.generation_config.use_cache = False
    return whole.eval()


def cache_is_short(model: PreTrainedModel) -> bool:
    """Whether transformers makes the decoder's cache for fewer layers than it has, so that generation with it fails.

    It counts the encoder's layers where the config of an encoder-decoder has no name for the decoder's that it expects
    (T5 under transformers 5).
    """
    if not getattr(model.config, "is_encoder_decoder", False) or record_of(model.config) is None:
        return False
    cached = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", None)
    layers = next((len(modules) for stack, modules in _stacks(model) if stack.name == "decoder"), 0)
    return cached is not None and cached < layers


def _stock_config(pruned: PreTrainedModel) -> PretrainedConfig:
    config = pruned.config
    base: Any = type(config).__mro__[1]
    fields = {name: value for name, value in config.to_dict().items() if name not in (*TABLES, "model_type")}
    fields |= _sizes(pruned)
    plain = base.from_dict(fields)
    plain.architectures = [name.removeprefix("Pruned") for name in config.architectures or ()]
    return plain


def _sizes(pruned: PreTrainedModel) -> Json:
    """The config entries for the remaining layers and units."""
    units, layers = kept_units(pruned), kept_layers(pruned)
    out: Json = {}
    for stack, modules in _stacks(pruned):
        left = layers.get(stack.name, [])
        if stack.depth is not None:
            out[stack.depth] = len(left)
            out |= {} if stack.left is None else stack.left(pruned.config, left)
            if len(types := getattr(pruned.config, "layer_types", None) or ()) == len(modules):
                out["layer_types"] = [types[number] for number in left]
        if stack.feed_forward is not None and stack.feed_forward.size is not None and units.get(stack.name):
            name = stack.feed_forward.size
            out[name] = max(1, out.get(name, 1), *units[stack.name])
    if (equal := _equal_heads(pruned)) is not None:
        family = family_of(pruned)
        assert family.head_size is not None
        site = anatomy_of(pruned).sites[0]
        out |= {next(name for name in family.heads if hasattr(pruned.config, name)): equal[0]}
        out |= {"num_key_value_heads": equal[1], family.head_size: head_size(site)}
    return out


def _equal_heads(pruned: PreTrainedModel) -> tuple[int, int] | None:
    """The heads and groups of every layer, if they are equal and fewer than there were; None if zeros must stand in."""
    if family_of(pruned).head_size is None:
        return None
    sites = anatomy_of(pruned).sites
    sizes = {(each.heads, each.groups) for each in sites}
    layers = sum(map(len, kept_layers(pruned).values()))
    ragged = any(isinstance(module, Regrouped) for module in pruned.modules())
    if len(sizes) != 1 or len(sites) != layers or ragged or sites[0].heads == sites[0].total:
        return None
    return next(iter(sizes))


def head_size(site: AttentionSite) -> int:
    """How wide a head's part of the output projection's input is."""
    output = site.output
    assert isinstance(output, nn.Linear)
    return output.in_features // site.heads


def _stacks(model: PreTrainedModel) -> Iterator[tuple[Stack, list[nn.Module]]]:
    base = getattr(model, "base_model", model)
    for stack in family_of(model).stacks:
        module = None if stack.name == "pooler" else submodule(base, stack.module)
        if module is not None:
            yield stack, list(modules_of(module, stack, model))


def _slice_alike(addresses: PreTrainedModel, pruned: PreTrainedModel) -> None:
    units = kept_units(pruned)
    parts = {each.units_site: each.feed_forward for each in layers_of(addresses)}
    numbers = dict(_numbers(pruned))
    slice_units(
        addresses,
        {
            site: range(units[site.stack][numbers[site.stack][site.layer]])
            for site, part in parts.items()
            if part is not None
        },
    )
    if _equal_heads(pruned) is not None:
        return
    heads: HeadsKept = {
        name: [layers[number] for number in numbers["decoder" if name == "cross" else name]]
        for name, layers in (pruned.config.kept_heads or {}).items()
    }
    slice_heads(addresses, heads)


def _numbers(pruned: PreTrainedModel) -> Iterator[tuple[str, list[int]]]:
    """stack → the number in the pruned model of each layer of the ordinary one."""
    left = kept_layers(pruned)
    for stack, modules in _stacks(pruned):
        yield stack.name, list(range(len(modules))) if stack.depth is None else left.get(stack.name, [])


def _own_names(pruned: PreTrainedModel, plain: PreTrainedModel) -> Iterator[tuple[str, str]]:
    """The path of each layer of the ordinary model, with that of the same layer in the pruned one."""
    ours, theirs = ({id(module): path for path, module in model.named_modules()} for model in (pruned, plain))
    numbers = dict(_numbers(pruned))
    for (stack, mine), (_, new) in zip(_stacks(pruned), _stacks(plain), strict=True):
        for number, module in zip(numbers[stack.name], new, strict=True):
            yield theirs[id(module)] + ".", ours[id(mine[number])] + "."


def _renamed(name: str, paths: dict[str, str]) -> str:
    """The name of a parameter in the pruned model."""
    return next((own + name.removeprefix(new) for new, own in paths.items() if name.startswith(new)), name)


def _copy_buffers(whole: PreTrainedModel, pruned: PreTrainedModel) -> None:
    buffers: dict[str, Tensor] = dict(whole.named_buffers())
    for name, buffer in pruned.named_buffers():
        if name in buffers and buffers[name].shape == buffer.shape:
            buffers[name].copy_(buffer)
    if getattr(pruned, "generation_config", None) is not None:
        whole.generation_config = copy.deepcopy(pruned.generation_config)
