"""The texts of a corpus as token ids in files: tokenised once, read by every process of a grid."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int32, Int64
from transformers import AutoTokenizer

from lorgnette.errors import UserError
from lorgnette.files import folder_written_whole
from lorgnette.texts import Corpus
from lorgnette.texts.vectors import read_vectors
from lorgnette.training.build import PresetBuilder
from lorgnette.training.data import Item, Items, Reader
from lorgnette.training.preparation import Prepared, prepare
from lorgnette.training.settings import TrainingSettings
from lorgnette.training.splits import Parts

_DECIDE: tuple[str, ...] = ("corpus", "vocabulary", "style", "max_vocabulary", "min_count", "max_length", "validation")
_DECIDE += ("split_seed", "test_split", "limit", "test_limit")
_ABOUT = "about.json"
Ids = Int32[np.ndarray, " token"]


def place(settings: TrainingSettings, scratch: Path) -> Path:
    """Where the ids of a run lie: its name holds all that they depend on."""
    told = {name: settings.record()[name] for name in _DECIDE}
    digest = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
    return scratch / f"{settings.corpus}-{settings.vocabulary}-{digest}"


def store(settings: TrainingSettings, scratch: Path) -> None:
    """Tokenises train, validation and test as `settings` says and writes the ids below `scratch`, unless they are
    there. The model must have no <cls>."""
    folder = place(settings, scratch)
    if (folder / _ABOUT).is_file():
        return
    ready = prepare(settings)
    if ready.train is None:
        raise UserError("texts that are streamed cannot be stored.")
    test = ready.test
    parts = {"train": ready.train, "validation": ready.validation, **({} if test is None else {"test": test})}
    about: dict[str, Any] = {
        "corpus": ready.parts.train.name,
        "labels": ready.parts.labels,
        "fingerprint": ready.fingerprint,
    }
    about |= {"notes": ready.notes}
    about |= {"cut": {name: items.cut for name, items in parts.items()}, "texts": {n: len(i) for n, i in parts.items()}}
    with folder_written_whole(folder, lambda _: set()) as partial:
        for name, items in parts.items():
            _write(partial / name, items)
        ready.builder.tokenizer.save_pretrained(partial / "tokenizer")
        (partial / _ABOUT).write_text(json.dumps(about), encoding="utf-8")


_vectors = lru_cache(maxsize=2)(read_vectors)


def stored(settings: TrainingSettings, scratch: Path, *, test: bool = True) -> Prepared:
    """What `prepare(settings)` would give, from the files; without `test`, a run that cannot read the test texts.

    Models that classify from <cls> get it before each text, which is cut to `max_length` with it. The tokenizer is that
    of the store, which puts no <cls> there: the models of a grid are measured, not kept.
    """
    folder = place(settings, scratch)
    about = _about(folder)
    builder = PresetBuilder(settings, tuple(about["labels"]), tuple, _tokenizer(folder), _vectors)
    cls = builder.config.cls_token_id if builder.config.uses_cls else None
    limit = builder.max_length
    train, validation = (_read(folder / name, cls, limit) for name in ("train", "validation"))
    nothing = Corpus.of((), name=about["corpus"], labels=builder.labels)  # the texts themselves are not read again
    there = nothing if test and "test" in about["texts"] else None
    return StoredTexts(
        parts=Parts(nothing, nothing, there, builder.labels),
        builder=builder,
        reader=Reader(builder.tokenizer, builder.config, limit),
        train=train,
        validation=validation,
        count=len(train),
        fingerprint=about["fingerprint"],
        notes=tuple(about["notes"]),
        folder=folder,
    )


@dataclass(frozen=True)
class StoredTexts(Prepared):
    """As `Prepared`, and the test texts come from the files too, when they are asked for."""

    folder: Path = Path()

    @cached_property
    def test(self) -> Items | None:
        if self.parts.test is None:
            return None
        config = self.builder.config
        cls = config.cls_token_id if config.uses_cls else None
        return _read(self.folder / "test", cls, self.builder.max_length)


class StoredItems(Items):
    """Items that are there already."""

    def __init__(self, items: list[Item], cut: int) -> None:
        self.items, self.cut = items, cut


def _write(path: Path, items: Items) -> None:
    ids = [item["input_ids"].numpy() for item in items.items]
    np.save(path.with_suffix(".ids.npy"), np.concatenate(ids))
    np.save(path.with_suffix(".ends.npy"), np.cumsum([len(one) for one in ids]))
    np.save(path.with_suffix(".labels.npy"), np.array([item["labels"] for item in items.items]))


@lru_cache(maxsize=8)
def _read(path: Path, cls: int | None, limit: int | None) -> StoredItems:
    # Copy on write: the processes share the pages, and torch gets memory that it may believe to be writable.
    ids: Ids = np.load(path.with_suffix(".ids.npy"), mmap_mode="c")
    ends: Int64[np.ndarray, " text"] = np.load(path.with_suffix(".ends.npy"))
    labels: Int64[np.ndarray, " text"] = np.load(path.with_suffix(".labels.npy"))
    cut = _about(path.parent)["cut"][path.name]
    items = [{"input_ids": one, "labels": label} for one, label in zip(_texts(ids, ends), labels.tolist(), strict=True)]
    if cls is not None:
        first = torch.tensor([cls], dtype=torch.int32)
        cut = sum(limit is not None and len(item["input_ids"]) >= limit for item in items)
        items = [{**item, "input_ids": torch.cat([first, item["input_ids"]])[:limit]} for item in items]
    return StoredItems(items, cut)


def _texts(ids: Ids, ends: Int64[np.ndarray, " text"]) -> Iterator[torch.Tensor]:
    start = 0
    whole = torch.from_numpy(ids)
    for end in ends.tolist():
        yield whole[start:end]
        start = end


@lru_cache(maxsize=8)
def _about(folder: Path) -> dict[str, Any]:
    return json.loads((folder / _ABOUT).read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _tokenizer(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder / "tokenizer", use_fast=True)
