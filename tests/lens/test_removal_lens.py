"""Removal: losses against a loop that knocks heads out, p against scipy, the planted head goes last, wrong input."""

import numpy as np
import pytest
import torch
from gauge import shift_values
from scipy.stats import false_discovery_control, ttest_rel
from tiny import examples, subject

from lorgnette.errors import UserError
from lorgnette.lens import get
from lorgnette.lens.ablation.means import HeadMeans, means_in
from lorgnette.lens.losses import text_metrics
from lorgnette.lens.removal.lens import Removal
from lorgnette.lens.signals import signals_in
from lorgnette.looking.look import look
from lorgnette.reporting import figures_of, findings
from lorgnette.results import Results
from lorgnette.subject.knockout import Knockout
from lorgnette.testing import permute_heads

TEXTS = examples((9, 4, 6, 12, 7, 5))


@pytest.fixture(scope="module")
def tiny():
    return subject("bert-classifier", seed=3)


@pytest.fixture(scope="module")
def ranking(tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranking") / "run"
    look(tiny, TEXTS, ["weights", "importance"], progress=False, out=folder)
    return folder


@pytest.fixture(scope="module")
def result(tiny, ranking):
    return look(tiny, TEXTS, [Removal((0.25, 0.5), ranking=ranking, ablation="zero")], progress=False)["removal"]


def losses(tiny, gone, means=None):
    """[metric text] of one text after the other, without these heads."""
    with torch.no_grad(), tiny.tapped(Knockout(gone, means)):
        parts = []
        for example in TEXTS:
            batch = tiny.encode([example])
            parts.append(text_metrics(tiny, "classification", batch, tiny.run(batch).logits)[0])
    return torch.cat(parts, 1).double().numpy()


def lowest(tiny, values, share):
    """Heads in the order of the value, the first share of them, as site → indices."""
    flat = [
        (float(values.sel(stack="encoder")[site.layer, head]), site, head) for site in tiny.sites for head in range(4)
    ]
    gone = {}
    for _, site, head in sorted(flat, key=lambda one: one[0])[: round(share * len(flat))]:
        gone.setdefault(site, []).append(head)
    return gone


def test_losses_are_those_of_a_loop_and_p_is_that_of_scipy(tiny, ranking, result):
    signals = signals_in(Results.load(ranking))
    intact = losses(tiny, {})
    by_name = {}
    for name, one in signals.items():
        for share in (0.25, 0.5):
            values = losses(tiny, lowest(tiny, one.size, share))
            by_name[name, share] = values
            cell = result.data.sel(stack="encoder", signal=name, share=share)
            assert cell.loss_change.item() == pytest.approx((values - intact)[0].mean(), abs=1e-6)
            assert cell.accuracy_change.item() == pytest.approx((values - intact)[1].mean(), abs=1e-9)
    names = [name for name in signals if name != "random"]
    a, b = names[0], names[-1]
    cell = result.data.sel(stack="encoder", signal=a, signal_b=b, share=0.5)
    pair = by_name[a, 0.5][0], by_name[b, 0.5][0]
    assert cell.loss_difference.item() == pytest.approx((pair[0] - pair[1]).mean(), abs=1e-6)
    raw = []
    for share in (0.25, 0.5):
        for i, first in enumerate(result.data.signal.values):
            for second in result.data.signal.values[i + 1 :]:
                at = {"stack": "encoder", "signal": first, "signal_b": second, "share": share}
                if "random" in (first, second):  # texts say nothing about chance: see the ranks among random sets
                    assert np.isnan(float(result.data.loss_difference_p.sel(at)))
                    continue
                one, other = by_name[first, share][0], by_name[second, share][0]
                raw.append((at, 1.0 if np.array_equal(one, other) else ttest_rel(one, other).pvalue))
    adjusted = false_discovery_control([p for _, p in raw])
    for (at, _), wanted in zip(raw, adjusted, strict=True):
        assert float(result.data.loss_difference_p.sel(at)) == pytest.approx(wanted, rel=1e-4)


def test_chance_is_the_mean_of_its_sets(tiny, ranking):
    found = look(tiny, TEXTS, [Removal((0.5,), controls=3, seed=5, ranking=ranking, ablation="zero")], progress=False)[
        "removal"
    ]
    lens = Removal((0.5,), controls=3, seed=5, ranking=ranking, ablation="zero")
    lens.bind(tiny)
    sets = [n for n, job in enumerate(lens.jobs) if lens.names[job.signal] == "random"]
    assert len(sets) == 3
    each = []
    for job in sets:
        gone = {site: mask[job].nonzero()[:, 0].tolist() for site, mask in lens.gone.items()}
        assert sum(map(len, gone.values())) == 6  # half of 3 × 4 heads
        each.append(losses(tiny, gone)[0].mean())
    np.testing.assert_allclose(
        found.data.loss_draw.sel(stack="encoder", share=0.5) + losses(tiny, {})[0].mean(), each, atol=1e-6
    )
    change = found.data.loss_change.sel(stack="encoder", signal="random", share=0.5).item()
    assert change == pytest.approx(np.mean(each) - losses(tiny, {})[0].mean(), abs=1e-6)


def test_chance_is_tested_by_rank_among_its_sets(result):
    """As good: a loss that is no larger, an accuracy that is no smaller. All signals at a share are one family."""
    for metric, sign in (("loss", 1), ("accuracy", -1)):
        draws, change = result.data[f"{metric}_draw"], result.data[f"{metric}_change"]
        names = [name for name in change.signal.values if name != "random"]
        for share in change.share.values:
            others, raw = draws.sel(stack="encoder", share=share).values, []
            for name in names:
                mine = change.sel(stack="encoder", signal=name, share=share).item()
                raw.append((1 + sum(sign * other <= sign * mine for other in others)) / 21)
            for name, wanted in zip(names, false_discovery_control(raw), strict=True):
                found = result.data[f"{metric}_chance_p"].sel(stack="encoder", signal=name, share=share).item()
                assert found == pytest.approx(wanted)
    assert result.data.loss_chance_p.sel(signal="random").isnull().all()


def test_heads_that_go_give_their_mean_over_the_corpus(tiny, ranking):
    data = look(tiny, TEXTS, [Removal((0.5,), controls=1, ranking=ranking), HeadMeans()], progress=False)
    result, means = data["removal"].data, means_in(data, tiny)
    intact = losses(tiny, {})
    for name, one in signals_in(Results.load(ranking)).items():
        values = losses(tiny, lowest(tiny, one.size, 0.5), means)
        cell = result.sel(stack="encoder", signal=name, share=0.5)
        assert cell.loss_change.item() == pytest.approx((values - intact)[0].mean(), abs=1e-9)
    assert result.attrs["ablation"] == "mean"


def test_a_constant_in_the_values_changes_no_loss_but_those_of_zero(tmp_path):
    """The same heads go from both models, whatever their signals say."""
    before, after = subject("bert-classifier", seed=3), subject("bert-classifier", seed=3)
    shift_values(after)
    for ablation, equal in (("mean", True), ("zero", False)):
        one, other = (
            look(model, TEXTS, [Removal((0.5,), ablation=ablation)], progress=False)["removal"].data.sel(
                signal=["confidence", "random"]
            )
            for model in (before, after)
        )
        assert np.allclose(one.loss_change, other.loss_change, rtol=0, atol=1e-10) is equal, ablation


def test_the_heads_that_signals_choose_do_not_depend_on_their_numbers(tiny):
    before = look(tiny, TEXTS, [Removal((0.5,))], progress=False)["removal"].data.drop_sel(signal="random")
    order = torch.tensor([2, 0, 3, 1])
    permute_heads(tiny, order)
    try:
        after = look(tiny, TEXTS, [Removal((0.5,))], progress=False)["removal"].data.drop_sel(signal="random")
    finally:
        permute_heads(tiny, torch.argsort(order))
    np.testing.assert_allclose(after.loss_change, before.loss_change, atol=1e-9)


@pytest.fixture(scope="module")
def planted():
    """Only one head of the last layer writes anything to speak of, and the classes are what it makes of them."""
    tiny = subject("bert-classifier", seed=3)
    with torch.no_grad():
        for around in tiny.anatomy.sites:
            weight = around.output.weight.view(32, 4, 8)
            for head in range(4):
                weight[:, head] *= 20 if (around.site.layer, head) == (1, 2) else 0.002
    return tiny


@pytest.mark.parametrize("ablation", ["mean", "zero"])
def test_the_planted_head_is_kept_by_what_knows_the_loss_and_lost_by_chance(planted, ablation):
    found = look(planted, TEXTS, [Removal((0.75,), controls=20, ablation=ablation)], progress=False)["removal"].data
    change = abs(found.loss_change.sel(stack="encoder", share=0.75))
    random = change.sel(signal="random").item()
    for name in ("gradient", "ablation_zero", "norm"):
        assert change.sel(signal=name).item() < 0.05 * random
    assert found.attrs["ranked_on"] == "the same texts"


def test_stacks_of_a_translation_model_are_removed_one_at_a_time():
    found = look(subject("marian"), examples(), "agreement:joint=true", progress=False)
    data = found["removal"].data
    assert data["stack"].values.tolist() == ["encoder", "decoder", "cross"]
    assert "accuracy" not in data
    assert data.loss_change.notnull().all()
    assert "agreement" in found


def test_the_page_has_curves_and_one_sentence(result):
    names = [figure.name for figure in figures_of(result)]
    assert names == ["accuracy_change", "loss_change"]
    assert all(figure.chart.to_dict() for figure in figures_of(result))
    (sentence,) = findings(Results([result]))
    assert sentence.numbers["share"] == 0.5
    assert 1 / 21 <= sentence.numbers["p"] <= 1
    assert "So few sets" not in sentence.text


def test_the_sentence_says_that_few_sets_show_nothing(tiny, ranking):
    lens = Removal((0.5,), controls=18, ranking=ranking, ablation="zero")
    (sentence,) = findings(look(tiny, TEXTS, [lens], progress=False))
    assert "So few sets can never show that a signal is better than chance: take at least 20." in sentence.text


def test_wrong_input_is_one_line(tiny, ranking, tmp_path):
    with pytest.raises(UserError, match="above 0 and below 1"):
        get("removal:shares=0.5+2")
    with pytest.raises(UserError, match="numbers above 0 and below 1, between"):
        get("removal:shares=half")
    with pytest.raises(UserError, match="at least 1"):
        Removal(controls=0)
    with pytest.raises(UserError, match="'ablation' of the lens 'removal' must be 'mean' or 'zero'"):
        get("removal:ablation=noise")
    with pytest.raises(UserError, match="its weights differ"):
        look(subject("bert-classifier", seed=4), TEXTS, [Removal(ranking=ranking)], progress=False)
    with pytest.raises(UserError, match=r"nowhere"):
        look(tiny, TEXTS, [Removal(ranking=tmp_path / "nowhere")], progress=False)
    with pytest.raises(UserError, match="another model"):
        look(subject("gpt2"), TEXTS, [Removal(ranking=ranking)], progress=False)
    look(tiny, TEXTS, ["distances"], progress=False, out=tmp_path / "run")
    with pytest.raises(UserError, match="no signal to rank heads by"):
        look(tiny, TEXTS, [Removal(ranking=tmp_path / "run")], progress=False)
    with pytest.raises(UserError, match="no output head"):
        look(subject("bert"), examples(), ["removal"], progress=False)
