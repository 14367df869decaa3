"""The layers of one loaded model and their feed-forward parts, as its family's record says."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from lorgnette.attending import Site
from lorgnette.models.families.reading import SkippedLayer, required_submodule, submodule, without_adapter
from lorgnette.models.families.record import Stack
from lorgnette.models.families.table import family_of
from lorgnette.models.linear import is_transposed

UNITS, LAYER = "feed-forward", "layer"
"""Kinds of parts beside the attentions, where a `Site` names one."""


@dataclass(frozen=True)
class FeedForwardPart:
    """The feed-forward part of a layer: maps with an output for each unit, and the map that reads the units."""

    expand: tuple[nn.Module, ...]
    contract: nn.Module
    parts: int

    @property
    def units(self) -> int:
        """How many units there are; 0 where all were removed."""
        weight = getattr(self.contract, "weight", None)
        return 0 if weight is None else int(weight.shape[0 if is_transposed(self.contract) else 1])


@dataclass(frozen=True)
class LayerPart:
    """One layer that is there."""

    site: Site
    """of the kind `LAYER`"""
    module: nn.Module
    stack: Stack
    feed_forward: FeedForwardPart | None

    @property
    def removable(self) -> bool:
        return self.stack.depth is not None and not (self.stack.first_stays and self.site.layer == 0)

    @property
    def units_site(self) -> Site:
        return Site(self.site.stack, UNITS, self.site.layer)


def layers_of(model: nn.Module) -> tuple[LayerPart, ...]:
    """The layers of all stacks of a model whose family has a record, without those that were removed.

    A module that runs as several layers (ALBERT) comes once, with the number of the first.
    """
    model = without_adapter(model)
    base = getattr(model, "base_model", model)
    found, seen = [], set()
    for stack in family_of(model).stacks:
        module = None if stack.name == "pooler" else submodule(base, stack.module)
        if module is None:
            continue
        for number, layer in enumerate(modules_of(module, stack, model)):
            if id(layer) in seen or isinstance(layer, SkippedLayer):
                continue
            seen.add(id(layer))
            found.append(LayerPart(Site(stack.name, LAYER, number), layer, stack, _feed_forward(layer, stack)))
    return tuple(found)


def modules_of(module: nn.Module, stack: Stack, model: nn.Module) -> Sequence[nn.Module]:
    """The layers of a stack in the order in which they run, also those that stand in for removed ones."""
    return (
        stack.layers(module)
        if callable(stack.layers)
        else list(required_submodule(module, stack.layers, model).children())
    )


def _feed_forward(layer: nn.Module, stack: Stack) -> FeedForwardPart | None:
    record = stack.feed_forward
    contract = None if record is None else submodule(layer, record.contract)
    if record is None or contract is None:
        return None
    expand = tuple(module for path in record.expand if (module := submodule(layer, path)) is not None)
    return FeedForwardPart(expand, contract, record.parts)
