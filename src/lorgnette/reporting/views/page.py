"""The packed document and the views as one HTML file that asks for nothing, or as a cell of a notebook."""

import base64
import hashlib
import json
import os
import re
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from lorgnette.files import write_whole
from lorgnette.types import Json

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', flags=re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:const|function|class) (\w+)", flags=re.MULTILINE)
_EXPORT_WORD = re.compile(r"^export ", flags=re.MULTILINE)
_KEYS = (
    ("1–7", "choose a view"),
    ("← → ↑ ↓", "move over words, or over heads where the heads have the focus"),
    ("shift + arrow", "another head"),
    ("w", "words or tokens"),
    ("n", "weight or norm"),
    ("esc", "all words"),
)


def page_html(document: Json, *, title: str | None = None, notebook: bool = False) -> str:
    """One page that needs no network: its script and its style are let run by their hashes, everything else is refused.

    The document stands in it as JSON with `<` escaped, so that no text can end the element that holds it.
    """
    style, script = source("standalone.css") + source("views.css"), bundle("start")
    policy = (
        f"default-src 'none'; script-src '{hashed(script)}'; style-src '{hashed(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    model = document["model"]
    name = title or ("Attention" if model is None else f"Attention in {Path(model).name or model}")
    text = escape(document["text"] if document["pair"] is None else f"{document['text']} ‖ {document['pair']}")
    if document.get("generated") is not None:
        said = document["generated"]["text"]
        text = f"{escape(document['text'].removesuffix(said))}<mark>{escape(said)}</mark>"
    told = document.get("attending")
    layers = "" if told is None else f'<p class="lv-foot">{escape(told)}</p>\n'
    keys = " · ".join(f"<kbd>{escape(key)}</kbd> {escape(what)}" for key, what in _KEYS)
    foot = "" if notebook else f'<p class="lv-foot">{keys}</p>\n'
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        f'<title>{escape(name)}</title>\n<link rel="icon" href="data:,">\n<style>{style}</style>\n</head>\n'
        f"<body{' class=lv-notebook' if notebook else ''}>\n<main>\n<h1>{escape(name)}</h1>\n"
        f'<p class="lv-text">{text}</p>\n{layers}<section id="viewer" aria-label="Views"></section>\n{foot}'
        "<noscript>The views are drawn by a script; this browser runs none.</noscript>\n</main>\n"
        f'<script type="application/json" id="packed">{inline_json(document)}</script>\n'
        f'<script type="module">{script}</script>\n</body>\n</html>\n'
    )


def write_page(document: Json, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Writes the page, whole or not at all."""
    return write_whole(path, page_html(document, title=title))


def notebook_html(document: Json, *, height: int = 840) -> str:
    """The page in a frame of its own, which can neither see the notebook around it nor reach the network."""
    page = escape(page_html(document, notebook=True), quote=True)
    return (
        f'<iframe sandbox="allow-scripts allow-downloads" srcdoc="{page}" title="Lorgnette" loading="lazy" '
        f'style="width: 100%; height: {height}px; border: 0; resize: vertical"></iframe>'
    )


def inline_json(value: object) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def source(name: str) -> str:
    """A file of the views as text."""
    return (files("lorgnette.reporting.views") / name).read_text(encoding="utf-8")


@cache
def bundle(entry: str) -> str:
    """A module with all it imports as one script: each module a scope of its own, once, before those that use it."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in order:
            for _, needed in _IMPORT.findall(source(f"{name}.js")):
                visit(needed)
            order.append(name)

    visit(entry)
    return "\n".join(map(_scoped, order))


def _scoped(name: str) -> str:
    text = source(f"{name}.js")
    exports = ", ".join(_EXPORT.findall(text))
    body = _EXPORT_WORD.sub("", _IMPORT.sub(r"const {\1} = module_\2;\n", text))
    return f"const module_{name} = (() => {{\n{body}return {{ {exports} }};\n}})();"


def hashed(text: str) -> str:
    """How a content-security policy names a script or a style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
