"""Which signal finds the part of a prompt that the answer uses."""

import re

import numpy as np
from scipy.stats import false_discovery_control, t, ttest_rel

from claims.numbers import HEADS, LAYERS, NUMBER, PER_HEAD, discovered, prints
from claims.rules import check_sentences, says
from lorgnette.lens.sources.lens import RANKED

LOOKING, BLIND = ("alone", "relevance", "norm", "attention"), ("length", "recency")
MEASURES = ("attention", "norm", "relevance")


def corrected(p):
    known = ~np.isnan(p)
    p[known] = false_discovery_control(p[known])
    return p


def q_values(name, dims, q):
    return {name: (dims, q), f"{name}_count": (dims, (~np.isnan(q)).astype(int))}


def over_prompts(name, dims, values):
    """Mean, standard error and count of numbers by prompt; NaN where a prompt has none."""
    count = (~np.isnan(values)).sum(0)
    some = np.where(count > 0, count, 1)
    mean = np.where(count > 0, np.nansum(values, 0) / some, np.nan)
    squares = np.nansum((values - mean) ** 2, 0)
    error = np.where(count > 1, np.sqrt(squares / np.where(count > 1, count - 1, 1) / some), np.nan)
    return {name: (dims, mean), f"{name}_se": (dims, error), f"{name}_count": (dims, count)}


def sources(draw):
    """Prompts of which some use a source; a baseline may rank the sources best, and a signal may rank none."""
    draw.sizes |= {"signal": list(RANKED), "signal_b": list(RANKED), "measure": list(MEASURES)}
    rng, prompts = draw.rng, draw.texts
    used = int(rng.choice([0, 1, prompts, max(1, prompts // 2)])) if prompts > 1 else int(rng.integers(0, 2))
    matters = np.arange(prompts) < used
    agreement = np.tanh(rng.uniform(-1, 1, len(RANKED)) + draw.spread * 5 * rng.normal(size=(prompts, 7)))
    found = (rng.random((prompts, 7)) < rng.random(7) * rng.choice([0, 1, 1])).astype(float)
    for values in (agreement, found):
        values[~matters], values[:, 0] = np.nan, np.nan
    if used > 2:
        agreement[0] = np.nan  # drops that are all equal have no ranks
    apart = agreement[:, :, None] - agreement[:, None]
    variables = over_prompts("agreement", ("signal",), agreement) | over_prompts("found", ("signal",), found)
    variables |= over_prompts("agreement_difference", ("signal", "signal_b"), apart)
    p = np.full((7, 7), np.nan)
    for a in range(1, 7):
        for b in range(a + 1, 7):
            both = agreement[~np.isnan(agreement[:, a])]
            p[a, b] = ttest_rel(both[:, a], both[:, b]).pvalue if len(both) > 1 else np.nan
    q = corrected(p)
    q = np.where(np.isnan(q), q.T, q)
    variables |= q_values("agreement_difference_q", ("signal", "signal_b"), q)
    variables |= over_prompts("matters", (), matters.astype(float))
    variables |= over_prompts("largest_drop", (), np.where(matters, rng.uniform(1, 5, prompts), 0.1))
    variables |= over_prompts("chance", (), np.where(matters, 1 / rng.integers(2, 9, prompts), np.nan))
    level = np.where(rng.random((1, 3, 4, 3)) < 0.5, rng.uniform(-0.3, 0.9, (1, 3, 4, 3)), 0.0)
    by_head = np.tanh(level + 0.2 * rng.normal(size=(prompts, 1, 3, 4, 3)))
    by_head[~matters] = np.nan
    variables |= over_prompts("head_agreement", (*PER_HEAD, "measure"), by_head)
    value, error, count = (variables[f"head_agreement{tail}"][1] for tail in ("", "_se", "_count"))
    above = np.where(count > 1, t.sf(value / error, np.maximum(count - 1, 1)), np.nan)
    for number in range(3):
        above[..., number] = corrected(above[..., number])
    variables |= q_values("head_agreement_q", (*PER_HEAD, "measure"), above)
    return draw.result("sources", variables, {"matters": np.log(2)})


def counts(data):
    prompts = int(data["matters_count"])
    return round(float(data["matters"]) * prompts), prompts


@says("sources", r"In 0 of (\d+) prompts the answer is at most half as likely without one of the sources: nothing "
                 r"shows that an answer uses any one of them\.")  # fmt: skip
def _(match, data):
    assert (0, int(match[1])) == counts(data)
    assert int(match[1]) > 1


@says("sources", r"In (\d+) of (\d+) prompts the answer is at most half as likely without one of the sources; the "
                 rf"largest drop of a prompt is ({NUMBER}) nats on average\.")  # fmt: skip
def _(match, data):
    assert (int(match[1]), int(match[2])) == counts(data)
    assert int(match[1]) > 0
    assert int(match[2]) > 1
    prints(match[3], float(data["largest_drop"]))


@says("sources", r"Without any one of the sources, the answer stays more than half as likely: nothing shows that it "
                 r"uses one of them\.")  # fmt: skip
def _(match, data):
    assert counts(data) == (0, 1)


@says("sources", r"Without one of the sources the answer is at most half as likely: its log-probability falls by "
                 rf"({NUMBER}) nats\.")  # fmt: skip
def _(match, data):
    assert counts(data) == (1, 1)
    prints(match[1], float(data["largest_drop"]))


def names(words):
    return words.split(", ") if words else []


@says("sources", r"That source is ranked first by ([a-z, ]+?)(?:; another one is ranked first by ([a-z, ]+))?\.")
def _(match, data):
    assert counts(data) == (1, 1)
    first = {name: float(data["found"].sel(signal=name)) for name in LOOKING}
    assert names(match[1]) == [name for name in LOOKING if first[name] == 1]
    assert names(match[2]) == [name for name in LOOKING if first[name] == 0]


@says("sources", r"None of ([a-z, ]+) ranks that source first\.")
def _(match, data):
    assert counts(data) == (1, 1)
    assert names(match[1]) == list(LOOKING)
    assert not data["found"].sel(signal=list(LOOKING)).any()


@says(
    "sources",
    rf"Of the signals that look at the model, ([a-z]+) has the highest rank agreement with deletion: ρ ({NUMBER})"
    rf"(?:, 95 % CI ({NUMBER}) to ({NUMBER}), over (\d+) prompts(?:; (.*?))?| in one prompt(?:; (.*?))?)\. "
    r"In (?:the one prompt|the (\d+) prompts) where a source matters, the source with the largest drop is ranked first "
    r"by (.*); chance is (\d+) %\.",
)
def _(match, data):
    mean = {name: float(data["agreement"].sel(signal=name)) for name in RANKED[1:]}
    best = max(LOOKING, key=lambda name: mean[name])
    assert best == match[1]
    prints(match[2], mean[best])
    prompts = int(data["agreement_count"].sel(signal=best))
    assert int(match[5] or 1) == prompts
    if match[3]:
        half = t.ppf(0.975, prompts - 1) * float(data["agreement_se"].sel(signal=best))
        prints(match[3], max(-1, mean[best] - half))
        prints(match[4], min(1, mean[best] + half))
    compares(match[6] or match[7], data, mean, best)
    assert int(match[8] or 1) == counts(data)[0]
    shares = dict(re.fullmatch(r"([a-z]+) \((\d+ %)\)", part).groups() for part in match[9].split(", "))
    assert list(shares) == list(LOOKING)
    for name, share in shares.items():
        prints(share, float(data["found"].sel(signal=name)))
    prints(f"{match[10]} %", float(data["chance"]))


def compares(words, data, mean, best):
    """Every other signal is below by a significant difference, or named: as not below for sure, or as above."""
    q = data["agreement_difference_q"].sel(signal=best)
    sure = {name for name in mean if name != best and float(q.sel(signal_b=name)) < 0.05}
    above = [name for name in BLIND if mean[name] > mean[best]]
    clauses = (words or "").split("; ") if words else []
    if q.isnull().all():
        assert [clause for clause in clauses if "significant" in clause] == []
        assert not above or clauses == [higher(above, mean, clauses[0])]
        return
    tied = [name for name in mean if name != best and name not in sure and name not in above]
    expected = []
    if above:
        expected.append(higher(above, mean, clauses[0]))
    if tied:
        expected.append(f"not significantly above {', '.join(tied)}")
    elif not above:
        expected.append("significantly above all others")
    assert clauses == expected, (words, mean, sure)


def higher(above, mean, clause):
    """What is said of baselines that rank the sources better, with their numbers."""
    for name, value in re.findall(rf"([a-z]+) \(ρ ({NUMBER})\)", clause):
        prints(value, mean[name])
    named = [name for name, _ in re.findall(rf"([a-z]+) \(ρ ({NUMBER})\)", clause)]
    assert named == above
    assert clause.startswith("higher without looking at the model: ")
    return clause


def of_heads(data, measure):
    """The heads' means, and those whose p (one-sided) is significant at a false discovery rate of 5 %."""
    p, mean = {}, {}
    for layer in LAYERS:
        for head in HEADS:
            at = {"layer": layer, "head": head, "measure": measure}
            m, se, n = (float(data[f"head_agreement{tail}"].sel(at)) for tail in ("", "_se", "_count"))
            mean[f"{layer}.{head}"], p[f"{layer}.{head}"] = m, t.sf(m / se, n - 1)
    return mean, discovered(p)


@says("sources", r"By (attention|relevance), no head ranks the sources significantly as deletion does\.")
def _(match, data):
    assert not of_heads(data, match[1])[1]


@says("sources", r"By (attention|relevance), (\d+) of (\d+) heads ranks? the sources significantly as deletion does "
                 r"\(mean ρ above 0, false discovery rate 5 %\)(; those with the highest means)?: (.*)\.")  # fmt: skip
def _(match, data):
    mean, sure = of_heads(data, match[1])
    assert (int(match[2]), int(match[3])) == (len(sure), len(mean))
    assert bool(match[4]) == (len(sure) > 3)
    named = re.findall(rf"([\d.]+) \(({NUMBER})\)", match[5])
    order = sorted(sure, key=lambda name: -mean[name])
    assert [name for name, _ in named] == order[:3]
    for name, value in named:
        prints(value, mean[name])


def test_sentences_say_what_the_numbers_say():
    check_sentences(sources, draws=40)
