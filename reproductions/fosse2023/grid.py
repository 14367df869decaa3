"""All runs of the study, part by part: what each is told, and where in the grid it lies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings
from reproductions.frame.wide_vectors import NAME as WIDE

CORPORA = ("hatexplain", "yelphat", "esnli")
NAMES = {"hatexplain": "HateXplain", "yelphat": "YelpHat", "esnli": "e-SNLI"}
FEW = 3
"""Seeds of what is there to explain a difference, and of the parts whose runs take longer."""
Cells = dict[str, Cell]

DEPTHS = (1, 2, 3, 4, 5)
STRENGTHS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""The slides' table ends at .1; Nguyen et al. 2022 go up to 1."""
TABLED = 0.1
FROZEN = ("nothing", "words", "attention", "values")
"""What is not trained, to ask what sends embeddings in a direction."""
MAIN, OTHERS = "glove-100", ("random-300", "random-100")
VECTORS = {"glove-100": 100, "random-300": 300, "random-100": 100}
"""Word vectors of the pure-attention models → width. The 300-d GloVe of the paper is not at hand: see `PUBLISHED`."""
OTHER_POINTS = ((1, 0.0), (2, 0.0), (5, 0.0))
"""(layers, λ) from random vectors: is it GloVe or the width that makes the difference?"""
LATE: Mapping[str, Any] = {"keep_last": True, "epochs": 30, "patience": 30}
"""Weights that are not the best by validation loss: those after 30 epochs."""
LATE_POINTS = ((1, 0.0), (1, 1e-3), (5, 0.0))
"""(layers, λ) of these: is it a matter of how long one trains?"""

STARTS = ("pretrained", "random")
"""Where the weights of an encoder come from: the checkpoint, or torch's generator (the same architecture)."""

COUNTS = ((2, 64, 256), (4, 32, 128), (8, 16, 512))
"""Numbers of planted classes, those of one cell together: starting a process takes longer than training one model."""
WIDTHS = (8, 16, 32, 64, 100)
CONTEXTUAL = ("minilm", "e5-small")
"""Encoders whose words are compared with those of Ethayarajh (2019)."""
WIDE_COUNTS, WIDE_WIDTHS = (1024, 4096), (768, 64, 16)
"""More classes, and the width of the slides' question; trained for longer, at a rate that suits that width."""
SETS = ("genres", "xpos", "features", "lemmas")
SET_VECTORS = {"glove-100": 100, "random-8": 8, "random-16": 16, "random-32": 32}
"""Word vectors → width of the model for real label sets."""


@dataclass(frozen=True)
class Size:
    """How many pure-attention models are trained, and for how long."""

    epochs: int = 50
    patience: int = 5
    batch_size: int = 64
    max_length: int = 400  # the longest text has 200 words, which are more tokens
    depths: Sequence[int] = DEPTHS
    strengths: Sequence[float] = STRENGTHS
    corpora: Sequence[str] = CORPORA
    vectors: Mapping[str, int] = field(default_factory=lambda: dict(VECTORS))
    late: bool = True
    limit: int | None = None
    test_limit: int | None = None
    seeds: int | None = None  # at most so many of those asked for

    def points(self) -> list[tuple[int, float]]:
        """(layers, λ): all depths without a penalty, and one layer with each."""
        deep = [(layers, 0.0) for layers in self.depths]
        return deep + [(1, strength) for strength in self.strengths if strength > 0]


FULL = Size()
QUICK = Size(
    epochs=4,
    depths=(1, 2),
    strengths=(0.0, 1e-1),
    corpora=("hatexplain",),
    vectors={"glove-100": 100},
    late=False,
    limit=2500,
    test_limit=500,
    seeds=2,
)
PUBLISHED = Size(vectors={WIDE: 300}, late=False)
"""With --published: GloVe as the authors have it, and the released files of e-SNLI (`RELEASED`)."""
RELEASED = {"esnli": "esnli_full"}


def grid(settings: Settings, done: Mapping[str, Any]) -> Cells:
    """The cells of all parts; those that only explain the others (random vectors, late weights) come last.

    With --published only the pure-attention models: the other parts are not the authors' or need no other data.
    """
    if settings.published:
        return attention(PUBLISHED, settings.seeds)
    every = attention(QUICK if settings.quick else FULL, settings.seeds)
    for part in (encoders, nearest, classes, tagging, sent, contextual):
        every |= part(settings.quick, settings.seeds)
    return dict(sorted(every.items(), key=lambda item: _explains(item[1])))


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises each corpus of the pure-attention models once."""
    from reproductions.fosse2023.attention.measure import prepare_texts

    trained = [_trained(cell.arguments) for cell in waiting.values() if cell.labels["part"] in ("attention", "sent")]
    for arguments in {one["corpus"]: one for one in reversed(trained)}.values():
        prepare_texts(arguments, machine)


def _trained(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What decides how a text is read."""
    return {name: value for name, value in arguments.items() if name != "frozen"}


def _explains(cell: Cell) -> bool:
    return cell.labels.get("weights") == "late" or (
        cell.labels["part"] == "attention" and cell.labels["vectors"] in OTHERS
    )


def attention(size: Size, seeds: Sequence[int]) -> Cells:
    """Seed by seed, so that what is there after any time is as even as can be."""
    seeds = list(seeds)[: size.seeds]
    others = [name for name in OTHERS if name in size.vectors]
    main = MAIN if MAIN in size.vectors else WIDE
    runs = [(main, "best", *run) for run in product(seeds, size.points(), size.corpora)]
    if size.late:
        runs += [(MAIN, "late", *run) for run in product(seeds[:FEW], LATE_POINTS, size.corpora)]
    few = product(seeds[:FEW], others, OTHER_POINTS, size.corpora)
    runs += [(vectors, "best", seed, point, corpus) for seed, vectors, point, corpus in few]
    return dict(_attention(size, *run) for run in runs)


def _attention(
    size: Size, vectors: str, weights: str, seed: int, point: tuple[int, float], corpus: str
) -> tuple[str, Cell]:
    (layers, strength), late = point, weights == "late"
    wide = vectors == WIDE
    arguments: dict[str, Any] = {"corpus": RELEASED.get(corpus, corpus) if wide else corpus, "layers": layers}
    arguments |= {"strength": strength, "seed": seed}
    arguments |= {"embeddings": vectors if wide else vectors.split("-")[0], "width": size.vectors[vectors]}
    arguments |= {"epochs": size.epochs, "patience": size.patience, "batch_size": size.batch_size}
    arguments |= {"max_length": size.max_length, "limit": size.limit, "test_limit": size.test_limit}
    labels = {"part": "attention", "corpus": corpus, "vectors": vectors, "layers": layers, "strength": strength}
    labels |= {"weights": weights, "seed": seed}
    key = f"attention-{corpus}-{vectors}-L{layers}-lambda{strength:g}{'-late' if late else ''}-seed{seed}"
    function = "reproductions.fosse2023.attention.measure:trained"
    return key, Cell(function, {**arguments, **(LATE if late else {})}, labels)


def encoders(quick: bool, seeds: Sequence[int]) -> Cells:
    """minilm from its checkpoint, then from random weights, then e5-small with one seed: another encoder."""
    corpora = ("esnli", "hatexplain", "yelphat")
    runs = list(product(("minilm",), STARTS, corpora, seeds[:FEW]))
    runs += list(product(("e5-small",), STARTS[:1], corpora, seeds[:1]))
    if quick:
        runs = list(product(("minilm",), STARTS, ("hatexplain",), seeds[:1]))
    return dict(_encoder(quick, *run) for run in runs)


def nearest(quick: bool, seeds: Sequence[int]) -> Cells:
    """The fine-tuned encoder once more, with its class directions and pairs of texts."""
    cells = {}
    for seed, corpus in product(seeds[:FEW], () if quick else ("yelphat", "esnli", "hatexplain")):
        _, cell = _encoder(quick, "minilm", "pretrained", corpus, seed)
        arguments, labels = {**cell.arguments, "nearest": True}, {**cell.labels, "part": "nearest"}
        cells[f"nearest-{corpus}-minilm-seed{seed}"] = Cell(cell.function, arguments, labels)
    return cells


def contextual(quick: bool, seeds: Sequence[int]) -> Cells:
    """Pretrained encoders as they are, on blocks of sentences."""
    cells = {}
    for model in () if quick else CONTEXTUAL:
        arguments = {"model": model, "blocks": 8, "sentences": 250}
        function = "reproductions.fosse2023.encoders.contextual:contextual"
        cells[f"contextual-{model}"] = Cell(function, arguments, {"part": "contextual", "model": model})
    return cells


def sent(quick: bool, seeds: Sequence[int]) -> Cells:
    """Pure-attention models of one layer of which a part is not trained."""
    size, cells = QUICK if quick else FULL, {}
    for seed, corpus, frozen in product(seeds[: 1 if quick else FEW], size.corpora, FROZEN):
        _, cell = _attention(size, MAIN, "best", seed, (1, 0.0), corpus)
        labels = {"part": "sent", "corpus": corpus, "frozen": frozen, "seed": seed}
        function = "reproductions.fosse2023.attention.sent:sent"
        cells[f"sent-{corpus}-{frozen}-seed{seed}"] = Cell(function, {**cell.arguments, "frozen": frozen}, labels)
    return cells


def _encoder(quick: bool, model: str, start: str, corpus: str, seed: int) -> tuple[str, Cell]:
    where: dict[str, Any] = {"model": model, "corpus": corpus, "start": start, "seed": seed}
    # From nothing there is more to learn: more epochs, and a rate at which it learns at all.
    fresh = start == "random"
    arguments = where | {"epochs": 10 if fresh else 6, "patience": 3 if fresh else 2}
    arguments |= {"learning_rate": 1e-4 if fresh else 5e-5, "batch_size": 64, "max_length": 150}
    arguments |= {"limit": None, "draws": 20} | ({"epochs": 1, "limit": 192} if quick else {})
    function = "reproductions.fosse2023.encoders.measure:finetuned"
    return f"pretrained-{corpus}-{model}-{start}-seed{seed}", Cell(function, arguments, {"part": "encoders", **where})


def classes(quick: bool, seeds: Sequence[int]) -> Cells:
    """Real label sets, then planted classes; widest first, which take longest."""
    if quick:
        small = {"steps": 60, "batch_size": 64, "limit": 2000}
        found = dict([_planted(8, (2, 8, 32), seeds[0], {"steps": 300, "batch_size": 128})])
        return found | dict(_labelled(name, "random-16", 16, seeds[0], small) for name in ("genres", "xpos"))
    size = {"steps": 1200, "batch_size": 512}
    return dict(_full_classes(seeds[:FEW], size))


def _full_classes(seeds: Sequence[int], size: Mapping[str, int]) -> Iterator[tuple[str, Cell]]:
    for name, (vectors, width), seed in product(SETS, SET_VECTORS.items(), seeds):
        yield _labelled(name, vectors, width, seed, {**size, "limit": None})
    for width, counts, seed in product(reversed(WIDTHS), reversed(COUNTS), seeds):
        yield _planted(width, counts, seed, size)
    more = {"steps": 3000, "batch_size": 1024, "learning_rate": 1e-3, "areas": False}
    for seed, width in product(seeds, WIDE_WIDTHS):
        yield _planted(width, WIDE_COUNTS, seed, more)


def _planted(width: int, counts: Sequence[int], seed: int, size: Mapping[str, Any]) -> tuple[str, Cell]:
    key = f"classes-planted-width{width}-{'+'.join(map(str, counts))}-seed{seed}"
    arguments = {"width": width, "counts": list(counts), "seed": seed, **size}
    labels = {"part": "classes", "set": "planted", "width": width, "counts": tuple(counts), "seed": seed}
    return key, Cell("reproductions.fosse2023.classes.measure:planted", arguments, labels)


def _labelled(name: str, vectors: str, width: int, seed: int, size: Mapping[str, Any]) -> tuple[str, Cell]:
    arguments = {"name": name, "width": width, "source": vectors.split("-")[0], "seed": seed, **size}
    labels = {"part": "classes", "set": name, "vectors": vectors, "seed": seed}
    return (
        f"classes-{name}-{vectors}-seed{seed}",
        Cell("reproductions.fosse2023.classes.measure:labelled", arguments, labels),
    )


def tagging(quick: bool, seeds: Sequence[int]) -> Cells:
    """minilm with a linear layer on every word, from its checkpoint and from random weights."""
    found = {}
    for start, seed in product(STARTS[:1] if quick else STARTS, seeds[: 1 if quick else FEW]):
        arguments: dict[str, Any] = {"model": "minilm", "start": start, "seed": seed, "steps": 600, "batch_size": 64}
        arguments |= {"learning_rate": 5e-5 if start == "pretrained" else 2e-4, "draws": 20, "limit": None}
        arguments |= {"steps": 12, "batch_size": 16, "limit": 128} if quick else {}
        labels = {"part": "tagging", "start": start, "seed": seed}
        key = f"tagging-minilm-{start}-seed{seed}"
        found[key] = Cell("reproductions.fosse2023.tagging.measure:tagged", arguments, labels)
    return found | french(() if quick else seeds[:FEW])


def french(seeds: Sequence[int]) -> Cells:
    """The same of French: the encoder of a translator from French, fine-tuned for a hundred steps or so."""
    found = {}
    for seed in seeds:
        arguments: dict[str, Any] = {"model": "opus-mt-fr-en", "start": "pretrained", "seed": seed, "draws": 20}
        arguments |= {"steps": 120, "checks": 3, "batch_size": 16, "learning_rate": 1e-4, "limit": None}
        arguments |= {"corpus": "ud_fr_sequoia", "layers": True}
        labels = {"part": "french", "start": "pretrained", "seed": seed}
        key = f"tagging-opus-mt-fr-en-pretrained-seed{seed}"
        found[key] = Cell("reproductions.fosse2023.tagging.measure:tagged", arguments, labels)
    return found
