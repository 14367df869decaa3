"""Slips are answered at once: no model is opened, nothing heavy is imported, no hub is asked."""

import subprocess
import sys

import pytest

from lorgnette.errors import UserError
from lorgnette.model_names import known

CODE = """
import sys
sys.argv = ["lorgnette", *sys.argv[1:]]
import lorgnette.cli as cli
try:
    cli.main()
finally:
    print("heavy:", *sorted({"torch", "transformers", "xarray", "pandas"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize(
    "command",
    [
        ["check", "./nothere"],
        ["report", "nothere"],
        ["export", "nothere"],
        ["trace", "minilm/x/y", "a"],
        ["prune", "./nothere", "-c", "sst2", "-o", "out"],
    ],
)
def test_what_cannot_be_there_is_said_before_anything_is_imported(command, tmp_path):
    given = [sys.executable, "-c", CODE, *command]
    done = subprocess.run(given, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    said, heavy = done.stderr.splitlines()
    assert said.startswith("lorgnette: There is no")
    assert heavy == "heavy:"


def test_names(monkeypatch, tmp_path):
    (tmp_path / "e5-small").mkdir()
    (tmp_path / "e5-small" / "config.json").write_text("{}")
    monkeypatch.setenv("LORGNETTE_MODELS", str(tmp_path))
    assert known("e5-small") == "e5-small"
    assert known("bert-base-uncased") == "bert-base-uncased"
    assert known("sentence-transformers/e5-smal") == "sentence-transformers/e5-smal"
    for wrong in ("e5-smal", "./nothere", "~/model", "a/b/c", "a model", "x" * 200):
        with pytest.raises(UserError):
            known(wrong)


def test_a_line_stays_short_and_plain_whatever_it_quotes(capsys):
    from lorgnette.cli.app import print_error

    print_error("There is no class '" + "a" * 5000 + "\x1b[31m\u202e'.\nGive one of good, bad.")
    (line,) = capsys.readouterr().err.splitlines()
    assert len(line) < 1600
    assert line.isprintable()
    assert line.endswith("Give one of good, bad.")
