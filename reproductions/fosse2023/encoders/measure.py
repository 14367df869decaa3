"""One fine-tuning of a pretrained encoder: Linear(d, C) on the last [CLS], and the geometry before and after."""

import dataclasses
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from jaxtyping import Float, Int
from torch import Tensor, nn

from lorgnette.lens.geometry.cosine import directions, mean_pairwise_cosine
from lorgnette.models.opening import find
from lorgnette.texts import corpus as corpus_of
from lorgnette.training import TrainingSettings, train
from lorgnette.training.build import PretrainedBuilder
from lorgnette.training.data import Collator, Items
from lorgnette.training.preparation import prepare
from lorgnette.training.settings import Splits
from reproductions.fosse2023.cones import cone_numbers, nearest_numbers
from reproductions.frame.running import numbers_of, ready_for_training
from reproductions.frame.settings import Machine

_BATCH = 256


class FirstToken(nn.Module):
    """In place of a BERT's pooler (a trained layer with tanh): the state of [CLS] as it is."""

    def forward(self, states: Float[Tensor, "batch token dim"]) -> Float[Tensor, "batch dim"]:
        return states[:, 0]


class ClsBuilder(PretrainedBuilder):
    """Makes the encoder with Linear(d, C) on the last [CLS] (Fosse et al. 2023), and remembers the model it made."""

    made: Any = None

    def __init__(self, settings: TrainingSettings, labels: tuple[str, ...], start: str) -> None:
        super().__init__(settings, labels)
        self.start = start

    def model(self) -> Any:
        if self.start == "random":
            config = self.checkpoint.config()
            config.num_labels = len(self.labels)
            model = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
        else:
            model = super().model()
        model.base_model.pooler = FirstToken()
        self.made = model
        return model


def finetuned(
    *,
    model: str,
    corpus: str,
    start: str,
    limit: int | None,
    draws: int,
    machine: Machine,
    nearest: bool = False,
    **told: Any,
) -> dict[str, Any]:
    """Fine-tunes one model and measures its states and cones on the test texts, before and after.

    With `nearest`, also the class directions themselves, and pairs of texts with their cosines.
    """
    ready_for_training()
    with tempfile.TemporaryDirectory(prefix="lorgnette-", ignore_cleanup_errors=True) as folder:
        source = folder_of(model, machine.models)
        settings = TrainingSettings(
            model=source,
            corpus=splits_of(corpus, limit, machine.data),
            out=Path(folder) / "run",
            schedule="constant",
            **told,
        )
        ready = prepare(settings)
        builder = ClsBuilder(settings, ready.parts.labels, start)
        ready = dataclasses.replace(ready, builder=builder)
        assert ready.parts.test is not None
        test = Items(ready.reader, ready.parts.test)
        transformers.set_seed(settings.seed)  # as the run will, so that these are the weights it starts from
        before = measured(builder.model(), test, builder, draws, trained=False, nearest=nearest)
        run = train(settings, prepared=ready)
        after = measured(builder.made, test, builder, draws, trained=True, nearest=nearest)
        if nearest:
            after["examples"] = named(after["examples"], [str(example.id) for example in ready.parts.test])
    numbers = numbers_of(run)
    del numbers["curve"]
    about = {"labels": list(ready.parts.labels), "cut": test.cut, "weights_hash": weights_of(source)}
    return {**numbers, **about, "before": before, "after": after}


def splits_of(name: str, limit: int | None, data: str | None) -> Splits:
    """The corpus, or with a limit so many training texts and half as many of the others."""
    train, validation, test = (corpus_of(name, split=split, data=data) for split in ("train", "validation", "test"))
    if limit is None:
        return Splits(train, validation, test)
    return Splits(train.take(limit), validation.take(limit // 2), test.take(limit // 2))


def folder_of(name: str, models: str | None) -> str:
    """A model in the folder of models that was given, else where its name leads."""
    if models and Path(models, name).is_dir():
        return str(Path(models, name))
    found = find(name)
    return name if found is None else str(found)


def weights_of(folder: str) -> str | None:
    """SHA-256 of a checkpoint's weights; None if it is no folder of one file (a name of the hub)."""
    file = Path(folder, "model.safetensors")
    if not file.is_file():
        return None
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def measured(
    model: Any, test: Items, builder: ClsBuilder, draws: int, *, trained: bool, nearest: bool = False
) -> dict[str, Any]:
    """SIM by layer, and cones of the last [CLS]; before training every text counts as classified right."""
    model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    layers = LayerSums()
    states, labels, predicted = [], [], []
    collate = Collator(builder.tokenizer.pad_token_id)
    special = torch.tensor(sorted(builder.tokenizer.all_special_ids), device=model.device)
    for begin in range(0, len(test), _BATCH):
        batch = {key: value.to(model.device) for key, value in collate(test.items[begin : begin + _BATCH]).items()}
        labels.append(batch.pop("labels").cpu())
        with torch.no_grad():
            outputs = model(**batch, output_hidden_states=True)
        layers.add(outputs.hidden_states, batch["attention_mask"].bool(), torch.isin(batch["input_ids"], special))
        states.append(outputs.hidden_states[-1][:, 0].double().cpu())
        predicted.append(outputs.logits.argmax(-1).cpu())
    vectors, gold, guess = torch.cat(states), torch.cat(labels), torch.cat(predicted)
    guess = guess if trained else gold
    classes = len(builder.labels)
    ways = ("random", "first") if trained else ("random",)
    cones = {how: cone_numbers(vectors, gold, guess, classes, how=how, draws=draws) for how in ways}
    found: dict[str, Any] = {"sim": layers.numbers(), "cones": cones}
    if nearest:
        found["nearest"] = nearest_numbers(vectors, gold, guess, classes)
    if nearest and trained:
        found["examples"] = examples(vectors, gold, guess, classes)
    return found


def examples(
    vectors: Float[Tensor, "text dim"], gold: Int[Tensor, " text"], guess: Int[Tensor, " text"], classes: int
) -> list[dict[str, Any]]:
    """As the slide's examples: with the first text of each class that is classified right, the cosine of the text in
    the middle of the same class, and that of the text of another class which is closest to it."""
    units = vectors / vectors.norm(dim=-1, keepdim=True)
    found = []
    for c in range(classes):
        right = ((gold == c) & (guess == c)).nonzero()[:, 0]
        if len(right) < 2:
            continue
        cosines = units @ units[right[0]]
        own = right[1:][cosines[right[1:]].argsort()]
        others = (gold != c).nonzero()[:, 0]
        far = others[cosines[others].argmax()]
        rows = {"same class": own[len(own) // 2], "another class": far}
        for kind, text in rows.items():
            about = {"representative": int(right[0]), "text": int(text), "kind": kind, "class": c}
            about |= {"of": int(gold[text]), "predicted": int(guess[text])}
            found.append({**about, "cosine": round(float(cosines[text]), 6)})
    return found


def named(rows: list[dict[str, Any]], ids: list[str]) -> list[dict[str, Any]]:
    """Texts by the names that they have in the corpus: what they say is not ours to print."""
    return [{**row, **{side: ids[row[side]] for side in ("representative", "text")}} for row in rows]


class LayerSums:
    """SIM of the states of every layer: within texts, with and without special tokens, over the corpus, of [CLS]."""

    WITHIN = ("tokens", "words")

    def __init__(self) -> None:
        self.within: dict[str, list[Tensor]] = {name: [] for name in self.WITHIN}
        self.used: dict[str, list[Tensor]] = {name: [] for name in self.WITHIN}
        self.units: dict[str, Tensor] = {}
        self.count: dict[str, Tensor] = {}

    def add(self, history: Any, mask: Tensor, special: Tensor) -> None:
        cls = torch.zeros_like(mask)
        cls[:, 0] = True
        parts = {"tokens": mask, "words": mask & ~special, "cls": cls}
        for name, chosen in parts.items():
            found = [directions(states[:, :, None], chosen) for states in history]
            units = torch.stack([one.units[:, 0].double() for one in found])  # [layer text dim]
            count = torch.stack([one.count[:, 0].double() for one in found])
            if name in self.WITHIN:
                self.within[name].append(mean_pairwise_cosine(units, count).cpu())
                self.used[name].append((count > 1).cpu())
            self.units[name] = self.units.get(name, 0) + units.sum(1)
            self.count[name] = self.count.get(name, 0) + count.sum(1)

    def numbers(self) -> dict[str, Any]:
        """Means over the texts that have two tokens; the others are counted. Layers from 0, the embeddings."""
        out: dict[str, Any] = {}
        for name in self.WITHIN:
            values, used = torch.cat(self.within[name], 1), torch.cat(self.used[name], 1)
            out[name] = _rounded((values * used).sum(1) / used.sum(1).clamp(min=1))
            out[f"{name}_texts"], out[f"{name}_left_out"] = int(used[0].sum()), int((~used[0]).sum())
        out |= {
            f"{name}_corpus": _rounded(mean_pairwise_cosine(self.units[name], self.count[name]).cpu())
            for name in self.units
        }
        return out


def _rounded(values: Float[Tensor, " layer"]) -> list[float]:
    return [round(value, 6) for value in values.tolist()]
