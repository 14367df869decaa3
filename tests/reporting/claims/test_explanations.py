"""What the prediction depends on, and how far explanations can be trusted."""

import re

import numpy as np
import pytest
from scipy.stats import false_discovery_control, t

from claims.numbers import (
    BESIDE,
    HEAD_NAMES,
    NAMED,
    NUMBER,
    PER_HEAD,
    apart,
    are_named,
    are_significant,
    by_head,
    by_layer,
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


def patching(draw):
    variables = draw.mean("change", PER_HEAD, -1, 1, missing=True)
    case = draw.rng.integers(4)
    difference, error = float(draw.rng.choice([-2.0, 2.0])), (5.0 if case == 0 else 0.01)
    if case == 1:
        variables["change_se"][1][...] *= 1e4  # no head is significant
    if case == 2:
        variables["change"][1][...] = -np.sign(difference) * np.abs(variables["change"][1])
    change, se, count = (variables[f"change{tail}"][1] for tail in ("", "_se", "_count"))
    effect, half = (
        change / difference,
        np.abs(se / difference) * (t.ppf(0.975, draw.texts - 1) if draw.texts > 1 else 0),
    )
    q = np.full(change.shape, np.nan)
    if draw.texts > 1:
        q[count > 0] = false_discovery_control(2 * t.sf(np.abs(change / se)[count > 0], draw.texts - 1))
    for name, values in {"effect": effect, "effect_low": effect - half, "effect_high": effect + half}.items():
        variables[name] = (PER_HEAD, values)
    variables |= {"change_q": (PER_HEAD, q), "effect_count": (PER_HEAD, count)}
    variables |= {"change_q_count": (PER_HEAD, count * np.isfinite(q)), "difference_count": ((), draw.texts)}
    variables |= {"clean": ((), 1.5), "corrupt": ((), 1.5 - difference), "difference": ((), difference)}
    variables |= {"difference_se": ((), error if draw.texts > 1 else np.nan), "clean_count": ((), draw.texts)}
    return draw.result("patching", variables, {"pairs": draw.texts})


PATCHED = rf"Over (\d+) pairs? the logit difference is ({NUMBER}) for texts and ({NUMBER}) for their counterparts"
CHANGED = r"\. Patching changes it significantly for (\d+) of (\d+) heads \(false discovery rate 5 %\)"
SHARE = rf"\d+\.\d+ \({NUMBER} %, 95 % CI {NUMBER} % to {NUMBER} %\)"


def changed(match, data):
    """The heads whose change is significant; what the sentence says of the texts is so, and they differ."""
    pairs = data.attrs["pairs"]
    assert int(match[1]) == pairs
    prints(match[2], float(data["clean"]))
    prints(match[3], float(data["corrupt"]))
    if pairs > 1:
        assert 2 * t.sf(abs(float(data["difference"]) / float(data["difference_se"])), pairs - 1) < 0.05
    return discovered(p_values(triples(data, "change")))


@says("patching", rf"{PATCHED}: not significant, so there is nothing to restore\.")
def _(match, data):
    assert 2 * t.sf(abs(float(data["difference"]) / float(data["difference_se"])), data.attrs["pairs"] - 1) >= 0.05


@says("patching", rf"{PATCHED}\. Patching no single head changes it significantly\.")
def _(match, data):
    assert not changed(match, data)


@says("patching", rf"{PATCHED}{CHANGED}, and none of them restores it\.")
def _(match, data):
    sure = changed(match, data)
    assert int(match[4]) == len(sure) > 0
    assert all(by_head(data["effect"])[name] <= 0 for name in sure)


@says(
    "patching",
    rf"{PATCHED}{CHANGED}; the largest shares that a single head restores are those of ({SHARE}(?:, {SHARE})*)(.*)\.",
)
def _(match, data):
    sure, effect = changed(match, data), by_head(data["effect"])
    assert (int(match[4]), int(match[5])) == (len(sure), len(effect))
    back = sorted((name for name in sure if effect[name] > 0), key=lambda name: -effect[name])[:3]
    named = re.findall(rf"(\d+\.\d+) \(({NUMBER} %), 95 % CI ({NUMBER} %) to ({NUMBER} %)\)", match[6])
    assert [name for name, *_ in named] == back
    for name, *texts in named:
        for text, tail in zip(texts, ("", "_low", "_high"), strict=True):
            prints(text, by_head(data[f"effect{tail}"])[name])
    largest = max(effect, key=lambda name: effect[name])
    if "larger, but not significant" in match[7]:
        assert largest not in sure
        return
    assert largest == back[0]
    sign = np.sign(float(data["difference"]))
    sizes = {name: (sign * m, se, n) for name, (m, se, n) in triples(data, "change").items()}
    is_beside(match[7].removeprefix("; the first is"), sizes, largest)


def rationales(draw):
    methods = ["random", "first", "attnlrp", "ah", "alti"][: draw.rng.integers(3, 6)]
    draw.sizes |= {
        "measure": ["auprc", "token_recall", "comprehensiveness"],
        "explanation": methods,
        "explanation_b": methods,
    }
    variables = draw.mean("score", ("measure", "explanation"), -0.2 if draw.rng.random() < 0.3 else 0, 1)
    p = draw.rng.choice(
        [0.01, 0.5], draw.shape(("measure", "explanation", "explanation_b")), p=draw.rng.dirichlet([1, 1])
    )
    p = np.minimum(p, p.transpose(0, 2, 1))
    variables |= {
        "score_difference_p": (("measure", "explanation", "explanation_b"), p if draw.texts > 1 else p * np.nan)
    }
    count = np.full(p.shape, draw.texts if draw.texts > 1 else 0)
    variables |= {"score_difference_p_count": (("measure", "explanation", "explanation_b"), count)}
    variables |= {"chance": ((), 0.21), "texts": ((), draw.texts)}
    return draw.result("rationales", variables, {"k": "words", "explained": "the predicted class"})


def tied_methods(data, measure, best, others):
    p = data["score_difference_p"].sel(measure=measure, explanation=best)
    return [name for name in others if name != best and not float(p.sel(explanation_b=name)) < 0.05]


def is_above_others(words, data, measure, best, others):
    tied = tied_methods(data, measure, best, others)
    if len(others) == 1:
        assert not words
    elif tied:
        assert words == f"; not significantly above {', '.join(WRITTEN[name] for name in tied)}"
    else:
        assert words == "; significantly above all others"


def method_scores(data, measure):
    return {
        str(name): float(data["score"].sel(measure=measure, explanation=name)) for name in data["explanation"].values
    }


WRITTEN = {"attnlrp": "AttnLRP", "ah": "AH", "alti": "ALTI"}


@says(
    "rationales",
    rf"(\w+) agrees best with the rationales: its top words recover (−?\d+ %) of them \(AUPRC ({NUMBER}); "
    rf"chance ({NUMBER}); (\d+) texts\)(; .*)?\.",
)
def _(match, data):
    scores = {name: value for name, value in method_scores(data, "auprc").items() if name not in ("random", "first")}
    best = max(scores, key=lambda name: scores[name])
    assert match[1] == WRITTEN[best]
    prints(match[2], method_scores(data, "token_recall")[best])
    prints(match[3], scores[best])
    prints(match[4], 0.21)
    assert int(match[5]) == int(data["texts"])
    is_above_others(match[6], data, "auprc", best, list(scores))


@says(
    "rationales",
    rf"Deleting the top words of (\w+) lowers the probability of the predicted class by ({NUMBER})"
    rf"((?:; (?:not )?significantly above [^;]*)?); (?:those of (\w+) lower it by ({NUMBER}), )?random words by "
    rf"({NUMBER}); (no explanation|"
    r"\d+ of \d+ explanations) do(?:es)? significantly better than random words\.",
)
def _(match, data):
    every = method_scores(data, "comprehensiveness")
    scores = {name: value for name, value in every.items() if name not in ("random", "first")}
    ranked = sorted(scores, key=lambda name: scores[name])
    assert match[1] == WRITTEN[ranked[-1]]
    assert match[4] == (WRITTEN[ranked[0]] if len(ranked) > 1 else None)
    for place, name in ((2, ranked[-1]), (5, ranked[0]), (6, "random")):
        if match[place]:
            prints(match[place], every[name])
    is_above_others(match[3], data, "comprehensiveness", ranked[-1], list(scores))
    better = [
        name
        for name, value in scores.items()
        if value > every["random"] and not tied_methods(data, "comprehensiveness", name, ["random"])
    ]
    assert match[7] == (f"{len(better)} of {len(scores)} explanations" if better else "no explanation")


def agreement(draw):
    names = ["ablation_zero", "ablation_mean", "weights_sharpness", "norm", "slope"][: draw.rng.integers(3, 6)]
    draw.sizes |= {"signal": names, "signal_b": names, "ablation": ["zero", "mean"]}
    dims = ("stack", "signal", "signal_b")
    rho = draw.values(dims, -0.9, 0.9)
    p = draw.rng.choice(
        [0.01, 0.5], draw.shape(("stack", "ablation", "signal", "signal_b")), p=draw.rng.dirichlet([1, 1])
    )
    p[..., range(len(names)), range(len(names))] = 1
    trust = draw.rng.uniform(0, 1, draw.shape(("stack", "signal")))
    trust[..., :2] = np.nan if draw.rng.random() < 0.3 else trust[..., :2] * draw.rng.choice([0.5, 1])
    variables = {"spearman": (dims, rho), "spearman_low": (dims, rho - 0.1), "spearman_high": (dims, rho + 0.1)}
    variables |= {"advantage_p": (("stack", "ablation", "signal", "signal_b"), p)}
    variables |= {"reliability": (("stack", "signal"), trust)}
    variables |= {"reliability_count": (("stack", "signal"), np.isfinite(trust).astype(int))}
    return draw.result("agreement", variables)


@says(
    "agreement",
    rf"(?:Of (\d+) signals, (.+) has the highest rank correlation with ablation|Only the rank correlation of (.+) "
    rf"with ablation is known) \(ρ = ({NUMBER}), 95 % CI ({NUMBER}) to ({NUMBER})\)\.(?: It is (not significantly "
    r"above any of the others|significantly above all others|significantly above (\d+) of the (\d+) others) \(paired "
    r"bootstrap over heads, false discovery rate 5 %\)\.)?( How much .*| Only .*)?",
)
def _(match, data):
    trust = {
        name: np.nan_to_num(float(data["reliability"].sel(signal=name))) for name in ("ablation_mean", "ablation_zero")
    }
    reference = max(trust, key=lambda name: trust[name])
    rho = {
        str(name): float(data["spearman"].sel(signal=reference, signal_b=name)) for name in data["signal"].values[2:]
    }
    best = max(rho, key=lambda name: rho[name])
    assert (match[2] or match[3]) == best.replace("_", ", ", 1)
    assert int(match[1] or 1) == len(rho)
    for place, tail in ((4, ""), (5, "_low"), (6, "_high")):
        prints(match[place], float(data[f"spearman{tail}"].sel(signal=reference, signal_b=best)))
    p = data["advantage_p"].sel(ablation=reference.removeprefix("ablation_"), signal=best)
    told, others = sum(float(p.sel(signal_b=name)) < 0.05 for name in rho if name != best), len(rho) - 1
    wanted = {0: "not significantly above any of the others", others: "significantly above all others"}
    assert match[7] == (wanted.get(told, f"significantly above {told} of the {others} others") if others else None)
    known = float(data["reliability"].sel(signal=reference))
    kind = " How" if known != known else " Only" if known < 0.5 else None
    assert (match[10] and match[10].startswith(kind or "?")) or (kind is None and match[10] is None)


def relevance(draw):
    variables = draw.mean("relevance", PER_HEAD, -1 if draw.rng.random() < 0.5 else 0.0, 1, missing=True)
    return draw.result("relevance", variables | draw.mean("layer_share", ("stack", "layer")))


@says(
    "relevance",
    rf"Heads with the largest share of their layer's relevance: ({NAMED})(?:; the first is (.*?))?\. (?:No head has|"
    r"(\d+) of (\d+) heads (?:has|have)) significantly negative mean relevance \(false discovery rate 5 %\); layer "
    rf"(\d) carries (\d+ %) of total relevance(?:, ({BESIDE}))?\.",
)
def _(match, data):
    means = triples(data, "relevance")
    are_named(match[1], {name: mean[0] for name, mean in means.items()})
    is_beside(match[2], means, max(means, key=lambda name: means[name][0]))
    printed = re.findall(rf"\(({NUMBER})\)", match[1])
    assert "all others" not in (match[2] or "") or printed.count(printed[0]) == 1, match[0]
    below = discovered({name: t.cdf(m / se, n - 1) for name, (m, se, n) in means.items()})
    assert int(match[3] or 0) == len(below)
    assert int(match[4] or len(means)) == len(means)
    layers = triples(data, "layer_share", by_layer)
    best = max(layers, key=lambda name: layers[name][0])
    assert best == f"layer {match[5]}"
    prints(match[6], layers[best][0])
    is_beside(match[7], layers, best)


@pytest.mark.parametrize(
    "make", [effects, gradients, patching, rationales, agreement, relevance], ids=lambda make: make.__name__
)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
