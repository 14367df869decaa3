"""What two numbers of a lens differ by on the same texts: against the numbers of each text, one pair at a time."""

from itertools import combinations

import numpy as np
import pytest
from paired_oracle import paired_q, residuals
from scipy.stats import false_discovery_control, t
from tiny import EXAMPLES, TREEBANK, bert, classifier, gpt2, marian
from tiny import examples as random_texts

import lorgnette as lo
from lorgnette.lens.attention_probe.lens import share_of_words
from lorgnette.lens.gradients.lens import Gradients
from lorgnette.lens.sinks.lens import Sinks
from lorgnette.statistics.estimate import paired_error


def check(data, texts, name, at, one, other, of_one, of_other):
    """`name` at a place is variable `one` there minus `other`, with the error of a paired test."""
    parts = [
        np.nan_to_num(texts[variable].sel(where).values)[:, None]
        for variable, where in (
            (other, of_other),
            (f"{other}_weight", of_other),
            (one, of_one),
            (f"{one}_weight", of_one),
        )
    ]
    error, count = paired_error(*parts)
    cell = data.sel(at)
    wanted = float(data[one].sel(of_one)) - float(data[other].sel(of_other))
    assert float(cell[name]) == pytest.approx(wanted, abs=1e-6)
    assert float(cell[f"{name}_se"]) == pytest.approx(error[0], abs=1e-6)
    assert int(cell[f"{name}_count"]) == count[0] > 1


def test_rollout_by_weights_and_by_norms():
    results = lo.look(bert(), EXAMPLES, ["rollout"], progress=False, keep="texts")
    data, texts = results["rollout"].data, results.text_numbers["rollout"]
    for layer in (1, 3):
        at = {"stack": "encoder", "layer": layer, "category": "self"}
        sides = [{**at, "measure": measure} for measure in ("weights", "norms")]
        check(data, texts, "share_difference", at, "share", "share", *sides)


def test_sinks_and_the_middle_token():
    results = lo.look(
        gpt2(), random_texts((9, 12, 7, 15, 11)), ["sinks:effect=true,threshold=0.1"], progress=False, keep="texts"
    )
    data, texts = results["sinks"].data, results.text_numbers["sinks"]
    for what in ("value", "key"):
        sides = [{"change": f"{whose}_{what}"} for whose in ("sink", "middle")]
        check(data, texts, f"{what}_difference", {}, "loss_change", "loss_change", *sides)


def test_cheap_effects():
    results = lo.look(classifier(), EXAMPLES, ["effects"], progress=False, keep="texts")
    data, texts = results["effects"].data, results.text_numbers["effects"]
    sides = [{"signal": name} for name in ("by_gradient", "direct")]
    check(data, texts, "alike_difference", {}, "alike", "alike", *sides)


def test_trees_and_the_next_word():
    results = lo.look(bert(), TREEBANK, ["trees"], progress=False, keep="texts")
    data, texts = results["trees"].data, results.text_numbers["trees"]
    at = {"stack": "encoder", "layer": 2, "head": 3}
    value = texts["uas_over_next"].sel(at).values
    assert float(data["uas_over_next"].sel(at)) == pytest.approx(
        float(data["uas"].sel(at).sel(way="to_head") - data["baseline_uas"].sel(baseline="head_is_next")), abs=1e-6
    )
    head = texts["uas"].sel(at).sel(way="to_head").values
    assert np.isfinite(value).sum() == np.isfinite(head).sum() > 1


def test_a_probe_and_the_next_word_are_a_ratio_of_what_one_finds_and_the_other_does_not():
    draw = np.random.default_rng(0)
    counts = draw.integers(1, 9, size=(20, 1)).astype(float)
    right, following = (draw.binomial(counts.astype(int), share).astype(float) for share in (0.6, 0.5))
    mean, error, texts = share_of_words(right - following, counts)[0]
    wanted, count = paired_error(following / counts, counts, right / counts, counts)
    assert (mean, error, texts) == pytest.approx(((right - following).sum() / counts.sum(), wanted[0], count[0]))


@pytest.mark.parametrize("make", [bert, marian])
def test_the_layers_and_states_whose_vectors_are_most_alike(make):
    results = lo.look(make(), EXAMPLES, ["geometry:words=false,covariances=false"], progress=False, keep="texts")
    data, texts = results["geometry"].data, results.text_numbers["geometry"]
    for name, axis, kinds in (("state_sim", "state", [{}]), ("sim_all", "layer", [{"vectors": "key"}])):
        for at in kinds:
            for stack in data["stack"].values.tolist():
                here = {"stack": stack, **at}
                value, weight = (texts[f"{name}{tail}"].sel(here).transpose("text", axis) for tail in ("", "_weight"))
                known = weight.sum("text") > 0
                found = data[f"{name}_top_q"].sel(here)
                assert int(found.notnull().sum()) == max(0, int(known.sum()) - 1)
                if bool(known.any()):
                    wanted = paired_q(value[:, known.values].values, weight[:, known.values].values)
                    np.testing.assert_allclose(found[known.values], wanted, rtol=2e-3, atol=1e-6)


def of_heads(texts, name, heads, **at):
    """What each text adds to the error of a mean over some heads, that mean, and the fewest texts of a head."""
    value, weight = (
        texts[f"{name}{tail}"].sel(at).stack(cell=("layer", "head")).sel(cell=heads).transpose("text", "cell").values
        for tail in ("", "_weight")
    )
    means, terms = residuals(value, weight)
    return terms.mean(1), means.mean(), (weight > 0).sum(0).min()


def test_the_kinds_of_token_that_are_sinks():
    """Means over the heads with a sink in most texts, kind against kind."""
    lens = Sinks(thresholds=(0.12, 0.5), threshold=0.1)
    results = lo.look(bert(), EXAMPLES, [lens], progress=False, keep="texts")
    data, texts = results["sinks"].data, results.text_numbers["sinks"]
    every = data["rate"].sel(stack="encoder", threshold=0.12, category="all").stack(cell=("layer", "head"))
    heads = [cell for cell, rate in zip(every["cell"].values.tolist(), every.values, strict=True) if rate > 0.5]
    assert heads
    kinds = ["cls", "sep", "period_comma", "other"]
    found = {kind: of_heads(texts, "rate", heads, stack="encoder", threshold=0.12, category=kind) for kind in kinds}
    p = {}
    for a, b in combinations(kinds, 2):
        (one, mean, n), (other, mean_b, n_b) = found[a], found[b]
        n = min(n, n_b)
        error = np.sqrt(n / (n - 1) * ((one - other) ** 2).sum())
        p[a, b] = 2 * t.sf(abs(mean - mean_b) / error, n - 1)
    q = dict(zip(p, false_discovery_control(list(p.values())), strict=True))
    best = max(kinds, key=lambda kind: found[kind][1])
    for kind in kinds:
        there = float(data["kind_top_q"].sel(stack="encoder", category=kind))
        assert there == pytest.approx(q.get((kind, best), q.get((best, kind), np.nan)), rel=1e-4, nan_ok=True)
    assert int(data["kind_top_q"].notnull().sum()) == 3


@pytest.mark.parametrize("by", ["text", "token"])
def test_gradients_on_special_tokens_and_on_all_weights(by):
    results = lo.look(classifier(), EXAMPLES, [Gradients(by=by)], progress=False, keep="texts")
    data, texts = results["gradients"].data, results.text_numbers["gradients"]
    heads = [(layer, head) for layer in data["layer"].values.tolist() for head in data["head"].values.tolist()]
    for kind in ("cls", "sep"):
        one, all_weights = (
            of_heads(texts, "gradient", heads, stack="encoder", category=each) for each in (kind, "all")
        )
        n = min(one[2], all_weights[2])
        at = {"stack": "encoder", "category": kind}
        assert float(data["over_all"].sel(at)) == pytest.approx(one[1] - all_weights[1], rel=1e-4)
        error = np.sqrt(n / (n - 1) * ((one[0] - all_weights[0]) ** 2).sum())
        assert float(data["over_all_se"].sel(at)) == pytest.approx(error, rel=1e-3)
        assert int(data["over_all_count"].sel(at)) == n > 1
