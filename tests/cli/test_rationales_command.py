"""`lorgnette rationales`: its table, files of marked words, and what it refuses; labels of a table for `look`."""

import json
import re

import pytest
import scipy.stats
from tiny import bert, classifier
from typer.testing import CliRunner

import lorgnette as lo
from lorgnette.cli.app import app
from lorgnette.lens.rationales.gold import gold_share
from lorgnette.lens.rationales.words import BLIND
from lorgnette.texts.named import name_and_split


def invoked(monkeypatch, subject, *arguments):
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: subject)
    return CliRunner().invoke(app, ["rationales", "tiny", "-c", "planted", "--limit", "5", *arguments])


def test_the_command_prints_a_row_for_each_explanation(monkeypatch, tmp_path):
    refused = invoked(monkeypatch, classifier(), "--method", "ah")  # its classes have no names
    assert refused.exit_code == 1
    assert "(negative, positive)" in refused.stderr
    assert "(LABEL_0, LABEL_1)" in refused.stderr
    named = ("--labels", "negative=LABEL_0,positive=LABEL_1")
    done = invoked(monkeypatch, classifier(), "--method", "ah", *named, "--out", str(tmp_path / "run"))
    assert done.exit_code == 0, done.stderr
    assert [name for name in ("AH", *BLIND) if f"\n{name} " in done.stdout] == ["AH", *BLIND]
    assert "chance: AUPRC" in done.stdout
    data = lo.Results.load(tmp_path / "run")["rationales"].data.sel(explanation="ah", measure="auprc")
    half = data["score_se"].item() * scipy.stats.t.ppf(0.975, data["score_count"].item() - 1)
    assert f"\nAH {data['score'].item():.3f} ± {half:.3f}" in re.sub(" +", " ", done.stdout)
    assert (tmp_path / "run" / "report.html").is_file()
    result = lo.Results.load(tmp_path / "run")["rationales"]
    assert result.data.attrs["explained"] == "the predicted class"
    share = gold_share(lo.corpus("planted", split="val"))  # not of the texts that are judged
    assert result.data.attrs["k"] == f"{100 * share:.3g} % of words"


def test_a_split_after_the_name_is_that_split(monkeypatch, tmp_path):
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: classifier())
    named = ("--labels", "negative=LABEL_0,positive=LABEL_1", "--method", "ah", "--limit", "3")
    done = CliRunner().invoke(app, ["rationales", "tiny", "-c", "planted:test", *named, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.stderr
    result = lo.Results.load(tmp_path / "run")["rationales"]
    assert result.data.attrs["k"] == f"{100 * gold_share(lo.corpus('planted', split='val')):.3g} % of words"
    assert name_and_split("multi30k:en-fr:val") == ("multi30k:en-fr", "val")
    assert name_and_split("multi30k:en-fr") == ("multi30k:en-fr", None)


def test_the_class_that_is_asked_for_is_explained(monkeypatch, tmp_path):
    subject = classifier()
    named = ("--labels", "negative=LABEL_0,positive=LABEL_1", "--method", "attnlrp")
    for name in ("LABEL_0", "label_1"):
        done = invoked(monkeypatch, subject, *named, "--class", name, "--out", str(tmp_path / name))
        assert done.exit_code == 0, done.stderr
        assert f"the class {name.upper()}" in done.stdout
    score = [lo.Results.load(tmp_path / name)["rationales"].data["score"] for name in ("LABEL_0", "label_1")]
    drops = [each.sel(explanation="first", measure="comprehensiveness_top").item() for each in score]
    assert drops[0] == pytest.approx(-drops[1])  # two classes: what one loses the other wins
    assert drops[0] != 0
    refused = invoked(monkeypatch, subject, *named, "--class", "LABEL_7")
    assert refused.exit_code == 1
    assert "no class 'LABEL_7'" in refused.stderr


def test_the_command_refuses_in_one_line(monkeypatch):
    done = invoked(monkeypatch, bert())
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert "is not a text classifier" in done.stderr


def test_the_command_reads_a_file_of_marked_words(monkeypatch, tmp_path):
    rows = [{"words": text.split(), "marks": [0, 1, 0], "text": text} for text in ("a dog ran", "the cat sat")]
    (tmp_path / "marked.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: classifier())
    columns = ["--words-column", "words", "--rationale-column", "marks", "--method", "ah"]
    done = CliRunner().invoke(app, ["rationales", "tiny", "-c", str(tmp_path / "marked.jsonl"), *columns])
    assert done.exit_code == 0, done.stderr
    assert "2 texts with gold, 0 without" in done.stdout
    assert "k = 5 words" in done.stdout


def test_look_takes_the_labels_of_a_table(monkeypatch, tmp_path):
    (tmp_path / "own.csv").write_text("text,kind\na dog ran,0\nthe cat sat,1\n")
    monkeypatch.setattr("lorgnette.subject.load", lambda *_, **__: classifier())
    command = ["look", "tiny", "-c", str(tmp_path / "own.csv"), "--lens", "importance"]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "of a table: --label-column" in refused.stderr
    done = CliRunner().invoke(app, [*command, "--label-column", "kind"])
    assert done.exit_code == 0, done.stderr
    assert "2 texts" in done.stdout
