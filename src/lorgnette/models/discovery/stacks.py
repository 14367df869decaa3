"""Which attention calls of a pass belong to which stack, layer and kind."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn

from lorgnette.attending import Site
from lorgnette.models.discovery.events import TARGET, Attended, Event, Pass
from lorgnette.models.families.table import drift
from lorgnette.types import PreTrainedModel


@dataclass(frozen=True)
class Place:
    """An attention call in the house: its place in the pass, its site, the layer that holds it."""

    at: int
    site: Site
    layer: nn.Module


@dataclass(frozen=True)
class DiscoveredStack:
    """A stack: the module whose forward is one pass, its calls in order, and the layers that have none."""

    name: str
    module: nn.Module
    places: tuple[Place, ...]
    other_layers: tuple[int, ...]


@dataclass(frozen=True)
class _Position:
    """Where an attention module stands: the list of layers, the number in it, the layer."""

    owner: str
    shelf: str
    number: int
    layer: nn.Module
    layers: int


def stacks_of(base: nn.Module, recorded: Pass) -> list[DiscoveredStack]:
    """Every list of layers with attention in it is a stack; its owner's forward is a pass."""
    positions = _positions(base, recorded)
    owners: dict[str, list[int]] = {}
    for at, event in enumerate(recorded.events):
        if isinstance(event, Attended):
            owners.setdefault(positions[id(event.module)].owner, []).append(at)
    for one in owners:
        inner = [other for other in owners if other != one and (not one or other.startswith(f"{one}."))]
        if inner:
            raise drift(base, f"the stack {inner[0]!r} lies inside another ({one or type(base).__name__!r})")
    names = _names(base, recorded.events, owners)
    return [
        DiscoveredStack(
            names[owner], base.get_submodule(owner), *_places(recorded.events, places, positions, names[owner])
        )
        for owner, places in owners.items()
    ]


def _positions(base: nn.Module, recorded: Pass) -> dict[int, _Position]:
    attending = {id(event.module) for event in recorded.events if isinstance(event, Attended)}
    positions = {}
    for path, module in base.named_modules():
        if id(module) in attending:
            positions[id(module)] = _position(base, path, recorded.called)
    if len(positions) < len(attending):
        raise drift(base, "an attention module is not part of the model")
    return positions


def _position(base: nn.Module, path: str, called: set[int]) -> _Position:
    parts = path.split(".")
    for depth in range(len(parts)):
        shelf = base.get_submodule(".".join(parts[:depth]))
        layer = base.get_submodule(".".join(parts[: depth + 1]))
        if isinstance(shelf, nn.ModuleList) and id(layer) in called:
            owner = _running(base, parts[: depth - 1], called)
            return _Position(owner, ".".join(parts[:depth]), int(parts[depth]), layer, len(shelf))
    return _Position(_running(base, parts[:-1], called), path, 0, base.get_submodule(path), 1)


def _running(base: nn.Module, parts: Sequence[str], called: set[int]) -> str:
    """The innermost module on this path whose forward really ran: containers have none."""
    for depth in range(len(parts), 0, -1):
        if id(base.get_submodule(".".join(parts[:depth]))) in called:
            return ".".join(parts[:depth])
    return ""


def _kind(event: Attended, crosses: bool) -> str:
    """A decoder that asks about the encoder's tokens has as many keys as the encoder has tokens, not as it has."""
    queries, keys = event.query.shape[2], event.key.shape[2]
    return "cross" if crosses and queries == TARGET and keys != TARGET else "self"


def _names(base: PreTrainedModel, events: Sequence[Event], owners: dict[str, list[int]]) -> dict[str, str]:
    translates = bool(getattr(base.config, "is_encoder_decoder", False))
    names: dict[str, str] = {}
    for owner, places in owners.items():
        calls = [event for event in (events[at] for at in places) if isinstance(event, Attended)]
        if translates:
            decodes = any(call.query.shape[2] == TARGET for call in calls)
        else:
            decodes = all(call.causal for call in calls)
        name = "decoder" if decodes else "encoder"
        if name in names.values():
            raise drift(base, f"it has two stacks of the same kind, {owner!r} and another")
        names[owner] = name
    return names


def _places(
    events: Sequence[Event], places: Sequence[int], positions: dict[int, _Position], name: str
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    calls = [(at, event) for at, event in ((at, events[at]) for at in places) if isinstance(event, Attended)]
    crosses = any(call.query.shape[2] != call.key.shape[2] for _, call in calls)
    kinds = [_kind(call, crosses) for _, call in calls]
    own = [positions[id(call.module)] for _, call in calls]
    numbers = list(_numbers(own, kinds))
    layers = tuple(
        Place(at, Site(name, kind, number), position.layer)
        for (at, _), kind, position, number in zip(calls, kinds, own, numbers, strict=True)
    )
    shelves = {position.shelf for position in own}
    every = range(own[0].layers) if len(shelves) == 1 else range(0)
    return layers, tuple(number for number in every if number not in {position.number for position in own})


def _numbers(positions: Sequence[_Position], kinds: Sequence[str]) -> Iterator[int]:
    """The layers' own numbers, if each is passed once and in order; else the calls of each kind are counted."""
    once = all(
        len({position.shelf for position in positions}) == 1 and earlier.number < later.number
        for kind in set(kinds)
        for earlier, later in pairwise(position for position, own in zip(positions, kinds, strict=True) if own == kind)
    )
    counted: dict[str, int] = {}
    for position, kind in zip(positions, kinds, strict=True):
        yield position.number if once else counted.get(kind, 0)
        counted[kind] = counted.get(kind, 0) + 1


def unchanged(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two outputs, relative to the largest number; infinite for what is not a number."""
    scale = float(one.abs().max()) or 1.0
    return float((one - other).abs().nan_to_num(nan=torch.inf).max()) / scale
