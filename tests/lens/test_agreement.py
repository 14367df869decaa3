"""Agreement: ρ against scipy, intervals against a loop, the planted head first, what is missing."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from tiny import examples, subject

from lorgnette.errors import UserError
from lorgnette.lens import registered
from lorgnette.lens.agreement.lens import Agreement, agreement
from lorgnette.lens.signals import signals_of
from lorgnette.looking.look import look
from lorgnette.reporting import figures_of, findings
from lorgnette.results import Result, Results
from lorgnette.statistics.rank_agreement import advantages, reliability, spearman_draws, spearman_matrix, within_groups


def test_rho_is_scipys():
    values = np.random.default_rng(0).normal(size=(4, 30))
    values[3] = np.round(values[3])  # ties
    rho, _ = spearman_matrix(values, draws=10)
    np.testing.assert_allclose(rho, spearmanr(values.T).statistic, atol=1e-12)


def test_the_interval_is_that_of_a_loop():
    values = np.random.default_rng(1).normal(size=(2, 20))
    _, bounds = spearman_matrix(values, draws=200, seed=7)
    chosen = np.random.default_rng(7).integers(20, size=(200, 20))
    drawn = [spearmanr(values[0, some], values[1, some]).statistic for some in chosen]
    np.testing.assert_allclose(bounds[:, 0, 1], np.quantile(drawn, [0.025, 0.975]), atol=1e-12)


def test_same_opposite_and_independent():
    one = np.random.default_rng(2).normal(size=40)
    values = np.stack([one, np.exp(one), -one, np.random.default_rng(3).normal(size=40), np.ones(40)])
    rho, (low, high) = spearman_matrix(values)
    assert rho[0, 1] == pytest.approx(1)
    assert rho[0, 2] == pytest.approx(-1)
    assert low[0, 3] < 0 < high[0, 3]
    assert np.isnan(rho[4]).all()  # a signal that is the same for all heads ranks nothing


def test_within_layers_what_layers_differ_by_is_gone():
    group = np.array([0, 0, 0, 1, 1, 1])
    values = np.array([[1.0, 2, 3, 11, 12, 13], [13.0, 12, 11, 3, 2, 1]])
    assert spearman_matrix(values, draws=5)[0][0, 1] == pytest.approx(-1)
    found = within_groups(values, group)
    np.testing.assert_allclose(found[0], [1 / 6, 1 / 2, 5 / 6] * 2)
    assert spearman_matrix(found, draws=5)[0][0, 1] == pytest.approx(-1)
    shifted = np.array([values[0], values[0] % 10 - 20 * group])
    assert spearman_matrix(shifted, draws=5)[0][0, 1] < 0
    assert spearman_matrix(within_groups(shifted, group), draws=5)[0][0, 1] == pytest.approx(1)


def test_reliability_is_what_is_left_of_the_variance():
    rng = np.random.default_rng(4)
    true, noise = rng.normal(size=100_000), 0.5 * rng.normal(size=100_000)
    found = reliability(true + noise, np.full(100_000, 0.5))
    assert found == pytest.approx(np.corrcoef(true, true + noise)[0, 1] ** 2, abs=0.01)
    assert reliability(noise, np.full(100_000, 0.6)) == 0
    assert np.isnan(reliability(np.ones(5), np.ones(5)))


def test_it_brings_along_what_it_needs():
    results = look(subject("marian"), examples(), [Agreement(draws=50), "gradients"], progress=False)
    assert {"weights", "norms", "importance", "gradients", "agreement"} <= set(results)
    data = results["agreement"].data
    names = data.signal.values.tolist()
    assert {
        "sharpness",
        "confidence",
        "norm",
        "relevance",
        "slope",
        "gradient",
        "ablation_zero",
        "ablation_mean",
    } <= set(names)
    for stack, heads in (("encoder", 8), ("decoder", 12), ("cross", 12)):
        flat = [
            results["weights"].data.confidence.sel(stack=stack).values.ravel(),
            results["importance"].data.loss_change.sel(stack=stack, ablation="mean").values.ravel(),
        ]
        there = np.isfinite(flat).all(0)
        found = data.sel(stack=stack, signal="confidence", signal_b="ablation_mean")
        assert found.spearman.item() == pytest.approx(spearmanr(flat[0][there], flat[1][there]).statistic)
        assert found.spearman_count.item() == there.sum() == heads
        assert found.spearman_low <= found.spearman <= found.spearman_high
    assert {"no_sink", "ov_rank"}.isdisjoint(names)
    ceiling = data.ceiling.sel(stack="cross", signal="confidence", signal_b="norm").item()
    assert ceiling == pytest.approx(data.reliability.sel(stack="cross", signal="confidence").item() ** 0.5)
    again = agreement(Results({name: results[name] for name in results if name != "agreement"}), draws=50)
    assert again.data.equals(results["agreement"].data)
    assert again.data.attrs["signals"] == results["agreement"].data.attrs["signals"]
    assert Result.from_json(again.to_json()) == again
    assert all(figure.chart.to_dict() for figure in figures_of(again))
    assert any("rho" in finding.numbers for finding in findings(Results([again])))


def test_the_advantage_is_the_difference_of_two_correlations_over_the_same_heads():
    rng = np.random.default_rng(5)
    truth = rng.normal(size=60)
    near, far = truth + 0.3 * rng.normal(size=60), rng.normal(size=60)
    values = np.stack([near, far, truth])
    rho, drawn = spearman_matrix(values, draws=2)[0], spearman_draws(values, draws=400, seed=1)
    difference, low, high, p = advantages(rho[2, :2], drawn[2, :2])
    assert difference[0, 1] == pytest.approx(spearmanr(near, truth)[0] - spearmanr(far, truth)[0])
    chosen = np.random.default_rng(1).integers(60, size=(400, 60))
    loop = [spearmanr(near[s], truth[s])[0] - spearmanr(far[s], truth[s])[0] for s in chosen]
    np.testing.assert_allclose([low[0, 1], high[0, 1]], np.quantile(loop, [0.025, 0.975]), atol=1e-12)
    assert p[0, 1] == p[1, 0] == pytest.approx(2 / 401)  # no draw on the other side
    same = advantages(rho[2, [0, 0]], drawn[2][[0, 0]])
    assert same[3][0, 1] == 1


def test_a_head_given_twice_is_asked_once():
    results = look(subject("bert-classifier"), examples(), ["weights", "agreement"], progress=False)
    assert list(results).count("weights") == 1
    assert list(results)[-1] == "agreement"


def test_gradient_and_ablation_put_the_planted_head_first():
    tiny = subject("bert-classifier", seed=3)
    with torch.no_grad():
        for around in tiny.anatomy.sites:
            weight = around.output.weight.view(32, 4, 8)
            for head in range(4):
                weight[:, head] *= 20 if (around.site.layer, head) == (1, 2) else 0.02
    results = look(tiny, examples((9, 4, 6, 12, 7, 5)), ["agreement"], progress=False)
    data = results["importance"].data.sel(stack="encoder")
    for values in (data.sensitivity, abs(data.loss_change.sel(ablation="zero"))):
        assert values.stack(which=("layer", "head")).idxmax().item() == (2, 3)


def test_every_signal_of_other_lenses_counts():
    lenses = ["agreement", "sinks", "circuits", "gradients", "norms:contribution=true"]
    found = look(subject("bert-classifier"), examples(), lenses, progress=False)
    names = set(found["agreement"].data.signal.values.tolist())
    assert {"no_sink", "ov_rank", "copying", "slope", "output_length"} <= names
    declared = [name for lens in registered() for name in signals_of(lens)]
    assert len(declared) == len(set(declared))


def test_a_signal_that_a_stack_does_not_have_is_missing_there_alone():
    found = look(subject("marian"), examples(), ["agreement", "circuits"], progress=False)["agreement"].data
    copying = found.spearman.sel(signal="copying", signal_b="confidence")
    assert copying.sel(stack="encoder").notnull()
    assert copying.sel(stack="cross").isnull()
    assert found.spearman_count.sel(stack="cross", signal="copying", signal_b="confidence") == 0
    assert found.spearman.sel(stack="cross", signal="norm", signal_b="confidence").notnull()


def test_too_little_is_one_line():
    weights = look(subject("bert"), examples(), ["distances"], progress=False)
    with pytest.raises(UserError, match="at least two signals"):
        agreement(weights)
    with pytest.raises(UserError, match="no output head"):
        look(subject("bert"), examples(), ["agreement"], progress=False)
    one = look(subject("bert"), examples(), ["weights"], progress=False)
    small = look(subject("albert"), examples(), ["norms"], progress=False)
    with pytest.raises(UserError, match="different models"):
        agreement({"weights": one["weights"], "norms": small["norms"]})
