"""The cells: pretrained encoders, and classifiers of five layers that consist only of attention."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from lorgnette.looking.controls import RANDOM, TRAINED
from reproductions.frame import conditions
from reproductions.frame.cells import Cell
from reproductions.frame.settings import Machine, Settings

ENCODERS = ("minilm", "e5-small", "mpnet", "opus-mt-en-fr", "opus-mt-fr-en")
CONDITIONS = (TRAINED, RANDOM)
TEXTS: Mapping[str, int] = {"length": 64, "blocks": 8, "texts": 12}
QUICK_TEXTS: Mapping[str, int] = {"length": 16, "blocks": 2, "texts": 3}
"""Blocks of documents, texts of each, and their length in tokens."""
PLAIN, SHARP, FAST = "plain", "sharp", "fast"
ARMS: Mapping[str, tuple[float, float]] = {PLAIN: (0.0, 1e-3), SHARP: (0.1, 1e-3), FAST: (0.0, 3e-3)}
"""Arm → weight of the entropy penalty on the first layer, and the step size. The rate of the last makes narrow models
as anisotropic as wide ones (anisotropy_or_training), at a ninth of their price."""
CORPUS, LAYERS = "hatexplain", 5
SIZE: Mapping[str, Any] = {
    "epochs": 12, "patience": 3, "batch_size": 64, "max_length": 400, "limit": 4000, "test_limit": None,
    "embeddings": "glove", "width": 100, "layers": LAYERS,
}  # fmt: skip
"""A quarter of the training texts: enough to learn something, and cheap."""
QUICK: Mapping[str, Any] = {"epochs": 1, "limit": 300, "test_limit": 60}
_MEASURE = "reproductions.free_constant.measure"


def grid(settings: Settings, done: Mapping[str, Any]) -> dict[str, Cell]:
    """Seed by seed, so that what there is after any time can be paired."""
    seeds = settings.seeds[:2] if settings.quick else settings.seeds
    size = {**SIZE, **(QUICK if settings.quick else {})}
    trained = dict(_classifier(arm, seed, size) for seed in seeds for arm in ARMS)
    models = ("minilm",) if settings.quick else ENCODERS
    return dict(_encoder(model, condition, settings) for model, condition in product(models, CONDITIONS)) | trained


def prepare(machine: Machine, waiting: Mapping[str, Cell]) -> None:
    """Tokenises the corpus of the classifiers once."""
    from reproductions.fosse2023.attention.measure import prepare_texts

    for cell in waiting.values():
        if cell.labels["part"] == "classifiers":
            prepare_texts(cell.arguments, machine)
            return


def reachable(settings: Settings, cell: Cell) -> bool:
    return conditions.reachable(settings, cell)


def _encoder(model: str, condition: str, settings: Settings) -> tuple[str, Cell]:
    size = QUICK_TEXTS if settings.quick else TEXTS
    arguments = {"model": model, "condition": condition, **size, "seed": settings.seeds[0]}
    labels = {"part": "encoders", "model": model, "condition": condition}
    key = f"{model}.{condition}".replace(" ", "-")
    return key, Cell(f"{_MEASURE}:encoder", arguments, labels, optional=True)


def _classifier(arm: str, seed: int, size: Mapping[str, Any]) -> tuple[str, Cell]:
    strength, rate = ARMS[arm]
    arguments = {"corpus": CORPUS, "seed": seed, "strength": strength, "learning_rate": rate, **size}
    labels = {"part": "classifiers", "arm": arm, "seed": seed}
    return f"{CORPUS}-{arm}-seed{seed}", Cell(f"{_MEASURE}:classifier", arguments, labels)
