"""Taking feed-forward units and whole layers out of a model's modules."""

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers.cache_utils import Cache

from lorgnette.attending import Site
from lorgnette.models.families.layers import FeedForwardPart, LayerPart, layers_of
from lorgnette.models.families.reading import SkippedLayer
from lorgnette.models.linear import is_transposed
from lorgnette.models.pruned.slicing import OutputBias, feed_cache, keep_inputs, keep_outputs, replace_module

Units = Mapping[Site, Sequence[int]]
"""The units that each feed-forward part keeps, by their places now, from 0."""
Counts = Mapping[str, Sequence[int]]
"""stack → layer → the number of feed-forward units that are left"""


def slice_units(model: nn.Module, kept: Units) -> None:
    """Keep only these feed-forward units, in place; parts that are not named keep all."""
    for layer in layers_of(model):
        part, units = layer.feed_forward, kept.get(layer.units_site)
        if part is None or units is None or len(units) == part.units:
            continue
        if units:
            _shrink(part, units)
        else:
            _empty(layer, part)


def scale_units(part: FeedForwardPart, factors: Float[Tensor, " unit"]) -> None:
    """Multiply what is read of each unit by a number, in place: a gate becomes part of the weights."""
    weight = part.contract.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight *= factors.to(weight)[:, None] if is_transposed(part.contract) else factors.to(weight)


def skip_layers(model: nn.Module, gone: Collection[Site]) -> None:
    """Replace layers by one that passes on what it is given, in place: the others keep their numbers."""
    for layer in layers_of(model):
        if layer.site in gone:
            replace_module(model, layer.module, _Skipped(layer))


def _shrink(part: FeedForwardPart, units: Sequence[int]) -> None:
    count = part.units
    for module in part.expand:
        keep_outputs(module, [which * count + unit for which in range(part.parts) for unit in units])
    keep_inputs(part.contract, units)


def _empty(layer: LayerPart, part: FeedForwardPart) -> None:
    """A feed-forward part without units only adds the bias of its second map."""
    weight = part.contract.weight
    assert isinstance(weight, Tensor)
    width = int(weight.shape[1 if is_transposed(part.contract) else 0])
    for module in part.expand:
        replace_module(layer.module, module, nn.Identity())
    replace_module(layer.module, part.contract, OutputBias(part.contract, width))


class _Skipped(SkippedLayer):
    """Stands for a removed layer and returns what its caller expects: the states, and whatever else such a layer
    returns.
    """

    def __init__(self, layer: LayerPart) -> None:
        super().__init__()
        self.returns = layer.stack.returns
        self.number: int | None = layer.site.layer if layer.site.stack == "decoder" else None
        self.names = list(inspect.signature(layer.module.forward).parameters)
        # What a loop over layers may read of one.
        for name in ("attention_type", "layer_type", "is_sliding"):
            if hasattr(layer.module, name):
                setattr(self, name, getattr(layer.module, name))

    def forward(self, hidden_states: Float[Tensor, "batch token model"], *more: object, **named: object) -> Any:
        given = dict(zip(self.names[1:], more, strict=False)) | named
        cache = next((value for value in given.values() if isinstance(value, Cache)), None)
        if cache is not None and self.number is not None:
            feed_cache(cache, hidden_states, self.number)
        if self.returns is None:
            return hidden_states
        return (hidden_states, *(given.get(name) for name in self.returns))
