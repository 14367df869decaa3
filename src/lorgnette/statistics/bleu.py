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

from lorgnette.errors import UserError, optional
from lorgnette.statistics.bootstrap import bootstrap_draws, percentile_interval
from lorgnette.statistics.estimate import Interval

DRAWS = 1000
ORDERS = 4


@dataclass(frozen=True)
class Bleu:
    """The score of a system on some texts, and the texts."""

    translations: tuple[str, ...]
    references: tuple[str, ...]
    signature: str
    """sacrebleu's signature: two scores are comparable only if theirs are equal."""

    @cached_property
    def statistics(self) -> Int[np.ndarray, "text 10"]:
        """For each text: matched 1- to 4-grams, their numbers, and the lengths of translation and reference."""
        metric = _metric(effective_order=True)  # sacrebleu's advice for single sentences
        each = [
            metric.sentence_score(said, [wanted])
            for said, wanted in zip(self.translations, self.references, strict=True)
        ]
        return np.array([[*one.counts, *one.totals, one.sys_len, one.ref_len] for one in each], dtype=np.int64)

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
        return bootstrap_draws(
            np.arange(len(self.translations)),
            lambda texts: score_of(self.statistics[texts].sum(axis=0)),
            draws=number,
            seed=seed,
            vectorized=False,
        )


@dataclass(frozen=True)
class Difference:
    """The difference in BLEU of two systems on the same texts, with a paired bootstrap interval (Koehn 2004)."""

    value: float
    interval: Interval
    """95 %."""
    p: float
    """Two-sided, by approximate randomisation: sacrebleu's own paired test (Riezler & Maxwell 2005)."""


def bleu(translations: Sequence[str], references: Sequence[str]) -> Bleu:
    """The BLEU of detokenised translations against one reference each, tokenised by sacrebleu's 13a."""
    if len(translations) != len(references):
        raise UserError(f"{len(translations)} translations cannot be compared with {len(references)} references.")
    if not translations:
        raise UserError("BLEU needs at least one translation.")
    metric = _metric()
    metric.corpus_score([translations[0]], [[references[0]]])  # the signature needs the number of references
    return Bleu(tuple(translations), tuple(references), str(metric.get_signature()))


def score_of(sums: Int[np.ndarray, " 10"]) -> float:
    """BLEU from summed statistics."""
    counts, totals = sums[:ORDERS].tolist(), sums[ORDERS : 2 * ORDERS].tolist()
    return float(_metric().compute_bleu(counts, totals, int(sums[8]), int(sums[9]), smooth_method="exp").score)


def difference(system: Bleu, base: Bleu, *, draws: int = DRAWS, seed: int = 0) -> Difference:
    """BLEU(system) − BLEU(base) on the same texts: interval by paired bootstrap, p by sacrebleu's paired test."""
    if system.references != base.references:
        raise UserError("two systems must be compared on the same texts: these have different references.")
    apart = system.draws(draws, seed) - base.draws(draws, seed)
    return Difference(system.score - base.score, percentile_interval(apart), _randomised(system, base, draws))


def _randomised(system: Bleu, base: Bleu, trials: int) -> float:
    """How often systems that swap translations at random differ more than these two; 1 if they score the same.

    (sacrebleu counts larger differences only, so that a system against itself would get the smallest p.)
    """
    if system.score == base.score:
        return 1.0
    PairedTest = optional("sacrebleu.significance", "train").PairedTest
    systems = [("base", base.translations), ("system", system.translations)]
    test = PairedTest(systems, {"BLEU": _metric()}, [list(base.references)], test_type="ar", n_samples=trials)
    _, results = test()
    return float(results["BLEU"][1].p_value)


def paired(
    score: float, base: float, draws: Float[np.ndarray, " draw"], base_draws: Float[np.ndarray, " draw"]
) -> Difference:
    """The same from kept draws; p is twice the share of draws with the opposite sign, at least 2 / draws."""
    apart = np.asarray(draws) - np.asarray(base_draws)
    other = min((apart <= 0).mean(), (apart >= 0).mean())
    return Difference(score - base, percentile_interval(apart), float(min(1.0, max(2 * other, 2 / len(apart)))))


def _metric(**options: bool) -> Any:
    return optional("sacrebleu.metrics", "train").BLEU(**options)
