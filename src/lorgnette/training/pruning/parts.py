"""What can go from a model, what each part costs, and the best that a budget leaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import Cut, anatomy_of, family_of
from lorgnette.models.families.layers import LAYER, UNITS, LayerPart, layers_of
from lorgnette.training.gates.gates import heads_of
from lorgnette.types import PreTrainedModel

KINDS = ("heads", "units", "layers")
Kept = dict[Site, list[int]]


@dataclass(frozen=True)
class Removable:
    """The parts of a model that can go, one after another in one vector, with a price each.

    Prices are shares of what all of them cost together: of their parameters, or of the time that they take.
    """

    sites: Mapping[Site, tuple[int, ...]]
    """heads by their original numbers, feed-forward units by their places, layers as (0,)"""
    layers: Mapping[Site, tuple[Site, ...]]
    """every layer, also one that cannot go: which of the sites lie in it"""
    groups: Mapping[Site, tuple[int, ...]]
    """of heads: the group of each, since those that share keys and values go together"""
    copies: Mapping[Site, Site]
    """sites of a module that runs again: the first of them, which stands for all"""
    price: Float[Tensor, " part"]
    rest: Mapping[Site, float] = field(repr=False)
    """what a layer costs beside its parts"""
    fixed: float
    """what stays whatever goes, in the same unit"""

    @cached_property
    def place(self) -> dict[Site, slice]:
        """The slice of the vector that holds the parts of a site."""
        out, start = {}, 0
        for site, numbers in self.sites.items():
            out[site] = slice(start, start + len(numbers))
            start += len(numbers)
        return out

    @cached_property
    def together(self) -> Int[Tensor, " part"]:
        """For each part, the first of those that go only together."""
        index = torch.arange(sum(map(len, self.sites.values())))
        for site, groups in self.groups.items():
            start = self.place[site].start
            index[self.place[site]] = torch.tensor([start + groups.index(group) for group in groups])
        return index

    def cost(self, here: Float[Tensor, " part"]) -> Float[Tensor, ""]:
        """What is there costs so much; `here` is 1 for a part that stays, or the probability that it does."""
        total = here.new_tensor(self.fixed)
        for layer, inside in self.layers.items():
            own = here.new_tensor(self.rest[layer])
            for site in inside:
                place = self.place[site]
                own = own + (self.price.to(here)[place] * here[place]).sum()
            total = total + (own * here[self.place[layer]].sum() if layer in self.place else own)
        return total

    @property
    def whole(self) -> float:
        """The cost of the whole model."""
        return float(self.cost(torch.ones(len(self.price), dtype=torch.float64)))

    def least(self, *, empty: bool) -> float:
        """What the smallest model costs that is left: a layer in each stack, with a head and a unit unless `empty`."""
        none = torch.zeros(len(self.price), dtype=torch.float64)
        return float(self.cost(self._needed(none, empty=empty).to(none)))

    def best(self, scores: Float[Tensor, " part"], limit: float, *, empty: bool = False) -> Kept:
        """The parts with the largest scores that cost no more than the limit.

        At least one layer of each stack stays, and, unless layers may be `empty`, a head and a unit in each that does.
        """
        scores = scores.double()[self.together]
        order = scores.argsort(descending=True, stable=True)

        def first(count: int) -> Bool[Tensor, " part"]:
            here = torch.zeros(len(order), dtype=torch.bool)
            here[order[:count]] = True
            return self._needed(scores, here[self.together], empty=empty)

        low, high = 0, len(order)
        while low < high:
            middle = (low + high + 1) // 2
            if float(self.cost(first(middle).double())) <= limit * (1 + 1e-9):
                low = middle
            else:
                high = middle - 1
        return self.kept(first(low))

    def kept(self, here: Bool[Tensor, " part"]) -> Kept:
        """By site, the numbers of what is there; nothing of a layer that goes."""
        there = here.tolist()
        out = {
            site: [number for number, stays in zip(numbers, there[self.place[site]], strict=True) if stays]
            for site, numbers in self.sites.items()
        }
        for layer, inside in self.layers.items():
            if layer in self.place and not out[layer]:
                out |= {site: [] for site in inside}
        return out

    def here(self, kept: Mapping[Site, Sequence[int]]) -> Bool[Tensor, " part"]:
        """The vector of a choice."""
        sets = {site: set(kept[site]) for site in self.sites}
        return torch.tensor([number in sets[site] for site, numbers in self.sites.items() for number in numbers])

    def _needed(
        self, scores: Tensor, here: Bool[Tensor, " part"] | None = None, *, empty: bool
    ) -> Bool[Tensor, " part"]:
        """The choice, and what must stay beside it."""
        here = torch.zeros(len(scores), dtype=torch.bool) if here is None else here.clone()
        stacks: dict[str, list[Site]] = {}
        for layer in self.layers:
            stacks.setdefault(layer.stack, []).append(layer)
        for layers in stacks.values():
            places = [self.place[layer].start for layer in layers if layer in self.place]
            if len(places) == len(layers) and not here[places].any():
                here[places[int(scores[places].argmax())]] = True
        for layer, inside in self.layers.items():
            stays = layer not in self.place or bool(here[self.place[layer]].all())
            for site in inside if stays and not empty else ():
                place = self.place[site]
                if not here[place].any():
                    one = place.start + int(scores[place].argmax())
                    here |= self.together == self.together[one]
        return here


def parts_of(model: PreTrainedModel, stacks: Sequence[str] | None = None, only: Sequence[str] = KINDS) -> Removable:
    """The parts of a model that can go, priced by their parameters; what its family does not name cannot."""
    layers = [each for each in layers_of(model) if stacks is None or each.site.stack in stacks]
    heads, copies = _heads(model, stacks) if "heads" in only and family_of(model).cut is not None else ({}, {})
    units = {each.units_site: each for each in layers if "units" in only and each.feed_forward is not None}
    units = {site: each for site, each in units.items() if each.feed_forward and each.feed_forward.units}
    can_go = [each for each in layers if "layers" in only and each.removable]
    sites: dict[Site, tuple[int, ...]] = {site: tuple(each.numbers) for site, each in heads.items()}
    sites |= {site: tuple(range(each.feed_forward.units)) for site, each in units.items() if each.feed_forward}
    sites |= {each.site: (0,) for each in can_go if sum(x.site.stack == each.site.stack for x in layers) > 1}
    if not sites:
        reasons = "; ".join(f"{kind}: {why_all_stay(model, kind, stacks)}" for kind in only)
        raise UserError(f"nothing of what was asked for can go from this {type(model).__name__} ({reasons}).")
    cut = family_of(model).cut
    prices = {site: [_head_price(each, cut)] * each.heads for site, each in heads.items() if cut is not None}
    prices |= {site: [_unit_price(each)] * len(sites[site]) for site, each in units.items()}
    prices |= {each.site: [0.0] for each in can_go}
    owners = {
        each.site: tuple(site for site in sites if (site.stack, site.layer) == (each.site.stack, each.site.layer)
                         and site.kind != LAYER)
        for each in layers_of(model)
    }  # fmt: skip
    inside = {
        each.site: sum(p.numel() for p in each.module.parameters()) - sum(sum(prices[s]) for s in owners[each.site])
        for each in layers_of(model)
    }
    everything = sum(p.numel() for p in model.parameters())
    removable = sum(sum(prices[site]) for site in sites)
    fixed = everything - removable - sum(inside.values())
    groups = {site: _groups(each) for site, each in heads.items() if 1 < each.groups < each.heads}
    vector = torch.tensor([price for site in sites for price in prices[site]], dtype=torch.float64)
    return Removable(
        sites, owners, groups, copies, vector, {site: float(left) for site, left in inside.items()}, float(fixed)
    )


def why_all_stay(model: PreTrainedModel, kind: str, stacks: Sequence[str] | None = None) -> str:
    """Why no part of a kind can go from a model of which none can."""
    layers = [each for each in layers_of(model) if stacks is None or each.site.stack in stacks]
    reason = family_of(model).stays.get(kind)
    if reason is not None:
        return reason
    if kind == "layers" and any(each.removable for each in layers):
        return "one layer of each stack stays, and there is no other"
    if kind == "units" and any(each.feed_forward is not None for each in layers):
        return "all of them are gone"
    return "the record of its family does not say how"


def _heads(model: PreTrainedModel, stacks: Sequence[str] | None) -> tuple[dict[Site, AttentionSite], dict[Site, Site]]:
    """The attentions whose heads can go, each module once, and the sites at which it runs again."""
    anatomy, first, copies = anatomy_of(model), dict[int, Site](), {}
    for site in heads_of(model, stacks):
        module = id(anatomy[site].module)
        if module in first:
            copies[site] = first[module]
        else:
            first[module] = site
    return {site: anatomy[site] for site in first.values()}, copies


def _groups(site: AttentionSite) -> tuple[int, ...]:
    return tuple(position * site.groups // site.heads for position in range(site.heads))


def _head_price(site: AttentionSite, cut: Cut) -> float:
    """Parameters of a head: its rows of the maps for queries, keys and values, and its columns of the output.

    Where all heads share one key and value, these stay while any head does, and are no head's.
    """
    shared = site.groups == 1 < site.heads
    used = (site.query,) if shared else (site.query, site.key, site.value)
    maps = {id(p.module): p.module for p in used if p is not None}
    maps |= {id(module): module for name in cut.also if (module := getattr(site.module, name, None)) is not None}
    count = sum(p.numel() for module in maps.values() for p in module.parameters())
    count += sum(getattr(site.module, name).numel() for name in (*cut.per_head, *cut.per_output))
    weight = getattr(site.output, "weight", None)
    return (count + (0 if weight is None else weight.numel())) / site.heads


def _unit_price(layer: LayerPart) -> float:
    part = layer.feed_forward
    assert part is not None
    weight = part.contract.weight
    assert isinstance(weight, Tensor)
    return (sum(p.numel() for module in part.expand for p in module.parameters()) + weight.numel()) / part.units


def counts(parts: Removable, kept: Mapping[Site, Sequence[int]]) -> dict[str, tuple[int, int]]:
    """How many heads, units and layers stay, of how many."""
    kinds = {"heads": lambda site: site.kind not in (UNITS, LAYER), "units": lambda site: site.kind == UNITS,
             "layers": lambda site: site.kind == LAYER}  # fmt: skip
    out = {}
    for kind, holds in kinds.items():
        some = [site for site in parts.sites if holds(site)]
        if some:
            out[kind] = (sum(len(kept[site]) for site in some), sum(len(parts.sites[site]) for site in some))
    return out
