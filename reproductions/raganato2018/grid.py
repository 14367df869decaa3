"""Which conditions there are: their cells, by key."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lorgnette.looking.controls import RANDOM, SHUFFLED, TRAINED
from reproductions.frame import conditions
from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings
from reproductions.voita2019.grid import FULL, QUICK, sizes_of

CONDITIONS = (TRAINED, RANDOM, SHUFFLED)
ENGLISH, FRENCH = "opus-mt-en-fr", "opus-mt-fr-en"
SENTENCE_ENCODERS = ("minilm", "e5-small")
"""Encoders of BERT's make, for what the slides say of BERT's embeddings."""
TREEBANKS = {ENGLISH: "ud_en_pud", FRENCH: "ud_fr_sequoia"}
MULTI30K = "multi30k"
"""Text of the small translation models, so that their patterns stand beside those of the large one on the same text."""
TREEBANK = "treebank"
TASKS = {
    "upos": ("ud_en_ewt", ("dev", "test")),
    "chunk": ("conll2000", ("train", "test")),
    "entity": ("ud_en_gum", ("dev", "test")),
    "etype": ("ud_en_gum", ("dev", "test")),
    "infstat": ("ud_en_gum", ("dev", "test")),
}
"""label → (corpus, (part to train on, part to test on))"""
SEMANTIC, SEMANTIC_TAGS = "sem", "semtags"
"""Real semantic tags, where the folder of data has semtags/train.txt and semtags/test.txt: word, tab, tag."""
BLOCKS, WORDS = 10, 2500
QUICK_BLOCKS, QUICK_WORDS, QUICK_SENTENCES = 4, 120, 16
TEST_WORDS = 6000
"""Of which layers are compared pair by pair: only forward passes grow with them."""
CONTROL_EVERY = 4
"""Controls see every fourth sentence: they cost less, and their intervals are wider."""
_MEASURE = "reproductions.raganato2018.measure"


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """All cells: trees and patterns first, then probes; the small models, which are trained, last."""
    seed = settings.seeds[0]
    blocks, limit = (QUICK_BLOCKS, QUICK_SENTENCES) if settings.quick else (BLOCKS, None)
    out = {}
    for condition in CONDITIONS:
        every = 1 if condition == TRAINED or settings.quick else CONTROL_EVERY
        shared = {"condition": condition, "every": every, "limit": limit, "blocks": blocks, "seed": seed}
        for model, corpus in TREEBANKS.items():
            told = {"model": model, "corpus": corpus, **shared}
            out[_key("trees", model, condition)] = _cell("trees", told)
            out[_key("patterns", model, condition)] = _cell("patterns", {**told, "split": "test"}, text=TREEBANK)
    told = {"model": ENGLISH, "corpus": MULTI30K, "condition": TRAINED, "every": 1, "limit": limit, "blocks": blocks}
    name = _key("patterns", f"{ENGLISH}-{MULTI30K}", TRAINED)
    out[name] = _cell("patterns", {**told, "seed": seed, "split": "val"}, text=MULTI30K)
    return out | _contexts(settings) | _probes(settings) | _small(settings)


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Refuses at once where a published model is not there; the small ones are trained here."""
    machine.require(cell.arguments["model"] for cell in waiting.values() if "model" in cell.arguments)


def reachable(settings: Settings, cell: Cell) -> bool:
    """Whether the model of a cell can be opened here, or the tags that it needs be read."""
    if cell.labels.get("task") == SEMANTIC:
        files = [Path(settings.data or "", SEMANTIC_TAGS, f"{part}.txt") for part in ("train", "test")]
        return settings.data is not None and all(file.is_file() for file in files)
    return conditions.reachable(settings, cell)


def _contexts(settings: Settings) -> dict[str, Cell]:
    """Words in sentences and alone; the sentence encoders are looked at where they are at hand."""
    size = {"blocks": 2, "size": 8, "words": 8} if settings.quick else {"blocks": 8, "size": 40, "words": 40}
    out = {}
    for model in (ENGLISH,) if settings.quick else (ENGLISH, *SENTENCE_ENCODERS):
        told = {"model": model, "condition": TRAINED, "corpus": TREEBANKS[ENGLISH], **size, "seed": settings.seeds[0]}
        labels = {"kind": "contexts", "model": model, "condition": TRAINED}
        function = "reproductions.raganato2018.contexts:contexts"
        out[f"contexts-{model}"] = Cell(function, told, labels, optional=model != ENGLISH)
    return out


def _probes(settings: Settings) -> dict[str, Cell]:
    out = {}
    tasks = {**TASKS, SEMANTIC: (SEMANTIC_TAGS, ("train", "test"))}
    words = QUICK_WORDS if settings.quick else WORDS
    for condition in CONDITIONS:
        for task, (corpus, parts) in tasks.items():
            told = {"model": ENGLISH, "task": task, "condition": condition, "corpus": corpus, "parts": list(parts)}
            told |= {"words": words, "seed": settings.seeds[0]}
            cell = _cell("probe", told, task=task)
            out[_key("probe", task, condition)] = replace(cell, optional=task == SEMANTIC)
            if condition == TRAINED and task != SEMANTIC:
                more = QUICK_WORDS if settings.quick else TEST_WORDS
                both = _cell("compared", {**told, "test_words": more}, task=task)
                out[f"compared-{task}"] = replace(both, optional=True)
    return out


def _small(settings: Settings) -> dict[str, Cell]:
    size = QUICK if settings.quick else FULL
    told = {"sizes": sizes_of(size)}
    return {
        f"small-{pair}": Cell(f"{_MEASURE}:small", {"languages": pair, **told}, {"kind": "small", "languages": pair})
        for pair in size.languages
    }


def _cell(kind: str, told: dict[str, Any], **labels: str) -> Cell:
    """Labelled by its kind, model and condition."""
    return Cell(f"{_MEASURE}:{kind}", told, {"kind": kind, **{n: told[n] for n in ("model", "condition")}, **labels})


def _key(kind: str, name: str, condition: str) -> str:
    return f"{kind}-{name}.{condition}".replace(" ", "-")
