"""Which attention calls of a pass belong to which stack, layer and kind."""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import nn
from transformers import PreTrainedModel

from lorgnette.attending import Site
from lorgnette.models.discovery.events import TARGET, Attended, Event, Pass
from lorgnette.models.families.table import drift


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

    @property
    def total(self) -> int | None:
        """How many layers there are, if some have no attention."""
        return len(self.other_layers) + len({place.site.layer for place in self.places}) if self.other_layers else None


@dataclass(frozen=True)
class _Position:
    """Where an attention module stands: the list of layers, the number in it, the layer."""

    owner: str
    shelf: str
    number: int
    layer: nn.Module
    layers: int


def stacks_of(base: nn.Module, recorded: Pass, *, beside: bool = False) -> list[DiscoveredStack]:
    """Every list of layers with attention in it is a stack; its owner's forward is a pass.

    `beside`: the model sees something beside its texts, so it may have stacks of other names than encoder and decoder.
    """
    positions = _positions(base, recorded)
    owners: dict[str, list[int]] = {}
    for at, event in enumerate(recorded.events):
        if isinstance(event, Attended):
            owners.setdefault(positions[id(event.module)].owner, []).append(at)
    for one in owners:
        inner = [other for other in owners if other != one and (not one or other.startswith(f"{one}."))]
        if inner:
            raise drift(base, f"the stack {inner[0]!r} lies inside another ({one or type(base).__name__!r})")
    names = (_names_beside if beside else _names)(base, recorded.events, owners)
    return [
        DiscoveredStack(
            names[owner],
            base.get_submodule(owner),
            *_places(recorded.events, places, positions, names[owner], beside=beside),
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


def _kind(event: Attended, crosses: bool, *, beside: bool) -> str:
    """A decoder that asks about the encoder's tokens has as many keys as the encoder has tokens, not as it has."""
    queries, keys = event.query.shape[2], event.key.shape[2]
    if beside:
        return "cross" if queries != keys or event.crosses else "self"
    return "cross" if crosses and queries == TARGET and keys != TARGET else "self"


def _names_beside(base: nn.Module, events: Sequence[Event], owners: dict[str, list[int]]) -> dict[str, str]:
    """vision for a tower of pictures, encoder or decoder for texts, and what its module is called for the rest."""
    names: dict[str, str] = {}
    for owner, places in owners.items():
        calls = [event for event in (events[at] for at in places) if isinstance(event, Attended)]
        own = [call for call in calls if _kind(call, True, beside=True) == "self"]
        senses = _senses(base, owner)
        if senses == {"text"} or (not owner and "text" in senses):  # Chameleon's pictures become words of its own
            name = "decoder" if _decodes(base.get_submodule(owner), own) else "encoder"
        else:
            name = "vision" if senses and senses <= {"image", "video"} else _called(owner)
        name = _called(owner) if name in names.values() else name
        if name in names.values() or "." in name:
            raise drift(base, f"it has two stacks of the same kind, {owner!r} and another")
        names[owner] = name
    return names


def _decodes(stack: nn.Module, calls: Sequence[Attended]) -> bool:
    """Whether each token sees those before it alone; a decoder may show a picture's tokens to each other (PaliGemma).

    Such a decoder has a cache; an older encoder may have one too, and says in its config that it is no decoder.
    """
    if calls and all(call.causal or getattr(call.module, "is_causal", False) for call in calls):
        return True
    config = getattr(stack, "config", None)
    return "past_key_values" in inspect.signature(stack.forward).parameters and not hasattr(config, "is_decoder")


def _senses(base: nn.Module, owner: str) -> set[str]:
    """What the innermost model on this path takes, by its class; nothing for a part that is no model of its own."""
    parts = owner.split(".")
    for depth in range(len(parts), 0, -1):
        module = base.get_submodule(".".join(parts[:depth]))
        if isinstance(module, PreTrainedModel):
            takes = module.input_modalities
            senses = {takes} if isinstance(takes, str) else set(takes)
            if module is not base and type(module.config) is type(getattr(base.config, "vision_config", None)):
                return {"image"}  # whatever the class says: Gemma 4's has the senses of the whole, EXAONE 4.5's text
            reads = {"input_ids", "inputs_embeds"} & set(inspect.signature(module.forward).parameters)
            return senses if reads or senses == {"text"} else senses - {"text"}
    return set()


_GENERIC = ("model", "encoder", "transformer", "layers", "blocks")


def _called(owner: str) -> str:
    """The last part of a module's path that says what it is."""
    telling = [part for part in owner.split(".") if part not in _GENERIC and not part.isdigit()]
    return telling[-1] if telling else owner


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
    events: Sequence[Event], places: Sequence[int], positions: dict[int, _Position], name: str, *, beside: bool
) -> tuple[tuple[Place, ...], tuple[int, ...]]:
    calls = [(at, event) for at, event in ((at, events[at]) for at in places) if isinstance(event, Attended)]
    crosses = any(call.query.shape[2] != call.key.shape[2] for _, call in calls)
    kinds = [_kind(call, crosses, beside=beside) for _, call in calls]
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
