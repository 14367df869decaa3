"""Heads that can go: importance, removal."""

import numpy as np
import pytest
from scipy.stats import t

from claims.numbers import (
    HEAD_NAMES,
    NAMED,
    NUMBER,
    PER_HEAD,
    are_named,
    by_head,
    discovered,
    is_beside,
    p_values,
    prints,
    single,
    triples,
)
from claims.rules import check_sentences, says


def importance(draw):
    draw.sizes |= {"ablation": ["mean", "zero"]}
    low = draw.rng.choice([-1, 0, 0.5])
    variables = draw.mean("loss_change", (*PER_HEAD, "ablation"), low, 1, missing=True)
    if draw.rng.random() < 0.3:
        variables["loss_change_se"][1][...] *= 20  # nobody is significant
    return draw.result("importance", variables | draw.mean("sensitivity", PER_HEAD, missing=True))


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
    r"(?:For the other (\d+) heads no significant increase was found, which does not show that the model can spare "
    rf"them\. )?The loss depends least on ((?:{HEAD_NAMES}(?:, )?)+) \(by gradient; their order is not tested\)\.",
)
def _(match, data):
    means, sure = raising(data)
    free = [name for name in means if name not in sure]
    assert free
    assert (match[1] is not None) == bool(sure)
    assert match[1] is None or int(match[1]) == len(free)
    need = by_head(data["sensitivity"])
    assert match[2].split(", ") == sorted(free, key=lambda name: need[name])[:5]


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


@says(
    "removal",
    rf"Removing 50 % of the heads changes (accuracy|loss) from ({NUMBER}) to ({NUMBER}) if (\w+) selects them, and "
    rf"to ({NUMBER}) on average if they are drawn at random \((\d+) sets, of which (\d+) do as well; "
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


def gating(draw):
    draw.sizes |= {"pressure": ["none", "free", "remove", "keep"]}
    seeds = int(draw.rng.choice([1, 3, 5]))
    kind, variables = draw.rng.integers(4, size=draw.shape(PER_HEAD)), {}
    for number, name in enumerate(SCORES):
        low = np.where(kind == number, draw.rng.uniform(0.7, 1, kind.shape), 0.1)
        variables |= {
            name: (PER_HEAD, low + 0.01),
            f"{name}_low": (PER_HEAD, low),
            f"{name}_high": (PER_HEAD, low + 0.02),
        }
    loss = 1 + draw.spread * draw.rng.uniform(-5, 5, 4)
    errors = np.where(seeds > 1, draw.spread * draw.rng.uniform(0.2, 2, 4), np.nan)
    variables |= {"loss": (("pressure",), loss), "loss_se": (("pressure",), errors)}
    variables |= {"loss_count": (("pressure",), np.full(4, seeds))}
    return draw.result("gating", variables, {"seeds": list(range(seeds)), "texts": [30, 10]})


SCORES = {"facilitation": 0, "interference": 1, "irrelevance": 2}
NAMES = r"(?: \(((?:\d+\.\d+(?:, )?)+)\))?"


@says(
    "gating",
    rf"(\d+) of (\d+) heads facilitate the task with each of (\d+) seeds{NAMES}, (\d+) interfere{NAMES}, (\d+) make no "
    r"difference, (\d+) are unclear\.",
)
def _(match, data):
    clear = {score: {name: low for name, low in by_head(data[f"{score}_low"]).items() if low > 0.8} for score in SCORES}
    assert [int(match[place]) for place in (1, 5, 7)] == [len(each) for each in clear.values()]
    assert (int(match[2]), int(match[3])) == (12, len(data.attrs["seeds"]))
    assert int(match[8]) == 12 - len(set().union(*clear.values()))
    for place, score in ((4, "facilitation"), (6, "interference")):
        order = sorted(clear[score], key=lambda name: -clear[score][name])[:3]
        assert (match[place] or "") == ", ".join(order)


SEEDS = rf"({NUMBER})(?: ± ({NUMBER}) \(the change is (not )?significant\))?"


@says(
    "gating",
    rf"On 10 texts that no gate was fitted on, the unchanged model has a loss of ({NUMBER}); it is {SEEDS} with gates "
    rf"fitted without pressure, and {SEEDS} with the (\d+) heads of this stack that stay open under pressure "
    rf"\(95 % CI over seeds\)\.",
)
def _(match, data):
    loss = {str(name): single(data, "loss", pressure=name) for name in data["pressure"].values}
    prints(match[1], loss["none"][0])
    for place, name in ((2, "free"), (5, "remove")):
        value, se, seeds = loss[name]
        prints(match[place], value)
        assert bool(match[place + 1]) == (seeds > 1)
        if seeds > 1:
            prints(match[place + 1], t.ppf(0.975, seeds - 1) * se)
            p = 2 * t.sf(abs(value - loss["none"][0]) / se, seeds - 1)
            assert bool(match[place + 2]) == (p >= 0.05)
            assert p >= 0.05 or match[place] != match[1]
    assert int(match[8]) == sum(value > 0.5 for value in by_head(data["facilitation"]).values())


@pytest.mark.parametrize("make", [importance, removal, gating], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
