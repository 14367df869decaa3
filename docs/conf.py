"""The site: Sphinx reads the Markdown of this folder, the docstrings and the commands; `make docs` builds it."""

import hashlib
import html
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "src")]

from address import address, theme_options, with_notebook_links  # noqa: E402
from commands import command_reference  # noqa: E402
from docutils.nodes import paragraph as paragraph_node  # noqa: E402
from needs import models, not_run, with_note  # noqa: E402
from parameters import helps, plainly  # noqa: E402
from repository import with_links, write_pages  # noqa: E402

import lorgnette  # noqa: E402

project = "Lorgnette"
author = "The Lorgnette developers"
copyright = "2026, the Lorgnette developers"
version = release = lorgnette.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton", "maths"]
exclude_patterns = ["_build", "**/.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"
smartquotes = False  # they turn the dashes of --option into one long dash
myst_heading_anchors = 3
# A notebook is executed in the build when it or the package changed; one that fails stops the build.
nb_execution_mode = "cache"
nb_execution_excludepatterns = not_run(models())  # what needs a model that is not here; its page says so
sources = sorted((HERE.parent / "src" / "lorgnette").rglob("*.py"))
package = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
nb_execution_cache_path = str(HERE.parent / "out" / "notebooks" / package.hexdigest()[:16])
nb_execution_timeout = 900  # of a cell, on a busy machine
nb_execution_raise_on_error = True
nb_merge_streams = True
nb_output_stderr = "remove"

html_theme = "furo"
html_title = f"Lorgnette {release}"
html_theme_options = theme_options(address())
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
add_module_names = False
copybutton_exclude = ".linenos, .gp, .go"


def as_rst(app, what, name, obj, options, lines):
    """Our docstrings are plain text with `code`, indented formulas and tables; Sphinx reads reStructuredText."""
    out: list[str] = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", "\n".join(lines).strip("\n")):
        rows = paragraph.split("\n")
        if rows[0].lstrip().startswith(">>>"):
            out += [*rows, ""]
        elif any(row.startswith("    ") for row in rows):  # a formula, or a table whose rows go on in the next line
            out += ["::", "", *("    " + row for row in rows), ""]
        else:
            out += [*map(_escaped, rows), ""]
    described = (f":param {parameter}: {_escaped(text)}" for parameter, text in HELPS.get(name, {}).items())
    lines[:] = [*out, *described]


HELPS: dict[str, dict[str, str]] = {}
"""By function, what its parameters mean, where the commands say it."""


def take_settings():
    """Functions that take the fields of settings show plain types, and the help of the commands."""
    for name in ("train", "prune"):
        function = getattr(lorgnette, name)
        HELPS[f"lorgnette.{name}"] = helps(function)
        function.__signature__ = plainly(function)


def _escaped(line: str) -> str:
    line = re.sub(r"`([^`]+)`", r"``\1``", line)
    parts = re.split(r"(``[^`]+``)", line)
    return "".join(part if part.startswith("``") else re.sub(r"([*|_])", r"\\\1", part) for part in parts)


def links(app, docname, source):
    """Links out of this folder lead to the copies on the site."""
    page = Path(app.env.doc2path(docname))
    if page.suffix == ".ipynb":
        source[0] = with_note(with_notebook_links(source[0], page.stem, address()), page.stem, models())
    if page.suffix in (".md", ".ipynb"):
        source[0] = with_links(source[0], page, page)


def describe(app, pagename, templatename, context, doctree):
    """Search engines show the first paragraph of a page below its title."""
    paragraph = doctree and next((node for node in doctree.findall(paragraph_node) if len(node.astext()) > 40), None)
    if paragraph:
        words = textwrap.shorten(paragraph.astext(), 160, placeholder=" …")
        context["metatags"] += f'<meta name="description" content="{html.escape(words)}" />'


def setup(app):
    take_settings()
    app.connect("autodoc-process-docstring", as_rst)
    app.connect("source-read", links)
    app.connect("html-page-context", describe)
    (HERE / "reference" / "commands.md").write_text(command_reference(), encoding="utf-8")
    write_pages()
