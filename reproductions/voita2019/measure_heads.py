"""What each cell of the heads part measures on a translation model that nobody trains further."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.lens import get
from lorgnette.lens.base import Lens
from lorgnette.lens.importance.lens import Importance
from lorgnette.lens.relations.lens import PARTS, best_heads
from lorgnette.lens.relevance.lens import Relevance
from lorgnette.lens.roles.lens import Roles
from lorgnette.looking.controls import shuffled, with_random_weights
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject, load
from lorgnette.texts import Corpus, Example, corpus
from lorgnette.texts.frequency import counted as ranks_of
from lorgnette.training.translation.generation import translate
from reproductions.frame.plain import plain
from reproductions.frame.settings import Machine
from reproductions.voita2019.grid import CONFIDENCE, MULTI30K, RANDOM, SHUFFLED, TRAINED, UD

SPLIT = "test_2016_flickr"
_TEXTS = {MULTI30K: ("multi30k:en-fr", SPLIT), UD: ("ud_en_pud", None)}
_COUNTED = {MULTI30K: ("multi30k:en-fr", "train"), UD: ("ud_en_ewt", "train")}
"""Where pieces are counted: text of the same kind that is not looked at."""
_BATCH = 2048


def opened(model: str, condition: str, seed: int, machine: Machine) -> Subject:
    """The model as it was published, or the same architecture before any training."""
    torch.set_num_threads(1)
    folder = Path(machine.models, model) if machine.models else Path(model)
    # Published as a pickle only; transformers reads nothing but tensors from it.
    subject = load(str(folder) if folder.is_dir() else model, allow_pickle=True)
    subject.name = model
    return with_random_weights(subject, seed) if condition == RANDOM else subject


def texts_of(name: str, number: int, *, condition: str, seed: int, machine: Machine) -> list[Example]:
    """The first sentences of the captions, or sentences drawn from the treebank (all of them, if as many are asked)."""
    source, split = _TEXTS[name]
    whole = corpus(source, split=split, data=machine.data)
    found = list((whole.shuffled(seed) if name == UD else whole).take(number))
    return [shuffled(example, seed) for example in found] if condition == SHUFFLED else found


def maps(
    *,
    model: str,
    corpus: str,
    condition: str,
    maps: Sequence[str],
    block: int,
    blocks: int,
    seed: int,
    machine: Machine,
) -> dict[str, Any]:
    """Relevance by some rules, or confidence: [block stack layer head] each.

    Texts without a reference get the model's own greedy translation, and the decoder is told that.
    """
    subject = opened(model, condition, seed, machine)
    examples = texts_of(corpus, block * blocks, condition=condition, seed=seed, machine=machine)
    if any(example.target is None for example in examples):
        examples = translated(subject, examples)
    found: dict[str, list[Any]] = {name: [] for name in maps}
    for start in range(0, block * blocks, block):
        for name in maps:
            # One look each: two lenses of the same name do not go into one result.
            lens: Lens = get("weights") if name == CONFIDENCE else Relevance(name)
            data_ = _looked(subject, examples[start : start + block], lens, corpus).data
            found[name].append(plain(data_[CONFIDENCE if name == CONFIDENCE else "relevance"].values))
    return {"maps": found, "stacks": data_[axes.STACK].values.tolist(), **_origin(subject, examples, corpus)}


def translated(subject: Subject, examples: Sequence[Example]) -> list[Example]:
    """The same texts with the model's own greedy translations as their targets."""
    made = translate(
        subject.model, subject.tokenizer, [example.text for example in examples], beams=1, limit=subject.limit
    )
    return [replace(example, target=text or ".") for example, text in zip(examples, made, strict=True)]


def roles(
    *,
    model: str,
    corpus: str,
    condition: str,
    texts: int,
    counted: int,
    seed: int,
    machine: Machine,
) -> dict[str, Any]:
    """Labels with their numbers, and, on a treebank, the best head for each relation beside the best offset."""
    subject = opened(model, condition, seed, machine)
    examples = texts_of(corpus, texts, condition=condition, seed=seed, machine=machine)
    lens = Roles()
    lens.ranks = piece_ranks(subject, corpus, counted, machine)
    result = _looked(subject, examples, lens, corpus)
    found = result.data
    out = {
        "stacks": found[axes.STACK].values.tolist(),
        "roles": found[axes.ROLE].values.tolist(),
        "parts": list(PARTS),
        "label": found["label"].values.tolist(),
        "words": found["roles"].values.tolist(),
        "offset": plain(found["offset"].values),
        **{name: plain(found[name].values) for name in ("number", "number_low", "number_high", "number_count")},
        **{name: plain(found[name].values) for name in ("confidence", "confidence_se", "stability", "agreement")},
        "rare_chance": _chance(lens),
    }
    if examples[0].heads is not None:
        out["relations"] = _relations(lens)
    return {**out, **_origin(subject, examples, corpus)}


def _chance(lens: Roles) -> list[float | None]:
    """The chance of the two rarest in the first stack, development and held-out part (the same for all heads)."""
    chance = lens.of_roles.arrays()["rare_chance"].isel({axes.STACK: 0, axes.LAYER: 0, axes.HEAD: 0})
    return [plain(chance.sel({axes.PART: part}).values) for part in PARTS]


def _relations(lens: Roles) -> list[dict[str, Any]]:
    """For each relation and way: the head chosen in the development part, and the offset, in the held-out part."""
    frame = best_heads(lens.found.result())
    frame = frame[(frame["way"] != "read_by_head") & (frame["relation"] != "all")]
    return [{str(k): _scalar(v) for k, v in row.items()} for row in frame.to_dict("records")]


def _scalar(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def piece_ranks(
    subject: Subject, name: str, number: int, machine: Machine
) -> tuple[Float[Tensor, " piece"], Float[Tensor, " piece"]]:
    """FrequencyRanks of pieces among so many sentences of the same kind, source and target counted apart."""
    source, split = _COUNTED[name]
    size = max(len(subject.tokenizer), int(subject.model.config.vocab_size))
    counts = torch.zeros(2, size, dtype=torch.int64)
    for example in corpus(source, split=split, data=machine.data).take(number):
        encoded = subject.tokenize(example, truncate=True)
        for side, pieces in enumerate((encoded.source, encoded.target)):
            if pieces is not None:
                words = torch.from_numpy(pieces.ids[~pieces.special])
                counts[side] += torch.bincount(words, minlength=size)
    tables = []
    for side in counts.tolist():
        ranks = ranks_of(dict(enumerate(side)), source)
        tables.append(torch.tensor([ranks[piece] for piece in range(size)], dtype=torch.float32))
    return tables[0], tables[1]


def without(
    *,
    model: str,
    corpus: str,
    texts: int,
    number: int,
    seed: int,
    after: int = 0,
    only: str | None = None,
    machine: Machine,
) -> dict[str, Any]:
    """What the loss of the reference does without each head, and how steep it is: one block of texts.

    Blocks begin `after` so many texts; `only` names the one stack whose heads are taken away.
    """
    subject = opened(model, TRAINED, seed, machine)
    start = after + texts * number
    examples = texts_of(corpus, start + texts, condition=TRAINED, seed=seed, machine=machine)[start:]
    lens = Importance(["zero"], stacks=None if only is None else [only])
    data_ = _looked(subject, examples, lens, corpus).data
    return {
        "stacks": data_[axes.STACK].values.tolist(),
        "change": plain(data_["loss_change"].sel({axes.ABLATION: "zero"}).values),
        "gradient": plain(data_["sensitivity"].values),
        "loss": float(data_["loss"]),
        **_origin(subject, examples, corpus),
    }


def _looked(subject: Subject, examples: Iterable[Example], lens: Lens, name: str) -> Result:
    found = look(subject, Corpus.of(examples, name=name), [lens], batch_tokens=_BATCH, progress=False)
    return found[lens.name]


def _origin(subject: Subject, examples: Sequence[Example], name: str) -> dict[str, Any]:
    return {
        "model": subject.name,
        "weights_sha256": subject.weights_hash,
        "corpus": name,
        "texts": len(examples),
        "corpus_fingerprint": Corpus.of(examples, name=name).fingerprint(),
        "device": subject.device.type,
    }
