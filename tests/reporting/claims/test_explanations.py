"""What the prediction depends on: effects, gradients."""

import re

import numpy as np
import pytest
from scipy.stats import t

from claims.numbers import (
    HEAD_NAMES,
    NAMED,
    NUMBER,
    PER_HEAD,
    apart,
    are_significant,
    discovered,
    is_beside,
    number,
    p_values,
    prints,
    single,
    triples,
)
from claims.rules import check_sentences, says


def effects(draw):
    draw.sizes |= {"signal": ["by_gradient", "direct"]}
    variables = {}
    for name in ("direct", "total"):
        variables |= draw.mean(name, PER_HEAD, -1, 1, missing=True)
        if draw.rng.random() < 0.4:
            variables[f"{name}_se"][1][..., 1:] *= 10 ** draw.rng.uniform(0, 3)
    return draw.result("effects", variables | draw.mean("alike", ("signal",), -1, 1))


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


def gradients(draw):
    draw.sizes["category"] = ["all", "cls", "sep"]
    return draw.result("gradients", draw.mean("gradient", (*PER_HEAD, "category"), 0.1))


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


@pytest.mark.parametrize("make", [effects, gradients], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
