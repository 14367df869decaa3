"""What the pages show exists: names and imports of their Python blocks, commands and options of their command lines."""

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest
import typer

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.cli.app import app
from lorgnette.explaining import METHODS
from lorgnette.figures.lens_report import CHAPTERS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted(path for path in ROOT.glob("docs/**/*.md") if "repository" not in path.parts)]
COMMANDS = typer.main.get_command(app).commands


def blocks(page: Path, *languages: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [code for name, code in re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL) if name in languages]


def command_lines(page: Path) -> list[list[str]]:
    """Lines of the page that call lorgnette, split as a shell splits them, without what follows `#` or wide blanks."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?:    |\$ )?lorgnette ([a-z].*)$", text, flags=re.MULTILINE)
    return [shlex.split(re.split(r"\s{3,}|\s#", line)[0]) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_parse_and_their_names_exist(page):
    for code in blocks(page, "python", "py"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("lorgnette"):
                module = importlib.import_module(node.module)
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert missing == [], f"{node.module} has no {missing}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "lo":
                assert hasattr(lo, node.attr), f"lo.{node.attr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_command_lines_name_commands_and_options_that_exist(page):
    for name, *words in command_lines(page):
        assert name in COMMANDS, f"lorgnette {name}"
        options = {
            option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        asked = {word.split("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
        assert asked <= options, f"lorgnette {name}: {asked - options}"


def test_there_are_lines_and_blocks_to_test():
    assert sum(len(command_lines(page)) for page in PAGES) > 60
    assert sum(len(blocks(page, "python")) for page in PAGES) > 20


FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$`\w])\$(?=\S)([^$\n`]+?)(?<=\S)\$(?![\d$])", flags=re.DOTALL)


def formulas(page: Path) -> list[str]:
    """TeX between dollars, outside code."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    return [one or other for one, other in FORMULA.findall(text)]


def test_every_formula_becomes_mathml(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    maths = importlib.import_module("maths")
    found = [(page, formula) for page in PAGES for formula in formulas(page)]
    assert len(found) > 110
    for page, formula in found:
        mathml = maths.mathml(formula)
        assert "\\" not in mathml, f"{page.name}: {formula}"
        assert not re.search(r"&(?![#\w])|&amp;", mathml), (
            f"{page.name}: {formula}"
        )  # of an environment it does not know


def test_bars_are_brackets_and_functions_stand_apart(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    maths = importlib.import_module("maths")
    norm = maths.mathml(r"\lVert x \rVert_1")
    assert 'form="prefix">&#x02016;' in norm
    assert 'form="postfix">&#x02016;' in norm
    assert norm == maths.mathml(r"\left\lVert x \right\rVert_1")
    assert "<mi>log</mi><mspace" in maths.mathml(r"\log p")
    assert "mspace" not in maths.mathml(r"\log(p)")
    assert "&" in re.sub(r"&#x\w+;", "", maths.mathml(r"\begin{aligned} a &= b \end{aligned}"))


LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(ROOT.glob("reproductions/**/*.md")), *PAGES[1:]], ids=str)
def test_links_between_pages_lead_to_files(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = {target.split("#")[0] for target in LINK.findall(text) if "://" not in target and ":" not in target}
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert missing == []


def test_every_path_in_the_page_on_architecture_exists():
    """In the package or the repository; in a line, also in or beside what it names before."""
    package, missing, tested = ROOT / "src" / "lorgnette", [], 0
    for line in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines():
        folders = [package, ROOT]
        for name in re.findall(r"`([\w./<>-]+(?:/|\.py))`", line):
            path, tested = name.replace("<lens>", "norms"), tested + 1
            if not any((folder / path).exists() for folder in folders):
                missing.append(name)
            folders += [package / path, (package / path).parent]
    assert missing == []
    assert tested > 60


def test_links_of_copied_pages_lead_to_where_they_led(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    repository = importlib.import_module("repository")
    source, page = ROOT / "reproductions/tp9/README.md", ROOT / "docs/repository/reproductions/tp9/README.md"
    wrapped = "([same\nfunction](../../docs/gauge.md)) and [a file](results.json)"
    assert repository.with_links(wrapped, source, page) == "([same\nfunction](../../../gauge.md)) and a file"


def test_every_lens_answers_a_question_in_the_table():
    """In the section that names the chapter of the report where it stands."""
    sections = (ROOT / "docs" / "which-lens.md").read_text(encoding="utf-8").split("\n## ")[1:]
    named = {}
    for section in sections:
        chapter = next(chapter for chapter in CHAPTERS if f'under "{chapter.title}"' in section)
        named |= dict.fromkeys(re.findall(r"\(lenses/([a-z-]+)\.md\)", section), chapter)
    assert named == {name: lenses.report_of(name).chapter for name in lenses.OURS}


SECTIONS = [
    "Formula", "How to run it", "Example", "How it was validated", "What it does not tell you", "References",
]  # fmt: skip


OF_LENSES = [page for page in PAGES if page.parent.name == "lenses" and page.stem != "index"]


@pytest.mark.parametrize("page", OF_LENSES, ids=lambda page: page.stem)
def test_pages_of_lenses_share_one_order_of_sections(page):
    """The title is a question, with an introduction below it, and every section has content."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    opening, *sections = re.split(r"^## ", text, flags=re.MULTILINE)
    title, introduction = opening.split("\n", 1)
    assert re.fullmatch(rf"# `{page.stem}`: .+\?", title)
    assert "?" in introduction
    assert [section.split("\n", 1)[0] for section in sections] == SECTIONS
    assert [section.split("\n", 1)[0] for section in sections if not section.split("\n", 1)[1].strip()] == []


def test_every_number_has_a_twin_in_a_test_that_exists():
    """Each lens and explanation method is in the table of docs/tests.md, and so is the name of a test."""
    page = (ROOT / "docs" / "tests.md").read_text(encoding="utf-8").split("## Which number has an independent twin?")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")
    ]
    named = {name for number, _, _ in rows for name in re.findall(r"`([\w-]+)`", number)}
    assert {*lenses.OURS, *METHODS} <= named
    for number, _, tests in rows[1:]:
        groups = re.findall(r"`(tests/[\w/]+\.py)`:((?: `test_\w+`,?)+)", tests)
        assert groups or set(number) == {"-"}, number
        for path, functions in groups:
            source = (ROOT / path).read_text(encoding="utf-8")
            for name in re.findall(r"`(\w+)`", functions):
                assert f"def {name}(" in source, (path, name)
