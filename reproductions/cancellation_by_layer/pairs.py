"""Pairs (α_ij, ‖f(x_j)‖) of every head, the same of each, and how their correlation divides over layers and heads."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.contributions.centred import centred
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import head_norms
from lorgnette.statistics.spearman import rounded, spearman
from lorgnette.texts.batch import Batch, Tokens

MEASURES = ("norm", "relative")
"""‖f(x_j)‖, and the same divided by its mean over the other words that the head reads in this text."""
LEVELS = ("pooled", "within_layers", "within_heads")
PARTS = ("between_layers", "between_heads", "inside_heads")


@dataclass(frozen=True)
class Drawn:
    """Pairs of one kind of token in a batch: text, query and key of each."""

    text: Int[Tensor, " pair"]
    query: Int[Tensor, " pair"]
    key: Int[Tensor, " pair"]


def draw(batch: Batch, kind: str, count: int, seed: int, *, causal: bool) -> Drawn:
    """`count` pairs of each text that has such tokens, with replacement; the draw depends on text and kind alone.

    A causal model's first row reads nothing but itself, and is not drawn.
    """
    tokens, rows = batch.source, []
    for text, example in enumerate(batch.examples):
        keys = (tokens.categories[kind][text] & tokens.mask[text]).nonzero()[:, 0].cpu().numpy()
        if not len(keys) or int(tokens.lengths[text]) < 2:
            continue
        told = hashlib.sha256(f"{seed}\0{example.id}\0{kind}".encode()).digest()
        dice = np.random.default_rng(int.from_bytes(told[:8], "little"))
        key, last = dice.choice(keys, count), int(tokens.lengths[text])
        query = dice.integers(np.maximum(key, 1) if causal else np.zeros_like(key), last)
        rows.append(np.stack([np.full(count, text), query, key]))
    return Drawn(*torch.from_numpy(np.concatenate(rows, 1) if rows else np.zeros((3, 0), dtype=np.int64)))


@dataclass(eq=False)
class PairReader(Tap):
    """Reads the drawn pairs at every layer of one stack, and what chosen tokens send to the rows behind the middle.

    `constants` are taken from the values first, one for each head (docs/gauge.md).
    """

    projections: SiteWeights
    sites: Sequence[Site]
    tokens: Tokens
    drawn: Mapping[str, Drawn]
    targets: Mapping[str, Int[Tensor, " text"]]
    behind: Bool[Tensor, "text query"]
    constants: Mapping[Site, Float[Tensor, "head dim"]] | None = None
    alpha: dict[str, list[Tensor]] = field(default_factory=dict)
    norm: dict[str, list[Tensor]] = field(default_factory=dict)
    relative: dict[str, list[Tensor]] = field(default_factory=dict)
    sent: dict[str, list[Tensor]] = field(default_factory=dict)

    def see(self, call: Call) -> None:
        if call.site not in self.sites:
            return
        products = self.projections[call.site].products
        value = call.value if self.constants is None else centred(call.value, self.constants[call.site][:, None])
        f = head_norms(value.to(products.dtype), products)
        words = (self.tokens.categories["other"] & self.tokens.mask).to(f.dtype)
        usual = (f * words[:, None]).sum(-1) / words.sum(-1).clamp(min=1)[:, None]
        for kind, pairs in self.drawn.items():
            size = f[pairs.text, :, pairs.key]
            self.alpha.setdefault(kind, []).append(call.weights[pairs.text, :, pairs.query, pairs.key])
            self.norm.setdefault(kind, []).append(size)
            self.relative.setdefault(kind, []).append(size / usual[pairs.text])
        self._targets(call.weights, f)

    def _targets(self, weights: Float[Tensor, "text head query key"], f: Float[Tensor, "text head key"]) -> None:
        """[weight, share of the norm] of each target, mean over the rows behind the middle and over heads [text]."""
        rows = self.behind.to(weights.dtype)
        read = torch.einsum("bhqk,bq->bhk", weights, rows) / rows.sum(-1).clamp(min=1)[:, None, None]
        share = read * f / (read * f).sum(-1, keepdim=True).clamp(min=1e-30)
        for name, place in self.targets.items():
            at = place.clamp(min=0)[:, None, None].expand(*read.shape[:2], 1)
            both = torch.stack([part.gather(-1, at)[..., 0].mean(-1) for part in (read, share)])
            self.sent.setdefault(name, []).append(both.masked_fill(place < 0, torch.nan))

    def of(self, kind: str, measure: str) -> tuple[Float[np.ndarray, "layer head pair"], ...]:
        """α and the norm of all pairs of a kind, without differences that are rounding."""
        both = (torch.stack(part[kind]).transpose(1, 2) for part in (self.alpha, getattr(self, measure)))
        return tuple(rounded(part.double().flatten()).view(part.shape).cpu().numpy() for part in both)


def levels(alpha: Float[np.ndarray, "layer head pair"], norm: Float[np.ndarray, "layer head pair"]) -> dict[str, float]:
    """Spearman's ρ over all pairs, its mean within layers and within heads, and the parts of the pooled ρ.

    ρ is Pearson's correlation of the ranks, and a covariance is that of the groups' means plus the mean of those within
    groups. So pooled = between layers + between the heads of a layer + inside heads, exactly: every head has as many
    pairs. Heads in which one side is constant have no ρ of their own.
    """
    from scipy.stats import rankdata

    flat = (values.reshape(-1, values.shape[-1]) for values in (alpha, norm))
    heads = [spearman(a, n) for a, n in zip(*flat, strict=True)]
    layers = [spearman(a.ravel(), n.ravel()) for a, n in zip(alpha, norm, strict=True)]
    ranks = [rankdata(values).reshape(values.shape) for values in (alpha, norm)]
    spread = np.prod([each.std() for each in ranks])
    if not spread:
        return dict.fromkeys((*LEVELS, *PARTS), float("nan"))
    a, n = (each - each.mean() for each in ranks)
    of_heads = [each.mean(-1, keepdims=True) for each in (a, n)]
    of_layers = [each.mean((1, 2), keepdims=True) for each in (a, n)]
    parts = (
        np.mean(of_layers[0] * of_layers[1]),
        np.mean((of_heads[0] - of_layers[0]) * (of_heads[1] - of_layers[1])),
        np.mean((a - of_heads[0]) * (n - of_heads[1])),
    )
    return {
        "pooled": float(np.mean(a * n) / spread),
        "within_layers": _mean(layers),
        "within_heads": _mean(heads),
        **{name: float(part / spread) for name, part in zip(PARTS, parts, strict=True)},
    }


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
