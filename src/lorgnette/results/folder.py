"""The folder of a run: its index, which files in it are ours, and what is refused before the work."""

import hashlib
import json
import os
import re
from collections.abc import Collection
from pathlib import Path

from lorgnette.errors import UserError, reason
from lorgnette.files import recover, writing
from lorgnette.results.texts import texts_file
from lorgnette.types import Json

SCHEMA_VERSION = 1
FOLDER_FORMAT = "lorgnette-results"
INDEX = "lorgnette.json"  # what makes a folder a results folder


def refuse_other_folder(folder: str | os.PathLike[str], lenses: Collection[str] | None = None) -> None:
    """Raise a UserError if results cannot be saved there, or would overwrite those of other lenses."""
    folder = Path(folder)
    with writing(folder):
        recover(folder, files_of)
        if folder.exists() and not folder.is_dir():
            raise UserError(f"{folder} is a file; a folder is needed.")
    if folder.is_dir() and files_of(folder):
        lost = [name for name in names_in(folder) if lenses is not None and name not in lenses]
        if lost:
            raise UserError(
                f"{folder} holds results of {', '.join(lost)}, which this run would remove: it is on another model "
                "or on other texts. Choose another folder, or look with these lenses too."
            )


def names_in(folder: Path, what: str = "results") -> list[str]:
    """What the folder's index lists (results, or lenses whose texts' numbers were kept); never a path."""
    index = folder / INDEX
    if not index.is_file():
        raise UserError(f"{folder} is not a results folder: it has no {INDEX}. Give the folder that look wrote.")
    names = parsed(read(index), str(index), FOLDER_FORMAT).get(what, [] if what == "texts" else None)
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise UserError(f"{index} does not list its results. Was the file edited? Run look again.")
    for name in names:
        refuse_odd_name(name)
    return names


def files_of(folder: Path) -> set[str]:
    """The files that we wrote into `folder` and may replace; a UserError when it is somebody else's folder."""
    if not any(folder.iterdir()):
        return set()
    if not (folder / INDEX).is_file():
        raise UserError(f"{folder} exists and is not a results folder; nothing was written. Choose another folder.")
    texts = {texts_file(name) for name in names_in(folder, "texts")}
    return {INDEX, *(f"{name}.json" for name in names_in(folder)), *texts}


def refuse_odd_name(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*", name) or f"{name}.json" == INDEX:
        raise UserError(f"{name!r} cannot name a result: use letters, digits, '_', '-', '+' and '.'.")


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"There is no file {path}.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.") from error


def parsed(text: str, source: str, format_name: str) -> Json:
    """The JSON document, checked to be ours and of this schema."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source} is not JSON ({reason(error)}). Run look again.") from error
    if not isinstance(document, dict) or document.get("format") != format_name:
        raise UserError(f"{source} was not written by Lorgnette: it is not a {format_name!r} document.")
    version = document.get("schema")
    if version != SCHEMA_VERSION:
        age = "newer" if isinstance(version, int) and version > SCHEMA_VERSION else "older"
        raise UserError(
            f"{source} has schema version {version}, {age} than the {SCHEMA_VERSION} that this Lorgnette reads. "
            f"Run look again, or use the Lorgnette that wrote it."
        )
    return document


def looked_in(folder: Path) -> dict[str, str]:
    """For each lens, the key of what was analysed, if the index has it."""
    looked = parsed(read(folder / INDEX), str(folder / INDEX), FOLDER_FORMAT).get("looked")
    return {str(lens): str(key) for lens, key in looked.items()} if isinstance(looked, dict) else {}


def hashes_in(folder: Path) -> dict[str, object]:
    """For each result, the SHA-256 of its file, if the index has it; older folders do not."""
    hashes = parsed(read(folder / INDEX), str(folder / INDEX), FOLDER_FORMAT).get("sha256", {})
    if not isinstance(hashes, dict):
        raise UserError(f"{folder / INDEX} is damaged: it does not say what its files are. Run look again.")
    return hashes


def refuse_edited(path: Path, expected: object) -> None:
    """Refuse a file whose hash differs: a flipped bit would be a wrong number in a report."""
    if expected is not None and hashlib.sha256(read(path).encode()).hexdigest() != expected:
        raise UserError(f"{path} was edited or is damaged. Run look again.")
