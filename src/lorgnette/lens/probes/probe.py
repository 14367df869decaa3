"""Many small probes at once: one for every layer and seed, trained together on frozen vectors.

A probe is a softmax classifier on one layer's vectors, linear (see `linear`) or with one hidden layer of ReLUs.
All layers share the labels, so all probes are one batched product: no loop over layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.lens.probes.linear import fit_linear

LEAST_STEPS = 400
"""Steps of Adam that any sample gets."""
Vectors = Float[Tensor, "layer item width"]


@dataclass(frozen=True)
class Recipe:
    """How a probe is trained; the same for a task, its control and its baselines."""

    hidden: int | None = None  # units of the hidden layer; None: linear
    epochs: int = 12
    batch_size: int = 256
    learning_rate: float = 3e-3
    weight_decay: float = 1e-4

    def epochs_for(self, items: int) -> int:
        """The epochs asked for, or more where so few items would hardly move the weights."""
        return max(self.epochs, -(-LEAST_STEPS // max(1, -(-items // self.batch_size))))


@dataclass(frozen=True)
class TrainedProbes:
    """Trained probes: what they do to vectors, layer by layer and seed by seed."""

    centre: Float[Tensor, "layer 1 width"]
    scale: Float[Tensor, "layer 1 width"]
    parameters: tuple[Tensor, ...]  # [seed layer …]
    converged: Bool[Tensor, " layer"] | None = None
    """Whether a linear probe has reached the minimum; unknown for other probes."""

    def predict(self, vectors: Vectors, block: int = 8192) -> Int[Tensor, "seed layer item"]:
        """The likeliest label."""
        parts = []
        for start in range(0, vectors.shape[1], block):
            x = (vectors[:, start : start + block] - self.centre) / self.scale
            parts.append(_logits(x.expand(len(self.parameters[0]), *x.shape), self.parameters).argmax(-1))
        return torch.cat(parts, -1)


def train_probes(
    vectors: Vectors, labels: Int[Tensor, "#layer item"], classes: int, seeds: Sequence[int], recipe: Recipe
) -> TrainedProbes:
    """Softmax probes on standardised vectors: linear ones to their one minimum, others by Adam.

    A linear probe is the same for every seed. For the others every seed has its own initial weights and its own order
    of the items; the layers of a seed share the order, and the learning rate falls to zero along a cosine.
    """
    centre = vectors.mean(1, keepdim=True)
    scale = vectors.std(1, keepdim=True, correction=0)
    scale = torch.where(scale > 1e-6 * scale.amax(-1, keepdim=True).clamp(min=1e-12), scale, 1.0)
    if recipe.hidden is None:
        fit = fit_linear((vectors - centre) / scale, labels, classes)
        same = tuple(part.expand(len(seeds), *part.shape) for part in (fit.weight, fit.bias))
        return TrainedProbes(centre, scale, same, fit.converged)
    parameters = _initial(vectors, classes, seeds, recipe.hidden)
    with torch.enable_grad():
        _descend(vectors, labels, (centre, scale), parameters, seeds, recipe)
    return TrainedProbes(centre, scale, tuple(p.detach() for p in parameters))


def _initial(vectors: Vectors, classes: int, seeds: Sequence[int], hidden: int | None) -> list[Tensor]:
    """Weights scaled by 1/√fan-in, biases zero."""
    layers, _, width = vectors.shape
    shapes = [(width, classes)] if hidden is None else [(width, hidden), (hidden, classes)]
    out = []
    for rows, columns in shapes:
        drawn = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed * 7919 + rows)
            # One draw for all layers: layers then differ by their vectors alone.
            one = torch.randn(rows, columns, generator=generator, dtype=torch.float64) / rows**0.5
            drawn.append(one.expand(layers, rows, columns))
        weight = torch.stack(drawn).to(vectors)
        out += [weight.requires_grad_(), vectors.new_zeros(len(seeds), layers, 1, columns).requires_grad_()]
    return out


def _logits(
    x: Float[Tensor, "seed layer item width"], parameters: Sequence[Tensor]
) -> Float[Tensor, "seed layer item label"]:
    for number in range(0, len(parameters), 2):
        x = x if number == 0 else x.relu()
        x = x @ parameters[number] + parameters[number + 1]
    return x


def _descend(
    vectors: Vectors,
    labels: Int[Tensor, "#layer item"],
    standard: tuple[Tensor, Tensor],
    parameters: list[Tensor],
    seeds: Sequence[int],
    recipe: Recipe,
) -> None:
    layers, items, _ = vectors.shape
    optimizer = torch.optim.AdamW(parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    epochs = recipe.epochs_for(items)
    steps = epochs * -(-items // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    centre, scale = standard
    for _ in range(epochs):
        orders = torch.stack([torch.randperm(items, generator=g) for g in generators]).to(vectors.device)
        for start in range(0, items, recipe.batch_size):
            chosen = orders[:, start : start + recipe.batch_size]
            x = (vectors[:, chosen].transpose(0, 1) - centre) / scale  # [seed layer item width]
            wanted = labels[:, chosen].transpose(0, 1).expand(len(seeds), layers, -1)
            logits = _logits(x, parameters)
            # Summed over probes, so that each is trained as if it were alone.
            loss = F.cross_entropy(logits.flatten(0, 2), wanted.flatten(), reduction="sum") / chosen.shape[1]
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()


@dataclass(frozen=True)
class Mixture:
    """A linear probe on a learnt mix of all layers, and how much of each it takes."""

    weights: Float[Tensor, "seed layer"]

    @property
    def centre(self) -> Float[Tensor, " seed"]:
        """Σ_l l · weight_l: the layer at which the probe looks on average (Tenney et al. 2019, centre of gravity)."""
        return self.weights @ torch.arange(self.weights.shape[1]).to(self.weights)


def train_mixture(
    vectors: Vectors, labels: Int[Tensor, " item"], classes: int, seeds: Sequence[int], recipe: Recipe
) -> Mixture:
    """softmax(s)·standardised layers → linear probe; s and the probe are trained together (Peters et al. 2018)."""
    centre, scale = vectors.mean(1, keepdim=True), vectors.std(1, keepdim=True, correction=0)
    scale = torch.where(scale > 1e-6 * scale.amax(-1, keepdim=True).clamp(min=1e-12), scale, 1.0)
    weight, bias = _initial(vectors[:1], classes, seeds, None)
    mix = vectors.new_zeros(len(seeds), len(vectors)).requires_grad_()
    # The mix is a handful of numbers beside thousands: at the probe's rate it would hardly have moved.
    groups: list[dict[str, Any]] = [
        {"params": [weight, bias]},
        {"params": [mix], "lr": 10 * recipe.learning_rate, "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    items = vectors.shape[1]
    with torch.enable_grad():
        for _ in range(recipe.epochs_for(items)):
            orders = torch.stack([torch.randperm(items, generator=g) for g in generators]).to(vectors.device)
            for start in range(0, items, recipe.batch_size):
                chosen = orders[:, start : start + recipe.batch_size]
                x = (vectors[:, chosen].transpose(0, 1) - centre) / scale
                mixed = torch.einsum("sl,slid->sid", mix.softmax(-1), x)
                logits = mixed @ weight[:, 0] + bias[:, 0]
                loss = F.cross_entropy(logits.flatten(0, 1), labels[chosen].flatten(), reduction="sum")
                optimizer.zero_grad(set_to_none=True)
                (loss / chosen.shape[1]).backward()
                optimizer.step()
    return Mixture(mix.softmax(-1).detach())


def control_labels(types: Sequence[str], labels: Int[Tensor, " item"], classes: int, seed: int = 0) -> dict[str, int]:
    """A random label for every word type, drawn from how often the labels occur (Hewitt and Liang 2019, §2.2).

    The draw depends on the type and the seed alone, so training and test words agree. A probe can only learn it by
    heart; what it reaches is how much it can remember of which word this is.
    """
    from lorgnette.statistics.hashing import text_key

    shares = torch.bincount(labels, minlength=classes).double()
    edges = (shares / shares.sum()).cumsum(0)
    return {
        name: int(
            torch.searchsorted(edges, torch.tensor(text_key("control", seed, name) / 2**64)).clamp(max=classes - 1)
        )
        for name in dict.fromkeys(types)
    }
