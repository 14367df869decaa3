"""Linear probes, trained to the end: softmax regression is convex, so that there is one answer, and it is found.

    min over W, b of   1/n Σ_i −log softmax(x_i W + b)_{y_i} + λ/2 ‖W‖²

by full-batch L-BFGS (Liu & Nocedal 1989), all layers at once as one batched product, each with its own line search.
λ = 1/(C n); C is chosen for each layer on words that are held out.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""C: how much the words count against the size of the weights."""
ITERATIONS, MEMORY = 1000, 10
TOLERANCE = 1e-4
"""The largest component of the gradient at which a probe has converged, as in scikit-learn."""
HELD_OUT, LARGEST = 0.2, 3000
"""The share of the words that choose C, and how many words at most take part in that choice."""

Vectors = Float[Tensor, "layer item width"]


@dataclass(frozen=True)
class LinearFit:
    """The probes, and whether each has converged."""

    weight: Float[Tensor, "layer width label"]
    bias: Float[Tensor, "layer 1 label"]
    converged: Bool[Tensor, " layer"]
    strength: Float[Tensor, " layer"]


def fit_linear(vectors: Vectors, labels: Int[Tensor, "#layer item"], classes: int, seed: int = 0) -> LinearFit:
    """Softmax regression of each layer on all words, with the C of the largest log-likelihood on held-out words."""
    wide = vectors.double()
    targets = labels.expand(len(vectors), -1)
    strength = _chosen(wide, targets, classes, seed)
    items = vectors.shape[1]
    solution, converged = minimised(wide, targets, classes, 1.0 / (strength * items))
    weight, bias = solution[:, :-1], solution[:, -1:]
    return LinearFit(weight.to(vectors), bias.to(vectors), converged, strength)


def _chosen(vectors: Tensor, labels: Tensor, classes: int, seed: int) -> Float[Tensor, " layer"]:
    """C of each layer; 1 where there are too few words to hold any out."""
    items = vectors.shape[1]
    held = int(HELD_OUT * min(items, LARGEST))
    if held < 10:
        return vectors.new_ones(len(vectors))
    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed))[:LARGEST].to(vectors.device)
    test, train = order[:held], order[held:]
    best = vectors.new_full((len(vectors),), torch.inf)
    strength = vectors.new_ones(len(vectors))
    start: Tensor | None = None
    for value in STRENGTHS:  # from strong to weak, each from where the last one ended
        penalty = vectors.new_full((len(vectors),), 1.0 / (value * len(train)))
        start, _ = minimised(vectors[:, train], labels[:, train], classes, penalty, start=start)
        loss = _cross_entropy(vectors[:, test], labels[:, test], start).mean(-1)
        strength = torch.where(loss < best, value, strength)
        best = torch.minimum(loss, best)
    return strength


def minimised(
    vectors: Float[Tensor, "layer item width"],
    labels: Int[Tensor, "layer item"],
    classes: int,
    penalty: Float[Tensor, " layer"],
    start: Float[Tensor, "layer row label"] | None = None,
) -> tuple[Float[Tensor, "layer row label"], Bool[Tensor, " layer"]]:
    """W with b as its last row, and which layers have converged; those that have stay where they are."""
    x = torch.cat([vectors, vectors.new_ones(*vectors.shape[:2], 1)], -1)
    point = x.new_zeros(len(x), x.shape[-1], classes) if start is None else start
    value, slope = _objective(x, labels, point, penalty)
    steps: list[Tensor] = []
    bends: list[Tensor] = []
    for _ in range(ITERATIONS):
        done = slope.abs().amax((1, 2)) <= TOLERANCE
        if bool(done.all()):
            break
        direction = -_preconditioned(slope, steps, bends)
        along = (direction * slope).sum((1, 2))
        uphill = along >= 0
        direction = torch.where((uphill | done)[:, None, None], -slope * ~done[:, None, None], direction)
        along = (direction * slope).sum((1, 2))
        size = _step(lambda at: _loss(x, labels, at, penalty), point, value, direction, along, not steps)
        moved = point + size[:, None, None] * direction
        new_value, new_slope = _objective(x, labels, moved, penalty)
        steps, bends = [*steps, moved - point][-MEMORY:], [*bends, new_slope - slope][-MEMORY:]
        if bool((size == 0)[~done].all()):
            break  # nothing moves any more: the rest is rounding
        point, value, slope = moved, new_value, new_slope
    return point, slope.abs().amax((1, 2)) <= TOLERANCE


def _step(
    objective: Callable[[Tensor], Float[Tensor, " layer"]],
    point: Float[Tensor, "layer row label"],
    value: Float[Tensor, " layer"],
    direction: Float[Tensor, "layer row label"],
    along: Float[Tensor, " layer"],
    first: bool,
) -> Float[Tensor, " layer"]:
    """How far each layer goes: halved until the objective falls enough (Armijo 1966); 0 where it does not."""
    length = direction.abs().sum((1, 2)).clamp(min=1e-12)
    size = (1.0 / length).clamp(max=1.0) if first else torch.ones_like(value)
    wanted = along < 0
    short = wanted
    for _ in range(30):
        tried = objective(point + size[:, None, None] * direction)
        short = wanted & (tried > value + 1e-4 * size * along)
        if not bool(short.any()):
            return torch.where(wanted, size, 0.0)
        size = torch.where(short, size / 2, size)
    return torch.where(wanted & ~short, size, 0.0)


def _loss(x: Tensor, labels: Tensor, point: Tensor, penalty: Tensor) -> Float[Tensor, " layer"]:
    each = F.cross_entropy((x @ point).transpose(1, 2), labels, reduction="none")
    return each.mean(-1) + penalty / 2 * point[:, :-1].square().sum((1, 2))


def _objective(
    x: Tensor, labels: Tensor, point: Tensor, penalty: Tensor
) -> tuple[Float[Tensor, " layer"], Float[Tensor, "layer row label"]]:
    """The loss and its gradient xᵀ(softmax − one-hot)/n + λW."""
    miss = (x @ point).softmax(-1)
    miss.scatter_add_(-1, labels[..., None], -torch.ones_like(labels, dtype=miss.dtype)[..., None])
    gradient = x.mT @ miss / x.shape[1]
    gradient[:, :-1] += penalty[:, None, None] * point[:, :-1]
    return _loss(x, labels, point, penalty), gradient


def _cross_entropy(vectors: Tensor, labels: Tensor, point: Tensor) -> Float[Tensor, "layer item"]:
    return F.cross_entropy((vectors @ point[:, :-1] + point[:, -1:]).transpose(1, 2), labels, reduction="none")


def _preconditioned(slope: Tensor, steps: Sequence[Tensor], bends: Sequence[Tensor]) -> Tensor:
    """H⁻¹ g by the two loops of L-BFGS, for every layer by itself; a pair without curvature counts for nothing."""
    inner = lambda a, b: (a * b).sum((1, 2))  # noqa: E731
    curved = [inner(s, y) for s, y in zip(steps, bends, strict=True)]
    rates = [torch.where(c > 1e-12, 1.0 / c.clamp(min=1e-12), 0.0) for c in curved]
    out, kept = slope, []
    for s, y, rate in zip(reversed(steps), reversed(bends), reversed(rates), strict=True):
        alpha = rate * inner(s, out)
        kept.append(alpha)
        out = out - alpha[:, None, None] * y
    if steps:
        scale = torch.where(curved[-1] > 1e-12, curved[-1] / inner(bends[-1], bends[-1]).clamp(min=1e-24), 1.0)
        out = scale[:, None, None] * out
    for s, y, rate, alpha in zip(steps, bends, rates, reversed(kept), strict=True):
        beta = rate * inner(y, out)
        out = out + (alpha - beta)[:, None, None] * s
    return out
