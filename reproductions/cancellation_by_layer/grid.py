"""The cells: a model on texts of one length, and the loss of models that have one."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.models.opening import find
from reproductions.frame.cells import Cell
from reproductions.frame.settings import Settings

LENGTHS = (16, 64, 128, 512)
USUAL = 128
"""The length at which the papers looked, and at which claims about one length are judged."""
SINKS = {
    "minilm": ("cls", "sep"),
    "e5-small": ("cls", "sep"),
    "mpnet": ("cls", "sep"),
    "opus-mt-en-fr": ("sep",),
    "opus-mt-fr-en": ("sep",),
    "smollm2-135m": ("first",),
}
"""Every special token of a model, none chosen by what came out; where the tokenizer adds none, the first token."""
TRANSLATION = {"opus-mt-en-fr": "multi30k:en-fr", "opus-mt-fr-en": "multi30k:fr-en"}
FRENCH = ("opus-mt-fr-en",)


@dataclass(frozen=True)
class Size:
    """Blocks of documents, texts of each block, of these those in which values are zeroed, pairs drawn of a text."""

    blocks: int = 8
    texts: int = 6
    changed: int = 2
    pairs: int = 32
    seed: int = 0


FULL, LARGE, QUICK = Size(), Size(texts=4), Size(blocks=2, texts=2)
LONG, LARGE_LONG = Size(texts=3, changed=1), Size(texts=2, changed=1)
"""The longest texts cost as much as all others together: fewer of them, in as many blocks."""
LARGE_MODELS = ("mpnet", "smollm2-135m")
"""They cost several times as much as the others and see fewer texts, in as many blocks."""
_MEASURE = "reproductions.cancellation_by_layer.measure"
CENTRED = "centred"
"""The part of the grid whose values have lost one constant per head."""
SENTENCES = 24
"""Pairs of each block on which the loss of a translation is taken."""


def size_of(model: str, length: int) -> Size:
    if length == LENGTHS[-1]:
        return LARGE_LONG if model in LARGE_MODELS else LONG
    return LARGE if model in LARGE_MODELS else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """The usual length of all models first, then the shortest and the longest texts."""
    models = ("minilm",) if settings.quick else tuple(SINKS)
    lengths = (USUAL, 16) if settings.quick else (USUAL, 16, 512, 64)
    cells = {}
    for length in lengths:
        for model in models:
            size = QUICK if settings.quick else size_of(model, length)
            arguments = {"model": model, "sinks": list(SINKS[model]), "length": length, **vars(size)}
            labels = {"model": model, "length": length}
            cells[f"{model}-{length}"] = Cell(f"{_MEASURE}:measured", arguments, labels, optional=True)
            if length == USUAL:
                arguments, labels = arguments | {"centred": True}, {"model": model, "part": CENTRED}
                cells[f"{model}-centred"] = Cell(f"{_MEASURE}:measured", arguments, labels, optional=True)
        for model in (name for name in models if name in TRANSLATION and length == USUAL):
            arguments = {"model": model, "corpus": TRANSLATION[model], "blocks": FULL.blocks, "texts": SENTENCES}
            labels = {"model": model, "part": "loss"}
            cells[f"{model}-loss"] = Cell(f"{_MEASURE}:translated", arguments, labels, optional=True)
    return cells


def reachable(settings: Settings, cell: Cell) -> bool:
    """Whether the model of a cell can be opened here."""
    name = str(cell.labels["model"])
    if settings.models and Path(settings.models, name).is_dir():
        return True
    try:
        return find(name) is not None
    except UserError:  # the package that would carry it is not installed
        return False
