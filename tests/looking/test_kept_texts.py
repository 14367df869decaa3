"""`keep="texts"`: each text's numbers, whose means are the result; and runs that are paired by text."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import ttest_rel
from tiny import EXAMPLES, TREEBANK, bert, classifier

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens import per_text
from lorgnette.reporting import Comparison
from lorgnette.statistics.paired import paired_error
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.planted import planted_corpus

LENSES = ("weights", "norms", "rollout", "distances", "roles", "geometry")
WITH_TREES = ("trees", "relations")
OF_CLASSIFIERS = ("relevance", "gradients", "importance", "rationales")


@pytest.fixture(scope="module")
def kept():
    """Tiny models, looked at with every lens whose means are over texts."""
    corpus = Corpus.of(planted_corpus("test", size=8), name="planted")
    looks = ((bert(), corpus, LENSES), (bert(), TREEBANK, WITH_TREES), (classifier(), corpus, OF_CLASSIFIERS))
    runs = [lo.look(*each, keep="texts", progress=False, batch_tokens=80) for each in looks]
    return {name: (run[name], run.text_numbers[name]) for run in runs for name in run}


@pytest.mark.parametrize("lens", [*LENSES, *WITH_TREES, *OF_CLASSIFIERS])
def test_the_mean_over_texts_is_the_result(kept, lens):
    result, texts = kept[lens]
    compared = 0
    for name, value in texts.data_vars.items():
        if f"{name}_weight" not in texts or name not in result.data:
            continue
        mean = result.data[name]
        if set(mean.dims) != set(value.dims) - {"text"}:
            continue
        weight = texts[f"{name}_weight"]
        own = (value.fillna(0.0) * weight).sum("text") / weight.sum("text")
        own = own.reindex_like(mean).transpose(*mean.dims)  # other variables of the lens may have more heads or kinds
        np.testing.assert_allclose(own.values, mean.values, rtol=1e-4, atol=1e-6)
        compared += 1
    assert compared or lens in ("roles", "distances")  # whose results are made of such means
    assert texts.sizes["text"] == result.provenance.texts


def test_numbers_of_texts_do_not_depend_on_batches():
    model = bert()
    one, other = (
        lo.look(model, EXAMPLES, ["weights"], keep="texts", progress=False, batch_tokens=size).text_numbers["weights"]
        for size in (1, 4096)
    )
    xr.testing.assert_allclose(one, other, atol=1e-5)


def test_a_run_keeps_them_in_its_folder(tmp_path):
    pytest.importorskip("pyarrow")
    run = lo.look(bert(), EXAMPLES, ["weights"], keep="texts", progress=False, out=tmp_path / "run")
    again = lo.Results.load(tmp_path / "run")
    table, read = (each.texts("weights", "entropy") for each in (run, again))
    assert list(table.columns) == ["lens", "text", "variable", "stack", "layer", "head", "value", "weight"]
    assert len(table) == len(EXAMPLES) * run["weights"].data["entropy"].size
    np.testing.assert_array_equal(table["value"], read["value"])
    assert {*table["text"]} == {example.id for example in EXAMPLES}
    assert set(again.texts()["variable"]) >= {"entropy", "mass", "confidence"}
    lo.look(bert(), EXAMPLES, ["weights"], progress=False, out=tmp_path / "run")  # replaces the whole folder
    with pytest.raises(UserError, match="keep"):
        lo.Results.load(tmp_path / "run").texts()


def test_a_lens_without_means_over_texts_has_no_numbers_of_texts():
    """It comes with the others, and alone."""
    both = lo.look(bert(), EXAMPLES, ["weights", "circuits"], keep="texts", progress=False)
    assert list(both) == ["weights", "circuits"]
    assert list(both.text_numbers) == ["weights"]
    alone = lo.look(bert(), EXAMPLES, ["circuits"], keep="texts", progress=False)
    assert list(alone) == ["circuits"]
    assert not alone.text_numbers


def test_what_cannot_be_kept_is_refused(monkeypatch):
    with pytest.raises(UserError, match="Two texts have the id"):
        lo.look(bert(), [*EXAMPLES, EXAMPLES[0]], ["weights"], keep="texts", progress=False)
    with pytest.raises(UserError, match="keep can be 'texts'"):
        lo.look(bert(), EXAMPLES, ["weights"], keep="tokens", progress=False)
    monkeypatch.setattr(per_text, "MOST_NUMBERS", 100)
    with pytest.raises(UserError, match="--limit"):
        lo.look(bert(), EXAMPLES, ["weights"], keep="texts", progress=False)


def test_the_paired_error_is_that_of_the_paired_t_test():
    first, second = np.random.default_rng(0).normal(size=(2, 30, 4))
    second += 0.5 * first
    ones = np.ones_like(first)
    error, count = paired_error(first, ones, second, ones)
    theirs = ttest_rel(second, first, axis=0)
    np.testing.assert_allclose((second - first).mean(0) / error, theirs.statistic)
    np.testing.assert_array_equal(count, 30)


def test_the_paired_error_of_ratios_is_that_of_many_samples():
    draw = np.random.default_rng(1)

    def sample(texts):
        base, weight = draw.normal(size=texts), draw.integers(1, 9, size=texts).astype(float)
        return base + 0.1 * draw.normal(size=texts), weight, base + 0.2 * draw.normal(size=texts), weight

    means = [np.average(c, weights=d) - np.average(a, weights=b) for a, b, c, d in (sample(200) for _ in range(2000))]
    error, _ = paired_error(*(part[:, None] for part in sample(20_000)))
    assert error[0] * 10 == pytest.approx(np.std(means), rel=0.06)  # a hundred times as many texts


def test_runs_on_the_same_texts_are_paired():
    corpus = Corpus.of(planted_corpus("test", size=12), name="planted")
    models = bert(), bert(seed=1)
    runs = [lo.look(model, corpus, ["weights"], keep="texts", progress=False) for model in models]
    found = Comparison(*runs).differences()
    entropy = found.results["weights"].data["entropy_normalised"]
    assert entropy.attrs["paired"] is True
    texts = [run.text_numbers["weights"]["entropy_normalised"] for run in runs]
    theirs = ttest_rel(texts[1].values, texts[0].values, axis=0)
    data = found.results["weights"].data
    np.testing.assert_allclose(data["entropy_normalised_se"], abs(entropy / theirs.statistic), rtol=1e-4)
    low = theirs.confidence_interval(0.95).low
    np.testing.assert_allclose(data["entropy_normalised_low"], low, rtol=1e-4, atol=1e-6)
    assert not found.notes
    plain = [lo.look(model, corpus, ["weights"], progress=False) for model in models]
    unpaired = Comparison(*plain).differences()
    assert unpaired.results["weights"].data["entropy_normalised"].attrs["paired"] is False
    assert len(unpaired.notes) == 1
