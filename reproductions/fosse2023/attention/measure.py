"""One training of a pure-attention model, and everything that is measured of it."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.subject import Subject
from lorgnette.training import EntropyPenalty, Prepared, Trained, TrainingSettings, train
from lorgnette.types import PreTrainedModel
from reproductions.fosse2023.attention.explained import explained
from reproductions.fosse2023.attention.geometry import measured
from reproductions.fosse2023.attention.replaced import replaced
from reproductions.fosse2023.attention.texts import groups, test_texts
from reproductions.frame.running import numbers_of, ready_for_training
from reproductions.frame.settings import Machine
from reproductions.frame.tokens import store, stored
from reproductions.frame.wide_vectors import with_vectors

PRESET = "pure-attention"


def settings_of(*, layers: int, strength: float, width: int, **rest: Any) -> TrainingSettings:
    """Adam at 1e-3, no clipping, the best epoch by validation loss, trained vectors; the penalty is on layer 1."""
    return TrainingSettings(
        model=PRESET,
        overrides={"width": width, "layers": layers},
        freeze=False,
        vocabulary="train",
        penalties=(EntropyPenalty(strength, layers=(1,)),) if strength > 0 else (),
        gradient_norm=0.0,
        **rest,
    )


def prepare_texts(cell: Mapping[str, Any], machine: Machine) -> None:
    """Writes the token ids that the cells of this corpus read, unless they are there; without <cls>."""
    settings = settings_of(**with_vectors(dict(cell), machine.data), data=machine.data, out=machine.scratch)
    store(settings.replace(model="mean", overrides={}, embeddings="random", penalties=()), machine.scratch)


def fitted(
    settings: TrainingSettings, machine: Machine, adjust: Callable[[PreTrainedModel], None] | None = None
) -> tuple[Trained, Subject, Prepared]:
    """Trains one model, and opens the weights that were kept, ready to be measured; the folder goes."""
    ready_for_training()
    prepared = stored(settings, machine.scratch)
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        run = train(settings.replace(out=Path(folder) / "run"), prepared=prepared, adjust=adjust)
        model = SelfAttentionClassifier.from_pretrained(run.folder).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("highest")  # training may round, measuring not
    return run, Subject(model, prepared.builder.tokenizer), prepared


def trained(*, machine: Machine, **told: Any) -> dict[str, Any]:
    """Trains one model and measures it; the model itself goes."""
    settings = settings_of(**with_vectors(told, machine.data), data=machine.data, out=machine.scratch)
    run, subject, prepared = fitted(settings, machine)
    started = time.monotonic()
    texts = test_texts(
        prepared, name=told["corpus"], data=machine.data, limit=told["test_limit"], max_length=told["max_length"]
    )
    found = {
        "groups": measured(subject, texts, groups(told["corpus"], texts)),
        **explained(subject, texts),
        "replaced": replaced(subject, texts, told["seed"]),
    }
    numbers = numbers_of(run)
    numbers["seconds"] = {**numbers["seconds"], "measuring": round(time.monotonic() - started, 3)}
    return {**numbers, **found}
