"""One model on texts of one length: the values of sinks over texts, and the states when they are replaced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.contributions.centred import centred
from lorgnette.contributions.head_weights import SiteWeights
from lorgnette.contributions.norms import head_norms
from lorgnette.statistics.spearman import rounded, spearman_by_row
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from reproductions.cancellation_by_layer.measure import (
    MIDDLE,
    Heads,
    Replaced,
    behind_middle,
    final_states,
    first_stack,
    picked,
    run,
    targets,
    texts_of,
    token_losses,
)
from reproductions.frame.conditions import opened
from reproductions.frame.settings import Machine

REPLACEMENTS = ("zero", "average", "mean", "swap")
"""Zero; the head's mean over all tokens; the token's mean over other texts; the token's value in one other text."""
NORMS = ("norm", "centred")
"""‖f(x)‖ of the value, and of the value less the head's mean over all tokens."""
DRAWS, SHUFFLES = 200, 50


def measured(
    *, machine: Machine, model: str, sinks: Sequence[str], length: int, blocks: int, texts: int, changed: int, seed: int
) -> xr.Dataset:
    """The means that replace a value come from the blocks of the other half: other documents."""
    subject = opened(model, machine.models, machine.device)
    parts = texts_of(model, length, blocks, texts, subject, machine)
    kinds = (*sinks, MIDDLE)
    seen = [Values.of(subject, part, kinds) for part in parts]
    halves = [Values.joined(seen[half::2]) for half in (0, 1)]
    found = []
    for block, part in enumerate(parts):
        other, neighbour = halves[1 - block % 2], seen[(block + 1) % blocks]
        found.append(_replaced(subject, part[:changed], kinds, other, neighbour))
    data = xr.concat(found, "block")
    data = data.merge(_over_texts(subject, Values.joined(seen), seed))
    return data.assign_attrs(weights_sha256=subject.weights_hash, texts=sum(map(len, parts)))


@dataclass(frozen=True)
class Values:
    """What each head reads at one token of each text, by kind of token and site, and the sum over all tokens."""

    value: Mapping[str, Mapping[Site, Heads]]
    weight: Mapping[str, Mapping[Site, Float[Tensor, "text head"]]]
    total: Mapping[Site, Float[Tensor, "head dim"]]
    tokens: int

    @staticmethod
    def of(subject: Subject, part: Sequence[Example], kinds: Sequence[str]) -> "Values":
        batch = subject.encode(list(part))
        reader = _Reader(first_stack(subject), batch, places(batch, kinds))
        run(subject, batch, reader)
        return Values(reader.value, reader.weight, reader.total, int(batch.source.mask.sum()))

    @staticmethod
    def joined(parts: Sequence["Values"]) -> "Values":
        first = parts[0]
        value, weight = (
            {
                kind: {site: torch.cat([getattr(part, name)[kind][site] for part in parts]) for site in sites}
                for kind, sites in getattr(first, name).items()
            }
            for name in ("value", "weight")
        )
        total = {site: sum(part.total[site] for part in parts) for site in first.total}
        return Values(value, weight, total, sum(part.tokens for part in parts))  # type: ignore[arg-type]

    def average(self, site: Site) -> Float[Tensor, "head dim"]:
        """The head's mean value over all tokens: the constant that could as well stand in the output bias."""
        return self.total[site] / self.tokens


def places(batch: Batch, kinds: Sequence[str]) -> dict[str, Int[Tensor, " text"]]:
    """One token of each kind in each text."""
    every = targets(batch, [kind for kind in kinds if kind != MIDDLE])
    return {kind: every[kind] for kind in kinds}


class _Reader(Tap):
    """Reads the values of one batch, and the weight that words behind the middle give to each token."""

    def __init__(self, sites: Sequence[Site], batch: Batch, at: Mapping[str, Int[Tensor, " text"]]) -> None:
        self.sites, self.batch, self.at = set(sites), batch, at
        self.value: dict[str, dict[Site, Tensor]] = {kind: {} for kind in at}
        self.weight: dict[str, dict[Site, Tensor]] = {kind: {} for kind in at}
        self.total: dict[Site, Tensor] = {}

    def see(self, call: Call) -> None:
        if call.site not in self.sites:
            return
        value, rows = call.value.double(), behind_middle(self.batch.source).to(call.weights.dtype)
        read = torch.einsum("bhqk,bq->bhk", call.weights, rows) / rows.sum(-1).clamp(min=1)[:, None, None]
        for kind, place in self.at.items():
            self.value[kind][call.site] = picked(value, place)
            self.weight[kind][call.site] = read.gather(-1, place[:, None, None].expand(*read.shape[:2], 1))[..., 0]
        self.total[call.site] = (value * self.batch.source.mask[:, None, :, None]).sum((0, 2))


def _replaced(
    subject: Subject, part: Sequence[Example], kinds: Sequence[str], other: Values, neighbour: Values
) -> xr.Dataset:
    """How far the states of the words behind the middle move, and the loss of a language model rises."""
    batch = subject.encode(list(part))
    at, behind = places(batch, kinds), behind_middle(batch.source)
    causal = subject.anatomy.causal and not subject.encoder.translates
    intact = run(subject, batch)
    before = final_states(intact)
    changes = np.full((len(kinds), len(REPLACEMENTS)), np.nan)
    losses = np.full_like(changes, np.nan)
    for row, kind in enumerate(kinds):
        place = at[kind]
        rows = behind & (torch.arange(behind.shape[1], device=behind.device) != place[:, None])
        for column, how in enumerate(REPLACEMENTS):
            outputs = run(subject, batch, Replaced(place, replacements(how, kind, other, neighbour, len(batch))))
            moved = (final_states(outputs) - before).norm(dim=-1) / before.norm(dim=-1)
            changes[row, column] = float(moved[rows].mean())
            if causal:
                losses[row, column] = float(
                    (token_losses(outputs, batch) - token_losses(intact, batch))[rows].nanmean()
                )
    data = {"change": (("kind", "replacement"), changes)}
    if causal:
        data["loss_change"] = (("kind", "replacement"), losses)
    return xr.Dataset(data, {"kind": list(kinds), "replacement": list(REPLACEMENTS)})


def replacements(how: str, kind: str, other: Values, neighbour: Values, texts: int) -> dict[Site, Heads]:
    """The new values of one token in so many texts."""
    out = {}
    for site, values in other.value[kind].items():
        if how == "swap":
            out[site] = neighbour.value[kind][site][:texts]
        else:
            one = {"zero": torch.zeros_like(values[0]), "average": other.average(site), "mean": values.mean(0)}[how]
            out[site] = one.expand(texts, *one.shape)
    return out


def _over_texts(subject: Subject, every: Values, seed: int) -> xr.Dataset:
    """Within each head, over texts: ρ of the token's mean weight and its norm; and how constant what it sends is."""
    projections, dice = SiteWeights(subject, layer_norm=False), np.random.default_rng(seed)
    sites, kinds = first_stack(subject), list(every.value)
    weight = _stacked({kind: [every.weight[kind][site] for site in sites] for kind in kinds})
    norms, constancy = [], []
    for kind in kinds:
        raw, fixed, same = [], [], []
        for site in sites:
            products = projections[site].products.double()
            value = every.value[kind][site]
            less = centred(value, every.average(site)[None])
            raw.append(_norms(value, products))
            fixed.append(_norms(less, products))
            # ‖f(mean)‖² / mean ‖f‖²: 1 where what the token sends is the same in every text.
            size = fixed[-1].square().mean(0)
            same.append(
                torch.where(size > 0, _norms(less.mean(0, keepdim=True), products)[0].square() / size, torch.nan)
            )
        norms.append(torch.stack([torch.stack(raw), torch.stack(fixed)]))
        constancy.append(torch.stack(same))
    norm = torch.stack(norms).cpu()  # [kind norm layer text head]
    texts = norm.shape[-2]
    draws = [torch.from_numpy(dice.integers(texts, size=texts)) for _ in range(DRAWS)]
    shuffles = [torch.from_numpy(dice.permutation(texts)) for _ in range(SHUFFLES)]
    size = np.stack([_correlation(weight[..., part, :], norm[..., part, :]).mean_ for part in draws], -1)
    chance = np.stack([_correlation(weight[..., part, :], norm).size_ for part in shuffles], -1)
    found = _correlation(weight, norm)
    head = ("kind", "norm", "layer", "head")
    data = {
        "rho": (head, found.rho),
        "rho_draws": (("kind", "norm", "draw"), size),
        "size_by_chance": (("kind", "norm"), chance.mean(-1)),
        "size": (("kind", "norm"), found.size_),
        "constancy": (("kind", "layer", "head"), torch.stack(constancy).cpu().numpy()),
        "weight": (("kind", "layer", "head"), weight.mean(-2).numpy()),
    }
    return xr.Dataset(data, {"kind": kinds, "norm": list(NORMS), "layer": list(range(1, len(sites) + 1))})


@dataclass(frozen=True)
class _Correlations:
    """ρ of every head; NaN where a side is the same in every text, as [CLS] in the first layer."""

    rho: Float[np.ndarray, "kind norm layer head"]

    @property
    def mean_(self) -> Float[np.ndarray, "kind norm"]:
        return _mean(self.rho)

    @property
    def size_(self) -> Float[np.ndarray, "kind norm"]:
        """Mean |ρ|: also heads of opposite signs count."""
        return _mean(np.abs(self.rho))


def _mean(values: Float[np.ndarray, "kind norm layer head"]) -> Float[np.ndarray, "kind norm"]:
    """Over the heads that have a ρ; NaN where none has."""
    known = (~np.isnan(values)).sum((-2, -1))
    return np.where(known, np.nansum(values, (-2, -1)) / np.maximum(known, 1), np.nan)


def _correlation(
    weight: Float[Tensor, "kind layer text head"], norm: Float[Tensor, "kind norm layer text head"]
) -> _Correlations:
    one, other = (rounded(part.double()).transpose(-1, -2) for part in (weight[:, None].expand_as(norm), norm))
    count = torch.full(one.shape[:-1], one.shape[-1])
    return _Correlations(spearman_by_row(one.contiguous(), other.contiguous(), count).numpy())


def _norms(value: Heads, products: Float[Tensor, "head dim head_dim"]) -> Float[Tensor, "text head"]:
    return head_norms(value.transpose(0, 1)[None], products)[0].T


def _stacked(parts: Mapping[str, Sequence[Tensor]]) -> Float[Tensor, "kind layer text head"]:
    return torch.stack([torch.stack(list(each)) for each in parts.values()]).double().cpu()
