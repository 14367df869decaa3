"""How good each part of a model is: by the loss, by its weights, or by a draw."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.families import anatomy_of
from lorgnette.models.families.layers import LAYER, UNITS, layers_of
from lorgnette.models.linear import is_transposed
from lorgnette.training.data import Items
from lorgnette.training.gates.parts import PartGates
from lorgnette.training.preparation import Prepared
from lorgnette.training.pruning.parts import Removable
from lorgnette.types import PreTrainedModel

BATCH, TEXTS, TURNS = 16, 256, 8


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
            loss = model(**batch).loss
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

    A share of what must go goes in each of eight turns, those with the smallest importance by price and kind, and the
    rest is measured again without it.
    """
    parts = gates.parts
    size = len(parts.price)
    here, out = torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.float64)
    for turn in range(1, TURNS + 1):
        scores = by_kind(parts, importance(model, gates, ready, here, texts=texts))
        ranks = scores.argsort(stable=True).argsort(stable=True).double() / size
        budget = gates.whole + (gates.limit - gates.whole) * turn / TURNS
        stays = parts.here(parts.best(scores, budget, empty=empty))
        out[here & ~stays] = turn - 1 + ranks[here & ~stays]
        out[stays] = turn + ranks[stays]
        here = stays
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
    for start in range(0, len(numbers), BATCH):
        batch = collate([items[number] for number in numbers[start : start + BATCH]])
        yield {name: tensor.to(model.device) for name, tensor in batch.items()}
