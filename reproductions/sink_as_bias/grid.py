"""The cells: a model on texts of one length."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.conditions import reachable
from reproductions.frame.settings import Settings

__all__ = ["grid", "reachable"]
LENGTHS = (16, 64, 128)
USUAL = 64
SINKS = {
    "minilm": ("cls", "sep"),
    "e5-small": ("cls", "sep"),
    "opus-mt-en-fr": ("sep",),
    "opus-mt-fr-en": ("sep",),
    "smollm2": ("first",),
}
"""Every special token of a model, none chosen by what came out; where the tokenizer adds none, the first token."""


@dataclass(frozen=True)
class Size:
    """Blocks of documents, texts of each, and of these those in which values are replaced."""

    blocks: int = 8
    texts: int = 25
    changed: int = 6
    seed: int = 0


FULL, LARGE, QUICK = Size(), Size(texts=12, changed=3), Size(blocks=2, texts=4, changed=2)
LARGE_MODELS = ("smollm2",)
"""It costs ten times as much as the others, and sees fewer texts in as many blocks."""


def size_of(model: str) -> Size:
    return LARGE if model in LARGE_MODELS else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """The usual length of all models first."""
    models = ("minilm",) if settings.quick else tuple(SINKS)
    cells = {}
    for length in (USUAL, 16) if settings.quick else (USUAL, 16, 128):
        for model in models:
            size = QUICK if settings.quick else size_of(model)
            arguments = {"model": model, "sinks": list(SINKS[model]), "length": length, **vars(size)}
            cells[f"{model}-{length}"] = Cell(
                "reproductions.sink_as_bias.measure:measured",
                arguments,
                {"model": model, "length": length},
                optional=True,
            )
    return cells
