"""How good each part of a model is: by the loss, by its weights, or by a draw."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import anatomy_of
from lorgnette.models.families.layers import LAYER, UNITS, layers_of
from lorgnette.models.linear import is_transposed
from lorgnette.training.data import Items, together
from lorgnette.training.gates.parts import PartGates
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.parts import Removable
from lorgnette.types import PreTrainedModel

BATCH, TEXTS, TURNS = 16, 256, 8
COUNTS = 7
"""So many numbers of layers are tried."""


def importance(
    model: PreTrainedModel, gates: PartGates, ready: Prepared, here: Tensor | None = None, *, texts: int = TEXTS
) -> Float[Tensor, " part"]:
    """Mean over texts of |∂ loss / ∂ gate| (Michel et al. 2019, eq. 2), by the price; −∞ where a part is not `here`.

    The loss is that of at most `texts` validation texts. Parts that go together share the sums of values and prices.
    """
    parts = gates.parts
    size = len(parts.price)
    open_now = torch.ones(size, dtype=torch.bool) if here is None else here
    total, seen = torch.zeros(size, dtype=torch.float64), 0
    model.eval()
    with gates.hooked(model), torch.enable_grad():
        for batch in _batches(ready, model, texts):
            count = len(next(iter(batch.values())))
            gates.given = open_now.to(model.device, model.dtype).expand(count, size).clone().requires_grad_()
            loss = ready.loss(model, batch)
            (gradient,) = torch.autograd.grad(loss, gates.given)
            total += count * gradient.abs().sum(0).double().cpu()
            seen += count
    gates.given = None
    total /= seen
    value = torch.zeros_like(total).index_add_(0, parts.together, total)[parts.together]
    price = torch.zeros_like(total).index_add_(0, parts.together, parts.price)[parts.together]
    for layer, inside in parts.layers.items():
        if layer in parts.place:
            everything = parts.rest[layer] + sum(float(parts.price[parts.place[site]].sum()) for site in inside)
            price[parts.place[layer]] = everything
    return (value / price).masked_fill(~open_now, -math.inf)


def by_kind(parts: Removable, scores: Float[Tensor, " part"]) -> Float[Tensor, " part"]:
    """Scores as multiples of the mean of their kind, heads or units.

    The gradient of a head is a sum over its dimensions, in which terms cancel, and that of a unit has one: by the
    price, heads would seem worth less than the units of as many parameters.
    """
    out = scores.clone()
    for of_heads in (True, False):
        sites = [site for site in parts.sites if site.kind != LAYER and (site.kind != UNITS) == of_heads]
        if not sites:
            continue
        index = torch.cat([torch.arange(len(scores))[parts.place[site]] for site in sites])
        mean = scores[index][scores[index].isfinite()].mean()
        if mean > 0:
            out[index] = scores[index] / mean
    return out


def by_importance(
    model: PreTrainedModel, gates: PartGates, ready: Prepared, *, empty: bool, texts: int = TEXTS
) -> Float[Tensor, " part"]:
    """The turn in which each part goes, the larger the better; greedy, as heads are ranked.

    First the layers (`layers_to_go`). Then a share of what must go goes in each of eight turns, those with the smallest
    importance by price and kind, and the rest is measured again without it.
    """
    parts = gates.parts
    gone = layers_to_go(model, gates, ready, empty=empty, texts=texts)
    here = _without(parts, gone)
    size, start = len(parts.price), float(parts.cost(here.double()))
    out = torch.where(here, 0.0, -1.0).double()
    for turn in range(1, TURNS + 1):
        scores = _layers_first(parts, by_kind(parts, importance(model, gates, ready, here, texts=texts)), gone)
        ranks = scores.argsort(stable=True).argsort(stable=True).double() / size
        budget = start + min(0.0, gates.limit - start) * turn / TURNS
        stays = parts.here(parts.best(scores, budget, empty=empty)) & here
        out[here & ~stays] = turn - 1 + ranks[here & ~stays]
        out[stays] = turn + ranks[stays]
        here = stays
    return _layers_first(parts, out, gone)


def layers_to_go(
    model: PreTrainedModel, gates: PartGates, ready: Prepared, *, empty: bool, texts: int = TEXTS
) -> list[Site]:
    """The layers that go, and how many: as many as give the smallest loss within the limit before any training.

    A layer's gradient says little about the loss without it, so that loss is measured: an eighth of the layers goes at
    a time, those without which it is smallest. Each of up to seven numbers of layers is then tried, with as many of the
    other parts as the limit pays for beside them.
    """
    parts = gates.parts
    order = layer_order(model, gates, ready, texts=texts)
    if not order:
        return []
    scores = by_kind(parts, importance(model, gates, ready, texts=texts))
    tried: dict[int, float] = {}
    for count in sorted({round(each) for each in np.linspace(0, len(order), min(len(order) + 1, COUNTS))}):
        ranked = _layers_first(parts, scores, order[:count])
        least = parts._needed(ranked, _without(parts, order[:count]) & _layers(parts), empty=empty)
        if float(parts.cost(least.double())) > gates.limit * (1 + 1e-9):
            continue
        stays = parts.here(parts.best(ranked, gates.limit, empty=empty))
        tried[count] = mean_loss(model, gates, ready, stays, texts=texts)
    return order[: min(tried, key=lambda count: tried[count])] if tried else order


def layer_order(model: PreTrainedModel, gates: PartGates, ready: Prepared, *, texts: int = TEXTS) -> list[Site]:
    """Layers in the order in which they go, until the limit is met: first those without which the loss is smallest."""
    parts = gates.parts
    order: list[Site] = []
    can_go = [site for site in parts.sites if site.kind == LAYER]
    share = -(-len(can_go) // TURNS)
    while float(parts.cost(_without(parts, order).double())) > gates.limit:
        left = [site for site in can_go if site not in order]
        stays = {stack: sum(1 for layer in parts.layers if layer.stack == stack and layer not in order)
                 for stack in {site.stack for site in left}}  # fmt: skip
        losses = {
            site: mean_loss(model, gates, ready, _without(parts, [*order, site]), texts=texts)
            for site in left
            if stays[site.stack] > 1
        }
        if not losses:
            break
        for site in sorted(losses, key=lambda site: losses[site])[:share]:
            if stays[site.stack] > 1:
                stays[site.stack] -= 1
                order.append(site)
    return order


def mean_loss(
    model: PreTrainedModel, gates: PartGates, ready: Prepared, here: Bool[Tensor, " part"], *, texts: int = TEXTS
) -> float:
    """The loss of validation texts with what is not `here` at zero."""
    total, seen = 0.0, 0
    model.eval()
    gates.given = here.to(model.device, model.dtype)
    with gates.hooked(model), torch.no_grad():
        for batch in _batches(ready, model, texts):
            count = len(next(iter(batch.values())))
            total += count * float(ready.loss(model, batch))
            seen += count
    gates.given = None
    return total / seen


def _layers(parts: Removable) -> Bool[Tensor, " part"]:
    """Where the layers are."""
    out = torch.zeros(len(parts.price), dtype=torch.bool)
    for site, place in parts.place.items():
        out[place] = site.kind == LAYER
    return out


def _without(parts: Removable, gone: Sequence[Site]) -> Bool[Tensor, " part"]:
    """Everything but some layers and what is in them."""
    here = torch.ones(len(parts.price), dtype=torch.bool)
    for layer in gone:
        here[parts.place[layer]] = False
    return parts.here(parts.kept(here))


def _layers_first(parts: Removable, scores: Float[Tensor, " part"], gone: Sequence[Site]) -> Float[Tensor, " part"]:
    """The scores with layers before all else, or, if they go, behind it."""
    out = scores.clone()
    out[_layers(parts)] = math.inf
    for layer in gone:
        out[parts.place[layer]] = -math.inf
    return out


def by_magnitude(model: PreTrainedModel, parts: Removable) -> Float[Tensor, " part"]:
    """The mean square of the weights of each part; of a layer, of all its weights."""
    anatomy = anatomy_of(model)
    layers = {each.site: each for each in layers_of(model)}
    units = {each.units_site: each for each in layers.values()}
    out = torch.zeros(len(parts.price), dtype=torch.float64)
    for site, place in parts.place.items():
        if site.kind == LAYER:
            weights = [p.detach().double().square().sum() for p in layers[site].module.parameters()]
            out[place] = torch.stack(weights).sum().cpu() / sum(p.numel() for p in layers[site].module.parameters())
        elif site.kind == UNITS:
            part = units[site].feed_forward
            assert part is not None
            weight = part.contract.weight
            assert isinstance(weight, Tensor)
            squares = weight.detach().double().square().mean(1 if is_transposed(part.contract) else 0)
            out[place] = squares.cpu()
        else:
            out[place] = _head_magnitudes(anatomy[site])
    return out


def _head_magnitudes(site: AttentionSite) -> Float[Tensor, " head"]:
    weights = site.head_weights()
    both = [weights.value, weights.output]
    return torch.stack([each.detach().double().square().flatten(1).mean(1) for each in both]).sum(0).cpu()


def at_random(parts: Removable, seed: int) -> Float[Tensor, " part"]:
    """A random order of the parts."""
    return torch.rand(len(parts.price), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_as_many_layers(
    parts: Removable, scores: Float[Tensor, " part"], like: Mapping[Site, Sequence[int]]
) -> Float[Tensor, " part"]:
    """Ranks within each kind, and layers before or behind all else: each stack keeps as many as another choice does."""
    out = torch.zeros_like(scores)
    stacks: dict[str, list[Site]] = {}
    for kind in (UNITS, LAYER, "heads"):
        sites = [site for site in parts.sites if kind == (site.kind if site.kind in (UNITS, LAYER) else "heads")]
        index = torch.cat([torch.arange(len(scores))[parts.place[site]] for site in sites] or [torch.zeros(0).long()])
        out[index] = scores[index].argsort(stable=True).argsort(stable=True).double() / max(1, len(index))
    for site in parts.sites:
        if site.kind == LAYER:
            stacks.setdefault(site.stack, []).append(site)
    for layers in stacks.values():
        stay = sum(len(like[site]) for site in layers)
        ranked = sorted(layers, key=lambda layer: -float(scores[parts.place[layer]]))
        for rank, layer in enumerate(ranked):
            out[parts.place[layer]] += 2 if rank < stay else -2
    return out


def _batches(ready: Prepared, model: PreTrainedModel, texts: int) -> Iterator[dict[str, Tensor]]:
    items: Items = ready.validation
    collate = ready.trainer_parts()["data_collator"]
    step = -(-len(items) // texts)  # they lie in order of length
    numbers = range(0, len(items), step)
    for some in together(items, numbers, BATCH):
        batch = collate([items[number] for number in some])
        yield {name: tensor.to(model.device) for name, tensor in batch.items()}
