"""Word vectors: GloVe's text format, and an array with its vocabulary beside it."""

from pathlib import Path

import numpy as np
from jaxtyping import Float32

from lorgnette.errors import UserError
from lorgnette.texts.files import existing_file, lines, open_bytes

Vectors = tuple[list[str], Float32[np.ndarray, "word dim"]]


def read_vectors(path: str | Path, *, limit: int | None = None) -> Vectors:
    """The words and their vectors (float32), in the order of the file; `limit` keeps the first n.

    `path` is a GloVe text file (.txt, also .gz or .xz: a word, then its numbers, between blanks), an array (.npy, also
    .gz or .xz) with a `vocab*.txt` beside it, or a folder that holds one of the two.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = _inside(path)
    path = existing_file(path)
    if ".npy" in path.suffixes:
        return _array(path, limit)
    return _text(path, limit)


def _inside(folder: Path) -> Path:
    for pattern in ("*.npy*", "glove*.txt*", "*.vec*"):
        for path in sorted(folder.glob(pattern)):
            return path
    raise UserError(f"{folder}: no vectors; expected an .npy array with its vocab*.txt, or a GloVe text file.")


def _array(path: Path, limit: int | None) -> Vectors:
    lists = sorted(path.parent.glob("vocab*.txt*"))
    if not lists:
        raise UserError(f"{path}: no vocab*.txt beside it; expected the words of the rows, one per line, in order.")
    words = [line.rstrip("\r\n") for _, line in lines(lists[0])]
    try:
        with open_bytes(path) as file:
            array = np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as broken:
        raise UserError(f"{path}: not a NumPy array ({str(broken).splitlines()[0]}).") from None
    if array.ndim != 2 or len(array) != len(words):
        raise UserError(f"{path}: an array of shape {array.shape} for the {len(words)} words of {lists[0].name}.")
    array = array[:limit].astype(np.float32)
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise UserError(f"{path}: row {row} ({words[row]!r}) contains a number that is not finite.")
    return words[:limit], array


def _text(path: Path, limit: int | None) -> Vectors:
    words: list[str] = []
    rows: list[np.ndarray] = []
    width = 0
    for number, line in lines(path):
        if limit is not None and len(words) == limit:
            break
        fields = line.rstrip().split(" ")
        if number == 1 and len(fields) == 2 and all(field.isdecimal() for field in fields):
            continue  # word2vec's text format starts with the number of words and the width
        width = width or len(fields) - 1
        words.append(_word(fields, width, path, number))
        rows.append(_numbers(fields[-width:], path, number))
    if not rows:
        raise UserError(f"{path}: no vectors; expected a word and its numbers on each line.")
    return words, np.stack(rows)


def _word(fields: list[str], width: int, path: Path, number: int) -> str:
    """The word of a line; a few of GloVe's words hold blanks ("at name@domain.com"), so what exceeds the width is word.

    Only if it is no number: a line with too many numbers is damaged.
    """
    word = fields[: len(fields) - width]
    if width < 1 or not word or any(_is_number(part) for part in word[1:]):
        raise UserError(f"{path}, line {number}: {len(fields) - 1} numbers after the word; expected {width}.")
    return " ".join(word)


def _numbers(fields: list[str], path: Path, number: int) -> np.ndarray:
    try:
        vector = np.array(fields, dtype=np.float32)
    except ValueError as broken:
        raise UserError(f"{path}, line {number}: {broken}; expected a word and {len(fields)} numbers.") from None
    if not np.isfinite(vector).all():
        raise UserError(f"{path}, line {number}: a number that is not finite.")
    return vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
