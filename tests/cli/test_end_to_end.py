"""The commands on a real model (MiniLM, from the demo extra) and real files."""

import json

import pytest
from typer.testing import CliRunner, Result

from lorgnette.cli.app import app
from lorgnette.results import Results

TEXTS = "The cat sat on the mat.\nYes.\n😀 مرحبا <b>[bold]\nA longer text, with commas, and a period.\n"


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text(TEXTS, encoding="utf-8")
    return path


def lorgnette(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_line(done: Result) -> str:
    assert done.exit_code == 1, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("lorgnette: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_check():
    done = lorgnette("check", "minilm")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert len(lines) >= 5
    assert all(line.startswith("ok ") for line in lines)


def test_what_was_not_compared_is_not_ok():
    """In half precision eager attention is no reference: those lines began with "ok"."""
    done = lorgnette("check", "minilm", "--dtype", "bfloat16")
    assert done.exit_code == 0, done.output
    skipped = [line for line in done.stdout.splitlines() if not line.startswith("ok ")]
    assert [line.partition(":")[0] for line in skipped] == [
        "skip outputs = eager outputs",
        "skip weights = eager weights",
        "skip swept = matrix",
    ]
    assert "not compared" not in "".join(line for line in done.stdout.splitlines() if line not in skipped)


def test_a_failed_check_is_exit_1(monkeypatch):
    from lorgnette.subject import Subject
    from lorgnette.subject.checks import Check

    checks = [Check("rows sum to one", True, "fine"), Check("outputs unchanged", False, "differ by 1")]
    monkeypatch.setattr(Subject, "check", lambda self: checks)
    done = lorgnette("check", "minilm")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[1] == "FAIL outputs unchanged: differ by 1"
    assert "cannot be captured exactly (outputs unchanged)" in done.stderr


def test_look_prints_and_writes(texts, tmp_path):
    out = tmp_path / "run"
    done = lorgnette("look", "minilm", "--corpus", texts, "--out", out, "--seed", 3)
    assert done.exit_code == 0, done.output
    assert "texts.txt: 4 texts" in done.stdout.splitlines()[0]
    assert any(line.split()[:2] == ["weights", "entropy"] for line in done.stdout.splitlines())
    assert "- Attention is broadest in layer" in done.stdout
    assert str(out) in done.stdout.replace("\n", "")
    result = Results.load(out)["weights"]
    assert result.provenance.texts == 4
    assert result.provenance.seed == 3
    assert result.provenance.command.startswith("lorgnette")
    assert result.data.sizes["layer"] == 6
    assert json.loads((out / "weights.json").read_text())["provenance"]["model"] == "minilm"


def test_look_without_out_writes_nothing(texts, tmp_path):
    done = lorgnette("look", "minilm", "-c", texts, "--limit", 1)
    assert done.exit_code == 0, done.output
    assert ": 1 text, " in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_look_refuses_a_strangers_folder_before_it_starts(texts, tmp_path):
    assert "not a results folder" in one_line(lorgnette("look", "minilm", "-c", texts, "--out", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


def test_trace_overview_and_one_head():
    done = lorgnette("trace", "minilm", "The cat sat [/bold].")
    assert done.exit_code == 0, done.output
    assert "strongest links" in done.stdout
    done = lorgnette("trace", "minilm", "The cat sat.", "--layer", 1, "--head", 3)
    assert done.exit_code == 0, done.output
    header, *rows = (line.split() for line in done.stdout.splitlines())
    assert header == ["[CLS]", "The", "cat", "sat", ".", "[SEP]"]
    assert [row[0] for row in rows] == header
    for row in rows:
        assert sum(map(float, row[1:])) == pytest.approx(1, abs=0.03)


def test_list():
    done = lorgnette("list")
    assert done.exit_code == 0, done.output
    words = done.stdout.replace(",", " ").split()
    for word in ("bert", "planted", "weights", "minilm"):
        assert word in words
    assert words.count("gpt_neox") == 1  # a family is named once, in one of the lists
    assert len(done.stdout.splitlines()) < 200
    assert "gpt_neox" not in lorgnette("list", "models").stdout
    assert "gpt_neox" in lorgnette("list", "families").stdout
    assert "planted" not in lorgnette("list", "lenses").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["look", "minilm", "-c", "planted", "-l", "wieghts"], "Did you mean 'weights'?"),
        (["look", "minilm", "-c", "plantd"], "Did you mean 'planted'?"),
        (["look", "minilm", "-c", "nowhere.txt"], "nowhere.txt"),
        (["check", "minillm"], "minilm"),
        (["check", "./nowhere"], "nowhere"),
        (["check", "minilm", "--dtype", "float31"], "float31"),
        (["check", "minilm", "--device", "toaster"], "toaster"),
        (["trace", "minilm", "A text.", "--stack", "encodr"], "Did you mean 'encoder'?"),
        (["trace", "minilm", "A text.", "--layer", "7", "--head", "1"], "6 layers of 12 heads"),
    ],
)
def test_bad_input_gets_one_line(arguments, said):
    assert said in one_line(lorgnette(*arguments))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.txt", b"", "empty.txt"),
        ("latin.txt", b"fine\nna\xefve\n", "line 2"),
        ("table.csv", b"review,label\ngood,1\n", "text"),
        ("long.txt", b"word " * 2000, "--truncate"),
    ],
)
def test_bad_files_get_one_line(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    assert said in one_line(lorgnette("look", "minilm", "-c", tmp_path / name))
