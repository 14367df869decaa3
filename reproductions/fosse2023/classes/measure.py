"""Pure attention with many classes: trained, tested, and how its class directions lie."""

import math
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.lens.cones.formulas import mean_direction_cosines, separation
from lorgnette.lens.geometry.isotropy import effective_rank
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.embeddings import set_embeddings
from lorgnette.models.classifier.presets import preset
from lorgnette.texts.vectors import read_vectors
from reproductions.fosse2023.classes.labels import EDGE, LabelSet, Texts, label_set
from reproductions.fosse2023.classes.planted import PlantedClasses
from reproductions.fosse2023.classes.training import device, train_steps
from reproductions.fosse2023.cones import correlations
from reproductions.frame.running import ready_for_training
from reproductions.frame.settings import Machine

RATES = {"planted": 3e-3, "labelled": 1e-3}
LEAST = 5  # test texts that a class must have for its direction to count
_BATCH = 2048
_LAYERS = {"planted": 1, "labelled": 2}


def planted(
    *,
    width: int,
    counts: list[int],
    seed: int,
    steps: int,
    batch_size: int,
    machine: Machine,
    learning_rate: float = RATES["planted"],
    areas: bool = True,
) -> dict[str, dict[str, Any]]:
    """One model for each number of classes, on texts drawn anew for every step; by number of classes.

    Without `areas` the AUROC of each class is left out, which of thousands of classes takes longer than the training.
    """
    ready_for_training()
    found = {}
    for classes in counts:
        torch.manual_seed(seed)
        texts = PlantedClasses(classes)
        model = _model(texts.vocabulary, classes, width, _LAYERS["planted"])
        dice = torch.Generator(device()).manual_seed(1_000_003 * seed + classes)

        def draw(texts: PlantedClasses = texts, dice: torch.Generator = dice) -> dict[str, Tensor]:
            return dict(zip(("input_ids", "labels"), texts.draw(batch_size, dice), strict=True))

        training = train_steps(model, draw, steps=steps, learning_rate=learning_rate)
        ids, labels = texts.draw(max(2000, 20 * classes), dice)
        found[str(classes)] = {**training, **_measured(model, ids, labels, classes, areas)}
    return found


def labelled(
    *,
    name: str,
    width: int,
    source: str,
    seed: int,
    steps: int,
    batch_size: int,
    limit: int | None,
    machine: Machine,
) -> dict[str, Any]:
    """One model on a real label set; the best weights by validation loss."""
    ready_for_training()
    torch.manual_seed(seed)
    texts = label_set(name, machine.data, limit)
    classes = len(texts.classes)
    model = _model(len(texts.words) + EDGE + 1, classes, width, _LAYERS["labelled"])
    known = _with_glove(model, texts, machine.data) if source == "glove" else None
    train, dev = (_there(texts.splits[split]) for split in ("train", "dev"))
    dice = torch.Generator(device()).manual_seed(seed)

    def draw() -> dict[str, Tensor]:
        chosen = torch.randint(len(train.labels), (batch_size,), generator=dice, device=device())
        return {"input_ids": train.ids[chosen].long(), "labels": train.labels[chosen]}

    def validate() -> float:
        logits, _ = _answers(model, dev.ids)
        return float(nn.functional.cross_entropy(logits, dev.labels))

    training = train_steps(model, draw, steps=steps, learning_rate=RATES["labelled"], validate=validate)
    test = texts.splits["test"]
    return {
        **training,
        "classes": classes,
        "texts": {split: len(one.labels) for split, one in texts.splits.items()},
        "left_out": texts.left_out,
        "vocabulary": {"words": len(texts.words), "with_vector": known},
        "majority": _majority(texts),
        **_measured(model, test.ids.to(device()), test.labels.to(device()), classes),
    }


def _model(vocabulary: int, classes: int, width: int, layers: int) -> Any:
    told = preset(
        "pure-attention",
        vocab_size=vocabulary,
        width=width,
        layers=layers,
        embedding_source="random",
        num_labels=classes,
    )
    return SelfAttentionClassifier(told).to(device())


def _with_glove(model: Any, texts: LabelSet, data: str | None) -> int:
    """GloVe's vectors for the words that have one, zero for the others; how many have one."""
    if data is None:
        raise ValueError("GloVe is read from the folder of the data")
    names, vectors = read_vectors(Path(data) / "glove_100d")
    place = {word: row for row, word in enumerate(names)}
    table = torch.zeros(len(texts.words) + EDGE + 1, vectors.shape[1])
    found = [(row, place[word]) for word, row in texts.words.items() if word in place]
    rows, places = torch.tensor(found).T
    table[rows] = torch.from_numpy(vectors)[places]
    table[EDGE - 1 : EDGE + 1] = 0.1 * torch.randn(2, table.shape[1])  # <mask>, <edge>
    set_embeddings(model, table.to(device()), "glove")
    return len(found)


def _there(texts: Texts) -> Texts:
    return Texts(texts.ids.to(device()), texts.labels.to(device()))


def _majority(texts: LabelSet) -> float:
    """Accuracy of always saying the most frequent class of training, which is class 0."""
    return round(float((texts.splits["test"].labels == 0).double().mean()), 6)


@torch.no_grad()
def _answers(
    model: Any, ids: Int[Tensor, "text token"]
) -> tuple[Float[Tensor, "text class"], Float[Tensor, "text dim"]]:
    """Logits and last <cls> states, part by part."""
    model.eval()
    logits, states = [], []
    for begin in range(0, len(ids), _BATCH):
        found = model(input_ids=ids[begin : begin + _BATCH].long(), output_hidden_states=True)
        logits.append(found.logits)
        states.append(found.hidden_states[-1][:, 0])
    return torch.cat(logits), torch.cat(states)


def _measured(model: Any, ids: Tensor, labels: Tensor, classes: int, areas: bool = True) -> dict[str, Any]:
    logits, states = _answers(model, ids)
    right = (logits.argmax(-1) == labels).double()
    weight = model.classifier.weight.detach().double().cpu()
    return {
        "accuracy": round(float(right.mean()), 6),
        "cross_entropy": round(float(nn.functional.cross_entropy(logits, labels)), 6),
        **direction_numbers(states.double().cpu(), labels.cpu(), right.cpu(), classes, areas=areas),
        "weights": _spread(weight / weight.norm(dim=-1, keepdim=True)),
    }


def direction_numbers(
    states: Float[Tensor, "text dim"],
    labels: Int[Tensor, " text"],
    right: Float[Tensor, " text"],
    classes: int,
    *,
    areas: bool = True,
) -> dict[str, Any]:
    """How the mean directions of the classes lie, as they are and less their mean; classes of few texts left out.

    Also the AUROC of own against other class in the cosine with the class's mean direction, its mean over classes.
    """
    counts = torch.bincount(labels, minlength=classes)
    used = (counts >= LEAST).nonzero()[:, 0]
    kept = torch.isin(labels, used) & (states.norm(dim=-1) > 0)
    units, gold = states[kept], torch.searchsorted(used, labels[kept])
    units = units / units.norm(dim=-1, keepdim=True)
    to_means = mean_direction_cosines(units, gold, len(used), keep=False)
    own = to_means[torch.arange(len(gold)), gold]
    by_class = [float(own[gold == c].nanmean()) for c in range(len(used))]
    share = [float(right[kept][gold == c].mean()) for c in range(len(used))]
    under = [separation(to_means[:, c : c + 1], gold == c).value for c in range(len(used))] if areas else [math.nan]
    means = torch.zeros(len(used), units.shape[1], dtype=units.dtype).index_add_(0, gold, units)
    means = means / torch.bincount(gold, minlength=len(used))[:, None]
    return {
        "classes_used": len(used),
        "zero_vectors": int((states.norm(dim=-1) == 0).sum()),
        "own_cosine": _round(sum(by_class) / len(by_class)),
        "auroc": _round(sum(under) / len(under)),
        "auroc_least": _round(min(under)),
        **correlations(by_class, share),
        "raw": _spread(_unit(means)),
        "centred": _spread(_unit(means - means.mean(0))),
        "mean_length": _round(float(means.mean(0).norm())),
    }


def _unit(rows: Float[Tensor, "row dim"]) -> Float[Tensor, "row dim"]:
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def _spread(units: Float[Tensor, "class dim"]) -> dict[str, Any]:
    """Off-diagonal cosines and how many directions there are: effective rank, and the participation ratio of σ²."""
    cosines = (units @ units.T).clamp(-1, 1)
    off = cosines[~torch.eye(len(units), dtype=torch.bool)].sort().values
    moment = units.T @ units
    squared = torch.linalg.eigvalsh(moment).clamp(min=0)
    low, middle, high = (float(off[round(q * (len(off) - 1))]) for q in (0.05, 0.5, 0.95))
    return {
        "mean": _round(float(off.mean())),
        "least": _round(float(off[0])),
        "largest": _round(float(off[-1])),
        "largest_absolute": _round(float(off.abs().max())),
        "mean_absolute": _round(float(off.abs().mean())),
        "quantile": [_round(low), _round(middle), _round(high)],
        "effective_rank": _round(float(effective_rank(moment))),
        "participation": _round(float(squared.sum() ** 2 / squared.square().sum())),
    }


def _round(value: float) -> float | None:
    return None if value != value else round(value, 6)
