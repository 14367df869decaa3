"""The cells of TP 9: what is tried on the validation reviews, and what is then run for every seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

FUNCTION = "reproductions.tp9.measure:trained"
EMBEDDINGS = ("frozen", "trained")
POSITIONS = ("none", "sinusoidal", "scaled", "learnt", "relative")
"""Of the table; "scaled" is sinusoidal with the factor that did best on the validation reviews."""
POOLINGS = ("mean", "cls")
DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16)
ORDERED = ("none", "sinusoidal", "relative", "scaled", "learnt")
"""Positions of the models that are asked about word order, the practical's own first."""
SHUFFLES = 2
BASELINES = ("mean", "attention-pooling", "query-pooling", "bilstm-attention")
BLOCKS = {"base": "tp9-base", "residual": "tp9-residual"}
SCALES = (1.0, 0.3, 0.1)
SCALED_WIDTHS = (16, 64, 256, 1024)
"""Of a head at initialisation, with and without division by √d."""
REVIEWS = 1000  # whose words tell how long the vectors are

LEARNING_RATES = dict.fromkeys(("mean", "attention-pooling", "query-pooling"), (3e-2, 3e-3))
LEARNING_RATES |= dict.fromkeys(("bilstm-attention", "base", "residual"), (1e-3, 3e-4))
DROPOUTS = {
    ("bilstm-attention", "frozen"): (0.2, 0.5),
    ("bilstm-attention", "trained"): (0.5,),
    ("base", "frozen"): (0.0, 0.2),
    ("base", "trained"): (0.2, 0.5),
    ("residual", "frozen"): (0.1, 0.3),
    ("residual", "trained"): (0.2, 0.5),
}
"""Tried on the validation reviews; the poolings of TP 8 have so few parameters that they go without."""


@dataclass(frozen=True)
class Size:
    """How much of it is run."""

    epochs: Mapping[str, int]
    patience: int = 4
    batch_size: int = 128
    max_length: int = 500  # as in the starter code
    limit: int | None = None
    test_limit: int | None = None
    depths: Sequence[int] = DEPTHS
    embeddings: Sequence[str] = EMBEDDINGS
    positions: Sequence[str] = POSITIONS
    poolings: Sequence[str] = POOLINGS
    baselines: Sequence[str] = BASELINES
    search: bool = True
    ordered: Sequence[str] = ("sst2", "imdb")


FULL = Size({"frozen": 14, "trained": 8})
QUICK = Size(
    {"frozen": 4, "trained": 3},
    batch_size=32,
    max_length=120,
    limit=2000,
    test_limit=1000,
    depths=(1, 3, 6),
    embeddings=("frozen",),
    poolings=("mean",),
    baselines=("mean", "attention-pooling"),
    search=False,
    ordered=(),
)


@dataclass(frozen=True)
class Choice:
    """What the validation reviews decide for a family of models."""

    learning_rate: float
    dropout: float


@dataclass(frozen=True)
class Model:
    """A row of the table."""

    family: str  # a baseline, "base" or "residual"
    embeddings: str
    positions: str = "none"
    pooling: str = "mean"
    layers: int | None = None  # None for the baselines

    @property
    def key(self) -> str:
        depth = "" if self.layers is None else f"-L{self.layers}"
        inside = "" if self.layers is None else f"-{self.positions}-{self.pooling}"
        return f"{self.family}{depth}{inside}-{self.embeddings}"

    def cell(self, size: Size, choice: Choice, scale: float, seed: int, *, test: bool = True) -> Cell:
        overrides: dict[str, Any] = {"dropout": choice.dropout}
        if self.layers is not None:
            sinusoidal = self.positions in ("sinusoidal", "scaled")
            overrides |= {"layers": self.layers, "pooling": self.pooling}
            overrides["positions"] = "sinusoidal" if sinusoidal else self.positions
            if sinusoidal:
                overrides["position_scale"] = scale if self.positions == "scaled" else 1.0
        arguments = {"preset": BLOCKS.get(self.family, self.family), "frozen": self.embeddings == "frozen"}
        arguments |= {"overrides": overrides, "learning_rate": choice.learning_rate, "seed": seed, "test": test}
        arguments |= {"epochs": size.epochs[self.embeddings], "patience": size.patience, "limit": size.limit}
        arguments |= {"batch_size": size.batch_size, "max_length": size.max_length, "test_limit": size.test_limit}
        labels = {"step": "final" if test else "search", **vars(self), "seed": seed, **vars(choice), "scale": scale}
        return Cell(FUNCTION, arguments, labels)


def size_of(settings: Settings) -> Size:
    return QUICK if settings.quick else FULL


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """First what chooses the settings, TF-IDF and the length of the vectors; then every model for every seed."""
    size = size_of(settings)
    limits = {"limit": size.limit, "test_limit": size.test_limit}
    first = searches(size, settings.seeds[0])
    cells = {
        **first,
        "tfidf": Cell("reproductions.tp9.measure:tfidf", limits, {"step": "tfidf"}),
        "vectors": Cell("reproductions.tp9.measure:vectors", {"reviews": REVIEWS}, {"step": "vectors"}),
        **_scaling(settings.seeds),
    }
    if set(first) <= set(done):
        cells |= finals(size, choices(size, done), scales(size, done), settings.seeds)
        cells |= orders(size, choices(size, done), scales(size, done), settings.seeds)
    return cells


def _scaling(seeds: Sequence[int]) -> dict[str, Cell]:
    """What √d is for: nothing is trained."""
    told = {"widths": list(SCALED_WIDTHS), "texts": 16, "tokens": 64}
    function = "reproductions.tp9.scaling:gradients"
    return {f"scaling-seed{n}": Cell(function, {**told, "seed": n}, {"step": "scaling", "seed": n}) for n in seeds}


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises once for each corpus and vocabulary: that of the vectors, and that of the training reviews."""
    from reproductions.tp9.measure import prepare_texts

    trained = [cell for cell in reversed(waiting.values()) if "embeddings" in cell.labels]
    first = {(cell.labels.get("corpus"), cell.labels["embeddings"]): cell.arguments for cell in trained}
    for arguments in first.values():
        prepare_texts(arguments, machine)


def families(size: Size) -> Iterator[tuple[str, str]]:
    """Family and embeddings, the important ones first."""
    for embeddings in size.embeddings:
        for family in (*BLOCKS, *size.baselines):
            yield family, embeddings


def options(family: str, embeddings: str, size: Size) -> list[Choice]:
    rates, dropouts = LEARNING_RATES[family], DROPOUTS.get((family, embeddings), (0.0,))
    every = [Choice(rate, dropout) for rate, dropout in product(rates, dropouts)]
    return every if size.search else every[:1]


def plain(family: str, embeddings: str) -> Model:
    """The model whose validation accuracy decides for its family: no positions, mean, three layers."""
    return Model(family, embeddings, layers=3 if family in BLOCKS else None)


def searches(size: Size, seed: int) -> dict[str, Cell]:
    """Cells that never see a test review: learning rate and dropout of each family, then the scale of positions.

    The scale is tried at the first learning rate and the last dropout of the family.
    """
    cells = {}
    for family, embeddings in families(size):
        for choice in options(family, embeddings, size):
            cell = plain(family, embeddings).cell(size, choice, 1.0, seed, test=False)
            cells[_search(family, embeddings, choice)] = cell
    if "scaled" in size.positions and size.search:
        for (family, embeddings), scale in product(_positioned(size), SCALES):
            choice = Choice(LEARNING_RATES[family][0], DROPOUTS[family, embeddings][-1])
            model = Model(family, embeddings, "scaled", layers=3)
            cells[_scale(family, embeddings, scale)] = model.cell(size, choice, scale, seed, test=False)
    return cells


def choices(size: Size, found: Mapping[str, Any]) -> dict[tuple[str, str], Choice]:
    """The best validation accuracy of each family; of equals the first."""
    return {
        (family, embeddings): max(
            options(family, embeddings, size),
            key=lambda choice: found[_search(family, embeddings, choice)]["metrics"]["validation"]["accuracy"],
        )
        for family, embeddings in families(size)
    }


def scales(size: Size, found: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """The best factor of sinusoidal positions for each block and embeddings."""
    if "scaled" not in size.positions or not size.search:
        return dict.fromkeys(_positioned(size), SCALES[-1])
    return {
        (family, embeddings): max(
            SCALES,
            key=lambda scale: found[_scale(family, embeddings, scale)]["metrics"]["validation"]["accuracy"],
        )
        for family, embeddings in _positioned(size)
    }


def models(size: Size) -> list[Model]:
    """The rows of the tables: exercises 1 and 2 and the baselines first, then positions, <cls>, and the depths."""
    rows = [plain(family, embeddings) for family, embeddings in families(size)]
    for pooling, embeddings, positions, family in product(size.poolings, size.embeddings, size.positions, BLOCKS):
        rows.append(Model(family, embeddings, positions, pooling, 3))
    for layers, family in product(size.depths, BLOCKS):
        rows.append(Model(family, "frozen", layers=layers))
    return list(dict.fromkeys(rows))


def finals(
    size: Size,
    chosen: Mapping[tuple[str, str], Choice],
    scaled: Mapping[tuple[str, str], float],
    seeds: Sequence[int],
) -> dict[str, Cell]:
    """Every model for every seed; each reads the test reviews once."""
    cells = {}
    for model, seed in product(models(size), seeds):
        family = (model.family, model.embeddings)
        cells[f"{model.key}-seed{seed}"] = model.cell(size, chosen[family], scaled.get(family, 1.0), seed)
    return cells


def orders(
    size: Size,
    chosen: Mapping[tuple[str, str], Choice],
    scaled: Mapping[tuple[str, str], float],
    seeds: Sequence[int],
) -> dict[str, Cell]:
    """Models that are asked about word order: sentences with either block, reviews with the practical's own."""
    cells = {}
    for corpus, seed, family, positions in product(size.ordered, seeds, BLOCKS, ORDERED):
        if corpus == "imdb" and family != "base":
            continue
        one = Model(family, "frozen", positions, layers=3)
        cell = one.cell(size, chosen[family, "frozen"], scaled[family, "frozen"], seed)
        arguments = {**cell.arguments, "corpus": corpus, "shuffles": SHUFFLES}
        labels = {**cell.labels, "step": "order", "corpus": corpus}
        function = "reproductions.tp9.order:ordered"
        cells[f"order-{corpus}-{one.key}-seed{seed}"] = Cell(function, arguments, labels)
        if corpus == "sst2" and positions != "none":  # without positions every pair is a tie
            again, labels = {**arguments, "balanced": True}, {**labels, "step": "pairs"}
            cells[f"pairs-{corpus}-{one.key}-seed{seed}"] = Cell(function, again, labels)
    return cells


def _positioned(size: Size) -> list[tuple[str, str]]:
    return list(product(BLOCKS, size.embeddings))


def _search(family: str, embeddings: str, choice: Choice) -> str:
    return f"search-{family}-{embeddings}-lr{choice.learning_rate:g}-dropout{choice.dropout:g}"


def _scale(family: str, embeddings: str, scale: float) -> str:
    return f"search-{family}-{embeddings}-scale{scale:g}"
