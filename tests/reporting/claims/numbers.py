"""Random results, and what is true of them, found without the library."""

import re

import numpy as np
import xarray as xr
from made import provenance
from scipy.stats import false_discovery_control, t

from lorgnette.results import Result
from lorgnette.statistics import estimate

LAYERS, HEADS = [1, 2, 3], [1, 2, 3, 4]
CATEGORIES = ["cls", "sep", "punctuation", "period_comma", "other", "first", "last", "self", "previous", "next"]
PARTITION = ["cls", "sep", "period_comma", "other"]
KINDS = {
    "the opening token ([CLS])": "cls",
    "the closing token ([SEP])": "sep",
    "periods and commas": "period_comma",
    "the other tokens": "other",
    "the first token": "first",
}
NUMBER = r"[+−]?\d+(?:\.\d+)?(?:e[+-]\d+)?"
NAMED = rf"\d+\.\d+ \({NUMBER}\)(?:, \d+\.\d+ \({NUMBER}\))*"
BESIDE = r"(?:not )?significantly (?:above|below) (?:[^();]|\(\[CLS\]\)|\(\[SEP\]\)|\(not paired\))*?"
HEAD_NAMES = r"\d+\.\d+"
PER_HEAD = ("stack", "layer", "head")


class Draw:
    """Random variables of a result; values and errors of every size, so that some differences are significant."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.texts = int(self.rng.choice([1, 2, 3, 8, 40]))
        self.spread = 10 ** self.rng.uniform(-4, -0.5)
        self.sizes = {"stack": ["encoder"], "layer": LAYERS, "head": HEADS, "category": CATEGORIES}

    def shape(self, dims):
        return tuple(len(self.sizes[dim]) for dim in dims)

    def values(self, dims, low=0.0, high=1.0):
        out = self.rng.uniform(low, high, self.shape(dims))
        return out if self.rng.random() < 0.7 else low + (high - low) * (0.9 + 0.1 * out)

    def mean(self, name, dims, low=0.0, high=1.0, missing=False):
        value = self.values(dims, low, high)
        error = self.spread * self.rng.uniform(0.2, 2, value.shape) if self.texts > 1 else np.full(value.shape, np.nan)
        count = np.full(value.shape, self.texts)
        if missing:  # a pruned head
            for part, nothing in ((value, np.nan), (error, np.nan), (count, 0)):
                part[:, -1, -1] = nothing
        return {name: (dims, value), f"{name}_se": (dims, error), f"{name}_count": (dims, count)}

    def result(self, lens, variables, attrs=None):
        used = {dim for dims, _ in variables.values() for dim in dims}
        coords = {dim: labels for dim, labels in self.sizes.items() if dim in used}
        return Result(lens, xr.Dataset(variables, coords, attrs or {}), provenance())


def corrected(variables, names):
    """The `_q` of these means, corrected over all of them together, as the lenses give them."""
    found = estimate.tested_together(xr.Dataset(variables), names)
    return {name: (array.dims, array.values) for name, array in found.items()}


def number(text):
    return float(text.replace("−", "-").replace("%", "").strip())


def prints(text, value):
    """A number is printed as it is, rounded."""
    digits = len(text.partition(".")[2].partition("e")[0].rstrip(" %"))
    scale = 100 if "%" in text else 1
    rounding = 0.5001 * 10.0**-digits
    if "e" in text:
        rounding *= 10.0 ** int(text.partition("e")[2])
    assert abs(number(text) - scale * value) <= max(rounding, 1e-9), (text, value)


def by_head(array):
    """{"2.3": value} of the heads that are there."""
    flat = {f"{a}.{b}": float(array.sel(layer=a, head=b)) for a in LAYERS for b in HEADS}
    return {name: value for name, value in flat.items() if value == value}


def by_layer(array):
    return {f"layer {layer}": float(array.sel(layer=layer)) for layer in LAYERS}


def triples(data, name, places=by_head, **at):
    parts = [places(data[f"{name}{tail}"].sel(**at)) for tail in ("", "_se", "_count")]
    return {place: tuple(part.get(place, np.nan) for part in parts) for place in parts[0]}


def single(data, name, **at):
    return tuple(float(data[f"{name}{tail}"].sel(**at)) for tail in ("", "_se", "_count"))


def p_values(means, against=0.0):
    return {name: 2 * t.sf(abs(m - against) / se, n - 1) for name, (m, se, n) in means.items()}


def discovered(p):
    """The names whose p is significant at a false discovery rate of 5 %."""
    known = {name: value for name, value in p.items() if value == value}
    if not known:
        return set()
    return {name for name, q in zip(known, false_discovery_control(list(known.values())), strict=True) if q < 0.05}


def ties(means, best):
    """Which of the others this test cannot tell from the best: |difference| / (sum of the errors), two-sided."""
    m, se, n = means[best]
    others = {
        name: 2 * t.sf(abs(m - other[0]) / (se + other[1]), min(n, other[2]) - 1)
        for name, other in means.items()
        if name != best
    }
    return set(others) - discovered(others)


def is_beside(words, means, best):
    """The phrase on how the best compares with all others where no lens has paired them, which it says."""
    words = (words or "").strip(" ,;")
    if any(np.isnan(se) for _, se, _ in means.values()):
        assert not words, words
        return
    tied = ties(means, best)
    if words.endswith("all others"):
        assert words.startswith("significantly")
        assert not tied, (words, tied)
        return
    pattern = r"not significantly (?:above|below) (.*?)(?: and (\d+) more)? \(not paired\)"
    listed, more = re.fullmatch(pattern, words).groups()
    names = set(listed.split(", "))
    assert names <= tied, (words, tied)
    assert len(names) + int(more or 0) == len(tied), (words, tied)


def are_named(words, values, *, size=lambda value: value, most=3):
    """The heads that are named are the largest, in order, with their values."""
    named = [part.rstrip(")").split(" (") for part in words.split(", ")]
    order = sorted(values, key=lambda name: -size(values[name]))
    assert [name for name, _ in named] == order[: min(most, len(order))], (words, values)
    for name, value in named:
        prints(value, values[name])


def apart(first, second, means, words):
    """ "The difference is (not) significant": by the test of the docs; and then the two are printed differently."""
    (m, se, n), (m2, se2, n2) = means
    p = 2 * t.sf(abs(m - m2) / (se + se2), min(n, n2) - 1)
    if p != p:
        assert words == ""
        return
    assert words == f"; the difference is {'' if p < 0.05 else 'not '}significant"
    assert p >= 0.05 or first != second, (first, second)


def are_significant(words, doubt, means, sure):
    """The heads that are named are the largest of the significant ones; what is said of the first is so."""
    values = {name: mean[0] for name, mean in means.items()}
    are_named(words, {name: values[name] for name in sure}, size=abs)
    first, largest = words.split(" ")[0], max(values, key=lambda name: abs(values[name]))
    if larger := re.fullmatch(rf"; the estimate for ({HEAD_NAMES}) \({NUMBER}\) is larger, but not significant", doubt):
        assert larger[1] == largest not in sure
        return
    assert first == largest
    sizes = {name: (abs(m), se, n) for name, (m, se, n) in means.items()}
    is_beside(doubt.removeprefix("; the first is"), sizes, first)
    printed = re.findall(rf"\([+−]?({NUMBER[5:]})\)", words)
    assert "all others" not in doubt or printed.count(printed[0]) == 1, words
