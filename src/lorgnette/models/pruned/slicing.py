"""Taking heads out of a model's modules: projections are sliced, a layer without heads keeps its output bias.

Nothing here computes attention: a sliced module is the module it was, with smaller matrices. What each family calls its
projections is in its record.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import Cut, drift, family_of, head_prunable_types, whole_anatomy
from lorgnette.models.families.reading import HeadsKept
from lorgnette.models.grouping import Regrouped, groups_left
from lorgnette.models.linear import is_transposed

LAYER_NUMBERS = ("layer_idx", "layer_id")
"""What attentions call their place in the cache."""


def slice_heads(model: nn.Module, kept: HeadsKept, before: HeadsKept | None = None) -> None:
    """Keep only these heads, in place. `before`: what earlier slicing had left (None: the model is whole)."""
    cut = family_of(model).cut
    groups = getattr(model.config, "num_key_value_heads", None)
    done = set()
    for site in whole_anatomy(model, before).sites:
        if site.site.name not in kept or site.site.stack == "pooler" or id(site.module) in done:
            continue
        numbers = tuple(kept[site.site.name][site.site.layer])
        if numbers == site.numbers:
            continue
        if cut is None:
            known = ", ".join(head_prunable_types())
            raise drift(model, f"heads cannot be removed from its family; from these they can: {known}")
        done.add(id(site.module))  # ALBERT runs one module as several layers
        if numbers:
            _shrink(site, cut, numbers)
            _regroup(site, cut, numbers, int(groups or site.total))
        else:
            _empty(site, cut)


def scale_heads(site: AttentionSite, factors: Float[Tensor, " head"]) -> None:
    """Multiply each head's values, and so its output, by a number, in place: a gate becomes part of the weights.

    Where values are shared, or fused head by head, it is the rows of W_O that are multiplied.
    """
    value = site.value
    assert value is not None
    if site.groups != site.heads or value.columns is not None:
        output = site.output
        assert isinstance(output, nn.Linear)
        scale = factors.to(output.weight).repeat_interleave(output.weight.shape[1] // site.heads)
        with torch.no_grad():
            output.weight *= scale
        return
    weight, bias = value.module.weight, value.module.bias
    assert isinstance(weight, Tensor)
    transposed = is_transposed(value.module)
    size = weight.shape[1 if transposed else 0] // value.of
    rows = slice(value.which * size, (value.which + 1) * size)
    scale = factors.to(weight).repeat_interleave(size // site.heads)
    with torch.no_grad():
        if transposed:
            weight[:, rows] *= scale
        else:
            weight[rows] *= scale[:, None]
        if isinstance(bias, Tensor):
            bias[rows] *= scale


def _shrink(site: AttentionSite, cut: Cut, numbers: Sequence[int]) -> None:
    module: Any = site.module
    positions = [site.numbers.index(number) for number in numbers]
    dim = _width(module, cut) // site.heads
    columns = [position * dim + i for position in positions for i in range(dim)]
    whole = [part * site.heads * dim + column for part in range(cut.parts) for column in columns]
    if cut.by_head:
        whole = [position * cut.parts * dim + i for position in positions for i in range(cut.parts * dim)]
    for name in cut.projections:
        keep_outputs(getattr(module, name), whole)
    for name in cut.also:
        if hasattr(module, name):
            keep_outputs(getattr(module, name), columns)
    for names, index in ((cut.per_head, positions), (cut.per_output, columns)):
        for name in names:
            setattr(module, name, _some(getattr(module, name), 0, index))
    if site.output is not None:
        keep_inputs(site.output, columns)
    elif cut.output is not None:  # the heads stand side by side: each must stay where it was
        setattr(module, cut.output, SideBySide(columns, site.heads * dim))
    for name in cut.head_counts:
        setattr(module, name, len(positions))
    for name in cut.widths:
        setattr(module, name, len(positions) * dim)
    if cut.bias is not None and getattr(module, cut.bias) is not None:  # a table per layer
        table = getattr(module, cut.bias)
        table.bias = nn.Parameter(table.bias.detach()[list(positions)], table.bias.requires_grad)
    if cut.shared_bias is not None:  # one table for all layers, which other layers still need whole
        _hand_over_part(module, SlicedBias(numbers, *cut.shared_bias), on=cut.returns == "biased", total=site.total)


def _regroup(site: AttentionSite, cut: Cut, numbers: Sequence[int], groups: int) -> None:
    """Keep the keys and values that a query head still reads; unequal groups are handed out head by head."""
    before, after = (groups_left(some, site.total, groups) for some in (site.numbers, numbers))
    for name in cut.grouped:
        projection = getattr(site.module, name)
        dim = len(projection.weight) // len(before.kept)
        places = [before.kept.index(group) for group in after.kept]
        keep_outputs(projection, [place * dim + i for place in places for i in range(dim)])
        projection.__class__ = nn.Linear if after.owners is None else Regrouped
        if after.owners is not None:
            projection.owners = after.owners
    if cut.grouped:
        site.module.num_key_value_groups = len(numbers) // after.arriving  # type: ignore[assignment]


def _width(module: Any, cut: Cut) -> int:
    """The output width of a projection, over all heads."""
    projection = getattr(module, cut.projections[0])
    return int(projection.weight.shape[1 if is_transposed(projection) else 0]) // cut.parts


def _hand_over_part(module: Any, sliced: "SlicedBias", *, on: bool, total: int) -> None:
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for number, hook in list(hooks.items()):
            if isinstance(hook, SlicedBias | HandedOn):
                del hooks[number]
                module._forward_pre_hooks_with_kwargs.pop(number, None)
    if on:
        sliced = SlicedOfWhole(sliced.numbers, sliced.place, sliced.name, total)
        module.register_forward_hook(HandedOn(sliced))
    module.register_forward_pre_hook(sliced, with_kwargs=True)


def _empty(site: AttentionSite, cut: Cut) -> None:
    """Replace the attention by a module that returns the output bias (or zeros) for every token."""
    assert site.value is not None
    value: Any = site.value.module
    width = int(value.weight.shape[0 if is_transposed(value) else 1])
    output: nn.Module
    if site.output is None or isinstance(site.output, SideBySide):
        output = Nothing(width)
    else:
        output = OutputBias(site.output, width)
    number = next((getattr(site.module, name) for name in LAYER_NUMBERS if hasattr(site.module, name)), None)
    silent = NoHeads(cut.returns, number, site.site.kind == "cross")
    if cut.returns == "biased":
        silent.total, silent.bias_of = site.total, _without_maps(site.module, (*cut.projections, cut.output))
    if cut.output is None:
        assert site.output is not None
        replace_module(site.layer, site.output, output)
    else:
        silent.add_module(cut.output, output)
        silent.inner = cut.output
        if cut.dropout is not None:
            silent.dropout = getattr(site.module, cut.dropout)
        if cut.norm is not None:
            silent.add_module(cut.norm, getattr(site.module, cut.norm))
            silent.norm = cut.norm
    replace_module(site.layer, site.module, silent)


def _without_maps(module: nn.Module, names: Sequence[str | None]) -> nn.Module:
    """What is left of an attention that only computes the bias of the others."""
    for name in names:
        if name is not None:
            delattr(module, name)
    return module


def replace_module(root: nn.Module, old: nn.Module, new: nn.Module) -> None:
    for path, module in root.named_modules():
        if module is old:
            parent, _, name = path.rpartition(".")
            setattr(root.get_submodule(parent), name, new)
            return
    raise RuntimeError(f"{type(old).__name__} is not in {type(root).__name__}")


def keep_outputs(module: Any, index: Sequence[int]) -> None:
    """Keep some outputs of a Linear, or of GPT-2's transposed one."""
    axis = 1 if is_transposed(module) else 0
    module.weight = _some(module.weight, axis, index)
    if module.bias is not None:
        module.bias = _some(module.bias, 0, index)
    setattr(module, "nf" if axis else "out_features", len(index))


def keep_inputs(module: Any, index: Sequence[int]) -> None:
    if isinstance(module, SideBySide):
        module.columns = [module.columns[number] for number in index]
        return
    axis = 0 if is_transposed(module) else 1
    module.weight = _some(module.weight, axis, index)
    setattr(module, "nx" if axis == 0 else "in_features", len(index))


def _some(parameter: nn.Parameter, axis: int, index: Sequence[int]) -> nn.Parameter:
    chosen = parameter.detach().index_select(axis, torch.tensor(index, device=parameter.device)).contiguous()
    return nn.Parameter(chosen, parameter.requires_grad)


class SlicedBias:
    """Passes a layer the part of the shared position bias that belongs to its heads (MPNet, BLOOM)."""

    def __init__(self, numbers: Sequence[int], place: int, name: str) -> None:
        self.numbers, self.place, self.name = list(numbers), place, name

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        at = self.place
        states = given[0] if given else named["hidden_states"]
        if len(given) > at and given[at] is not None:
            given = (*given[:at], self.part(given[at], states), *given[at + 1 :])
        if named.get(self.name) is not None:
            named = {**named, self.name: self.part(named[self.name], states)}
        return given, named

    def part(self, bias: Tensor, states: Tensor) -> Tensor:
        """The bias of these heads; heads may follow the texts in one dimension (BLOOM)."""
        if bias.dim() == 4:
            return bias[:, self.numbers]
        texts = states.shape[0]  # not `len`, which would make it a constant of an exported graph
        return bias.unflatten(0, (texts, -1))[:, self.numbers].flatten(0, 1)


class SlicedOfWhole(SlicedBias):
    """The same where each layer hands the bias on to the next, and the first one makes it (T5)."""

    whole: Tensor | None = None

    def __init__(self, numbers: Sequence[int], place: int, name: str, total: int) -> None:
        super().__init__(numbers, place, name)
        self.total = total

    def __call__(self, module: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
        self.whole = named.get(self.name)
        if self.whole is None:
            states = given[0] if given else named["hidden_states"]
            self.whole = first_bias(module, states, named, self.total)
        return given, {**named, self.name: self.whole[:, self.numbers]}


class HandedOn:
    """Gives the next layer the bias of all heads, whichever of them this one has."""

    def __init__(self, sliced: SlicedOfWhole) -> None:
        self.sliced = sliced

    def __call__(self, _: nn.Module, __: object, output: tuple[Any, ...]) -> tuple[Any, ...]:
        whole, self.sliced.whole = self.sliced.whole, None
        return output[0], whole, *output[2:]


def first_bias(
    attention: Any, states: Float[Tensor, "batch query model"], named: dict[str, Any], total: int
) -> Float[Tensor, "one head query key"]:
    """The bias of every head as T5's first layer makes it; zeros for attention to another text, which has none."""
    other, mask, past = (named.get(name) for name in ("key_value_states", "mask", "past_key_values"))
    queries = states.shape[1]
    if other is not None:
        return states.new_zeros(1, total, queries, other.shape[1])
    seen = 0 if past is None else past.get_seq_length(attention.layer_idx)
    keys = queries + seen if mask is None else mask.shape[-1]
    return attention.compute_bias(queries, keys, device=states.device, past_seen_tokens=seen)


class SideBySide(nn.Module):
    """Puts the contexts of the remaining heads back in their places, with zeros for the removed ones."""

    bias = None

    def __init__(self, columns: Sequence[int], width: int) -> None:
        super().__init__()
        self.width = width
        self.columns: list[int] = list(columns)  # numbers, not a buffer: from_pretrained makes modules without data
        self.register_buffer("like", torch.empty(0), persistent=False)  # follows the model's device and precision

    @property
    def weight(self) -> Float[Tensor, "width kept"]:
        """The map as a Linear's weight, for code that reads it."""
        like: Any = self.like
        return torch.eye(self.width, dtype=like.dtype, device=like.device)[:, self.columns]

    def forward(self, joined: Float[Tensor, "*batch kept"]) -> Float[Tensor, "*batch width"]:
        whole = joined.new_zeros((*joined.shape[:-1], self.width))
        return whole.index_copy(-1, torch.tensor(self.columns, device=joined.device), joined)


class OutputBias(nn.Module):
    """An output projection that has lost all inputs: it gives every token its bias."""

    weight = None

    def __init__(self, projection: nn.Module, width: int) -> None:
        super().__init__()
        self.width = width
        bias = projection.bias
        self.bias = nn.Parameter(bias.detach().clone(), bias.requires_grad) if isinstance(bias, Tensor) else None

    def forward(self, states: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch width"]:
        zeros = states.new_zeros((*states.shape[:-1], self.width))
        return zeros if self.bias is None else zeros + self.bias


class Nothing(nn.Module):
    """Zeros for every token: heads that stood side by side, none of them left."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def forward(self, states: Float[Tensor, "*batch model"]) -> Float[Tensor, "*batch width"]:
        return states.new_zeros((*states.shape[:-1], self.width))


class NoHeads(nn.Module):
    """Stands in for an attention without heads."""

    inner: str | None = None
    norm: str | None = None
    dropout: nn.Module | None
    bias_of: Any
    """an attention that makes the bias, if this one did"""
    total: int = 0
    """how many heads a bias has that goes on to the next layer"""

    def __init__(self, returns: str, layer_idx: int | None, is_cross: bool) -> None:
        super().__init__()
        self.returns, self.layer_idx, self.is_cross = returns, layer_idx, is_cross
        self.dropout = None

    def forward(
        self,
        hidden_states: Float[Tensor, "batch token model"],
        *more: Any,
        past_key_values: Any = None,
        layer_past: object = None,  # GPT-NeoX's name for it
        position_bias: Tensor | None = None,
        **named: object,
    ) -> Any:
        cache = layer_past if past_key_values is None else past_key_values
        if self.returns == "biased" and position_bias is None:
            named["past_key_values"] = cache  # before this layer feeds it
            position_bias = first_bias(self.bias_of, hidden_states, named, self.total)
        if cache is not None and not self.is_cross:
            assert self.layer_idx is not None
            feed_cache(cache, hidden_states, self.layer_idx)
        output = hidden_states if self.inner is None else self.get_submodule(self.inner)(hidden_states)
        if self.dropout is not None:
            output = self.dropout(output)
        if self.norm is not None:
            output = self.get_submodule(self.norm)(hidden_states + output)
        if self.returns == "state":
            return output
        if self.returns == "biased":
            return output, position_bias, None
        if self.returns == "residual":
            return output + more[0], None
        if self.returns == "entities":
            return output, more[0]
        return (output,) if self.returns == "tuple" else (output, None)


def feed_cache(cache: Any, states: Float[Tensor, "batch token model"], layer: int) -> None:
    """The cache of layer 0 says how many tokens came before: without an entry, positions would start again at 0."""
    cache = getattr(cache, "self_attention_cache", cache)
    note = states.new_zeros(states.shape[0], 1, states.shape[1], 1)
    cache.update(note, note, layer)
