"""What heads attend to: weights, norms, sinks, rollout."""

import re

import numpy as np
import pytest
from scipy.stats import spearmanr, t

from claims.numbers import (
    BESIDE,
    CATEGORIES,
    HEAD_NAMES,
    KINDS,
    LAYERS,
    NAMED,
    NUMBER,
    PARTITION,
    PER_HEAD,
    apart,
    are_named,
    by_head,
    by_layer,
    discovered,
    is_beside,
    number,
    prints,
    single,
    triples,
)
from claims.rules import check_sentences, says


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
    rf"({NAMED})(?: and (\d+) more)?\.",
)
def _(match, data):
    kind = {"previous token": "previous", "next token": "next", "token itself": "self"}[match[2]]
    most = {name: value for name, value in by_head(data["mass"].sel(category=kind)).items() if value > 0.5}
    assert int(match[1]) == len(most)
    assert int(match[4] or 0) == max(0, len(most) - 3)
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


@says("sinks", r"In (?:this head|these (\d+) heads), the sink contributes (\d+ %) of the summed norms ‖αf\(x\)‖\.")
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


def rollout(draw):
    draw.sizes |= {"measure": ["weights", "norms"], "category": ["self", "cls"]}
    scale = draw.rng.choice([1, 0.05])
    return draw.result("rollout", draw.mean("share", ("stack", "layer", "measure", "category"), 0, scale))


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


@pytest.mark.parametrize("make", [weights, norms, sinks, rollout], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
