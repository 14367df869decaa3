"""How small a model is to become: what each kind of part can save at most, and the limit that a budget sets."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.errors import UserError
from lorgnette.files import write_whole
from lorgnette.models.families import family_of
from lorgnette.models.families.layers import LAYER, UNITS
from lorgnette.training.pruning.parts import Kept, Removable, parts_of, why_all_stay
from lorgnette.training.pruning.removal import remove_parts
from lorgnette.training.pruning.scores import with_as_many_layers
from lorgnette.training.pruning.settings import KINDS, PruningSettings, size_of
from lorgnette.training.pruning.speed import SECONDS, savings
from lorgnette.types import Json, PreTrainedModel

FILE = "budget.json"


@dataclass(frozen=True)
class Budget:
    """The parts that may go, priced by what the budget counts, and how much may stay."""

    parts: Removable
    limit: float
    free: Removable | None = None
    """with `uniform`, where heads stay: the parts that could go without it, priced alike"""


def budget_of(settings: PruningSettings, whole: PreTrainedModel, most: Json) -> Budget:
    """The budget of these settings; UserError if it cannot be reached, or nothing goes. `most`: `savings_by_kind`."""
    kinds, free = settings.kinds, None
    if settings.uniform and "heads" in kinds and family_of(whole).head_size is None:
        free = parts_of(whole, settings.stacks, kinds)
        free = free if settings.speed is None else timed(free, most)
        kinds = tuple(kind for kind in kinds if kind != "heads")
    parts = parts_of(whole, settings.stacks, kinds)
    empty = settings.allow_empty
    if settings.speed is not None:
        parts = timed(parts, most)
        limit, least = 1 / settings.speed, parts.least(empty=empty)
        if limit < least:
            raise UserError(
                f"`speed` {settings.speed:g} cannot be reached: without all that can go, this model is {1 / least:.2f} "
                f"times as fast here{_only(kinds)}."
            )
        return Budget(parts, limit, free)
    least, everything = parts.least(empty=empty), parts.whole
    if settings.size is not None:
        width = next(whole.parameters()).element_size()
        limit = size_of(settings.size) / width
        if limit < least:
            raise UserError(
                f"`size` {settings.size} cannot be reached: {least * width / 1e6:.3g} MB remain without all that can "
                f"go{_only(kinds)}; embeddings and the like, which stay, take {parts.fixed * width / 1e6:.3g} MB."
            )
        if limit >= everything:
            raise UserError(
                f"`size` {settings.size} is no less than the {everything * width / 1e6:.3g} MB of the model, so "
                "nothing would go: ask for less."
            )
        return Budget(parts, limit, free)
    assert settings.keep is not None
    limit = parts.fixed + settings.keep * (everything - parts.fixed)
    if limit < least:
        share = (least - parts.fixed) / (everything - parts.fixed)
        raise UserError(
            f"`keep` {settings.keep:g} cannot be reached: {share:.3f} of the parameters of the layers remain without "
            f"all that can go{_only(kinds)}."
        )
    return Budget(parts, limit, free)


def savings_by_kind(whole: PreTrainedModel, batch: Mapping[str, Tensor], settings: PruningSettings, root: Path) -> Json:
    """What a model without any part of a kind saves, or why none can go; measured once and kept in `root`."""
    return _kept_savings(root, lambda: _savings_by_kind(whole, batch, settings))


def _savings_by_kind(whole: PreTrainedModel, batch: Mapping[str, Tensor], settings: PruningSettings) -> Json:
    out: Json = {}
    for kind in KINDS:
        try:
            parts = parts_of(whole, settings.stacks, (kind,))
        except UserError:
            out[kind] = {"stays": why_all_stay(whole, kind, settings.stacks)}
            continue
        left = parts.kept(parts._needed(torch.zeros(len(parts.price)), empty=kind != "layers"))
        out[kind] = savings(whole, remove_parts(whole, left), batch, seconds=SECONDS / 4).record()
    return out


def timed(parts: Removable, most: Json) -> Removable:
    """The same parts, priced by the time that they take: shares of a pass of the whole model."""
    saved = {kind: max(0.0, 1 - 1 / each["speed"]["measured"]) for kind, each in most.items() if "speed" in each}
    price = torch.zeros_like(parts.price)
    for kind, of_kind in (("heads", _is_head), ("units", lambda site: site.kind == UNITS)):
        places = [place for site, place in parts.place.items() if of_kind(site)]
        total = sum(float(parts.price[place].sum()) for place in places)
        for place in places:
            price[place] = parts.price[place] / total * saved[kind]
    layers = [site for site in parts.sites if site.kind == LAYER]
    rest = dict.fromkeys(parts.layers, 0.0)
    if layers:
        stacks = {site.stack for site in layers}
        inside = [sum(float(price[parts.place[site]].sum()) for site in parts.layers[layer]) for layer in layers]
        share = (len(layers) - len(stacks)) / len(layers)
        left_over = max(0.0, saved["layers"] - share * sum(inside)) / max(1, len(layers) - len(stacks))
        rest |= dict.fromkeys(layers, left_over)
    fixed = max(0.0, 1 - float(price.sum()) - sum(rest.values()))
    return replace(parts, price=price, rest=rest, fixed=fixed)


def as_large(settings: PruningSettings, parts: Removable, kept: Kept) -> Callable[[Float[Tensor, " part"]], Kept]:
    """The choice by some scores that costs no more than another one, with as many layers."""
    limit = float(parts.cost(parts.here(kept).double()))

    def choice(scores: Float[Tensor, " part"]) -> Kept:
        ranked = with_as_many_layers(parts, scores, kept)
        if settings.uniform:
            return equal_sizes(parts, ranked, limit)
        return parts.best(ranked, limit, empty=settings.allow_empty)

    return choice


def equal_sizes(parts: Removable, scores: Tensor, limit: float) -> Kept:
    """The best choice with the same share of heads and of units in every layer.

    Layers are those of the free choice, or fewer; heads as many as it has on average, or fewer; units as many as fit.
    """
    scores = scores.double()[parts.together]
    free = parts.here(parts.best(scores, limit))
    gone = {layer for layer in parts.layers if layer in parts.place and not free[parts.place[layer]].any()}
    heads = [site for site in parts.sites if _is_head(site)]
    units = [site for site in parts.sites if site.kind == UNITS]
    most = max((len(parts.sites[site]) for site in units), default=1)
    while True:
        there = torch.ones(len(scores), dtype=torch.bool)
        for layer in gone:
            there[parts.place[layer]] = False
        gates = max((_gates(parts, site) for site in heads), default=1)
        for some in range(_on_average(parts, heads, free, gone, gates), 0, -1):
            for count in (*range(most, 1, -max(1, most // 96)), 1):
                here = there.clone()
                for site in (*heads, *units):
                    share = some / gates if _is_head(site) else count / most
                    here[parts.place[site]] = _strongest(parts, scores, site, share)
                if float(parts.cost(here.double())) <= limit * (1 + 1e-9):
                    return parts.kept(here)
        left = [layer for layer in parts.layers if layer in parts.place and layer not in gone]
        left = [layer for layer in left if sum(each.stack == layer.stack for each in left) > 1]
        if not left:
            raise UserError("no model with equal layers is within this budget: ask for more, or omit `uniform`.")
        gone.add(min(left, key=lambda layer: float(scores[parts.place[layer]])))


def _gates(parts: Removable, site: Site) -> int:
    """How many of the parts of a site go independently: groups of heads, or units."""
    return len(parts.together[parts.place[site]].unique())


def _on_average(parts: Removable, heads: Sequence[Site], free: Tensor, gone: Collection[Site], gates: int) -> int:
    """How many gates of heads a layer of the free choice has left, on average over those that stay."""
    inside = {site for layer in gone for site in parts.layers[layer]}
    shares = [float(free[parts.place[site]].double().mean()) for site in heads if site not in inside]
    return max(1, round(gates * sum(shares) / len(shares))) if shares else 1


def _strongest(parts: Removable, scores: Tensor, site: Site, share: float) -> Bool[Tensor, " part"]:
    """This share of the parts of a site, those with the largest scores; heads that go together stay together."""
    place = parts.place[site]
    first = parts.together[place]
    gates = first.unique()
    count = max(1, round(len(gates) * share))
    return torch.isin(first, gates[scores[gates].argsort(descending=True, stable=True)[:count]])


def _is_head(site: Site) -> bool:
    return site.kind not in (UNITS, LAYER)


def _only(kinds: tuple[str, ...]) -> str:
    return f" (only {' and '.join(kinds)} may go)" if kinds != KINDS else ""


def _kept_savings(root: Path, measure: Callable[[], Json]) -> Json:
    file = root / FILE
    if file.is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    most = measure()
    if root.is_dir():
        write_whole(file, json.dumps(most))
    return most
