"""What layers and heads would predict."""

import re
from itertools import product

import numpy as np
import pytest
from scipy.stats import t

from claims.numbers import (
    HEADS,
    LAYERS,
    NAMED,
    NUMBER,
    PER_HEAD,
    are_named,
    are_significant,
    corrected,
    discovered,
    is_beside,
    p_values,
    prints,
    single,
    triples,
)
from claims.rules import check_sentences, says


def logitlens(draw):
    draw.sizes |= {"state": [0, 1, 2, 3]}
    by_state, low = ("stack", "state"), draw.rng.choice([-1, 0])
    variables = draw.mean("depth", (), 0, 3) | draw.mean("head_contrast", PER_HEAD, -1, 1, missing=True)
    variables |= draw.mean("agreement", by_state) | draw.mean("chance", by_state)
    variables |= draw.mean("excess", by_state, low, draw.rng.choice([0.01, 1]))
    if draw.rng.random() < 0.4:
        variables["head_contrast_se"][1][..., 1:] *= 10 ** draw.rng.uniform(0, 3)
    return draw.result("logitlens", variables)


@says(
    "logitlens",
    rf"On average over predictions, the top token is the model's own, and stays so, from state ({NUMBER})"
    rf"(?: ± ({NUMBER}))? of 3 on \((95 % CI over texts|one text)\); state 0 is the embeddings\.",
)
def _(match, data):
    value, se, count = single(data, "depth")
    prints(match[1], value)
    assert (match[2] is None) == (count == 1) == (match[3] == "one text")
    if match[2]:
        prints(match[2], t.ppf(0.975, count - 1) * se)


def above_chance(data):
    """The states before the last whose excess is significantly above zero, by a one-sided test."""
    parts = [data[f"excess{tail}"].isel(state=slice(0, -1)) for tail in ("", "_se", "_count")]
    each = {int(state): tuple(float(part.sel(state=state)) for part in parts) for state in parts[0]["state"].values}
    return discovered({state: t.sf(m / se, n - 1) for state, (m, se, n) in each.items()})


@says(
    "logitlens",
    r"At (\d+) of the 3 states before the last, the top token agrees with the model's own significantly more often "
    r"than with its predictions at other positions of the text \(false discovery rate 5 %\), first "
    rf"(?:after layer (\d)|in the embeddings): ({NUMBER} %) against ({NUMBER} %)\.",
)
def _(match, data):
    sure = above_chance(data)
    assert int(match[1]) == len(sure)
    assert int(match[2] or 0) == min(sure)
    for text, name in ((match[3], "agreement"), (match[4], "chance")):
        prints(text, float(data[name].sel(state=min(sure))))


@says(
    "logitlens",
    r"At none of the 3 states before the last does the top token agree with the model's own significantly more often "
    r"than with its predictions at other positions of the text \((\d+) texts?\)\.",
)
def _(match, data):
    assert not above_chance(data)
    assert int(match[1]) == data["excess_count"].max()


@says(
    "logitlens",
    r"(\d+) of (\d+) heads adds? significantly more to the correct token than to those of the text's other "
    r"positions, or "
    rf"less \(false discovery rate 5 %\); the largest differences of logits are those of ({NAMED})(.*)\.",
)
def _(match, data):
    means = triples(data, "head_contrast")
    sure = discovered(p_values(means))
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    are_significant(match[3], match[4], means, sure)


@says(
    "logitlens",
    r"No head adds significantly more to the correct token than to those of the text's other positions, or less "
    r"\((\d+) texts?\)\.",
)
def _(match, data):
    assert not discovered(p_values(triples(data, "head_contrast")))
    assert int(match[1]) == data["head_contrast_count"].max()


def context(draw):
    variables = draw.mean("loss_change", PER_HEAD, -1, 1, missing=True)
    variables |= draw.mean("retrieval_excess", PER_HEAD, -1, 1, missing=True)
    return draw.result("context", variables, {"sinks": 4, "size": 64})


_KEPT = "the first 4 tokens and the last 64"


@says(
    "context",
    rf"Letting a single head see only {_KEPT} raises the loss significantly for (\d+) of (\d+) heads \(false discovery "
    rf"rate 5 %\); the largest increases are those of ({NAMED})(.*)\.",
)
def _(match, data):
    are_raised(match, triples(data, "loss_change"))


def are_raised(match, means):
    sure = raised(means)
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    are_named(match[3], {name: means[name][0] for name in sure})
    first, largest = match[3].split(" ")[0], max(means, key=lambda name: means[name][0])
    if "larger, but not significant" in match[4]:
        assert largest not in sure
    else:
        assert first == largest
        is_beside(match[4].removeprefix("; the first is"), means, first)


def raised(means):
    return {head for head in discovered(p_values(means)) if means[head][0] > 0}


@says(
    "context",
    rf"Letting a single head see only {_KEPT} raises the loss significantly for none of (\d+) heads \((\d+) texts?\)\.",
)
def _(match, data):
    means = triples(data, "loss_change")
    assert not raised(means)
    assert int(match[1]) == len(means)
    assert int(match[2]) == data["loss_change_count"].max()


@says(
    "context",
    rf"Where the next token has occurred before, outside {_KEPT}, (\d+) of (\d+) heads (?:has its|have their) largest "
    r"weight on it significantly more often than chance \(false discovery rate 5 %\); the largest excesses are those "
    rf"of ({NAMED})(.*)\.",
)
def _(match, data):
    are_raised(match, triples(data, "retrieval_excess"))


@says(
    "context",
    rf"Where the next token has occurred before, outside {_KEPT}, none of (\d+) heads has its largest weight on it "
    r"significantly more often than chance \((\d+) texts?\)\.",
)
def _(match, data):
    means = triples(data, "retrieval_excess")
    assert not raised(means)
    assert int(match[1]) == len(means)
    assert int(match[2]) == data["retrieval_excess_count"].max()


def edges(draw):
    """Edges into the heads of later layers only; ρ of one choice may be missing."""
    draw.sizes |= {"way": ["query", "key", "value"], "head_a": [f"encoder {a}-{b}" for a in LAYERS for b in HEADS]}
    draw.sizes["choice"] = ["strongest", "drawn"]
    pairs = draw.mean("attribution", (*PER_HEAD, "way", "head_a"), -1, 1)
    for name in ("attribution", "attribution_se"):
        for layer in LAYERS:
            pairs[name][1][:, layer - 1, :, :, (layer - 1) * len(HEADS) :] = 0.0
    rho = draw.rng.uniform(-1, 1, 2)
    rho[draw.rng.integers(0, 4) :][:1] = np.nan
    alike = {"alike": (("choice",), rho), "alike_count": (("choice",), np.where(np.isnan(rho), 0, 16))}
    ends = np.sort(draw.rng.uniform(-1, 1, (2, 2)), 0) + 0 * rho
    alike |= {"alike_low": (("choice",), ends[0]), "alike_high": (("choice",), ends[1])}
    tested = pairs | draw.mean("to_logits", PER_HEAD, -1, 1)
    tested |= corrected(tested, ["attribution", "to_logits"])
    draw.sizes["edge"] = [f"edge {number}" for number in range(6)]
    exact = draw.mean("exact", ("edge",), -1, 1)
    exact |= corrected(exact, ["exact"])
    exact["chosen"] = (("edge",), draw.rng.choice(["strongest", "drawn"], 6))
    return draw.result("edges", tested | alike | exact)


def into_heads(data):
    """Of every edge between two heads: the attribution, its error and its texts."""
    out = {}
    for layer, head, way in product(LAYERS, HEADS, ("query", "key", "value")):
        for early in data["head_a"].values:
            if int(early.split()[1].split("-")[0]) < layer:
                at = {"layer": layer, "head": head, "way": way, "head_a": early}
                name = f"{early.split()[1].replace('-', '.')} → {layer}.{head} {way}"
                out[name] = tuple(float(data[f"attribution{tail}"].sel(at)) for tail in ("", "_se", "_count"))
    return out


def significant_edges(data):
    """Edges between heads and to the output that are significant, corrected together."""
    return discovered(p_values(into_heads(data) | triples(data, "to_logits")))


_INTO = "from one head into the queries, keys or values of a later one"


@says(
    "edges",
    rf"(\d+) of (\d+) edges {_INTO} (?:has|have) an attribution that differs significantly from zero \(false discovery "
    rf"rate 5 % over all edges of the model\); the largest: ([^()]+ \({NUMBER}\)(?:, [^()]+ \({NUMBER}\))*)\.",
)
def _(match, data):
    means, sure = into_heads(data), significant_edges(data)
    sure = {name for name in sure if name in means}
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    named = re.findall(rf"([^(),]+?) \(({NUMBER})\)", match[3])
    assert [name.strip() for name, _ in named] == sorted(sure, key=lambda name: -abs(means[name][0]))[:3]
    for name, printed in named:
        prints(printed, means[name.strip()][0])


@says(
    "edges",
    rf"None of (\d+) edges {_INTO} has an attribution that differs significantly from zero(?: \((\d+) texts?\))?\.",
)
def _(match, data):
    means = into_heads(data)
    assert not {name for name in significant_edges(data) if name in means}
    assert int(match[1]) == len(means)
    assert match[2] is None or int(match[2]) == data["attribution_count"].max()


@says(
    "edges",
    rf"(\d+) of (\d+) heads (?:has|have) a significant edge straight to the output \(false discovery rate 5 % over all "
    rf"edges\), among them ({NAMED})\.",
)
def _(match, data):
    means = triples(data, "to_logits")
    sure = {name for name in significant_edges(data) if name in means}
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    are_named(match[3], {name: means[name][0] for name in sure}, size=abs)


@says(
    "edges",
    rf"Over (\d+) edges (strongest by attribution|drawn at random), the attribution ranks the exact effects with ρ = "
    rf"({NUMBER}) \(95 % interval over texts ({NUMBER}) to ({NUMBER})\)(; they were chosen on the same texts)?\.",
)
def _(match, data):
    at = {"choice": "drawn" if "drawn" in match[2] else "strongest"}
    assert int(match[1]) == int(data["alike_count"].sel(at))
    for place, name in ((3, "alike"), (4, "alike_low"), (5, "alike_high")):
        prints(match[place], float(data[name].sel(at)))
    assert bool(match[6]) == (at["choice"] == "strongest")


@says(
    "edges",
    r"(\d+) of (\d+) edges (strongest by attribution|drawn at random) (?:has|have) an exact effect that differs "
    r"significantly from zero \(false discovery rate 5 % over all patched edges\)\.",
)
def _(match, data):
    names = data["edge"].values.tolist()
    means = {
        name: tuple(float(data[f"exact{tail}"].sel(edge=name)) for tail in ("", "_se", "_count")) for name in names
    }
    own = {name for name in names if ("drawn" in match[3]) == (data["chosen"].sel(edge=name).item() == "drawn")}
    assert (int(match[1]), int(match[2])) == (len(discovered(p_values(means)) & own), len(own))


@pytest.mark.parametrize("make", [logitlens, context, edges], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
