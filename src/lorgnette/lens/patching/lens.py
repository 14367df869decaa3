"""Which heads carry the difference between two texts: one head's output, patched from one text into the other."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from transformers.utils import ModelOutput

from lorgnette.attending import Call, Site
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.base import Lens
from lorgnette.lens.effects.goal import Goal
from lorgnette.lens.losses import task_of
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import extreme_q
from lorgnette.lens.patching.pairs import counterparts, pair_key, question
from lorgnette.lens.signals import Signal, variable
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, error_of_terms, false_discovery
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

_DESCRIPTIONS = {
    "effect": "(patched − corrupt) / (clean − corrupt) of the mean logit differences: 0 the head changes nothing, 1 it "
    "restores all; 95 % interval over pairs",
    "patched": "logit difference of the counterpart with this head's output from the text, mean over pairs",
    "change": "patched minus corrupt logit difference, mean over pairs",
    "change_q": "p of the change (t test over pairs), corrected over heads (Benjamini–Hochberg)",
    "clean": "logit difference of the text, mean over pairs",
    "corrupt": "logit difference of the counterpart, mean over pairs",
    "difference": "clean minus corrupt, mean over pairs: what the effect is a share of",
}

_ROUNDING = 64
"""Changes below this many units in the last place of the largest logit are none."""


class Patching(Lens):
    """Head patching on minimal pairs: the counterpart's pass with one head's output of the text (Vig et al. 2020).

        D = logit(answer) − logit(other)         of the text (clean), of its counterpart (corrupt), of the patched pass
        effect_h = Σ (D_patched(h) − D_corrupt) / Σ (D_clean − D_corrupt)          sums over pairs, t over pairs

    The corpus has a `counterpart` for each text, with as many tokens, and perhaps `answer` and `other`: classes of a
    classifier, tokens that a language model says behind the text (a masked one at its mask, a translation model behind
    `target`, the beginning of the translation of both). Without them the answer is the text's class, or what the model
    says of it, and the other what is likeliest in the counterpart besides that. `planted:pairs` is such a corpus.

    What it does not tell you: that the head computes the difference; it may pass on what earlier ones found. Effects of
    heads do not add up. A head that matters for both texts alike has no effect.
    """

    task: str
    name: ClassVar[str] = "patching"
    summary: ClassVar[str] = "which heads carry what tells a text from its counterpart: activation patching on pairs"
    reads = frozenset({"labels", "cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "patching": Signal(
            "share of a pair's difference that patching the head restores", variable("effect"), signed=True
        )
    }

    def __init__(self) -> None:
        super().__init__()
        self.outputs: dict[Site, Tensor] = {}

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        self.of_heads: Moments = Moments(self, ("patched", "change"))
        self.of_ends: Moments = Moments(self, ("clean", "corrupt", "difference"), at="corpus")
        columns = {"pair": Column(), "ends": Column((2,)), "changes": Column((len(self.sites), self.heads))}
        self.pairs: HashSample = HashSample(self, "pairs", columns, size=None)

    def update(self, call: Call, batch: Batch) -> None:
        self.outputs[call.site] = call.context.detach()

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """The counterpart's pass, then once more for every head of the text."""
        other = counterparts(self.subject, batch)
        rerun = Rerun(self.subject, other)
        with torch.no_grad(), self.subject.tapped(), rerun.recording():
            corrupt = self.subject.run(other, **rerun.options).logits
        clean = outputs.logits
        goal = question(self.subject, self.task, batch, clean, corrupt)
        ends = torch.stack([goal(clean), goal(corrupt)], -1)
        exists = torch.ones_like(ends[:, 0])
        # What cannot change (a decoder that has not seen the source) differs by rounding alone, which no test may see.
        rounding = _ROUNDING * torch.finfo(clean.dtype).eps * clean.detach().abs().flatten(1).amax(-1).to(ends)
        changes = ends.new_full((len(batch), len(self.sites), self.heads), torch.nan)
        clean_corrupt = {"clean": ends[:, 0], "corrupt": ends[:, 1], "difference": ends[:, 0] - ends[:, 1]}
        self.of_ends.add(**{name: (value, exists) for name, value in clean_corrupt.items()})
        with torch.no_grad():
            for site, output in self.outputs.items():
                patched = self._patched(site, output, rerun, goal)
                change = patched - ends[:, 1:]
                change = change.where(change.abs() > rounding[:, None], 0.0)
                patched = ends[:, 1:] + change
                self.of_heads.add(site, patched=(patched, exists[:, None]), change=(change, exists[:, None]))
                changes[:, self.position[site], : change.shape[1]] = change
        numbers = torch.tensor([text_key(example.id) >> 11 for example in batch.examples], dtype=torch.int64)
        pair = torch.tensor([pair_key(example) >> 11 for example in batch.examples], dtype=torch.float64)
        self.pairs.add(numbers, pair=pair, ends=ends.cpu(), changes=changes.cpu())
        self.outputs = {}

    def _patched(self, site: Site, output: Tensor, rerun: Rerun, goal: Goal) -> Float[Tensor, "text head"]:
        replaced = [Replacement(head, output[:, head]) for head in range(output.shape[1])]
        return torch.stack([goal(logits) for logits in rerun.each(site, replaced)], -1)

    def compute(self) -> Result:
        """Logit differences of clean, corrupt and patched passes, and the normalised effect with its interval."""
        variables = self.of_heads.arrays() | self.of_ends.arrays()
        variables |= self._effects(variables)
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"task": self.task, "pairs": len(np.unique(self.pairs.rows()["pair"].numpy()))}
        return result

    def _effects(self, variables: dict[str, xr.DataArray]) -> dict[str, xr.DataArray]:
        rows = self.pairs.rows()
        pair, ends, changes = (rows[name].double().numpy() for name in ("pair", "ends", "changes"))
        whole, error = ends[:, 0] - ends[:, 1], np.full((len(self.sites), self.heads), np.nan)
        out = np.full((3, len(self.sites), self.heads), np.nan)
        for site in range(len(self.sites)):
            for head in range(self.heads):
                own = changes[:, site, head]
                if len(own) and np.isfinite(own).all():
                    out[:, site, head] = ratio_of_sums(summed(own, pair), summed(whole, pair))
                    error[site, head] = clustered_error(own, pair)
        grids = {name: self.grid(torch.from_numpy(part))
                 for name, part in zip(("effect", "effect_low", "effect_high"), out, strict=True)}  # fmt: skip
        count = variables["change_count"].where(grids["effect"].notnull(), 0)
        change, spread = variables["change"], self.grid(torch.from_numpy(error))
        q = false_discovery(Estimate(change, spread, len(np.unique(pair))).p)
        top = self._apart(changes, pair, np.sign(whole.mean()))
        grids |= {"change_top_q": top, "change_top_q_count": top.notnull() * count}
        grids |= {"change_se": spread, "difference_se": xr.DataArray(clustered_error(whole, pair))}
        return grids | {"effect_count": count, "change_q": q, "change_q_count": count.where(q.notnull(), 0)}

    def _apart(self, changes: Float[np.ndarray, "text site head"], pair: np.ndarray, sign: float) -> xr.DataArray:
        """How sure it is that each head differs from the one that brings back most of its stack, paired over pairs."""
        out = np.full(changes.shape[1:], np.nan)
        for stack in self.by_head.stacks:
            sites = [number for number, site in enumerate(self.sites) if site.name == stack]
            own = sign * changes[:, sites].reshape(len(changes), -1)
            known = np.asarray(np.isfinite(own).all(0))
            own = np.where(known, own, 0.0)
            terms = np.stack([summed(each - each.mean(), pair) for each in own.T]) / max(len(own), 1)
            count = np.full(len(terms), float(terms.shape[1]))
            means = own.sum(0) / max(len(own), 1)
            out[sites] = extreme_q(means, terms @ terms.T, count, known, largest=True).reshape(len(sites), -1)
        return self.grid(torch.from_numpy(out))


def summed(values: Float[np.ndarray, " text"], pair: Float[np.ndarray, " text"]) -> Float[np.ndarray, " pair"]:
    """Sums over the texts of each pair: one, or both where a corpus has a pair in both directions."""
    _, place = np.unique(pair, return_inverse=True)
    return np.bincount(place, weights=values)


def clustered_error(values: Float[np.ndarray, " text"], pair: Float[np.ndarray, " text"]) -> float:
    """Standard error of the mean over texts, pairs being independent and not their two directions.

    s_c sums over the n_c texts of pair c: √(G/(G − 1) Σ_c (s_c − n_c x̄)²) / N for G pairs of N texts in all.
    """
    sums, sizes = summed(values, pair), summed(np.ones_like(values), pair)
    residuals = sums - sizes * values.mean()
    return float(error_of_terms(residuals / len(values), len(sums)))


def ratio_of_sums(change: Float[np.ndarray, " pair"], whole: Float[np.ndarray, " pair"]) -> tuple[float, float, float]:
    """Σ change / Σ whole with its 95 % interval over pairs, linearised; NaN where the texts do not differ."""
    if whole.sum() == 0:
        return float("nan"), float("nan"), float("nan")
    value = change.sum() / whole.sum()
    residuals = Estimate.mean(change - value * whole)
    return float(value), *Estimate(value, residuals.se / abs(whole.mean()), len(whole)).interval
