"""One rule for each kind of sentence, and the test that every lens's sentences take."""

import re
from collections import Counter
from collections.abc import Callable

import xarray as xr

from claims.numbers import Draw
from lorgnette.reporting import findings

DRAWS = 12
Rule = Callable[[re.Match, xr.Dataset], None]
RULES: dict[str, list[tuple[str, Rule]]] = {}


def says(lens, pattern):
    """The rule for the sentences of a lens that match a pattern: it asserts that what they say is so."""

    def add(rule):
        RULES.setdefault(lens, []).append((pattern, rule))
        return rule

    return add


def rule_of(lens, text):
    found = [(pattern, match, rule) for pattern, rule in RULES[lens] if (match := re.fullmatch(pattern, text))]
    assert len(found) == 1, f"{len(found)} rules of {lens} match: {text}"
    return found[0]


def check_sentences(make, draws=DRAWS):
    """Each sentence has one rule, which holds; and every rule is put to the test."""
    used = Counter()
    for seed in range(draws):
        result = make(Draw(seed))
        data = result.data.squeeze("stack", drop=True) if "stack" in result.data.dims else result.data
        for finding in findings({"": result}):
            pattern, match, rule = rule_of(result.lens, finding.text)
            rule(match, data)
            used[pattern] += 1
        lens = result.lens
    assert not [pattern for pattern, _ in RULES[lens] if not used[pattern]]
