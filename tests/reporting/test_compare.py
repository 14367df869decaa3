"""Two runs: the differences and their intervals are those of the numbers, and runs that do not match are refused."""

import numpy as np
import pytest
import xarray as xr
from made import SCRIPT, norms, plugin, weights
from scipy.stats import norm, t, ttest_rel
from tiny import TREEBANK, bert, classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.lens.options import parameters
from lorgnette.lens.roles.report import changed_roles
from lorgnette.reporting import Comparison
from lorgnette.reporting.compare import adjusted, differences
from lorgnette.results import Result, Results
from lorgnette.statistics.estimate import Estimate
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.planted import planted_corpus

LENSES = ["weights", "norms", "geometry", "roles", "importance"]


@pytest.fixture(scope="module")
def runs():
    return [lo.look(classifier(seed=seed), TREEBANK, LENSES, progress=False) for seed in (0, 1)]


@pytest.fixture(scope="module")
def runs_on_other_texts(runs):
    return [runs[0], lo.look(classifier(seed=1), TREEBANK[:-1], LENSES, progress=False)]


@pytest.fixture(params=["the same texts", "other texts"])
def either(request, runs, runs_on_other_texts):
    """Two runs, and the function that makes half an interval of their errors and numbers of texts."""
    if request.param == "other texts":
        return (
            runs_on_other_texts,
            lambda errors, texts: np.hypot(*errors) * t.ppf(0.975, welch(np.square(errors), texts)),
        )
    return runs, lambda errors, texts: sum(errors) * t.ppf(0.975, min(texts) - 1)


def welch(squares, texts):
    """Degrees of freedom of Welch (1947), from squared errors and numbers of texts."""
    return sum(squares) ** 2 / sum(s**2 / (n - 1) for s, n in zip(squares, texts, strict=True))


def test_differences_and_their_intervals(either):
    """Unpaired, errors on the same texts are added, which is the most they can come to; on other texts as by Welch."""
    runs, half_of = either
    found = differences(*runs).results["weights"].data
    old, new = (run["weights"].data for run in runs)
    for layer in (1, 2, 3):
        for head in (1, 2, 3, 4):
            at = {"stack": "encoder", "layer": layer, "head": head}
            value = (new["confidence"] - old["confidence"]).sel(at).item()
            errors = [run["confidence_se"].sel(at).item() for run in (old, new)]
            texts = [run["confidence_count"].sel(at).item() for run in (old, new)]
            half = half_of(errors, texts)
            assert found["confidence"].sel(at).item() == pytest.approx(value)
            assert found["confidence_low"].sel(at).item() == pytest.approx(value - half)
            assert found["confidence_high"].sel(at).item() == pytest.approx(value + half)


def stepped_up(p):
    """Benjamini and Hochberg 1995 as they wrote it: reject k where k is the largest with p_(k) ≤ k/m · 0.05."""
    ordered = sorted(p)
    return max((k for k, one in enumerate(ordered, 1) if one <= 0.05 * k / len(ordered)), default=0)


def named(findings, words):
    (found,) = [finding for finding in findings if finding.text.startswith(words)]
    return found.numbers


@pytest.fixture
def every_sentence(monkeypatch):
    monkeypatch.setattr("lorgnette.reporting.comparison.MOST_SENTENCES", 99)


@pytest.mark.usefixtures("every_sentence")
def test_sentences_count_what_is_significant(either):
    runs, half_of = either
    findings = Comparison(*runs).findings()
    old, new = (run["weights"].data["confidence"].values.ravel() for run in runs)
    errors = [run["weights"].data["confidence_se"].values.ravel() for run in runs]
    texts = [run["weights"].data["confidence_count"].values.max() for run in runs]
    p = []
    for a, b, *se in zip(old, new, *errors, strict=True):
        same = runs[0]["weights"].provenance.corpus_fingerprint == runs[1]["weights"].provenance.corpus_fingerprint
        size, degrees = (sum(se), min(texts) - 1) if same else (np.hypot(*se), welch(np.square(se), texts))
        p.append(2 * t.sf(abs(b - a) / size, degrees))
    numbers = named(findings, "Confidence:")
    assert numbers["count"] == stepped_up(p)
    assert numbers["cells"] == 12
    assert numbers["before"] == pytest.approx(old.mean())
    assert numbers["after"] == pytest.approx(new.mean())
    assert "nan" not in " ".join(finding.text for finding in findings)
    half = half_of([se.mean() for se in errors], texts)
    assert numbers["high"] - numbers["difference"] == pytest.approx(half)


def test_the_largest_effects_come_first_and_the_test_is_said_once(runs):
    found = Comparison(*runs)
    by_lens = found._findings
    assert max(len(findings) for lens, findings in by_lens.items() if lens != "roles") == 3
    for lens in ("weights", "norms", "importance"):
        effects = [one.numbers["effect"] for one in by_lens[lens] if one.numbers.get("count")]
        assert effects == sorted(effects, reverse=True)
    old, new = (run["weights"].data["confidence"].values for run in runs)
    effect = np.sqrt(((new - old) ** 2).mean()) / old.std()
    assert float(found.differences().means["weights"]["confidence"]["effect"].item()) == pytest.approx(effect)
    said = found.method().text
    assert said.startswith("before → after: means over heads")
    assert "not paired by text, so with the largest error that the same texts allow;" in said
    assert "paired" not in " ".join(finding.text for finding in found.findings())


def test_the_interval_of_a_mean_over_heads_is_that_of_each_texts_mean():
    corpus = Corpus.of(planted_corpus("test", size=12), name="planted")
    pair = [lo.look(bert(seed=seed), corpus, ["weights"], keep="texts", progress=False) for seed in (0, 1)]
    mean = Comparison(*pair).differences().means["weights"]["entropy_normalised"].squeeze()
    own = [run.text_numbers["weights"]["entropy_normalised"].mean(["stack", "layer", "head"]).values for run in pair]
    theirs = ttest_rel(own[1], own[0])
    low, high = theirs.confidence_interval(0.95)
    assert mean["difference"].item() == pytest.approx((own[1] - own[0]).mean(), rel=1e-5)
    assert (mean["low"].item(), mean["high"].item()) == pytest.approx((low, high), rel=1e-4)
    assert "paired by text;" in Comparison(*pair).method().text


def test_without_the_numbers_of_texts_no_more_differs_than_with_them():
    """Two runs whose errors add up: what one text raises in the first model it lowers in the second."""
    corpus = Corpus.of(planted_corpus("test", size=12), name="planted")
    kept = [lo.look(bert(seed=seed), corpus, ["weights"], keep="texts", progress=False) for seed in (0, 1)]
    bare = [lo.look(bert(seed=seed), corpus, ["weights"], progress=False) for seed in (0, 1)]
    paired, unpaired = (differences(*pair).results["weights"].data for pair in (kept, bare))
    for name in ("entropy_normalised", "confidence"):
        assert (paired[f"{name}_se"] <= unpaired[f"{name}_se"] * (1 + 1e-6)).all()
    assert "errors are the sum of both" in " ".join(differences(*bare).notes)


def test_no_head_is_named_that_does_not_differ():
    """Two runs on the same model and other texts: a difference of chance, which has no largest heads."""
    texts = list(planted_corpus("test", size=24))
    pair = [lo.look(bert(), Corpus.of(part, name="planted"), ["weights"], progress=False)
            for part in (texts[:12], texts[12:])]  # fmt: skip
    for finding in Comparison(*pair).findings():
        if not finding.numbers.get("count"):
            assert "most" not in finding.text
            assert "none of 12 heads differs significantly" in finding.text


def test_the_false_discovery_rate_is_that_of_the_paper():
    draw = np.random.default_rng(0)
    value = xr.DataArray(draw.normal(size=(2, 6, 8)) * [[[1]], [[4]]], dims=("measure", "layer", "head"))
    value = value.assign_coords(measure=["weights", "norms"]).where(value != value[0, 0, 0])
    p = Estimate(value, xr.ones_like(value), np.inf).p
    np.testing.assert_allclose(p, 2 * norm.sf(np.abs(value)))
    q = adjusted(p)
    for measure in ("weights", "norms"):  # each by itself: unlike numbers do not correct each other
        known = p.sel(measure=measure).values
        assert (q.sel(measure=measure) < 0.05).sum() == stepped_up(known[~np.isnan(known)])
    assert (q >= p).where(p.notnull(), True).all()
    assert q.isnull().sum() == 1


@pytest.mark.usefixtures("every_sentence")
def test_like_is_compared_with_like(runs):
    """No mean over queries, keys and values, over weights and norms, over stacks, or over heads of one run only."""
    means = Comparison(*runs).differences().means
    for vectors in ("query", "key", "value"):
        mean = means["geometry"]["sim"].sel(vectors=vectors)["before"].item()
        assert mean == pytest.approx(runs[0]["geometry"].data["sim"].sel(vectors=vectors).mean().item())
    assert means["norms"]["mixing"].sizes["ratio"] == 5
    stacks = Comparison(*(Results([weights(stacks=("encoder", "cross"), seed=seed)]) for seed in (0, 1))).findings()
    assert {finding.text.split(":")[0] for finding in stacks} >= {"Confidence, encoder", "Confidence, cross"}


@pytest.mark.usefixtures("every_sentence")
def test_heads_of_one_model_only_are_left_out():
    whole, pruned = weights(seed=0), weights(seed=1)
    gone = {"layer": slice(2, 3), "head": [2, 4]}
    for name in [name for name in pruned.data.data_vars if not name.endswith("_count")]:
        pruned.data[name] = pruned.data[name].copy()
        pruned.data[name].loc[gone] = np.nan
    for name in [name for name in pruned.data.data_vars if name.endswith("_count")]:
        pruned.data[name] = pruned.data[name].copy()
        pruned.data[name].loc[gone] = 0
    compared = Comparison(Results([whole]), Results([pruned]), ("whole", "pruned"))
    assert compared.differences().notes == ("4 heads of whole are not in the other model; the 7 in both are compared",)
    numbers = named(compared.findings(), "Confidence:")
    both = pruned.data["confidence"].notnull()
    assert numbers["before"] == pytest.approx(whole.data["confidence"].where(both).mean().item())
    assert numbers["cells"] == 7


def test_a_run_does_not_differ_from_itself(runs):
    found = Comparison(runs[0], runs[0])
    assert all(finding.numbers.get("count", 0) == 0 for finding in found.findings())
    assert "Nothing differs" in found.html()
    assert len(changed_roles(runs[0]["roles"], runs[0]["roles"])) == 0


def test_changed_roles_are_named(runs):
    data = runs[0]["roles"].data.copy(deep=True)
    data["label"].loc[{"stack": "encoder", "layer": 2, "head": 3, "role": "broad"}] ^= True
    other = Results([Result("roles", data, runs[0]["roles"].provenance)])
    (finding,) = Comparison(Results([runs[0]["roles"]]), other).findings()
    assert finding.text.startswith("1 of 12 heads changed their role: 2.3 (")


def test_the_page_and_the_command(runs, tmp_path):
    for name, run in zip(("before", "after"), runs, strict=True):
        run.save(tmp_path / name)
    page = tmp_path / "compare.html"
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--out", str(page)])
    assert done.exit_code == 0, done.output
    html = page.read_text(encoding="utf-8")
    assert "What differs between before and after" in html
    assert html.count("<svg") == html.count("<figure") > 8
    for finding in Comparison.of(tmp_path / "before", tmp_path / "after").findings():
        assert finding.text in done.stdout


def test_runs_that_do_not_match_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"3 layers of 4 heads .* 2 layers of 4 heads"):
        differences(Results([weights()]), Results([weights(layers=2)]))
    with pytest.raises(UserError, match="no lens in common: the first run has weights, the second has norms"):
        differences(Results([weights()]), Results([norms()]))
    weights_only, both = Results([weights()]), Results([weights(seed=1), plugin()])
    found = differences(weights_only, both)
    assert found.notes == ("only the second has plug",)
    both.save(tmp_path / "both")
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "both"), str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert done.stderr.startswith("lorgnette: There is no results folder")


def test_options_that_differ_are_said_and_other_meanings_are_not_compared():
    """The options are those of the lens, defaults included, however they were given."""
    texts = TREEBANK[:3]
    raw, same, few, tokens, centred = (
        lo.look(bert(), texts, [lens], progress=False)
        for lens in ("norms", "norms:by=text", "norms:sample=20", "norms:by=token", "norms:centred=true")
    )
    assert raw["norms"].data.attrs["options"] == same["norms"].data.attrs["options"]
    assert not [note for note in differences(raw, same).notes if "options" in note]
    [note] = [note for note in differences(raw, few).notes if "options" in note]
    assert note == "norms was run with other options (sample=8192 → 20), which makes a difference too"
    with pytest.raises(UserError) as refused:
        differences(raw, tokens, ("one", "two"))
    assert str(refused.value) == (
        "one has norms with by=text, two with by=token: their numbers mean different things. Run look on both with "
        "the same by."
    )
    with pytest.raises(UserError, match=r"^the second has norms of centred values, the first run of values as they"):
        differences(raw, centred)
    assert differences(centred, centred).results
    assert differences(tokens, tokens).results


def test_what_decides_the_meaning_of_numbers_is_an_option_of_the_lens():
    for name in lenses.OURS:
        options, meaning = set(parameters(lenses.find(name))), set(lenses.report_of(name).meaning)
        assert meaning <= options, name
        assert ("by" in options) == ("by" in meaning), name


def test_a_plug_in_lens_is_compared_too():
    one, two = Results([plugin()]), Results([plugin()])
    two["plug"].data["score"] = two["plug"].data["score"] + 1
    found = differences(one, two).results["plug"].data
    np.testing.assert_allclose(found["score"].values, 1.0)


def test_names_stay_text():
    html = Comparison(Results([weights()]), Results([weights(seed=1)]), (SCRIPT, "{x}")).html()
    assert "<script>alert" not in html
    assert "{x}" in html
