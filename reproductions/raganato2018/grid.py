"""Which conditions there are: their cells, by key."""

from pathlib import Path

from reproductions.frame.cells import Cell
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.record import Settings

CONDITIONS = (TRAINED, RANDOM, SHUFFLED)
ENGLISH, FRENCH = "opus-mt-en-fr", "opus-mt-fr-en"
TREEBANKS = {ENGLISH: "ud_en_pud", FRENCH: "ud_fr_sequoia"}
MULTI30K = "multi30k"
"""Text of the small translation models, so that their patterns stand beside those of the large one on the same text."""
TASKS = {
    "upos": ("ud_en_ewt", ("dev", "test")),
    "chunk": ("conll2000", ("train", "test")),
    "entity": ("ud_en_gum", ("dev", "test")),
    "etype": ("ud_en_gum", ("dev", "test")),
    "infstat": ("ud_en_gum", ("dev", "test")),
}
"""label → (corpus, (part to train on, part to test on))"""
SEMANTIC_TAGS = "semtags"
"""Real semantic tags, where the folder of data has semtags/train.txt and semtags/test.txt: word, tab, tag."""
BLOCKS, WORDS = 10, 2500
QUICK_BLOCKS, QUICK_WORDS, QUICK_SENTENCES = 4, 120, 16
CONTROL_EVERY = 4
"""Controls see every fourth sentence: they cost less, and their intervals are wider."""
_CELL = "reproductions.raganato2018.cell"


def models(settings: Settings) -> tuple[str, ...]:
    """The translation models that are in the folder of models."""
    wanted = settings.part(tuple(TREEBANKS))
    return tuple(name for name in wanted if settings.models and Path(settings.models, name).is_dir())


def key(kind: str, name: str, condition: str) -> str:
    return f"{kind}-{name}.{condition}".replace(" ", "-")


def cells(settings: Settings) -> dict[str, Cell]:
    """All cells of what is there: trees and patterns first, then probes."""
    seed = settings.seeds[0]
    blocks, limit = (QUICK_BLOCKS, QUICK_SENTENCES) if settings.quick else (BLOCKS, None)
    there = models(settings)
    out = {}
    for condition in CONDITIONS:
        every = 1 if condition == TRAINED or settings.quick else CONTROL_EVERY
        shared = {"condition": condition, "every": every, "limit": limit, "blocks": blocks, "seed": seed}
        for model in there:
            shown = {"model": model, "corpus": TREEBANKS[model], **shared}
            out[key("trees", model, condition)] = Cell(f"{_CELL}:trees", shown)
            out[key("patterns", model, condition)] = Cell(f"{_CELL}:patterns", {**shown, "split": "test"})
    if ENGLISH in there:
        shared = {"condition": TRAINED, "every": 1, "limit": limit, "blocks": blocks, "seed": seed}
        shown = {"model": ENGLISH, "corpus": MULTI30K, "split": "val", **shared}
        out[key("patterns", f"{ENGLISH}-multi30k", TRAINED)] = Cell(f"{_CELL}:patterns", shown)
    words = QUICK_WORDS if settings.quick else WORDS
    tasks = dict(TASKS)
    if settings.data and all(Path(settings.data, SEMANTIC_TAGS, f"{p}.txt").is_file() for p in ("train", "test")):
        tasks["sem"] = (SEMANTIC_TAGS, ("train", "test"))
    for condition in CONDITIONS:
        for task, (corpus, parts) in tasks.items() if ENGLISH in there else ():
            asked = {"model": ENGLISH, "task": task, "condition": condition, "corpus": corpus, "parts": list(parts)}
            out[key("probe", task, condition)] = Cell(f"{_CELL}:probe", {**asked, "words": words, "seed": seed})
    return out
