"""One run of Nguyen et al. 2022: a BiLSTM with attention, an entropy penalty, and whom its attention convinces."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lorgnette.attention import Call, Tap
from lorgnette.corpora import Example, corpus
from lorgnette.maths import plausibility as maths
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.reproduce.running import numbers_of, ready_for_training
from lorgnette.reproduce.tokens import store, stored
from lorgnette.subject import Subject
from lorgnette.training import EntropyPenalty, TrainingSettings, train

PRESET = "bilstm-attention"
_BATCH = 128
_HALF = 0.5  # a word whose rescaled weight is at least this is taken for marked


def settings_of(
    *,
    corpus: str,
    strength: float,
    embeddings: str,
    width: int,
    seed: int,
    epochs: int,
    patience: int,
    batch_size: int,
    max_length: int,
    limit: int | None,
    test_limit: int | None,
    data: str | None,
    out: Path | str,
) -> TrainingSettings:
    """Adam at 1e-3, the best epoch by validation loss, trained vectors, no dropout."""
    return TrainingSettings(
        model=PRESET,
        corpus=corpus,
        out=out,
        overrides={"width": width},
        embeddings=embeddings,
        freeze=False,
        vocabulary="train",
        penalties=(EntropyPenalty(strength),),
        seed=seed,
        epochs=epochs,
        batch_size=batch_size,
        patience=patience,
        max_length=max_length,
        limit=limit,
        test_limit=test_limit,
        data=data,
    )


def prepare_texts(cell: Mapping[str, Any], data: str | None, scratch: Path) -> None:
    """Writes the token ids that this cell reads, unless they are there."""
    told = {key: value for key, value in cell.items() if key != "draws"}
    store(settings_of(**told, data=data, out=scratch), scratch)


def trained(*, draws: int, data: str | None, scratch: str, **told: Any) -> dict[str, Any]:
    """Trains one model, measures how plausible its attention is, and keeps the numbers."""
    ready_for_training()
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        settings = settings_of(**told, data=data, out=Path(folder) / "run")
        prepared = stored(settings, Path(scratch))
        run = train(settings, prepared=prepared)
        model = SelfAttentionClassifier.from_pretrained(run.folder).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    subject = Subject(model, prepared.builder.tokenizer)
    examples = marked_examples(told["corpus"], data, told["test_limit"])
    words = list(word_scores(subject, examples, told["max_length"]))
    return {**numbers_of(run), "plausibility": measured(words, examples, draws)}


@lru_cache(maxsize=4)
def marked_examples(name: str, data: str | None, limit: int | None) -> tuple[Example, ...]:
    """The test texts in which people marked at least one word."""
    test = corpus(name, split="test", data=data, limit=limit)
    return tuple(example for example in test if example.rationale is not None and any(example.rationale))


class Row(Tap):
    """Keeps the one row of an attention pooler."""

    def __init__(self) -> None:
        self.row: Tensor | None = None

    def see(self, call: Call) -> None:
        self.row = call.rows([0])[:, 0, 0]


def word_scores(subject: Subject, examples: Sequence[Example], max_length: int) -> Iterator[Tensor]:
    """For each text the attention on each of its words: the sum over the word's tokens, 0 for a word without one."""
    tap = Row()
    for start in range(0, len(examples), _BATCH):
        chosen = examples[start : start + _BATCH]
        batch = subject.encode(chosen)
        if batch.source.ids.shape[1] > max_length:
            raise ValueError(f"a test text has {batch.source.ids.shape[1]} tokens, more than {max_length}")
        with torch.no_grad(), subject.tapped(tap):
            subject.run(batch)
        assert tap.row is not None
        for row, place, example in zip(tap.row.double().cpu(), batch.source.word.cpu(), chosen, strict=True):
            assert example.words is not None
            there = place >= 0
            yield torch.zeros(len(example.words), dtype=torch.float64).index_add_(0, place[there], row[there])


def measured(words: Sequence[Tensor], examples: Sequence[Example], draws: int) -> dict[str, Any]:
    """Pooled and per-instance numbers over all texts and over each part of the test set that has a name."""
    marks = [torch.tensor(example.rationale) >= _HALF for example in examples]
    found = {"all": _group(words, marks, draws)}
    parts: dict[str, list[int]] = {}
    for number, example in enumerate(examples):
        if "part" in example.extra:
            parts.setdefault(str(example.extra["part"]), []).append(number)
    for part, members in parts.items():
        found[part] = _group([words[i] for i in members], [marks[i] for i in members], 0)
    return found


def _group(words: Sequence[Tensor], marks: Sequence[Tensor], draws: int) -> dict[str, Any]:
    scaled = [maths.rescaled(one) for one in words]
    scores, gold = torch.cat(scaled), torch.cat(list(marks))
    mixed = [number for number, one in enumerate(marks) if not bool(one.all())]  # the others have no ROC
    each = list(zip(scaled, marks, strict=True))
    out: dict[str, Any] = {
        "texts": len(words),
        "words": len(gold),
        "marked": gold.double().mean().item(),
        "entropy": torch.stack([maths.normalised_row_entropy(one) for one in words]).mean().item(),
        "pooled": {
            "auprc": maths.average_precision(scores, gold).item(),
            "auroc": maths.roc_area(scores, gold).item(),
            "iou": maths.overlap(scores >= _HALF, gold).item(),
        },
        "per_instance": {
            "auprc": _mean([maths.precision_recall_area(a, b) for a, b in each]),
            "average_precision": _mean([maths.average_precision(a, b) for a, b in each]),
            "auroc": _mean([maths.roc_area(*each[number]) for number in mixed]),
            "iou": _mean([maths.overlap(a >= _HALF, b) for a, b in each]),
        },
        "texts_with_unmarked_words": len(mixed),
    }
    if draws:
        out["draws"] = _draws(scores, gold, [len(one) for one in words], draws)
    return out


def _draws(scores: Tensor, gold: Tensor, lengths: Sequence[int], draws: int) -> dict[str, list[float]]:
    """Pooled numbers of a bootstrap over texts; the draws are the same for every model on the same texts."""
    counts = maths.drawn(len(lengths), draws, seed=0)
    found: dict[str, list[float]] = {"auprc": [], "auroc": []}
    for some in counts.split(20):
        weight = some.double().repeat_interleave(torch.tensor(lengths), dim=1)
        found["auprc"] += [round(x, 5) for x in maths.average_precision(scores, gold, weight).tolist()]
        found["auroc"] += [round(x, 5) for x in maths.roc_area(scores, gold, weight).tolist()]
    return found


def _mean(values: list[Tensor]) -> float | None:
    return torch.stack(values).double().mean().item() if values else None
