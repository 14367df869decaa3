"""`lorgnette new lens NAME`: a small package with a lens, its oracle, its report and its pyproject, to be changed."""

import keyword
import os
import re
from importlib.resources import files
from pathlib import Path

from lorgnette.errors import UserError
from lorgnette.files import cleared, writing

_FILES = {
    "pyproject.txt": "pyproject.toml",
    "readme.txt": "README.md",
    "init.txt": "@package@/__init__.py",
    "lens.txt": "@package@/lens.py",
    "report.txt": "@package@/report.py",
    "test.txt": "tests/test_@package@.py",
}


def new_lens(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Write a small package with a lens that works, to be changed into your own, and return its folder.

    >>> from lorgnette.lens.template import new_lens
    >>> folder = new_lens("my_lens")
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'my_lens', 'pyproject.toml', 'tests']

    `folder` must be new or empty; by default it has the name of the lens. An existing lens's name is refused.
    """
    from lorgnette import __version__
    from lorgnette.lens import registered

    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or keyword.iskeyword(name):
        raise UserError(f"{name!r} cannot name a lens: use lower-case letters, digits, '_' and '-', such as my_lens.")
    if name in registered():
        raise UserError(f"A lens {name!r} already exists. Choose another name.")
    package = name.replace("-", "_")
    known = {
        "lens": name,
        "package": package,
        "distribution": name.replace("_", "-"),
        "class": "".join(part.capitalize() for part in package.split("_") if part),
        "version": __version__,
    }
    out = Path(folder or name)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} already exists; nothing was written. Choose another folder with --out.")
    made = not out.exists()
    with writing(out):
        try:
            for source, target in _FILES.items():
                path = out / _filled(target, known)
                path.parent.mkdir(parents=True, exist_ok=True)
                text = (files("lorgnette.lens.template") / source).read_text(encoding="utf-8")
                path.write_text(_filled(text, known), encoding="utf-8")
        except BaseException:  # half a package is none: the folder was empty, and is empty again
            cleared(out)
            if made and out.is_dir():
                out.rmdir()
            raise
    return out


def _filled(text: str, known: dict[str, str]) -> str:
    return re.sub(r"@(\w+)@", lambda place: known[place[1]], text)
