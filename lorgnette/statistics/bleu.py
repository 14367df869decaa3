"""BLEU as sacrebleu counts it, with its signature, and how sure a difference of two systems is.

BLEU = BP · exp(¼ Σ_n log p_n), p_n the share of n-grams of the translations that the references have, BP the brevity
penalty (Papineni et al. 2002; Post 2018). It compares words, not meanings: compare systems on the same texts only.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lorgnette.errors import UserError

DRAWS = 1000
ORDERS = 4
Statistics = Int[np.ndarray, "text 10"]
"""For each text: matches of 1- to 4-grams, n-grams there are, length of translation, length of reference."""


@dataclass(frozen=True)
class Bleu:
    """The score of a system on some texts, and all that a bootstrap needs of them."""

    statistics: Statistics
    signature: str
    """sacrebleu's: what must be the same for two scores to be compared."""

    @cached_property
    def score(self) -> float:
        return score_of(self.statistics.sum(axis=0))

    @property
    def brevity(self) -> float:
        """Length of the translations over that of the references."""
        sums = self.statistics.sum(axis=0)
        return float(sums[8] / max(sums[9], 1))

    def draws(self, number: int = DRAWS, seed: int = 0) -> Float[np.ndarray, " draw"]:
        """Scores on texts drawn with replacement; two systems on the same texts get the same draws."""
        chosen = np.random.default_rng(seed).integers(len(self.statistics), size=(number, len(self.statistics)))
        return np.array([score_of(self.statistics[some].sum(axis=0)) for some in chosen])


@dataclass(frozen=True)
class Difference:
    """Of the BLEU of two systems on the same texts: paired bootstrap (Koehn 2004)."""

    value: float
    interval: tuple[float, float]
    """95 %."""
    p: float
    """Two-sided: how often a draw has the other sign, twice; never below 2 / draws."""


def bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """The BLEU of detokenised translations against one reference each, tokenised by sacrebleu's 13a."""
    if len(translations) != len(references):
        raise UserError(f"{len(translations)} translations cannot be compared with {len(references)} references.")
    if not translations:
        raise UserError("BLEU needs at least one translation.")
    metric = _metric()
    metric.corpus_score([translations[0]], [[references[0]]])  # the signature needs the number of references
    rows = [_counted(metric, one, other) for one, other in zip(translations, references, strict=True)]
    return Bleu(np.array(rows, dtype=np.int64), str(metric.get_signature()))


def score_of(sums: Int[np.ndarray, " 10"]) -> float:
    """BLEU from summed statistics."""
    counts, totals = sums[:ORDERS].tolist(), sums[ORDERS : 2 * ORDERS].tolist()
    made = type(_metric()).compute_bleu(counts, totals, int(sums[8]), int(sums[9]), smooth_method="exp")
    return float(made.score)


def difference(system: Bleu, base: Bleu, *, draws: int = DRAWS, seed: int = 0) -> Difference:
    """BLEU(system) − BLEU(base) on the same texts, with the interval of a paired bootstrap."""
    if len(system.statistics) != len(base.statistics):
        raise UserError("two systems are compared on the same texts: these have not the same number.")
    return paired(system.score, base.score, system.draws(draws, seed), base.draws(draws, seed))


def paired(
    score: float, base: float, draws: Float[np.ndarray, " draw"], base_draws: Float[np.ndarray, " draw"]
) -> Difference:
    """The same from draws that were kept."""
    apart = np.asarray(draws) - np.asarray(base_draws)
    low, high = np.quantile(apart, [0.025, 0.975])
    other = min((apart <= 0).mean(), (apart >= 0).mean())
    return Difference(score - base, (float(low), float(high)), float(min(1.0, max(2 * other, 2 / len(apart)))))


def _metric() -> Any:
    from sacrebleu.metrics import BLEU

    return BLEU()


def _counted(metric: Any, translation: str, reference: str) -> list[int]:
    found = metric.corpus_score([translation], [[reference]])
    return [*found.counts, *found.totals, found.sys_len, found.ref_len]
