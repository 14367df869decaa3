"""The study of CONTRIBUTING.md, written as the text says: its claims judge planted cells, and its page is made."""

import re
from importlib import import_module
from pathlib import Path

import pytest
from made_cells import finished

import reproductions
from lorgnette.models.families import table
from lorgnette.models.families.record import Family
from reproductions.frame.page import Outcome

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = ("__init__.py", "published.json", "grid.py", "measure.py", "claims.py", "tables.py", "figures.py", "page.md.j2",
         "appendix.md.j2")  # fmt: skip


def blocks(title):
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [
        re.sub("^   ", "", text, flags=re.MULTILINE) for text in re.findall(r"```\w+\n(.*?) +```", section, re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("weight", "verdict", "answer"), [(0.3, "holds", "Yes."), (0.05, "does not hold", "Not clearly.")]
)
def test_the_study_can_be_written_as_the_text_says(tmp_path, monkeypatch, weight, verdict, answer):
    folder = tmp_path / "sep2024"
    folder.mkdir()
    for name, text in zip(FILES, blocks("Add a paper"), strict=True):
        (folder / name).write_text(text, encoding="utf-8")
    frame = Path(reproductions.__file__).parent / "frame"
    (tmp_path / "frame").symlink_to(frame)
    monkeypatch.setattr(reproductions, "__path__", [*reproductions.__path__, str(tmp_path)])
    for module in ("page", "study"):
        monkeypatch.setattr(f"reproductions.frame.{module}.ROOT", tmp_path)
    study = import_module("reproductions.sep2024").STUDY
    assert import_module("reproductions.sep2024.measure").TEXTS
    cells = finished(study, lambda labels: {"sep": weight + 0.001 * labels["block"]})
    (claim,) = study.module("claims").claims(cells)
    assert claim.verdict == verdict
    written = Outcome.of(study, cells).write(tmp_path / "out")
    assert f"## Answer\n\n{answer}\n" in (written / "README.md").read_text(encoding="utf-8")


def test_the_record_of_the_text_is_ours():
    names = dict(vars(import_module("lorgnette.models.families.decoders")))
    (record,) = blocks("Add a family")
    exec(record, names)
    assert isinstance(names["OPT"], Family)
    (ours,) = [family for family in table.FAMILIES if family.name == "opt"]
    paths = lambda family: [(stack.name, stack.module, stack.layers) for stack in family.stacks]  # noqa: E731
    assert paths(names["OPT"]) == paths(ours)
