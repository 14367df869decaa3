"""The site: Sphinx reads the Markdown of this folder, the docstrings and the commands; `make docs` builds it."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from commands import command_reference  # noqa: E402

import lorgnette  # noqa: E402

project = "Lorgnette"
author = "The Lorgnette developers"
copyright = "2026, the Lorgnette developers"
version = release = lorgnette.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
# A notebook is executed when it or the package changed, in the build; one that fails stops it.
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE.parent / "out" / "notebooks")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_merge_streams = True
# Links out of this folder lead to files of the repository, which the site does not copy.
suppress_warnings = ["myst.xref_missing"]

html_theme = "furo"
html_title = "Lorgnette"
html_static_path = ["images"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "show-inheritance": False}
add_module_names = False
copybutton_exclude = ".linenos, .gp, .go"


def as_rst(app, what, name, obj, options, lines):
    """Our docstrings are plain text with `code`, indented formulas and tables; Sphinx reads reStructuredText."""
    out: list[str] = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", "\n".join(lines).strip("\n")):
        rows = paragraph.split("\n")
        if any(row.startswith("    ") for row in rows):  # a formula, or a table whose rows go on in the next line
            out += ["::", "", *("    " + row for row in rows), ""]
        else:
            out += [*map(_escaped, rows), ""]
    lines[:] = out


def _escaped(line: str) -> str:
    line = re.sub(r"`([^`]+)`", r"``\1``", line)
    parts = re.split(r"(``[^`]+``)", line)
    return "".join(part if part.startswith("``") else re.sub(r"([*|_])", r"\\\1", part) for part in parts)


def setup(app):
    app.connect("autodoc-process-docstring", as_rst)
    (HERE / "reference" / "commands.md").write_text(command_reference(), encoding="utf-8")
