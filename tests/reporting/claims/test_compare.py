"""`compare`: what two runs differ by."""

import re
from collections import Counter

import numpy as np
import pytest
from scipy.stats import ttest_ind_from_stats

from claims.numbers import NAMED, NUMBER, Draw, discovered, number, prints, triples
from claims.rules import DRAWS
from claims.test_attention import weights
from lorgnette.reporting import Comparison
from lorgnette.results import Results


def welch(one, other):
    """p of two independent means, from their errors."""
    (m, se, n), (m2, se2, n2) = one, other
    return ttest_ind_from_stats(m, se * n**0.5, n, m2, se2 * n2**0.5, n2, equal_var=False).pvalue


COMPARED = (
    rf"(Confidence|Normalised entropy|Share of attention, .*?): ({NUMBER}) → ({NUMBER}), ({NUMBER}) "
    rf"\(({NUMBER}) to ({NUMBER})\); (?:(none|\d+) of (\d+) heads differs? significantly)(?:, most "
    rf"({NAMED}))?\."
)


def test_comparisons_say_what_the_numbers_say():
    """Means of both runs, their difference and its interval, and which heads differ (Welch's t by SciPy)."""
    kinds = {"opening token ([CLS])": "cls", "closing token ([SEP])": "sep"}
    seen = Counter()
    for seed in range(DRAWS // 2):
        draw = Draw(seed)
        draw.texts = int(draw.rng.choice([3, 8, 40]))
        before, after = weights(draw), weights(draw)
        for finding in Comparison(Results([before]), Results([after])).findings():
            match = re.fullmatch(COMPARED, finding.text)
            assert match, finding.text
            variable = {"Confidence": "confidence", "Normalised entropy": "entropy_normalised"}.get(match[1], "mass")
            at = {"category": kinds[match[1].partition(", ")[2]]} if variable == "mass" else {}
            old, new = (triples(run.data.squeeze("stack", drop=True), variable, **at) for run in (before, after))
            means = [np.mean([mean[0] for mean in run.values()]) for run in (old, new)]
            for place, mean in zip((2, 3), means, strict=True):
                assert number(match[place]) == pytest.approx(mean, rel=0.006)
            prints(match[4], means[1] - means[0])
            first, last = (tuple(np.mean([mean[k] for mean in run.values()]) for k in range(3)) for run in (old, new))
            sure_of_mean = welch(last, first) < 0.05
            assert (number(match[5]) * number(match[6]) > 0) == sure_of_mean or match[5].strip("+−0.") == ""
            p = {name: welch(new[name], old[name]) for name in old}
            sure = discovered(p)
            assert (0 if match[7] == "none" else int(match[7]), int(match[8])) == (len(sure), len(old))
            if sure:
                gains = {name: new[name][0] - old[name][0] for name in sure}
                named = [part.split(" (")[0] for part in match[9].split(", ")]
                assert named == sorted(gains, key=lambda name: -abs(gains[name]))[:3]
            seen[bool(sure)] += 1
    assert seen[True]
    assert seen[False]
