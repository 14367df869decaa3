"""Removing heads for good: the model that is left computes what the whole one did with those heads at zero."""

import copy
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast, overload

from torch import Tensor, nn

from lorgnette.attending import Site
from lorgnette.errors import UserError, listed, refuse_no_mapping, shown
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import anatomy_of
from lorgnette.models.families.layers import LAYER, UNITS, FeedForwardPart, LayerPart, layers_of
from lorgnette.models.offloading import refuse_offloaded
from lorgnette.models.pruned.checkpoint import as_pruned
from lorgnette.models.pruned.slicing import scale_heads
from lorgnette.models.pruned.units import scale_units
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Head, heads_at
from lorgnette.training.gates.gates import HeadGates
from lorgnette.types import PreTrainedModel

Chosen = Iterable[Head | int | Site] | Mapping[Site | str, Sequence[int]]
"""Heads to remove, as results name them; or, by site, the heads to keep, by their numbers from 0."""


@overload
def remove_heads(model: Subject, heads: Chosen, *, factors: Mapping[Site, Tensor] | None = None) -> Subject: ...
@overload
def remove_heads(
    model: PreTrainedModel, heads: Chosen, *, factors: Mapping[Site, Tensor] | None = None
) -> PreTrainedModel: ...
def remove_heads(
    model: nn.Module | Subject, heads: Chosen, *, factors: Mapping[Site, Tensor] | None = None
) -> nn.Module | Subject:
    """A copy of a model (or subject) without some heads.

        >>> lo.remove_heads(subject, ["1.2", "1.3"])        # with several stacks: "encoder.1.2"
        Subject(...3 encoder layers of 2 to 4 heads (2 heads removed))

    A list names the heads to remove as results do, LAYER.HEAD from 1, as they were numbered before any was removed. For
    programs, a mapping says instead which heads each site keeps, by their original numbers from 0; sites that it does
    not name keep all. Projections are sliced; a site without heads becomes its
    output bias. `factors` (one number per head that is there now) are multiplied into the values first: gates between
    0 and 1. Logits equal those of the model with the other heads' outputs at zero, up to the order of summation.
    """
    if isinstance(model, Subject):
        return Subject(_smaller(model.model, heads, factors), model.tokenizer, name=model.name)
    return _smaller(cast("PreTrainedModel", model), heads, factors)


def _smaller(model: PreTrainedModel, heads: Chosen, factors: Mapping[Site, Tensor] | None) -> PreTrainedModel:
    if not isinstance(model, nn.Module):
        raise UserError(f"remove_heads takes a Subject or a model. Got {shown(model)} instead.")
    refuse_offloaded(model, "Removing heads")
    if factors is not None:
        refuse_no_mapping(factors, "The factors of heads", "{Site('encoder', 'self', 0): torch.ones(12)}")
        for site in factors:
            if not isinstance(site, Site):
                raise UserError(f"The factors of heads are named by Site. Got {shown(site)} instead.")
    return remove_parts(model, _kept(heads) if isinstance(heads, Mapping) else _without(model, heads), factors)


def remove_parts(
    model: PreTrainedModel, kept: Mapping[Site, Sequence[int]], factors: Mapping[Site, Tensor] | None = None
) -> PreTrainedModel:
    """A copy of a model with a part of its heads, feed-forward units and layers.

    `kept` names what stays, by site: of an attention its heads, by their original numbers; of a feed-forward part
    (`Site(stack, "feed-forward", layer)`) its units, by their places now; of a layer (`Site(stack, "layer", layer)`)
    nothing if it goes. What is not named stays. `factors` (a number for each head or unit that is there now) are
    multiplied in first. A layer that goes passes on its states; the others keep their numbers.
    """
    layers = {each.site: each for each in layers_of(model)}
    parts = {each.units_site: each.feed_forward for each in layers.values() if each.feed_forward is not None}
    gone = {site for site, stays in kept.items() if site.kind == LAYER and len(stays) == 0}
    units = {site: numbers for site, numbers in kept.items() if site.kind == UNITS}
    _check_parts(gone, units, layers, parts)
    anatomy = anatomy_of(model)
    sites = {each.site: each for each in anatomy.sites if each.site.stack != "pooler"}
    heads = {site: numbers for site, numbers in kept.items() if site.kind not in (LAYER, UNITS)}
    for site, numbers in heads.items():
        _check(site, numbers, sites)
    heads = _shared(heads, sites)
    heads |= {site: () for site in sites if Site(site.stack, LAYER, site.layer) in gone}
    if factors is not None:
        model = plain_copy(model)
        scaled = {each.units_site: each.feed_forward for each in layers_of(model)}
        for site, values in factors.items():
            if site.kind == UNITS:
                part = scaled[site]
                assert part is not None
                scale_units(part, values)
            elif site.kind != LAYER:
                scale_heads(anatomy_of(model)[site], values)
    return as_pruned(model, _table(model, sites, heads), units, gone)


def _shared(heads: Mapping[Site, Sequence[int]], sites: Mapping[Site, AttentionSite]) -> dict[Site, Sequence[int]]:
    """A module that runs as several layers (ALBERT) loses the same parts in all of them."""
    by_module: dict[int, list[Site]] = {}
    for site, each in sites.items():
        by_module.setdefault(id(each.module), []).append(site)
    out = dict(heads)
    for same in by_module.values():
        named = [set(heads[site]) for site in same if site in heads]
        if len(same) > 1 and named:
            out |= dict.fromkeys(same, sorted(set.intersection(*named)))
    return out


def _check_parts(
    gone: Collection[Site],
    units: Mapping[Site, Sequence[int]],
    layers: Mapping[Site, LayerPart],
    parts: Mapping[Site, FeedForwardPart],
) -> None:
    for site in gone:
        if site not in layers or not layers[site].removable:
            raise UserError(f"{site} cannot be removed: {_why(site, layers)}.")
    for site, numbers in units.items():
        if site not in parts:
            raise UserError(f"{site} has no feed-forward part whose units could be removed.")
        wrong = [unit for unit in numbers if not 0 <= unit < parts[site].units]
        if wrong or list(numbers) != sorted(set(numbers)):
            raise UserError(
                f"the units that {site} keeps must be different numbers in order, from 0 to {parts[site].units - 1}."
            )


def _why(site: Site, layers: Mapping[Site, LayerPart]) -> str:
    if site not in layers:
        return "the model has no such layer"
    if layers[site].stack.first_stays and site.layer == 0:
        return "other layers need what it computes"
    return "its family runs layers in a way that has no place for a gap"


def _kept(heads: Mapping[Site | str, Sequence[int]]) -> Mapping[Site, Sequence[int]]:
    odd = next((site for site in heads if not isinstance(site, Site)), None)
    if odd is not None:
        raise UserError(
            f"{odd!r} is not a site: a mapping says which heads each Site keeps, from 0. To remove heads by their "
            'names from 1, give a list: ["3.7", "3.8"].'
        )
    return {site: numbers for site, numbers in heads.items() if isinstance(site, Site)}


def _without(model: PreTrainedModel, heads: Iterable[Head | int | Site]) -> dict[Site, list[int]]:
    """The heads that stay at each site that loses one of these heads."""
    if listed(heads) is None:
        raise UserError(f'Heads are a list of names such as ["3.7"]. Got {shown(heads)} instead.')
    names = [heads] if isinstance(heads, str) else list(heads)
    odd = next((name for name in names if isinstance(name, int | Site)), None)
    if odd is not None:
        raise UserError(f'{odd!r} is not the name of a head: expected "LAYER.HEAD" such as "3.7", both counted from 1.')
    named: list[Head] = [name for name in names if not isinstance(name, int | Site)]
    subject = Subject(model, None)
    out = {}
    for site, indices in heads_at(subject, named).items():
        numbers = subject.anatomy[site].numbers
        out[site] = [number for index, number in enumerate(numbers) if index not in indices]
    return out


def plain_copy(model: PreTrainedModel) -> PreTrainedModel:
    """A copy that computes with its own weights."""
    copied = copy.deepcopy(model)
    unwrap(copied)
    return copied


def unwrap(model: nn.Module) -> None:
    """Take away the forward that training in half precision leaves on a model.

    It goes on computing in that precision, and in a copy with the weights of the original.
    """
    for name in ("forward", "_original_forward"):
        model.__dict__.pop(name, None)


def fresh(pruned: PreTrainedModel) -> PreTrainedModel:
    """A model of the same shape with random weights."""
    return type(pruned)(copy.deepcopy(pruned.config))


def prune_by_gates(model: PreTrainedModel, gates: HeadGates, rule: str = "code") -> PreTrainedModel:
    """The model that gates leave in evaluation: closed heads removed, half-open gates in the weights."""
    return remove_heads(model, gates.remaining_heads(rule), factors=gates.values())


def count_heads(model: PreTrainedModel) -> dict[str, list[int]]:
    """Heads per layer of each stack, 0 where none is left."""
    anatomy = anatomy_of(model)
    table = _table(model, {each.site: each for each in anatomy.sites if each.site.stack != "pooler"}, {})
    return {name: [len(heads) for heads in layers] for name, layers in table.items()}


def _table(
    model: PreTrainedModel, sites: Mapping[Site, AttentionSite], heads: Mapping[Site, Sequence[int]]
) -> dict[str, list[list[int]]]:
    """stack → layer → heads, for every layer of the model, also those emptied before."""
    before = getattr(model.config, "kept_heads", None) or {}
    table: dict[str, list[list[int]]] = {name: [[] for _ in layers] for name, layers in before.items()}
    for site, each in sites.items():
        layers = table.setdefault(site.name, [])
        layers.extend([] for _ in range(site.layer + 1 - len(layers)))
        layers[site.layer] = sorted(heads.get(site, each.numbers))
    return table


def _check(site: Site, numbers: Sequence[int], sites: Mapping[Site, AttentionSite]) -> None:
    if site not in sites:
        if numbers:
            raise UserError(f"{site}: the model has no heads there to keep.")
        return
    wrong = [number for number in numbers if number not in sites[site].numbers]
    if wrong or len(set(numbers)) != len(numbers):
        have = ", ".join(str(number + 1) for number in sites[site].numbers)
        what = f"has no head {wrong[0] + 1}" if wrong else "was given a head twice"
        raise UserError(f"{site} {what}: its heads are {have}.")
