"""Lenses that are added to a run, finished runs that return at once, all lenses, and tables of a run."""

import pandas as pd
import pytest
from tiny import EXAMPLES, bert, classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.looking.passes import Passes
from lorgnette.texts.corpus import Corpus

CORPUS = Corpus.of(EXAMPLES, name="examples")
MODEL = bert()


def test_a_lens_is_added_to_a_run_on_the_same_model_and_texts(tmp_path):
    first = lo.look(MODEL, CORPUS, ["weights"], keep="texts", progress=False, out=tmp_path / "run")
    both = lo.look(MODEL, CORPUS, ["rollout"], progress=False, out=tmp_path / "run")
    assert list(both) == ["weights", "rollout"]
    again = lo.Results.load(tmp_path / "run")
    assert again["weights"] == first["weights"]
    assert list(again.text_numbers) == ["weights"]
    assert len(again.texts("weights")) == len(first.texts("weights"))


def test_results_of_another_model_or_other_texts_are_not_mixed(tmp_path):
    lo.look(MODEL, CORPUS, ["weights"], progress=False, out=tmp_path / "run")
    others = ((bert(seed=1), CORPUS), (MODEL, Corpus.of(EXAMPLES[:2], name="examples")), (MODEL, iter(EXAMPLES)))
    for subject, texts in others:
        with pytest.raises(UserError, match="holds results of weights, which this run would remove"):
            lo.look(subject, texts, ["rollout"], progress=False, out=tmp_path / "run")


def test_a_finished_run_returns_at_once(tmp_path, monkeypatch):
    done = lo.look(MODEL, CORPUS, ["weights"], progress=False, out=tmp_path / "run")
    passes = []
    whole = Passes.take
    monkeypatch.setattr(Passes, "take", lambda *given: passes.append(1) or whole(*given))
    again = lo.look(MODEL, CORPUS, ["weights"], progress=False, out=tmp_path / "run", resume=True)
    assert again["weights"] == done["weights"]
    assert not passes
    lo.look(MODEL, CORPUS, [lo.lens.Weights(by="token")], progress=False, out=tmp_path / "run", resume=True)
    assert passes  # other settings are another run


def test_all_lenses_are_those_that_can_look(few_steps):
    results = lo.look(classifier(), CORPUS, "all", progress=False)
    assert {"weights", "norms", "roles", "relevance", "importance", "cones", "agreement"} <= set(results)
    notes = results["weights"].provenance.notes
    for name in ("alignment", "rationales"):  # there is neither a translation nor a mark
        assert name not in results
        assert any(note.startswith(f"left out: {name} (") for note in notes)


def test_tables_of_a_run_are_tidy(tmp_path):
    run = lo.look(MODEL, CORPUS, ["weights"], keep="texts", progress=False, out=tmp_path / "run")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "run")])
    assert done.exit_code == 0, done.stderr
    heads = pd.read_csv(tmp_path / "run" / "tables" / "weights.heads.csv")
    entropy = run["weights"].data["entropy"]
    assert len(heads) == entropy.size
    assert {"stack", "layer", "head", "entropy", "entropy_se", "entropy_count"} <= set(heads.columns)
    one = heads.query("layer == 2 and head == 1")["entropy"].item()
    assert one == pytest.approx(entropy.sel(layer=2, head=1).item())
    masses = pd.read_csv(tmp_path / "run" / "tables" / "weights.heads-category.csv")
    assert not masses["mass"].isna().all()
    assert masses[["stack", "layer", "head", "category"]].notna().all(axis=None)
    texts = pd.read_csv(tmp_path / "run" / "tables" / "weights.texts.csv")
    assert set(texts["text"]) == {example.id for example in EXAMPLES}
    done = CliRunner().invoke(app, ["export", str(tmp_path / "run"), "--parquet", "--out", str(tmp_path / "own")])
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "own" / "weights.heads.parquet"), heads)


def test_a_run_that_is_not_there_is_told_with_the_nearest(tmp_path):
    lo.look(MODEL, CORPUS, ["weights"], progress=False, out=tmp_path / "minilm")
    for command in (["report"], ["export"], ["compare", str(tmp_path / "minilm")]):
        done = CliRunner().invoke(app, [*command, str(tmp_path / "minlm")])
        assert done.exit_code == 1
        assert f"Did you mean '{tmp_path / 'minilm'}'?" in done.stderr
