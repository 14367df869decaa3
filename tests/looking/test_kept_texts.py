"""`keep="texts"`: each text's numbers, whose means are the result; and runs that are paired by text."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy.stats import ttest_rel
from tiny import EXAMPLES, PROMPTS, TREEBANK, bert, classifier, gpt2, marian

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.errors import UserError
from lorgnette.lens import per_text
from lorgnette.reporting import Comparison
from lorgnette.results.tables import export
from lorgnette.results.texts import TextNumbers
from lorgnette.statistics.estimate import paired_error
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


TREES = ("relations", "trees", "roles", "coreference", "rationales", "probes", "attention-probe")
OPTIONS = {"importance": {"ablations": ("zero",)}, "removal": {"shares": (0.25, 0.5)},
           "synthetic": {"sequences": 3, "length": 5},
           "context": {"sinks": 1, "windows": (2,), "window": 2}}  # fmt: skip
WITHOUT = {"agreement", "attention-probe", "circuits", "cones", "frequency", "gating", "probes", "synthetic"}
"""Lenses whose results are not means over the texts of the corpus."""


@pytest.fixture(scope="module")
def ranking(tmp_path_factory):
    """Signals for `removal`, which removes heads by them."""
    folder = tmp_path_factory.mktemp("ranking") / "run"
    lo.look(classifier(), EXAMPLES, ["weights", "importance"], progress=False, out=folder)
    return folder


@pytest.mark.parametrize("name", sorted({*lenses.OURS} - WITHOUT))
def test_saved_numbers_of_texts_are_the_same_after_loading(name, tmp_path, request):
    """The arrays, the table, and what is made of them: a paired comparison and an export."""
    pytest.importorskip("pyarrow")
    options = dict(OPTIONS.get(name, {}))
    if name == "removal":
        options["ranking"] = request.getfixturevalue("ranking")
    subject = marian() if name in ("alignment", "logitlens") else classifier()
    texts = TREEBANK if name in TREES else EXAMPLES
    if name in ("sources", "context"):
        subject, texts = gpt2(), PROMPTS if name == "sources" else EXAMPLES
    run = lo.look(subject, texts, [lenses.get(name, **options)], keep="texts", progress=False)
    again = lo.Results.load(run.save(tmp_path / "run"))
    kept = run.text_numbers[name]
    assert kept.sizes["text"] == len(texts)
    xr.testing.assert_identical(again.text_numbers[name], kept)
    pd.testing.assert_frame_equal(again.texts(name), run.texts(name))
    for axis in {*kept.dims} & {*run[name].data.coords}:
        assert {*kept[axis].values.tolist()} <= {*run[name].data[axis].values.tolist()}, axis
    alike = Comparison(again, again)
    assert alike.findings() or not alike.differences().results
    for dataset in (result.data for result in alike.differences().results.values()):
        assert all(float(abs(dataset[one]).max()) == 0.0 for one in dataset if dataset[one].attrs.get("paired"))
    files = {path.name for path in export(again, tmp_path / "tables", "csv")}
    assert f"{name}.texts.csv" in files


def test_geometry_names_the_numbers_of_texts_as_its_result(kept):
    """Numbers of all heads side by side are no head's, and hidden states have no head."""
    result, texts = kept["geometry"]
    names = {str(name).removesuffix("_weight") for name in texts}
    assert names == {f"{state}{name}{tail}" for name in ("sim", "intra_similarity")
                     for state, tail in (("", ""), ("", "_all"), ("state_", ""))}  # fmt: skip
    for name in names:
        assert {*texts[name].dims} - {"text"} == {*result.data[name].dims}
        np.testing.assert_allclose(texts[name].mean("text").values, result.data[name].values, rtol=1e-5)


def test_an_edited_file_of_texts_is_one_line(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    lo.look(bert(), EXAMPLES, ["sinks"], keep="texts", progress=False, out=tmp_path / "run")
    file = tmp_path / "run" / "sinks.texts.parquet"
    whole = parquet.read_table(file)
    frame = whole.to_pandas()
    for wrong in (frame.assign(threshold=0.25), pd.concat([frame, frame[:1]]), frame.drop(columns="head")):
        table = pyarrow_table(wrong).replace_schema_metadata(whole.schema.metadata)
        parquet.write_table(table, file)
        with pytest.raises(UserError, match=r"Cannot read .*sinks\.texts\.parquet .* Run look again"):
            TextNumbers({}, {"sinks": file})["sinks"]
    parquet.write_table(whole.replace_schema_metadata(None), file)
    with pytest.raises(UserError, match="Run look again"):
        TextNumbers({}, {"sinks": file})["sinks"]


def pyarrow_table(frame):
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


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
