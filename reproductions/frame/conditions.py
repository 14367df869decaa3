"""What is compared: a model as trained, the same with random weights, and as trained on shuffled words.

Segments are looked at in blocks of consecutive ones. Every number is computed in each block, so that any statistic,
also one over heads and layers, has an interval with the blocks (documents, kinds of text) as its sample; the same
blocks under two conditions make a paired difference.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError
from lorgnette.looking.controls import with_random_weights
from lorgnette.models.opening import find
from lorgnette.subject import Subject, load
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from reproductions.frame.cells import Cell
from reproductions.frame.released import released
from reproductions.frame.segments import COUNT, documents, segments, shuffled_words
from reproductions.frame.settings import Settings

MODELS = ("bert-base-uncased", "e5-small", "minilm")
PUBLISHED_MODEL = "bert-base-uncased"
"""The one that the papers looked at: only there are the numbers the same quantity."""
OPTIONAL = (PUBLISHED_MODEL, "mpnet")
"""Not in any package: measured where they are at hand."""
BLOCKS = 16
QUICK_COUNT, QUICK_BLOCKS = 24, 4
TRAINED, SHUFFLED, RANDOM, SINGLE, WIKITEXT = (
    "trained",
    "shuffled words",
    "random weights",
    "single paragraphs",
    "wikitext2",
)
OURS, RELEASED = "ours", "released segments"
"""Whose segments: made here of a corpus, or those that Clark et al. released."""
WIKITEXT_PART = 4
"""The other text is a check that the text matters little: a quarter of the segments will do."""
FEWER = {"mpnet": 128}
"""Models that cost several times as much see fewer segments, in as many blocks."""


@dataclass(frozen=True)
class Condition:
    """A subject, and the blocks of segments that it is shown."""

    subject: Subject
    blocks: list[list[Example]]
    corpus: str
    fingerprint: str

    @staticmethod
    def open(
        model: str, condition: str, *, count: int, blocks: int, seed: int, segments_of: str = OURS, **local: Any
    ) -> "Condition":
        """`local` says where data and models lie and which device to use."""
        subject = opened(model, local.get("models"), local.get("device"))
        if condition == RANDOM:
            subject = with_random_weights(subject, seed)
        corpus = "wikitext2" if condition == WIKITEXT else "ud_en_gum"
        if segments_of == RELEASED:
            corpus, made = RELEASED, released(local.get("data"), subject.tokenizer, count)
        else:
            found = documents(corpus, local.get("data"))
            made = segments(found, subject.tokenizer, pairs=condition != SINGLE, count=count)
        if condition == SHUFFLED:
            made = shuffled_words(made, seed)
        size = count // blocks
        parts = [made[k * size : (k + 1) * size] for k in range(blocks)]
        return Condition(subject, parts, corpus, Corpus.of(made, name=corpus).fingerprint())

    def origin(self) -> dict[str, Any]:
        """Counts and hashes; Σ n and Σ n² tell whether two runs saw the same segments."""
        lengths = [len(self.subject.tokenize(example).source) for block in self.blocks for example in block]
        return {
            "model_class": type(self.subject.model).__name__,
            "weights_sha256": self.subject.weights_hash,
            "corpus": self.corpus,
            "segments_fingerprint": self.fingerprint,
            "segments": len(lengths),
            "blocks": len(self.blocks),
            "tokens": sum(lengths),
            "squared_tokens": sum(n * n for n in lengths),
            "device": self.subject.device.type,
            "dtype": str(self.subject.dtype).removeprefix("torch."),
        }


def origin_of(subject: Subject, texts: Corpus) -> dict[str, Any]:
    """The same of sentences that are looked at all together."""
    return {
        "weights_sha256": subject.weights_hash,
        "corpus": texts.name,
        "corpus_fingerprint": texts.fingerprint(),
        "sentences": len(list(texts)),
        "device": subject.device.type,
    }


def opened(model: str, models: str | None, device: str | None) -> Subject:
    """A subject under its own name, from the folder of models if it is there."""
    folder = Path(models, model) if models else None
    here = folder is not None and folder.is_dir()
    # A model may be one file in its folder. Translation models come as pickles; they are read as tensors only, from a
    # folder that the reader gave.
    single = sorted(folder.glob("*.gguf")) if folder is not None and not (folder / "config.json").is_file() else []
    path = single[0] if len(single) == 1 else folder
    subject = load(str(path) if here else model, device=device, allow_pickle=here)
    subject.name = model
    return subject


def grid_of(
    settings: Settings, function: str, conditions: Sequence[str], models: Sequence[str] = MODELS
) -> dict[str, Cell]:
    """A cell for each model and condition; the papers' own model is measured where the hub answers.

    The papers' setting is BERT on the released segments, and its control with random weights.
    """
    if settings.published:
        return _published(settings, function)
    count, blocks = (QUICK_COUNT, QUICK_BLOCKS) if settings.quick else (COUNT, BLOCKS)
    cells = {}
    for model in ("minilm",) if settings.quick else models:
        own = count if settings.quick else FEWER.get(model, count)
        for condition in conditions:
            part = own // WIKITEXT_PART if condition == WIKITEXT else own
            arguments = {"model": model, "condition": condition, "count": part, "blocks": blocks}
            cells[_key(model, condition)] = Cell(
                function,
                {**arguments, "seed": settings.seeds[0]},
                {"model": model, "condition": condition},
                optional=model in OPTIONAL,
            )
    return cells


def _published(settings: Settings, function: str) -> dict[str, Cell]:
    arguments = {"model": PUBLISHED_MODEL, "count": COUNT, "blocks": BLOCKS, "seed": settings.seeds[0]}
    arguments["segments_of"] = RELEASED
    return {
        _key(PUBLISHED_MODEL, condition): Cell(
            function, {**arguments, "condition": condition}, {"model": PUBLISHED_MODEL, "condition": condition}
        )
        for condition in (TRAINED, RANDOM)
    }


def reachable(settings: Settings, cell: Cell) -> bool:
    """Whether the model of a cell can be opened here."""
    return _is_there(str(cell.labels["model"]), settings.models)


def _is_there(name: str, models: str | None) -> bool:
    if models and Path(models, name).is_dir():
        return True
    try:
        if find(name) is not None:
            return True
    except UserError:  # the package that would carry it is not installed
        return False
    return name == PUBLISHED_MODEL and _hub_has(name)


def _hub_has(name: str) -> bool:
    from huggingface_hub import HfApi

    try:
        HfApi().model_info(name, timeout=10)
    except Exception:  # whatever the reason, it cannot be had
        return False
    return True


def _key(model: str, condition: str) -> str:
    return f"{model}.{condition}".replace(" ", "-")
