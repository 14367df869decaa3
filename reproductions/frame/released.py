"""The segments that Clark et al. 2019 released, which Kobayashi et al. 2020 use too: 992 of Wikipedia, in word pieces.

`unlabeled_attn.pkl` (linked from github.com/clarkkev/attention-analysis) is a pickled list of {"tokens": [...],
"attns": array}; what their preprocess_unlabeled.py writes is the same without `attns`, as JSON. A pickle may run
anything; here it can make lists, dictionaries, text and numbers, and its arrays are dropped.
"""

import json
import pickle
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.texts.example import Example

FOLDER = "clark2019_segments"
FILES = ("unlabeled_attn.pkl", "unlabeled.json")
SOURCE = "github.com/clarkkev/attention-analysis"


def released(data: str | None, tokenizer: Any, count: int | None = None) -> list[Example]:
    """The first `count` segments as pairs of texts that the tokenizer cuts into the released pieces again."""
    path = _found(data)
    rows = _unpickled(path) if path.suffix == ".pkl" else _json(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "tokens" in row for row in rows):
        raise UserError(f"{path}: expected a list of segments, each with its tokens, as in {SOURCE}.")
    if count is not None and len(rows) < count:
        raise UserError(f"{path} has {len(rows)} segments; {count} are needed.")
    return [_example(number, row["tokens"], tokenizer, path) for number, row in enumerate(rows[:count], 1)]


def _found(data: str | None) -> Path:
    if data is None:
        raise UserError(f"The released segments are read from a folder of data: give --data, with {FOLDER}/{FILES[0]}.")
    paths = [Path(data, FOLDER, name) for name in FILES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise UserError(
            f"There is neither {paths[0]} nor {FILES[1]} beside it. The first is linked from {SOURCE}; the second is "
            "what preprocess_unlabeled.py of that repository writes."
        )
    return path


def _example(number: int, tokens: Any, tokenizer: Any, path: Path) -> Example:
    where = f"{path}, segment {number}"
    pieces = [str(token) for token in tokens]
    ends = [place for place, piece in enumerate(pieces) if piece == "[SEP]"]
    if pieces[:1] != ["[CLS]"] or len(ends) != 2 or ends[1] != len(pieces) - 1:
        raise UserError(f"{where}: expected [CLS] … [SEP] … [SEP], got {' '.join(pieces[:8])} …")
    first, second = _text(pieces[1 : ends[0]]), _text(pieces[ends[0] + 1 : -1])
    found = tokenizer.convert_ids_to_tokens(tokenizer(first, second)["input_ids"])
    if found != pieces:
        place = next((k for k, pair in enumerate(zip(found, pieces, strict=False)) if pair[0] != pair[1]), len(found))
        raise UserError(
            f"{where}: the tokenizer gives {found[place : place + 3]} where {pieces[place : place + 3]} is released. "
            "The segments are in pieces of bert-base-uncased."
        )
    return Example(f"released {number}", first, pair=second)


def _text(pieces: list[str]) -> str:
    return " ".join(pieces).replace(" ##", "")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}).") from error


def _unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        try:
            return _Plain(file, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError) as error:
            raise UserError(f"{path} is no list of segments ({error}). Is the file whole?") from error


class _Dropped:
    """Takes the place of an array, a type of number, and whatever NumPy makes of them."""

    def __new__(cls, *args: object, **more: object) -> "_Dropped":
        return super().__new__(cls)

    def __setstate__(self, state: object) -> None:
        pass


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.partition(".")[0] == "numpy" or (module, name) == ("_codecs", "encode"):
            return _Dropped
        raise UserError(
            f"The pickle asks for {module}.{name}; the released segments are lists, dictionaries, text and arrays. "
            "It is not opened."
        )
