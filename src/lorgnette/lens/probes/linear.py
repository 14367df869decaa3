"""Linear probes, trained to convergence: softmax regression is convex, so it has one minimum.

    min over W, b of   1/n Σ_i −log softmax(x_i W + b)_{y_i} + λ/2 ‖W‖²

by full-batch L-BFGS (Liu & Nocedal 1989), all layers at once as one batched product, each with its own line search.
λ = 1/(C n); C is chosen for each layer on words that are held out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
"""C: how much the words count against the size of the weights."""
ITERATIONS, MEMORY = 1000, 10
TOLERANCE = 1e-4
"""The largest component of the gradient at which a probe has converged, as in scikit-learn."""
HELD_OUT, LARGEST = 0.2, 10_000
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
    """C of each layer; 1 where there are too few words to hold any out.

    From strong to weak, each from where the last one ended; a layer whose held-out likelihood falls goes no further.
    """
    items = vectors.shape[1]
    held = int(HELD_OUT * min(items, LARGEST))
    strength = vectors.new_ones(len(vectors))
    if held < 10:
        return strength
    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed))[:LARGEST].to(vectors.device)
    test, train = order[:held], order[held:]
    best = vectors.new_full((len(vectors),), torch.inf)
    rows = torch.arange(len(vectors), device=vectors.device)
    start: Tensor | None = None
    for value in STRENGTHS:
        own, targets = vectors[rows], labels[rows]
        penalty = vectors.new_full((len(rows),), 1.0 / (value * len(train)))
        start, _ = minimised(own[:, train], targets[:, train], classes, penalty, start=start)
        loss = _cross_entropy(own[:, test] @ start[:, :-1] + start[:, -1:], targets[:, test])
        better = loss < best[rows]
        rows, start = rows[better], start[better]
        best[rows], strength[rows] = loss[better], value
        if not len(rows):
            break
    return strength


def minimised(
    vectors: Float[Tensor, "layer item width"],
    labels: Int[Tensor, "layer item"],
    classes: int,
    penalty: Float[Tensor, " layer"],
    start: Float[Tensor, "layer row label"] | None = None,
) -> tuple[Float[Tensor, "layer row label"], Bool[Tensor, " layer"]]:
    """W with b as its last row, and which layers have converged; those that have are computed no more.

    Logits are linear in W: along a direction they are known after one product, and so is every step of the line search.
    """
    x = torch.cat([vectors, vectors.new_ones(*vectors.shape[:2], 1)], -1)
    point = x.new_zeros(len(x), x.shape[-1], classes) if start is None else start
    solution, converged = point.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    rows, logits = torch.arange(len(x), device=x.device), x @ point
    value, slope = _value(logits, labels, point, penalty), _slope(x, logits, labels, point, penalty)
    steps: list[Tensor] = []
    bends: list[Tensor] = []
    for _ in range(ITERATIONS):
        done = slope.abs().amax((1, 2)) <= TOLERANCE
        if bool(done.any()):
            solution[rows[done]], converged[rows[done]] = point[done], True
            x, labels, penalty, rows, point, logits, value, slope = (
                each[~done] for each in (x, labels, penalty, rows, point, logits, value, slope)
            )
            steps, bends = [each[~done] for each in steps], [each[~done] for each in bends]
        if not len(rows):
            break
        direction = -_preconditioned(slope, steps, bends)
        uphill = (direction * slope).sum((1, 2)) >= 0
        direction = torch.where(uphill[:, None, None], -slope, direction)
        line = _Line(labels, penalty, point, direction, logits, x @ direction)
        size = _step(line, value, (direction * slope).sum((1, 2)), not steps)
        if bool((size == 0).all()):
            break  # nothing moves any more: the rest is rounding
        logits, moved = line.at(size)
        new_slope = _slope(x, logits, labels, moved, penalty)
        steps, bends = [*steps, moved - point][-MEMORY:], [*bends, new_slope - slope][-MEMORY:]
        point, value, slope = moved, _value(logits, labels, moved, penalty), new_slope
    solution[rows], converged[rows] = point, slope.abs().amax((1, 2)) <= TOLERANCE
    return solution, converged


@dataclass(frozen=True)
class _Line:
    """Points and logits along a direction."""

    labels: Int[Tensor, "layer item"]
    penalty: Float[Tensor, " layer"]
    point: Float[Tensor, "layer row label"]
    direction: Float[Tensor, "layer row label"]
    logits: Float[Tensor, "layer item label"]
    change: Float[Tensor, "layer item label"]

    def at(self, size: Float[Tensor, " layer"]) -> tuple[Tensor, Tensor]:
        far = size[:, None, None]
        return self.logits + far * self.change, self.point + far * self.direction

    def value(self, size: Float[Tensor, " layer"]) -> Float[Tensor, " layer"]:
        logits, point = self.at(size)
        return _value(logits, self.labels, point, self.penalty)


def _step(
    line: _Line, value: Float[Tensor, " layer"], along: Float[Tensor, " layer"], first: bool
) -> Float[Tensor, " layer"]:
    """How far each layer goes: halved until the objective falls enough (Armijo 1966); 0 where it does not."""
    length = line.direction.abs().sum((1, 2)).clamp(min=1e-12)
    size = (1.0 / length).clamp(max=1.0) if first else torch.ones_like(value)
    wanted = along < 0
    short = wanted
    for _ in range(30):
        short = wanted & (line.value(size) > value + 1e-4 * size * along)
        if not bool(short.any()):
            return torch.where(wanted, size, 0.0)
        size = torch.where(short, size / 2, size)
    return torch.where(wanted & ~short, size, 0.0)


def _cross_entropy(
    logits: Float[Tensor, "layer item label"], labels: Int[Tensor, "layer item"]
) -> Float[Tensor, " layer"]:
    return (logits.logsumexp(-1) - logits.gather(-1, labels[..., None])[..., 0]).mean(-1)


def _value(logits: Tensor, labels: Tensor, point: Tensor, penalty: Tensor) -> Float[Tensor, " layer"]:
    return _cross_entropy(logits, labels) + penalty / 2 * point[:, :-1].square().sum((1, 2))


def _slope(
    x: Tensor, logits: Tensor, labels: Tensor, point: Tensor, penalty: Tensor
) -> Float[Tensor, "layer row label"]:
    """The gradient xᵀ(softmax − one-hot)/n + λW."""
    miss = logits.softmax(-1)
    miss.scatter_add_(-1, labels[..., None], -torch.ones_like(labels, dtype=miss.dtype)[..., None])
    slope = x.mT @ miss / x.shape[1]
    slope[:, :-1] += penalty[:, None, None] * point[:, :-1]
    return slope


def _preconditioned(slope: Tensor, steps: Sequence[Tensor], bends: Sequence[Tensor]) -> Tensor:
    """H⁻¹ g by the two loops of L-BFGS, for every layer by itself; a pair without curvature counts for nothing."""
    inner = lambda a, b: (a * b).sum((1, 2))  # noqa: E731
    curved = [inner(s, y) for s, y in zip(steps, bends, strict=True)]
    rates = [torch.where(c > 1e-12, 1.0 / c.clamp(min=1e-12), 0.0) for c in curved]
    out, factors = slope, []
    for s, y, rate in zip(reversed(steps), reversed(bends), reversed(rates), strict=True):
        alpha = rate * inner(s, out)
        factors.append(alpha)
        out = out - alpha[:, None, None] * y
    if steps:
        scale = torch.where(curved[-1] > 1e-12, curved[-1] / inner(bends[-1], bends[-1]).clamp(min=1e-24), 1.0)
        out = scale[:, None, None] * out
    for s, y, rate, alpha in zip(steps, bends, rates, reversed(factors), strict=True):
        beta = rate * inner(y, out)
        out = out + (alpha - beta)[:, None, None] * s
    return out
