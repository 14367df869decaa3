"""What layers and heads would predict."""

import pytest
from scipy.stats import t

from claims.numbers import (
    NAMED,
    NUMBER,
    PER_HEAD,
    are_named,
    are_significant,
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
    rf"The top token is the model's own, and stays so, from state ({NUMBER})(?: ± ({NUMBER}))? of 3 on, in the mean "
    r"over predictions \((95 % CI over texts|one text)\); state 0 are the embeddings\.",
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
    r"(\d+) of (\d+) heads adds? significantly more to the right token than to those of the text's other positions, or "
    rf"less \(false discovery rate 5 %\); the largest differences of logits are those of ({NAMED})(.*)\.",
)
def _(match, data):
    means = triples(data, "head_contrast")
    sure = discovered(p_values(means))
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    are_significant(match[3], match[4], means, sure)


@says(
    "logitlens",
    r"No head adds significantly more to the right token than to those of the text's other positions, or less "
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


@pytest.mark.parametrize("make", [logitlens, context], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
