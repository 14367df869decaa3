"""Checkpoints of one training: each step is the look at that checkpoint; when a planted role appears; wrong names."""

import pytest
import xarray as xr
from tiny import TREEBANK, bert
from typer.testing import CliRunner

from benchmarks.planted_heads import annotated, planted_subject
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.looking.look import look
from lorgnette.looking.steps import by_step, drop_steps, look_by_step, steps_of
from lorgnette.reporting import Report
from lorgnette.reporting.contents import findings_of
from lorgnette.reporting.curves import step_figures
from lorgnette.results import Result, Results
from lorgnette.results.folder import INDEX
from lorgnette.texts import corpus
from lorgnette.texts.corpus import Corpus

TEXTS = Corpus.of(TREEBANK, name="trees")


def test_steps_are_numbers_in_order():
    assert list(steps_of(["run/checkpoint-1000", "run/checkpoint-200/", "run/checkpoint-30"])) == [30, 200, 1000]
    with pytest.raises(UserError, match="names end in their steps"):
        steps_of(["run/checkpoint-1", "run/best"])
    with pytest.raises(UserError, match="both of step 5"):
        steps_of(["a/checkpoint-5", "b/checkpoint-5"])


def test_every_step_is_the_look_at_its_checkpoint():
    names = {10: "run/checkpoint-10", 200: "run/checkpoint-200"}
    subjects = {name: bert(seed=step) for step, name in names.items()}
    lenses = ["weights", "roles", "geometry"]
    results = look_by_step(names, TEXTS, lambda: lenses, subjects.__getitem__, progress=False)
    for step, name in names.items():
        alone = look(subjects[name], TEXTS, lenses, progress=False)
        for lens in lenses:
            here = results[lens].data.sel(step=step, drop=True)
            xr.testing.assert_allclose(here, alone[lens].data)
    assert results["weights"].data["entropy"].dims == ("step", "stack", "layer", "head")
    assert results["weights"].provenance.model == "run"
    assert Result.from_json(results["roles"].to_json()) == results["roles"]
    page = Report(results)
    assert {finding.numbers["last"] for lens in lenses for finding in findings_of(results[lens])} == {200}
    assert "by step" in page.html()


def test_an_interrupted_look_goes_on_after_the_last_checkpoint(tmp_path):
    names = {1: "run/checkpoint-1", 2: "run/checkpoint-2", 3: "run/checkpoint-3"}
    subjects = {name: bert(seed=step) for step, name in names.items()}
    opened: list[str] = []

    def load(name, stop=""):
        opened.append(name)
        if name == stop:
            raise KeyboardInterrupt
        return subjects[name]

    options = {"progress": False, "out": tmp_path / "curves"}
    with pytest.raises(KeyboardInterrupt):
        look_by_step(names, TEXTS, lambda: ["weights"], lambda name: load(name, names[3]), **options)
    kept = tmp_path / ".curves.steps"
    assert sorted(folder.name for folder in kept.iterdir()) == ["1", "2"]
    before = (kept / "1" / INDEX).stat().st_mtime_ns
    resumed = look_by_step(names, TEXTS, lambda: ["weights"], load, resume=True, **options)
    assert (kept / "1" / INDEX).stat().st_mtime_ns == before  # not looked at again
    whole = look_by_step(names, TEXTS, lambda: ["weights"], load, progress=False)
    xr.testing.assert_allclose(resumed["weights"].data, whole["weights"].data)
    drop_steps(tmp_path / "curves")
    assert not kept.exists()


def test_a_role_appears_when_it_was_planted():
    texts = annotated(corpus("planted", split="test").take(60))
    subjects = {step: planted_subject(texts, control=step < 2) for step in (1, 2)}
    runs = {step: look(subject, texts, ["roles"], progress=False) for step, subject in subjects.items()}
    numbers = {f.numbers["role"]: f.numbers for f in findings_of(by_step(runs, "run")["roles"]) if "role" in f.numbers}
    assert numbers["syntactic"] == {"role": "syntactic", "first": 2, "count": 1, "last": 2}
    assert numbers["previous"]["count"] == 2


def test_panels_are_named_by_what_differs_and_keep_its_order():
    runs = {step: look(bert(seed=step), TEXTS, ["geometry"], progress=False) for step in (1, 2)}
    chart = {figure.name: figure.chart for figure in step_figures(by_step(runs, "run")["geometry"])}["sim"].to_dict()
    assert chart["encoding"]["facet"]["sort"] == ["query", "key", "value"]  # there is one stack alone
    assert {row["panel"] for row in chart["data"]["values"]} == {"query", "key", "value"}


def test_checkpoints_of_different_models_are_refused():
    runs = {step: look(bert(), TEXTS, ["weights"], progress=False) for step in (1, 2)}
    data = runs[2]["weights"].data.isel(layer=[0])
    runs[2] = Results([Result("weights", data, runs[2]["weights"].provenance)])
    with pytest.raises(UserError, match="do not have the same layers"):
        by_step(runs, "run")


def test_a_lens_that_one_checkpoint_lacks_is_left_out_by_name():
    runs = {1: look(bert(), TEXTS, ["weights"], progress=False)}
    runs[2] = look(bert(), TEXTS, ["weights", "distances"], progress=False)
    together = by_step(runs, "run")
    assert list(together) == ["weights"]
    assert any(note.startswith("distances is left out") for note in together["weights"].provenance.notes)


def test_the_command(tmp_path):
    for step in (2, 10):
        subject, folder = bert(seed=step), tmp_path / f"checkpoint-{step}"
        subject.model.save_pretrained(folder)
        subject.tokenizer.save_pretrained(folder)
    (tmp_path / "texts.txt").write_text("the cat sat\nthe dog ran .\n", encoding="utf-8")
    models = [str(tmp_path / f"checkpoint-{step}") for step in (10, 2)]
    out = tmp_path / "curves"
    done = CliRunner().invoke(
        app, ["look", *models, "-c", str(tmp_path / "texts.txt"), "-l", "weights", "--out", str(out)]
    )
    assert done.exit_code == 0, done.output
    assert Results.load(out)["weights"].data["step"].values.tolist() == [2, 10]
    assert "by step" in (out / "report.html").read_text(encoding="utf-8")
    assert Report(out).html()
    refused = CliRunner().invoke(app, ["look", *models, "-c", "planted", "--keep", "texts"])
    assert refused.exit_code != 0
