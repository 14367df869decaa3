"""What heads do: roles, the synthetic tests, rare tokens."""

import numpy as np
import pytest

from claims.numbers import NAMED, NUMBER, PER_HEAD, are_named, by_head, prints
from claims.rules import check_sentences, says


def roles(draw):
    draw.sizes |= {"role": ["special", "previous", "broad"], "part": ["development", "held_out"]}
    label = draw.rng.random(draw.shape((*PER_HEAD, "role"))) < draw.rng.choice([0, 0.3])
    seen = np.full(draw.shape((*PER_HEAD, "part")), 5)
    seen[:, -1, -1] = 0
    label[:, -1, -1] = False
    return draw.result("roles", {"label": ((*PER_HEAD, "role"), label), "peak_count": ((*PER_HEAD, "part"), seen)})


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


def frequency(draw):
    draw.sizes |= {"measure": ["weights", "norms"]}
    dims, scale = ("stack", "measure"), draw.rng.choice([0.1, 0.9])
    rho, half = draw.values(dims, -scale, scale), draw.rng.uniform(0, 0.4, (1, 2))
    ends = {"": rho, "_low": rho - half, "_high": rho + half}
    variables = {f"spearman_all{tail}": (dims, value) for tail, value in ends.items()}
    variables["spearman"] = (("stack", "layer", "measure"), draw.rng.uniform(-1, 1, (1, 3, 2)))
    return draw.result("frequency", variables)


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


def synthetic(draw):
    draw.sizes |= {"test": ["induction", "duplicate", "previous", "retrieval"]}
    dims = (*PER_HEAD, "test")
    excess, q = draw.values(dims, -0.2, draw.rng.choice([0.3, 0.05])), draw.rng.choice([0.01, 0.2], draw.shape(dims))
    return draw.result("synthetic", {"score": (dims, excess), "excess": (dims, excess), "excess_q": (dims, q)})


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


@pytest.mark.parametrize("make", [roles, frequency, synthetic], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
