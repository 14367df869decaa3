"""How few heads are needed: the cells, with λ chosen in advance and every point reported.

Keys begin with "pruning-". Cells that need a model that another one makes (the fine-tuned opus-mt, marian-small en-fr)
make it themselves if they come first; the others wait for it.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from reproductions.frame.cells import Cell
from reproductions.frame.parts import Part

if TYPE_CHECKING:
    from reproductions.frame.record import Settings

_HOME = "reproductions.voita2019"
ENCODER = (0.01, 0.03, 0.06, 0.1, 0.3, 1.0)
"""λ where the encoder alone is pruned (figure 7); the penalty is the mean over its layers of their open heads."""
ALL = (0.03, 0.1, 0.2, 0.3, 1.0, 3.0)
"""λ where all attentions are (table 2): three times as many layers to take the mean over."""
LONG = {"encoder": (0.03, 0.06), "all": (0.2,)}
"""λ with more epochs: is what is lost a matter of how long the gates and the weights under them are trained?"""
CLASSES = (0.003, 0.01, 0.03, 0.1, 0.3)
"""λ of the classifiers, whose loss is smaller."""

_MIDDLE = 0.3


@dataclass(frozen=True)
class Size:
    """How much of it is run. First the epochs of each training; `long`: with gates, where they are trained longer."""

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


FULL = Size()
QUICK = Size(
    tuning=1,
    gates=3,
    small=3,
    classes=1,
    transfer=1,
    batch=32,
    opus_batch=8,
    preset="marian-tiny",
    pieces=400,
    limit=300,
    test_limit=20,
    draws=100,
    all=(0.1, 1.0),
    classifiers=(0.3,),
    opus=False,
    bf16=False,
    sets=("sst2",),
    classified=("minilm",),
    languages=("en-fr",),
    donors=("small",),
    russian=False,
)


def cells(quick: bool, seeds: Sequence[int]) -> dict[str, Cell]:
    """All runs, in the order in which they should start: what others wait for, long ones, then by importance."""
    return grid(QUICK, tuple(seeds)[:1]) if quick else grid(FULL, tuple(seeds)[:3])


def grid(size: Size, seeds: Sequence[int]) -> dict[str, Cell]:
    first: dict[str, Cell] = {}
    if size.opus:
        first["opus-tuned"] = _cell("pruning_cells:tuned", size, model="opus")
    first |= {f"small-{pair}": _cell("pruning_cells:small", size, languages=pair) for pair in size.languages}
    classes = {
        f"classes-{model}-{name}-seed{seed}": _cell(
            "pruning_classes:classified", size, model=model, corpus=name, seed=seed, strengths=list(size.classifiers)
        )
        for seed in seeds
        for model in size.classified
        for name in size.sets
    }
    scratch = {
        f"small-scratch-lambda{strength:g}": _cell("pruning_cells:from_scratch", size, strength=strength)
        for strength in _middle_first(size.all)
    }
    one = dict(list(classes.items())[: 2 * len(size.sets)])
    opus: dict[str, Cell] = {}
    if size.opus:
        opus = _in_turns(_points(size, "opus", "encoder", size.encoder), _points(size, "opus", "all", size.all))
        opus |= _longer(size, "opus")
    small = _points(size, "small", "all", size.all)
    transfer = {
        f"transfer-{donor}-{mode}": _cell("pruning_transfer:transferred", size, donor=donor, mode=mode)
        for donor in size.donors
        for mode in ("scratch", "frozen", "tuned")
    }
    russian = {"small-en-ru": _cell("pruning_cells:russian", size)} if size.russian else {}
    order = first | one | _in_turns(opus, scratch | small | transfer | russian | classes)
    return {f"pruning-{key}": cell for key, cell in order.items()}


def _in_turns(some: dict[str, Cell], others: dict[str, Cell]) -> dict[str, Cell]:
    """One of these, one of those, so that the large models are never all on the GPU at the same time."""
    rows = zip_longest(some.items(), others.items())
    return dict(item for row in rows for item in row if item is not None)


def _middle_first(strengths: Sequence[float]) -> list[float]:
    """Those that leave about a third of the heads come first: there the claims are decided."""
    return sorted(strengths, key=lambda strength: abs(math.log(strength / _MIDDLE)))


def _points(size: Size, model: str, where: str, strengths: Sequence[float]) -> dict[str, Cell]:
    """A curve: nothing pruned, each λ, and an encoder without heads."""
    name = f"{model}-{where}"
    points = _gated(size, name, model, where, _middle_first(strengths), control=model == "opus")
    return points | {f"{name}-empty": _cell("pruning_cells:emptied", size, model=model, where=where)}


def _longer(size: Size, model: str) -> dict[str, Cell]:
    """Some points of the curves again, with more epochs, and without a control."""
    size = replace(size, gates=size.long)
    points: dict[str, Cell] = {}
    for where, strengths in LONG.items():
        points |= _gated(size, f"{model}-{where}-long", model, where, strengths, control=False)
    return points


def _gated(
    size: Size, name: str, model: str, where: str, strengths: Sequence[float], *, control: bool
) -> dict[str, Cell]:
    """Nothing pruned, and each λ."""
    points = {f"{name}-lambda0": _cell("pruning_cells:unpruned", size, model=model, where=where)}
    for strength in strengths:
        told = {"model": model, "where": where, "strength": strength, "control": control}
        points[f"{name}-lambda{strength:g}"] = _cell("pruning_cells:pruned", size, **told)
    return points


_TOLD = (
    "tuning",
    "gates",
    "small",
    "classes",
    "transfer",
    "batch",
    "opus_batch",
    "preset",
    "pieces",
    "limit",
    "test_limit",
    "draws",
)


def _cell(function: str, size: Size, **told: Any) -> Cell:
    sizes = {name: getattr(size, name) for name in (*_TOLD, "bf16")}
    return Cell(f"{_HOME}.{function}", {**told, "sizes": sizes})


SECONDS = {"tuned": 180, "small": 280, "unpruned": 90, "pruned": 250, "emptied": 90, "from_scratch": 300}
SECONDS |= {"russian": 400, "classified": 360, "transferred": 280}
"""What a cell takes, about, on one large GPU that a dozen processes share."""


def prepare(settings: "Settings", waiting: Mapping[str, Cell]) -> None:
    """Says how long it may take."""
    if settings.quick:
        return
    total = sum(SECONDS[cell.function.rpartition(":")[2]] for cell in waiting.values())
    each = ", ".join(f"{name} {seconds}" for name, seconds in SECONDS.items())
    print(
        f"pruning: {len(waiting)} cells; on one large GPU about {total / max(settings.jobs, 1):,.0f} s with "
        f"{settings.jobs} jobs (seconds each: {each}).",
        file=sys.stderr,
        flush=True,
    )


def part(settings: "Settings", done: Mapping[str, Any]) -> Part:
    """Tables, figures and claims from the finished cells."""
    from reproductions.voita2019.pruning_page import part_of

    return part_of(settings, done)
