"""What surrounds the pages: the reference, links that need the repository's address, and the recipe for conda."""

import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest

import lorgnette as lo

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference" / "api"


@pytest.fixture
def address(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("address")


def test_every_public_name_is_on_one_page_of_the_reference():
    pages = [path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))]
    named = [name for page in pages for name in re.findall(r"auto\w+:: lorgnette\.(\w+)$", page, flags=re.MULTILINE)]
    assert sorted(named) == sorted(set(lo.__all__) - {"__version__", "lens"})
    index = (REFERENCE / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`lo\.(\w+)`", index)) == set(named)


def test_the_reference_shows_types_and_help_of_settings_not_their_annotations(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    parameters = importlib.import_module("parameters")
    for function in (lo.train, lo.prune):
        signature = str(parameters.plainly(function))
        assert "select: str" in signature or "method: str" in signature
        assert not re.search(r"Annotated|Shown|OneOf|object at", signature)
        assert {"model", "out", "epochs", "batch_size"} <= set(parameters.helps(function))


def test_without_an_address_no_link_needs_one(address):
    notebook = json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Title\n", "Text."]}]})
    (cell,) = json.loads(address.with_notebook_links(notebook, "first-look", ""))["cells"]
    assert cell["source"] == "# Title\n\n{nb-download}`Download this notebook <first-look.ipynb>`\nText."
    assert address.theme_options("") == {}


def test_an_address_on_github_gives_links_to_edit_and_to_colab(address):
    notebook = json.dumps({"cells": [{"cell_type": "markdown", "source": ["# Title"]}]})
    there = "https://github.com/somebody/lorgnette"
    (cell,) = json.loads(address.with_notebook_links(notebook, "first-look", there))["cells"]
    assert "google.com/github/somebody/lorgnette/blob/main/docs/notebooks/first-look.ipynb" in cell["source"]
    assert address.theme_options(there)["source_repository"] == there
    assert "colab" not in address.with_notebook_links(notebook, "first-look", "https://gitlab.com/somebody/lorgnette")


def test_a_notebook_without_its_model_is_not_run_and_says_so(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT / "docs")
    needs = importlib.import_module("needs")
    name = "what-did-the-answer-use"
    notebook = (ROOT / "docs" / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert set(needs.NEEDS) <= {path.stem for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert needs.not_run(tmp_path) == [f"notebooks/{name}.ipynb"]
    _, note, *_ = json.loads(needs.with_note(notebook, name, tmp_path))["cells"]
    assert "built without SmolLM2-135M-Instruct" in note["source"]
    (tmp_path / "smollm2").mkdir()
    assert needs.not_run(tmp_path) == []
    assert needs.with_note(notebook, name, tmp_path) == notebook
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"/{folder}\n" in makefile for folder, _ in needs.NEEDS.values())  # `make notebooks` leaves out the same


def test_the_address_is_that_of_the_package(address):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert address.address() == project.get("urls", {}).get("Repository", "").removesuffix(".git")


def test_the_citation_and_the_recipe_name_the_same_address(address):
    for name, key in address.FILES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        assert address.with_address(text, key, address.address()) == text, "run python docs/address.py"
        there = address.with_address(text, key, "https://github.com/somebody/lorgnette")
        assert there.endswith(f'\n{key}: "https://github.com/somebody/lorgnette"\n')
        assert address.with_address(there, key, "https://github.com/somebody/lorgnette") == there
        assert address.with_address(there, key, "") == text.replace(f'{key}: "{address.address()}"\n', "")


def test_the_recipe_for_conda_needs_what_the_package_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.split("  run:\n")[1].split("\ntests:")[0]
    needed = {line.strip("- ").replace(" ", "").replace("pytorch", "torch") for line in run.strip().splitlines()}
    assert needed == {"python" + project["requires-python"], *project["dependencies"]}
    assert f'version: "{lo.__version__}"' in recipe
    assert project["description"] in recipe
