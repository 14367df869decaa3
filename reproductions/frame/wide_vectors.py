"""The word vectors of width 300 that two sources start from; whoever has the file puts it below the data."""

from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.texts.files import COMPRESSED

NAME = "glove-300"
FOLDER = "glove_300d"
FILE = "glove.840B.300d.txt"


def vectors_of(name: str, data: str | None) -> str:
    """The name of a source of vectors as training takes it: the path of the file, if it is `NAME`."""
    if name != NAME:
        return name
    if data is None:
        raise UserError(f"Word vectors of width 300 are read from a folder of data: give --data, with {FOLDER}/{FILE}.")
    path = Path(data, FOLDER, FILE)
    found = next((one for end in ("", *COMPRESSED) if (one := path.with_name(FILE + end)).is_file()), None)
    if found is None:
        raise UserError(f"There is no {path}: it is in glove.840B.300d.zip of nlp.stanford.edu/projects/glove.")
    return str(found)


def with_vectors(told: dict[str, Any], data: str | None) -> dict[str, Any]:
    """What a training is told, with the path of its vectors."""
    return {**told, "embeddings": vectors_of(told["embeddings"], data)}
