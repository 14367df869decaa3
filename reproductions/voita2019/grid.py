"""The cells of both parts: `heads` (what heads do) and `pruning` (how few are needed), with λ chosen in advance.

With --published these are the paper's own models, English-Russian of WMT and of OpenSubtitles: pruning alone, since the
pairs have no gold trees.

Maps (relevance, confidence) are made in blocks of texts, so that every number read off them has an interval; what is
lost without a head is a cell for each block, since that is what takes long. Pruning cells that need a model that
another one makes (the fine-tuned opus-mt, marian-small en-fr) make it themselves if they come first; the others wait.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

HOME = "reproductions.voita2019"
MODEL = "opus-mt-en-fr"
METHODS = ("attnlrp", "ah", "voita2019", "voita2021")
CONFIDENCE = "confidence"
MAPS = (CONFIDENCE, *METHODS)
MULTI30K, UD = "multi30k", "pud"
TRAINED, SHUFFLED, RANDOM = "trained", "shuffled", "random"
CONDITIONS = (TRAINED, SHUFFLED, RANDOM)
ENCODER = (0.01, 0.03, 0.06, 0.1, 0.3, 1.0)
"""λ where the encoder alone is pruned (figure 7); the penalty is the mean over its layers of their open heads."""
ALL = (0.03, 0.1, 0.2, 0.3, 1.0, 3.0)
"""λ where all attentions are (table 2): three times as many layers to take the mean over."""
LONG = {"encoder": (0.03, 0.06), "all": (0.2,)}
"""λ with more epochs: is what is lost a matter of how long the gates and the weights under them are trained?"""
CLASSES = (0.003, 0.01, 0.03, 0.1, 0.3)
"""λ of the classifiers, whose loss is smaller."""
MODES = ("scratch", "frozen", "tuned")
RELEASED = {"wmt": "wmt_en_ru", "opensubtitles": "opensubtitles_en_ru"}
"""The data of the paper → the corpus that reads a user's files of them."""
_MIDDLE = 0.3


@dataclass(frozen=True)
class Texts:
    """How many texts the heads part looks at: so many in each of some blocks."""

    block: int = 8
    blocks: int = 8
    control_blocks: int = 4  # the first of them, so that they can be compared pair by pair
    other_block: int = 4  # of the treebank, whose sentences are longer
    roles: int = 240
    trees: int = 480
    counted: int = 10_000
    without: int = 6
    without_blocks: int = 2
    encoder: int = 3  # more texts without the encoder's heads alone, about which the claims are
    encoder_blocks: int = 200


FEW = Texts(4, 2, 2, 2, roles=24, trees=40, counted=500, without=1, without_blocks=1, encoder=1, encoder_blocks=1)


@dataclass(frozen=True)
class Size:
    """How much is trained. First the epochs of each training; `long`: with gates, where they are trained longer."""

    tuning: int = 3
    gates: int = 2
    long: int = 6
    small: int = 25
    classes: int = 3
    transfer: int = 8
    batch: int = 256
    opus_batch: int = 128  # 59,514 pieces: the logits of more would not fit beside those of other processes
    preset: str = "marian-small"
    pieces: int = 5000
    limit: int | None = None
    test_limit: int | None = None
    draws: int = 500
    encoder: Sequence[float] = ENCODER
    all: Sequence[float] = ALL
    classifiers: Sequence[float] = CLASSES
    opus: bool = True
    bf16: bool = True
    sets: Sequence[str] = ("sst2", "hatexplain")
    classified: Sequence[str] = ("minilm", "e5-small")
    languages: Sequence[str] = ("en-fr", "en-de", "en-cs")
    donors: Sequence[str] = ("small", "opus")
    russian: bool = True
    pairs: str | None = None
    """The corpus of pairs; Multi30k English-French without one."""
    shape: Mapping[str, int] | None = None
    """Sizes of the model that differ from the preset's."""


FULL = Size()
QUICK = Size(
    tuning=1, gates=3, small=3, classes=1, transfer=1, batch=32, opus_batch=8, preset="marian-tiny", pieces=400,
    limit=300, test_limit=20, draws=100, all=(0.1, 1.0), classifiers=(0.3,), opus=False, bf16=False, sets=("sst2",),
    classified=("minilm",), languages=("en-fr",), donors=("small",), russian=False,
)  # fmt: skip
PUBLISHED = Size(
    small=20, gates=10, batch=512, pieces=32_000, shape={"layers": 6, "width": 512, "feed_forward": 2048, "heads": 8}
)  # fmt: skip
"""Transformer-base; a batch of 512 pairs has about the paper's 16,000 tokens. Its schedule is that of this study."""
_TOLD = ("tuning", "gates", "small", "classes", "transfer", "batch", "opus_batch", "preset", "pieces", "limit")
_TOLD += ("test_limit", "draws", "bf16")


def sizes_of(size: Size) -> dict[str, Any]:
    """What every training is told; pairs and shape only where they are not the usual ones."""
    own = {name: value for name, value in (("pairs", size.pairs), ("shape", size.shape)) if value is not None}
    return {**{name: getattr(size, name) for name in _TOLD}, **own}


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Heads need one seed, since nothing is trained there: it draws weights and orders of words."""
    if settings.published:
        return released(PUBLISHED)
    seeds = settings.seeds
    texts, size = (FEW, QUICK) if settings.quick else (Texts(), FULL)
    return heads(texts, seeds[0]) | pruning(size, seeds[: 1 if settings.quick else 3])


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Refuses at once where a published model, or a file of pairs, is not there; marian-small is trained here."""
    from lorgnette.texts import corpus

    told = [cell.arguments.get("sizes", {}).get("pairs") for cell in waiting.values()]
    for pairs in dict.fromkeys(name for name in told if name is not None):
        for split in ("train", "validation", "test"):
            next(iter(corpus(pairs, split=split, data=machine.data, limit=1)), None)
    named = [cell.arguments.get(name) for cell in waiting.values() for name in ("model", "donor")]
    machine.require(MODEL if name == "opus" else name for name in named if name not in (None, "small"))


def heads(texts: Texts, seed: int, model: str = MODEL) -> dict[str, Cell]:
    """What takes longest comes last."""
    out: dict[str, Cell] = {}

    def add(key: str, kind: str, told: Mapping[str, Any], **labels: Any) -> None:
        place = {name: told[name] for name in ("corpus", "condition") if name in told}
        cell = Cell(f"{HOME}.measure_heads:{kind}", {"model": model, "seed": seed, **told})
        out[f"heads-{key}"] = replace(cell, labels={"part": "heads", "kind": kind, **place, **labels})

    for condition in CONDITIONS:
        for corpus, number in ((UD, texts.trees), (MULTI30K, texts.roles)):
            told = {"corpus": corpus, "condition": condition, "texts": number, "counted": texts.counted}
            add(f"roles-{corpus}-{condition}", "roles", told)
    for condition in CONDITIONS:
        blocks = texts.blocks if condition == TRAINED else texts.control_blocks
        for name in MAPS:
            told = {"corpus": MULTI30K, "condition": condition, "maps": [name], "block": texts.block, "blocks": blocks}
            add(f"maps-{MULTI30K}-{condition}-{name}", "maps", told)
    # One cell, because all of it rests on the same translations, which the model makes first.
    told = {"corpus": UD, "condition": TRAINED, "maps": list(MAPS)}
    add(f"maps-{UD}-{TRAINED}", "maps", {**told, "block": texts.other_block, "blocks": texts.control_blocks})
    for number in range(texts.without_blocks):
        told = {"corpus": MULTI30K, "texts": texts.without, "number": number}
        add(f"without-{MULTI30K}-{number}", "without", told, stacks="all", number=number)
    after = texts.without * texts.without_blocks  # texts that were not taken yet
    for number in range(texts.encoder_blocks):
        told = {"corpus": MULTI30K, "texts": texts.encoder, "number": number, "only": "encoder", "after": after}
        add(f"without-encoder-{MULTI30K}-{number}", "without", told, stacks="encoder", number=number)
    return out


def pruning(size: Size, seeds: Sequence[int]) -> dict[str, Cell]:
    """In the order in which they should start: what others wait for, long ones, then by importance."""
    first: dict[str, Cell] = {}
    if size.opus:
        first["opus-tuned"] = _cell("measure_pruning:tuned", size, {"kind": "tuned"}, model="opus")
    first |= {
        f"small-{pair}": _cell("measure_pruning:small", size, {"kind": "small", "languages": pair}, languages=pair)
        for pair in size.languages
    }
    classes = {
        f"classes-{model}-{name}-seed{seed}": _cell(
            "measure_classes:classified", size, {"kind": "classes", "model": model, "corpus": name, "seed": seed},
            model=model, corpus=name, seed=seed, strengths=list(size.classifiers),
        )
        for seed in seeds
        for model in size.classified
        for name in size.sets
    }  # fmt: skip
    one = dict(list(classes.items())[: 2 * len(size.sets)])
    order = first | one | _in_turns(_opus(size), _small(size) | _transfer(size) | _russian(size) | classes)
    return {f"pruning-{key}": cell for key, cell in order.items()}


def released(size: Size) -> dict[str, Cell]:
    """The paper's two models: each trained, pruned at every λ (encoder alone, all attentions), and from scratch."""
    found: dict[str, Cell] = {}
    for name, pairs in RELEASED.items():
        one = replace(size, pairs=pairs)
        labels = {"kind": "small", "languages": pairs}
        found[f"{name}-model"] = _cell("measure_pruning:small", one, labels, languages=pairs)
        for where, strengths in (("encoder", size.encoder), ("all", size.all)):
            found |= _gated(one, f"{name}-{where}", "small", where, _middle_first(strengths), control=False)
        found |= _scratch(one, f"{name}-scratch")
    return {f"pruning-{key}": cell for key, cell in found.items()}


def _opus(size: Size) -> dict[str, Cell]:
    if not size.opus:
        return {}
    points = _in_turns(_curve(size, "opus", "encoder", size.encoder), _curve(size, "opus", "all", size.all))
    longer = replace(size, gates=size.long)
    for where, strengths in LONG.items():
        points |= _gated(longer, f"opus-{where}-long", "opus", where, strengths, control=False)
    return points


def _small(size: Size) -> dict[str, Cell]:
    return _scratch(size, "small-scratch") | _curve(size, "small", "all", size.all)


def _scratch(size: Size, name: str) -> dict[str, Cell]:
    """Gates from the first step on, at every λ."""
    return {
        f"{name}-lambda{strength:g}": _cell(
            "measure_pruning:from_scratch", size, _point(name, strength), strength=strength
        )
        for strength in _middle_first(size.all)
    }


def _transfer(size: Size) -> dict[str, Cell]:
    return {
        f"transfer-{donor}-{mode}": _cell(
            "measure_transfer:transferred", size, {"kind": "transfer", "donor": donor, "mode": mode},
            donor=donor, mode=mode,
        )
        for donor in size.donors
        for mode in MODES
    }  # fmt: skip


def _russian(size: Size) -> dict[str, Cell]:
    return {"small-en-ru": _cell("measure_pruning:russian", size, {"kind": "russian"})} if size.russian else {}


def _curve(size: Size, model: str, where: str, strengths: Sequence[float]) -> dict[str, Cell]:
    """Nothing pruned, each λ, and an encoder without heads."""
    name = f"{model}-{where}"
    points = _gated(size, name, model, where, _middle_first(strengths), control=model == "opus")
    empty = _cell("measure_pruning:emptied", size, _point(name, None), model=model, where=where)
    return points | {f"{name}-empty": empty}


def _gated(
    size: Size, name: str, model: str, where: str, strengths: Sequence[float], *, control: bool
) -> dict[str, Cell]:
    """Nothing pruned, and each λ."""
    whole = _cell("measure_pruning:unpruned", size, _point(name, 0.0), model=model, where=where)
    points = {f"{name}-lambda0": whole}
    for strength in strengths:
        told = {"model": model, "where": where, "strength": strength, "control": control}
        points[f"{name}-lambda{strength:g}"] = _cell("measure_pruning:pruned", size, _point(name, strength), **told)
    return points


def _point(curve: str, strength: float | None) -> dict[str, Any]:
    """λ; 0 is the unpruned model, None the encoder without heads."""
    return {"kind": "curve", "curve": curve, "strength": strength}


def _cell(function: str, size: Size, labels: Mapping[str, Any], **told: Any) -> Cell:
    return Cell(f"{HOME}.{function}", {**told, "sizes": sizes_of(size)}, {"part": "pruning", **labels})


def _in_turns(some: dict[str, Cell], others: dict[str, Cell]) -> dict[str, Cell]:
    """One of these, one of those, so that the large models are never all on the GPU at the same time."""
    rows = zip_longest(some.items(), others.items())
    return dict(item for row in rows for item in row if item is not None)


def _middle_first(strengths: Sequence[float]) -> list[float]:
    """Those that leave about a third of the heads come first: there the claims are decided."""
    return sorted(strengths, key=lambda strength: abs(math.log(strength / _MIDDLE)))
