"""One training: how similar keys and values are before and after it, and how much was learnt."""

import time
from copy import deepcopy
from typing import Any

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.embeddings import embedding_table, set_embeddings
from lorgnette.subject import Subject
from lorgnette.training import TrainingSettings
from lorgnette.training.data import Items
from reproductions.anisotropy_or_training.grid import WIDTHS
from reproductions.fosse2023.attention import measure as fosse2023
from reproductions.fosse2023.attention.geometry import measured
from reproductions.fosse2023.attention.texts import Text, groups, test_texts
from reproductions.frame.running import rounded
from reproductions.frame.settings import Machine
from reproductions.frame.tokens import stored

_BATCH = 256
_KEPT = ("key", "value", "state", "entropy")


def settings_of(*, machine: Machine, vectors: str, rate: float, warmup: int, **told: Any) -> TrainingSettings:
    """As in the reproduction of Fosse et al. 2023, but for the step size; without a penalty."""
    return fosse2023.settings_of(
        strength=0.0,
        width=WIDTHS[vectors],
        embeddings="glove" if vectors.startswith("glove") else "random",
        learning_rate=rate,
        warmup=float(warmup),
        schedule="constant_with_warmup" if warmup else "constant",
        data=machine.data,
        out=machine.scratch,
        **told,
    )


def trained(*, machine: Machine, **told: Any) -> dict[str, Any]:
    """Trains one model; SIM of keys and values and H before and after, accuracy on training and test texts."""
    settings = settings_of(machine=machine, **told)
    begun: list[SelfAttentionClassifier] = []

    def adjust(model: SelfAttentionClassifier) -> None:
        if told["vectors"].startswith("padded"):
            _pad(model, settings, machine)
        begun.append(deepcopy(model).eval())

    run, subject, prepared = fosse2023.fitted(settings, machine, adjust)
    started = time.monotonic()
    texts = test_texts(
        prepared, name=told["corpus"], data=machine.data, limit=told["test_limit"], max_length=told["max_length"]
    )
    before = Subject(begun[0].to(subject.device), subject.tokenizer)
    assert prepared.train is not None
    accuracy = {"train": share_right(subject, prepared.train)}
    accuracy |= {split: run.metrics[split]["accuracy"] for split in ("validation", "test")}
    seconds = {"training": run.record["seconds"]["training"], "measuring": time.monotonic() - started}
    return rounded(
        {
            "accuracy": accuracy,
            "epochs": run.record["epochs"],
            "best": run.record["best"]["epoch"],
            "while_training": [entry["train"]["accuracy"] for entry in run.curve],
            "untrained": _geometry(before, texts, told["corpus"]),
            "trained": _geometry(subject, texts, told["corpus"]),
            "texts": run.record["texts"],
            "device": run.record["device"],
            "seconds": seconds,
        }
    )


def _pad(model: SelfAttentionClassifier, settings: TrainingSettings, machine: Machine) -> None:
    """GloVe and zeros up to the width of the model. The zeros are trained as all other components are."""
    glove = settings.replace(embeddings="glove", overrides={**settings.overrides, "width": WIDTHS["glove-100"]})
    builder = stored(glove, machine.scratch).builder
    assert builder.vectors is not None
    table, _ = embedding_table(builder.tokenizer, *builder.vectors[:2])
    set_embeddings(model, pad(table, (0, model.config.width - table.shape[1])), "glove, then zeros")


@torch.no_grad()
def share_right(subject: Subject, items: Items) -> float:
    """Accuracy of the weights that were kept; the training curve has that of weights which still change."""
    order = sorted(items.items, key=lambda item: len(item["input_ids"]))
    right = 0
    for start in range(0, len(order), _BATCH):
        some = order[start : start + _BATCH]
        ids = pad_sequence([item["input_ids"].long() for item in some], batch_first=True).to(subject.device)
        labels = torch.tensor([item["labels"] for item in some], device=subject.device)
        mask = ids != subject.model.config.pad_token_id
        right += int((subject.model(input_ids=ids, attention_mask=mask).logits.argmax(-1) == labels).sum())
    return right / len(order)


def _geometry(subject: Subject, texts: tuple[Text, ...], corpus: str) -> dict[str, Any]:
    """By layer, means over the texts of the published tables."""
    numbers = measured(subject, texts, {"published": groups(corpus, texts)["published"]}, ranked=0)["published"]
    return {name: numbers[name] for name in _KEPT}
