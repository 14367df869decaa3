"""No sentence says more than its numbers: random results, and rules that are written without the code of the sentences.

Every sentence must match one of the patterns below, and what it says must follow from the numbers of the result: who is
largest, how many of how many, what is significant (by SciPy), and that what is called different is printed differently.
"""

import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from made import provenance
from scipy.stats import false_discovery_control, spearmanr, t, ttest_ind_from_stats

from lorgnette.reporting import Comparison, findings
from lorgnette.results import Result, Results

DRAWS = 12
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
BESIDE = r"(?:not )?significantly (?:above|below) (?:[^();]|\(\[CLS\]\)|\(\[SEP\]\))*?"
HEAD_NAMES = r"\d+\.\d+"


# What results are made of


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


PER_HEAD = ("stack", "layer", "head")


def weights(draw):
    variables = {}
    for name in ("entropy_normalised", "confidence", "special"):
        variables |= draw.mean(name, PER_HEAD, missing=True)
    variables |= draw.mean("mass", (*PER_HEAD, "category"), missing=True)
    case = draw.rng.integers(4)
    for place in (0, 1) if case < 2 else ():
        if case == 0:  # no text has a special token
            for tail, nothing in (("", np.nan), ("_se", np.nan), ("_count", 0)):
                variables[f"mass{tail}"][1][..., place] = nothing
        else:  # one text has none
            variables["mass_count"][1][..., place] = np.maximum(variables["mass_count"][1][..., place] - 1, 0)
    if draw.rng.random() < 0.2:
        variables["mass"][1][...] *= 0.4
    return draw.result("weights", variables)


def norms(draw):
    draw.sizes["category"] = PARTITION
    dims = (*PER_HEAD, "category")
    weight = draw.rng.dirichlet(draw.rng.choice([0.2, 1, 3], 4), draw.shape(PER_HEAD))
    share = draw.rng.dirichlet(draw.rng.choice([0.05, 1, 5], 4), draw.shape(PER_HEAD))
    f_norm = draw.rng.uniform(0.1, 1, weight.shape) / weight.clip(0.01) ** draw.rng.choice([-1, 0, 1])
    variables = {"weight": (dims, weight), "norm": (dims, share * 3), "norm_share": (dims, share)}
    variables |= {
        "f_norm": (dims, f_norm),
        "spearman": (("stack", "layer", "category"), draw.rng.uniform(-1, 1, (1, 3, 4))),
    }
    variables |= draw.mean("contribution_share", dims, -0.3, 0.7)
    return draw.result("norms", variables)


def sinks(draw):
    draw.sizes |= {"threshold": [0.2, 0.3, 0.5], "category": ["all", *CATEGORIES[:7]]}
    draw.sizes |= {"change": ["sink_value", "middle_value", "sink_key", "middle_key"]}
    dims = ("stack", "layer", "head", "threshold", "category")
    variables = draw.mean("rate", dims, missing=True) | draw.mean("arrives", PER_HEAD, missing=True)
    if draw.rng.random() < 0.3:
        variables["rate"][1][...] *= 0.5
    if draw.rng.random() < 0.5:
        for tail, nothing in (("", np.nan), ("_se", np.nan), ("_count", 0)):
            variables[f"rate{tail}"][1][..., 1] = nothing
    variables |= draw.mean("loss_change", ("change",), -1, 1) | {"loss": ((), 1.234)}
    return draw.result("sinks", variables, {"threshold": 0.3})


def rollout(draw):
    draw.sizes |= {"measure": ["weights", "norms"], "category": ["self", "cls"]}
    scale = draw.rng.choice([1, 0.05])
    return draw.result("rollout", draw.mean("share", ("stack", "layer", "measure", "category"), 0, scale))


def roles(draw):
    draw.sizes |= {"role": ["special", "previous", "broad"], "part": ["development", "held_out"]}
    label = draw.rng.random(draw.shape((*PER_HEAD, "role"))) < draw.rng.choice([0, 0.3])
    seen = np.full(draw.shape((*PER_HEAD, "part")), 5)
    seen[:, -1, -1] = 0
    label[:, -1, -1] = False
    return draw.result("roles", {"label": ((*PER_HEAD, "role"), label), "peak_count": ((*PER_HEAD, "part"), seen)})


def geometry(draw):
    draw.sizes |= {"state": [0, 1, 2, 3], "vectors": ["query", "key", "value"]}
    by_layer = ("stack", "layer", "vectors")
    variables = draw.mean("state_sim", ("stack", "state")) | draw.mean("sim_all", by_layer)
    variables |= {"state_isoscore": (("stack", "state"), draw.values(("stack", "state")))}
    variables |= {"sim_centred_all": (by_layer, draw.values(by_layer, -0.2, 0.2))}
    return draw.result("geometry", variables)


def importance(draw):
    draw.sizes |= {"ablation": ["mean", "zero"]}
    low = draw.rng.choice([-1, 0, 0.5])
    variables = draw.mean("loss_change", (*PER_HEAD, "ablation"), low, 1, missing=True)
    if draw.rng.random() < 0.3:
        variables["loss_change_se"][1][...] *= 20  # nobody is significant
    return draw.result("importance", variables | draw.mean("sensitivity", PER_HEAD, missing=True))


def effects(draw):
    draw.sizes |= {"signal": ["by_gradient", "direct"]}
    variables = {}
    for name in ("direct", "total"):
        variables |= draw.mean(name, PER_HEAD, -1, 1, missing=True)
        if draw.rng.random() < 0.4:
            variables[f"{name}_se"][1][..., 1:] *= 10 ** draw.rng.uniform(0, 3)
    return draw.result("effects", variables | draw.mean("alike", ("signal",), -1, 1))


def removal(draw):
    names = ["random", "sharpness", "norm", "gradient"][: draw.rng.integers(2, 5)]
    draw.sizes |= {"signal": names, "signal_b": names, "share": [0.25, 0.5, 0.75]}
    draw.sizes |= {"draw": list(range(int(draw.rng.choice([8, 20]))))}
    metric = str(draw.rng.choice(["accuracy", "loss"]))
    p = draw.rng.choice([0.01, 0.5], draw.shape(("stack", "share", "signal", "signal_b")))
    variables = {metric: ((), 0.8)} | draw.mean(f"{metric}_change", ("stack", "signal", "share"), -0.5, 0.5)
    variables |= {f"{metric}_difference_p": (("stack", "share", "signal", "signal_b"), p)}
    variables |= {f"{metric}_chance_p": (("stack", "share", "signal"), draw.rng.random((1, 3, len(names))))}
    variables |= {
        f"{metric}_draw": (("stack", "share", "draw"), draw.rng.random(draw.shape(("stack", "share", "draw"))))
    }
    return draw.result("removal", variables, {"ranked_on": str(draw.rng.choice(["other texts", "the same texts"]))})


def frequency(draw):
    draw.sizes |= {"measure": ["weights", "norms"]}
    dims, scale = ("stack", "measure"), draw.rng.choice([0.1, 0.9])
    rho, half = draw.values(dims, -scale, scale), draw.rng.uniform(0, 0.4, (1, 2))
    ends = {"": rho, "_low": rho - half, "_high": rho + half}
    variables = {f"spearman_all{tail}": (dims, value) for tail, value in ends.items()}
    variables["spearman"] = (("stack", "layer", "measure"), draw.rng.uniform(-1, 1, (1, 3, 2)))
    return draw.result("frequency", variables)


def synthetic(draw):
    draw.sizes |= {"test": ["induction", "duplicate", "previous", "retrieval"]}
    dims = (*PER_HEAD, "test")
    excess, q = draw.values(dims, -0.2, draw.rng.choice([0.3, 0.05])), draw.rng.choice([0.01, 0.2], draw.shape(dims))
    return draw.result("synthetic", {"score": (dims, excess), "excess": (dims, excess), "excess_q": (dims, q)})


def gradients(draw):
    draw.sizes["category"] = ["all", "cls", "sep"]
    return draw.result("gradients", draw.mean("gradient", (*PER_HEAD, "category"), 0.1))


MADE = (weights, norms, sinks, rollout, roles, geometry, importance, effects, removal, frequency, synthetic, gradients)


# What is true, found without the library


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
    """The phrase on how the best compares with all others."""
    words = (words or "").strip(" ,;")
    if any(np.isnan(se) for _, se, _ in means.values()):
        assert not words, words
        return
    tied = ties(means, best)
    if words.endswith("all others"):
        assert words.startswith("significantly")
        assert not tied, (words, tied)
        return
    listed, more = re.fullmatch(r"not significantly (?:above|below) (.*?)(?: and (\d+) more)?", words).groups()
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


def single(data, name, **at):
    return tuple(float(data[f"{name}{tail}"].sel(**at)) for tail in ("", "_se", "_count"))


# One rule for each kind of sentence

Rule = Callable[[re.Match, xr.Dataset], None]
RULES: dict[str, list[tuple[str, Rule]]] = {}


def says(lens, pattern):
    def add(rule):
        RULES.setdefault(lens, []).append((pattern, rule))
        return rule

    return add


@says(
    "weights",
    r"(\d+) of (\d+) heads puts? more than half of (?:its|their) attention on (\D+) \(mean over all heads: (\d+ %)\)\.",
)
def _(match, data):
    masses = {kind: by_head(data["mass"].sel(category=kind)) for kind in ("cls", "sep", "period_comma")}
    counts = {kind: sum(value > 0.5 for value in mass.values()) for kind, mass in masses.items()}
    kind = KINDS[match[3]]
    assert int(match[1]) == counts[kind] == max(counts.values()) > 0
    assert int(match[2]) == len(masses[kind])
    prints(match[4], np.mean(list(masses[kind].values())))


@says("weights", r"No head puts more than half of its attention on (\D+) \(mean over heads: (\d+ %)\)\.")
def _(match, data):
    mass = by_head(data["mass"].sel(category=KINDS[match[1]]))
    assert max(mass.values()) <= 0.5
    prints(match[2], np.mean(list(mass.values())))


@says(
    "weights",
    r"(\d+) of (\d+) heads puts? more than half of (?:its|their) attention on (special tokens|special tokens "
    r"\(in texts without any, on the first token\)|the first token, an ordinary word here: these texts have "
    r"no special token)\.",
)
def _(match, data):
    special = by_head(data["special"])
    assert (int(match[1]), int(match[2])) == (sum(value > 0.5 for value in special.values()), len(special))
    texts, every = data["mass_count"].sel(category=["cls", "sep"]).max().item(), data["special_count"].max().item()
    if data["mass"].sel(category=["cls", "sep"]).isnull().all():
        assert "first token, an ordinary word" in match[3]
    else:
        assert ("in texts without any" in match[3]) == (texts < every)


@says(
    "weights",
    rf"(\d+) heads? attends? mostly to the (previous token|next token|token itself) \(mean weight above 0\.5\): "
    rf"({NAMED})( …)?\.",
)
def _(match, data):
    kind = {"previous token": "previous", "next token": "next", "token itself": "self"}[match[2]]
    most = {name: value for name, value in by_head(data["mass"].sel(category=kind)).items() if value > 0.5}
    assert int(match[1]) == len(most)
    assert bool(match[4]) == (len(most) > 3)
    are_named(match[3], most)


@says(
    "weights",
    r"Most confident heads \(mean maximum weight on a word\)(, without those that put more than half of their "
    rf"attention on the first token)?: ({NAMED})\.(?: Head ({HEAD_NAMES}) \(± ({NUMBER})\) is ({BESIDE})\.)?",
)
def _(match, data):
    means = triples(data, "confidence")
    if data["mass"].sel(category=["cls", "sep"]).isnull().all():  # the first word may be the sink
        special = by_head(data["special"])
        assert bool(match[1]) == any(value > 0.5 for value in special.values())
        means = {name: mean for name, mean in means.items() if special[name] <= 0.5}
    else:
        assert not match[1]
    are_named(match[2], {name: mean[0] for name, mean in means.items()})
    best = max(means, key=lambda name: means[name][0])
    assert match[3] in (None, best)
    if match[3]:
        is_beside(match[5], means, best)
        prints(match[4], t.ppf(0.975, means[best][2] - 1) * means[best][1])
        printed = re.findall(rf"\(({NUMBER})\)", match[2])
        assert number(match[4]) > 0
        assert "all others" not in match[5] or printed.count(printed[0]) == 1


@says(
    "weights",
    rf"Attention is broadest in layer (\d) \(normalised entropy ({NUMBER})(?:, ({BESIDE}))?\) and most focused "
    rf"in layer (\d) \(({NUMBER})(?:, ({BESIDE}))?\)\.",
)
def _(match, data):
    parts = [data[f"entropy_normalised{tail}"] for tail in ("", "_se", "_count")]
    parts[0], parts[1], parts[2] = parts[0].mean("head"), parts[1].mean("head"), parts[2].max("head")
    means = {f"layer {n}": tuple(float(part.sel(layer=n)) for part in parts) for n in LAYERS}
    for place, choose in ((1, max), (4, min)):
        best = choose(means, key=lambda name: means[name][0])
        assert best == f"layer {match[place]}"
        prints(match[place + 1], means[best][0])
        is_beside(match[place + 2], means, best)
    if "all others" in f"{match[3]}{match[6]}":
        assert match[2] != match[5]


@says(
    "norms",
    r"The (?:(\d+) heads|head) with more than half of (?:its|their) attention on (\D+) puts? (\d+ %) there, "
    r"(but that token supplies only|and that token supplies) (\d+ %) of (?:its|their) output norm ‖αf\(x\)‖\.",
)
def _(match, data):
    kind = KINDS[match[2]]
    weight = by_head(data["weight"].sel(category=kind))
    mostly = [name for name, value in weight.items() if value > 0.5]
    assert int(match[1] or 1) == len(mostly)
    norm = {each: by_head(data["norm"].sel(category=each)) for each in PARTITION}
    share = sum(norm[kind][name] for name in mostly) / sum(norm[each][name] for name in mostly for each in PARTITION)
    prints(match[3], np.mean([weight[name] for name in mostly]))
    prints(match[5], share)
    assert "only" not in match[4] or share < np.mean([weight[name] for name in mostly])


@says(
    "norms",
    r"(\d+ %) of the attention is on (\D+), which suppl(?:y|ies) (\d+ %) of the output norm \(means over heads\)\."
    r"(?: Between heads, ‖f\(x\)‖ there (tends to be (?:smaller|larger) where the weight is higher|does not depend "
    rf"significantly on the weight) \(ρ = ({NUMBER}) over (\d+) heads, p [=<] {NUMBER}; over single pairs of a query "
    rf"and a key, by layer, ρ is ({NUMBER}) to ({NUMBER})\)\.)?",
)
def _(match, data):
    kind = KINDS[match[2]]
    weight, norm = (by_head(data[name].sel(category=kind)) for name in ("weight", "f_norm"))
    share = np.mean(list(by_head(data["norm_share"].sel(category=kind)).values()))
    prints(match[1], np.mean(list(weight.values())))
    prints(match[3], share)
    mean = np.mean(list(weight.values()))
    assert mean == pytest.approx(max(float(data["weight"].sel(category=each).mean()) for each in PARTITION[:3]))
    assert bool(match[4]) == (share < mean / 2)  # else there is nothing to explain
    if not match[4]:
        return
    rho, p = spearmanr([weight[name] for name in weight], [norm[name] for name in weight])
    prints(match[5], rho)
    expected = "does not" if p >= 0.05 else "smaller" if rho < 0 else "larger"
    assert expected in match[4]
    assert int(match[6]) == len(weight)
    within = list(by_layer(data["spearman"].sel(category=kind)).values())
    prints(match[7], min(within))
    prints(match[8], max(within))


@says(
    "norms",
    r"Projected on the output, the share of (\D+) in its norm is (−?\d+ %) with (\d+ %) of the attention "
    r"\(means over heads\); in (\d+) of (\d+) heads it is significantly negative \(false discovery rate 5 "
    r"%\)\.",
)
def _(match, data):
    kind = KINDS[match[1]]
    means = triples(data, "contribution_share", category=kind)
    prints(match[2], np.mean([mean[0] for mean in means.values()]))
    prints(match[3], float(data["weight"].sel(category=kind).mean()))
    below = discovered({name: t.cdf(m / se, n - 1) for name, (m, se, n) in means.items()})
    assert (int(match[4]), int(match[5])) == (len(below), len(means))


def with_sink(data):
    rates = by_head(data["rate"].sel(threshold=0.3, category="all"))
    return rates, [name for name, value in rates.items() if value > 0.5]


@says(
    "sinks",
    r"None of (\d+) heads has a sink in most texts: one token that receives more than 30 % of the head's weight\.",
)
def _(match, data):
    rates, sure = with_sink(data)
    assert int(match[1]) == len(rates)
    assert not sure


@says(
    "sinks",
    r"(\d+) of (\d+) heads (?:has|have) a sink in most texts: one token that receives more than 30 % of the "
    r"head's weight; (\d+) of them significantly in more than half \(false discovery rate 5 %\)\.",
)
def _(match, data):
    rates, some = with_sink(data)
    means = triples(data, "rate", threshold=0.3, category="all")
    above = discovered({name: t.sf((m - 0.5) / se, n - 1) for name, (m, se, n) in means.items()})
    assert tuple(map(int, match.groups())) == (len(some), len(rates), len(above))


@says(
    "sinks",
    rf"In (?:this head|these (\d+) heads), the sink is most often (.+?) \(in (\d+ %) of texts(?:, ({BESIDE}))?\)\.",
)
def _(match, data):
    _, some = with_sink(data)
    assert int(match[1] or 1) == len(some)
    kind, means = KINDS[match[2]], {}
    for words, each in KINDS.items():
        heads = triples(data, "rate", threshold=0.3, category=each)
        if heads:
            part = np.array([heads[name] for name in some])
            means[words] = (part[:, 0].mean(), part[:, 1].mean(), part[:, 2].max())
    without_cls = "the opening token ([CLS])" not in means
    assert (kind == "first") <= without_cls
    first, other = "the first token", "the other tokens"
    if not without_cls:
        del means[first]
    elif means[other][0] <= means[first][0] + 0.05:  # the first token is one of the others
        del means[other]
    assert match[2] == max(means, key=lambda name: means[name][0])
    prints(match[3], means[match[2]][0])
    is_beside(match[4], means, match[2])


@says("sinks", r"In (?:this head|these (\d+) heads), the sink contributes (\d+ %) of the summed norms ‖α f\(x\)‖\.")
def _(match, data):
    _, some = with_sink(data)
    share = by_head(data["arrives"])
    assert int(match[1] or 1) == len(some)
    prints(match[2], np.mean([share[name] for name in some]))


@says(
    "sinks",
    rf"(Zeroing the values|Masking the keys) of the sinks changes the loss by ({NUMBER}) ± ({NUMBER}|nan) "
    rf"\(intact: 1\.234\), of the middle token by ({NUMBER}) ± ({NUMBER}|nan) \(95 % CI over texts\)(.*)\.",
)
def _(match, data):
    what = "value" if "values" in match[1] else "key"
    means = [single(data, "loss_change", change=f"{whose}_{what}") for whose in ("sink", "middle")]
    prints(match[2], means[0][0])
    prints(match[4], means[1][0])
    apart(match[2], match[4], means, match[6])


@says(
    "rollout",
    rf"After layer 3, a token's own input makes up ({NUMBER} %) ± ({NUMBER} %|nan %) of its state by rollout "
    rf"of the attention weights, ({NUMBER} %) ± (?:{NUMBER}|nan) % by rollout of the norms \(95 % CI over "
    r"texts\)(.*)\.",
)
def _(match, data):
    means = [single(data, "share", layer=3, category="self", measure=name) for name in ("weights", "norms")]
    prints(match[1], means[0][0])
    prints(match[3], means[1][0])
    assert number(match[2]) != 0  # never ± 0 %
    apart(match[1], match[3], means, match[4])


@says(
    "roles",
    r"Roles of (\d+) heads that hold in both halves of the corpus \(.*\) and beat their control \(5 % false "
    r"discoveries\): (.*); (\d+) (?:has|have) none \(a head may have several\)\.",
)
def _(match, data):
    counts = {name: int(count) for count, name in (part.split(" ", 1) for part in match[2].split(", "))}
    label = data["label"].values
    assert counts == {str(role): int(n) for role, n in zip(data["role"].values, label.sum((0, 1)), strict=True) if n}
    assert int(match[1]) == 11
    assert int(match[3]) == int((label.sum(-1) == 0).sum()) - 1


@says("roles", r"None of (\d+) heads has a role that holds in both halves of the corpus and beats its control\.")
def _(match, data):
    assert int(match[1]) == 11
    assert not data["label"].values.any()


def place_of_state(state):
    return f"after layer {state}" if state else "in the embeddings"


@says(
    "geometry",
    rf"Tokens of a text have a mean cosine similarity of ({NUMBER}) in the embeddings and ({NUMBER}) after "
    rf"layer 3; the maximum is ({NUMBER}), (.*?)(?:, ({BESIDE}))?\.",
)
def _(match, data):
    names = ["the embeddings", *by_layer(data["sim_all"].isel(vectors=0))]
    means = {name: single(data, "state_sim", state=state) for state, name in enumerate(names)}
    best = max(means, key=lambda name: means[name][0])
    assert match[4] == place_of_state(names.index(best))
    for place, name in ((1, names[0]), (2, names[-1]), (3, best)):
        prints(match[place], means[name][0])
    is_beside(match[5], means, best)
    if "all others" in (match[5] or ""):
        assert best in (names[0], names[-1]) or match[3] not in (match[1], match[2])


@says(
    "geometry",
    rf"Isotropy is lowest (.*) \(IsoScore ({NUMBER})\); the maximum is ({NUMBER})\. IsoScore is of all texts "
    r"together and has no standard error\.",
)
def _(match, data):
    score = data["state_isoscore"].values
    assert match[1] == place_of_state(int(np.argmin(score)))
    prints(match[2], score.min())
    prints(match[3], score.max())


@says(
    "geometry",
    rf"Mean cosine similarity within a text: keys ({NUMBER}) \(maximum ({NUMBER}) in (layer \d)(?:, "
    rf"({BESIDE}))?\), values ({NUMBER}) \(maximum ({NUMBER}) in (layer \d)(?:, ({BESIDE}))?\)\.",
)
def _(match, data):
    for kind, place in (("key", 1), ("value", 5)):
        means = triples(data, "sim_all", by_layer, vectors=kind)
        best = max(means, key=lambda name: means[name][0])
        assert match[place + 2] == best
        prints(match[place], np.mean([mean[0] for mean in means.values()]))
        prints(match[place + 1], means[best][0])
        is_beside(match[place + 3], means, best)


@says(
    "geometry",
    rf"Less their mean over the corpus, a constant that no output depends on, it is ({NUMBER}) for keys and "
    rf"({NUMBER}) for values\.",
)
def _(match, data):
    for kind, text in zip(("key", "value"), match.groups(), strict=True):
        prints(text, float(data["sim_centred_all"].sel(vectors=kind).mean()))


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


def raising(data):
    means = triples(data, "loss_change", ablation="mean")
    return means, {name for name in discovered(p_values(means)) if means[name][0] > 0}


@says(
    "importance",
    r"Mean-ablating single heads raises the loss significantly for (\d+) of (\d+) heads \(false discovery "
    rf"rate 5 %\); the largest increases are those of ({NAMED})(.*)\.",
)
def _(match, data):
    means, sure = raising(data)
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    positive = {name: (m, se, n) if m > 0 else (0.0, se, n) for name, (m, se, n) in means.items()}
    are_named(match[3], {name: means[name][0] for name in sure})
    if "larger, but not significant" not in match[4]:
        first = match[3].split(" ")[0]
        assert first == max(positive, key=lambda name: positive[name][0])
        is_beside(match[4].removeprefix("; the first is"), means, first)
    else:
        assert max(means, key=lambda name: means[name][0]) not in sure


@says(
    "importance", r"Mean-ablating single heads raises the loss significantly for none of (\d+) heads \((\d+) texts?\)\."
)
def _(match, data):
    means, sure = raising(data)
    assert not sure
    assert int(match[1]) == len(means)
    assert int(match[2]) == data["loss_change_count"].max()


@says(
    "importance",
    r"(\d+) of (\d+) heads can be ablated individually without a significant increase in loss\. Least needed "
    rf"\(their order is not tested\): ((?:{HEAD_NAMES}(?:, )?)+)\.",
)
def _(match, data):
    means, sure = raising(data)
    free = [name for name in means if name not in sure]
    assert (int(match[1]), int(match[2])) == (len(free), len(means))
    need = by_head(data["sensitivity"])
    assert match[3].split(", ") == sorted(free, key=lambda name: need[name])[:5]


@says("importance", r"No head can be ablated without a significant increase in loss\.")
def _(match, data):
    means, sure = raising(data)
    assert set(means) == sure


@says(
    "effects",
    r"(\d+) of (\d+) heads (?:has|have) a significant (direct|total) effect on the logit \(false discovery "
    rf"rate 5 %\); the largest are those of ({NAMED})(.*)\.",
)
def _(match, data):
    means = triples(data, match[3])
    sure = discovered(p_values(means))
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    are_significant(match[4], match[5], means, sure)


@says("effects", r"No head has a significant (direct|total) effect on the logit \((\d+) texts?\)\.")
def _(match, data):
    assert not discovered(p_values(triples(data, match[1])))
    assert int(match[2]) == data[f"{match[1]}_count"].max()


@says(
    "effects",
    rf"Within a text, the gradient ranks all heads like their total effects with ρ = ({NUMBER}) \(95 % CI "
    rf"({NUMBER}) to ({NUMBER})\), the direct effect with ({NUMBER}) \(({NUMBER}) to ({NUMBER})\)(.*)\.",
)
def _(match, data):
    means = [single(data, "alike", signal=name) for name in ("by_gradient", "direct")]
    for place, (value, se, count) in zip((1, 4), means, strict=True):
        half = np.nan_to_num(t.ppf(0.975, count - 1) * se)
        for text, wanted in zip(match.groups()[place - 1 :], (value, value - half, value + half), strict=False):
            prints(text, wanted)
    apart(match[1], match[4], means, match[7])


@says(
    "removal",
    rf"Without 50 % of the heads, (accuracy|loss) goes from ({NUMBER}) to ({NUMBER}) if (\w+) chooses them and "
    rf"to ({NUMBER}) if chance does \(mean of (\d+) random sets, of which (\d+) do as well; "
    rf"p = ({NUMBER}), corrected over signals\)\.( So few sets .*?\.)?( (?:All|None|The|\d+).*?worse(?:; the rest "
    r"do not differ significantly)?\.)?( The heads were ranked on the same texts, which favours signals that "
    r"use the loss\.)?",
)
def _(match, data):
    metric = match[1]
    change = data[f"{metric}_change"].sel(share=0.5)
    names = [name for name in change["signal"].values.tolist() if name != "random"]
    sign = 1 if metric == "accuracy" else -1
    best = max(names, key=lambda name: sign * float(change.sel(signal=name)))
    assert match[4] == best
    for place, value in ((2, 0.0), (3, float(change.sel(signal=best))), (5, float(change.sel(signal="random")))):
        prints(match[place], 0.8 + value)
    assert float(match[8]) == pytest.approx(float(data[f"{metric}_chance_p"].sel(share=0.5, signal=best)), rel=0.06)
    assert int(match[6]) == data.sizes["draw"]
    mine, drawn = float(change.sel(signal=best)), data[f"{metric}_draw"].sel(share=0.5).values.ravel()
    assert int(match[7]) == sum(sign * each >= sign * mine for each in drawn)
    assert bool(match[9]) == (1 / (1 + data.sizes["draw"]) >= 0.05)
    p = data[f"{metric}_difference_p"].sel(share=0.5, signal=best)
    worse = sum(float(p.sel(signal_b=name)) < 0.05 for name in names if name != best)
    others = len(names) - 1
    if not others:
        assert not match[10]
    elif not worse:
        assert match[10] == f" None of the {others} other signals is significantly worse."
    elif worse == others:
        assert match[10] in (
            f" All {others} other signals are significantly worse.",
            " The other is significantly worse.",
        )
    else:
        assert match[10].startswith(f" {worse} of the {others} other")
        assert "the rest do not differ" in match[10]
    assert bool(match[11]) == (data.attrs["ranked_on"] == "the same texts")


@says(
    "frequency",
    r"Rarer tokens (have|do not have significantly) larger transformed-value norms ‖f\(x\)‖ \(ρ of the mean "
    rf"norm over layers: ({NUMBER}), 95 % CI ({NUMBER}) to ({NUMBER}); single layers ({NUMBER}) to "
    rf"({NUMBER})\); attention weight (grows with rarity|falls with rarity|barely depends on it|does not "
    rf"depend on it significantly) \(ρ of the mean over layers: ({NUMBER}), ({NUMBER}) to ({NUMBER})\)\.",
)
def _(match, data):
    of = {name: [float(data[f"spearman_all{tail}"].sel(measure=name)) for tail in ("", "_low", "_high")]
          for name in ("norms", "weights")}  # fmt: skip
    for text, value in zip(match.groups()[1:4] + match.groups()[7:10], of["norms"] + of["weights"], strict=True):
        prints(text, value)
    assert match[1] != "have" or of["norms"][1] > 0
    layers = data["spearman"].sel(measure="norms").values
    prints(match[5], layers.min())
    prints(match[6], layers.max())
    rho, low, high = of["weights"]
    assert {"grows": low > 0, "falls": high < 0, "barely": abs(rho) <= 0.1, "does": low <= 0 <= high}[
        match[7].split()[0]
    ]


TESTS = {
    "an induction": "induction",
    "a duplicate-token": "duplicate",
    "a previous-token": "previous",
    "a retrieval": "retrieval",
}


def passing(data, words):
    excess, q = (by_head(data[name].sel(test=TESTS[words])) for name in ("excess", "excess_q"))
    return excess, {name: value for name, value in excess.items() if value >= 0.1 and q[name] <= 0.05}


@says(
    "synthetic",
    r"(\d+) of (\d+) heads (?:has|have) (an? [\w-]+) score at least 0\.1 above the control \(false discovery "
    rf"rate 5 %\): ({NAMED})\.",
)
def _(match, data):
    every, some = passing(data, match[3])
    assert (int(match[1]), int(match[2])) == (len(some), len(every))
    are_named(match[4], some)


@says("synthetic", r"No head has (an? [\w-]+) score that is significantly, and by at least 0\.1, above the control\.")
def _(match, data):
    assert not passing(data, match[1])[1]


@says(
    "gradients",
    r"The loss is most sensitive to the attention weights of heads (.*?)(?:; the first is (.*?))?\. Gradient magnitude "
    rf"is ({NUMBER})× the average on weights of the opening token \(\[CLS\]\)"
    rf"(?: \(the difference is (not )?significant\))? and ({NUMBER})× the average on weights of the closing token "
    r"\(\[SEP\]\)"
    r"(?: \(the difference is (not )?significant\))?\.",
)
def _(match, data):
    means = triples(data, "gradient", category="all")
    values = {name: value for name, (value, *_) in means.items()}
    named = re.findall(rf"({HEAD_NAMES}) \(({NUMBER})× the mean\)", match[1])
    assert [name for name, _ in named] == sorted(values, key=lambda name: -values[name])[:3]
    for name, ratio in named:
        prints(ratio, values[name] / np.mean(list(values.values())))
    is_beside(match[2], means, named[0][0])
    for place, kind in ((3, "cls"), (5, "sep")):
        parts = [np.mean(list(triples(data, "gradient", category=each).values()), 0) for each in (kind, "all")]
        prints(match[place], parts[0][0] / parts[1][0])
        p = 2 * t.sf(abs(parts[0][0] - parts[1][0]) / (parts[0][1] + parts[1][1]), parts[0][2] - 1)
        assert p != p or bool(match[place + 1]) == (p >= 0.05)
        assert not p < 0.05 or number(match[place]) != 1


# The test


def rule_of(lens, text):
    found = [(pattern, match, rule) for pattern, rule in RULES[lens] if (match := re.fullmatch(pattern, text))]
    assert len(found) == 1, f"{len(found)} rules of {lens} match: {text}"
    return found[0]


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    """Each sentence has one rule, which holds; and every rule is put to the test."""
    used = Counter()
    for seed in range(DRAWS):
        result = make(Draw(seed))
        data = result.data.squeeze("stack", drop=True) if "stack" in result.data.dims else result.data
        for finding in findings({"": result}):
            pattern, match, rule = rule_of(result.lens, finding.text)
            rule(match, data)
            used[pattern] += 1
    assert not [pattern for pattern, _ in RULES[make.__name__] if not used[pattern]]


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
