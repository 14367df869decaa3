"""Parts of speech from the states of an encoder: one tagging run, and the cones of its tags.

English (UD_English-EWT) from a pretrained encoder; French (UD_French-Sequoia) from the encoder of a translator.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lorgnette.results.provenance import versions
from lorgnette.texts import corpus
from reproductions.fosse2023.classes.training import device, train_steps
from reproductions.fosse2023.cones import cone_numbers, nearest_numbers
from reproductions.fosse2023.encoders.measure import LayerSums, folder_of, weights_of
from reproductions.frame.running import ready_for_training
from reproductions.frame.settings import Machine

NOTHING = -100  # what torch's cross-entropy leaves out
MAX_LENGTH = 150
SPLITS = ("train", "dev", "test")
_BATCH = 128


@dataclass(frozen=True)
class Sentences:
    """Pieces of each sentence; the tag stands on the first piece of a word, `NOTHING` on all else."""

    ids: list[Tensor]  # of different lengths
    tags: list[Tensor]
    left_out: int

    def batch(self, chosen: list[int]) -> dict[str, Tensor]:
        ids = pad_sequence([self.ids[i] for i in chosen], batch_first=True)
        tags = pad_sequence([self.tags[i] for i in chosen], batch_first=True, padding_value=NOTHING)
        lengths = torch.tensor([len(self.ids[i]) for i in chosen])
        mask = (torch.arange(ids.shape[1]) < lengths[:, None]).long()
        batch = {"input_ids": ids, "attention_mask": mask, "labels": tags}
        return {name: value.to(device()) for name, value in batch.items()}


def tagged(
    *,
    model: str,
    start: str,
    seed: int,
    steps: int,
    batch_size: int,
    learning_rate: float,
    draws: int,
    limit: int | None,
    machine: Machine,
    corpus: str = "ud_en_ewt",
    layers: bool = False,
    checks: int = 8,
) -> dict[str, Any]:
    """Trains one tagger and measures the cones of its tags on the test words, before and after.

    With `layers`, also SIM of the states of every layer, and the nearest of the tags' directions.
    """
    ready_for_training()
    source = folder_of(model, machine.models)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    tags, splits = _read(tokenizer, corpus, limit, machine.data)
    transformers.set_seed(seed)
    tagger = _tagger(source, start, tags)
    test = splits["test"]
    before = _cones(tagger, test, len(tags), draws, trained=False, layers=layers)
    dice = torch.Generator().manual_seed(seed)
    train, dev = splits["train"], splits["dev"]

    def draw() -> dict[str, Tensor]:
        # Sentences of similar length together: a window of the order by length, at random.
        begin = int(torch.randint(max(1, len(by_length) - batch_size + 1), (1,), generator=dice))
        return train.batch(by_length[begin : begin + batch_size])

    by_length = sorted(range(len(train.ids)), key=lambda number: len(train.ids[number]))
    training = train_steps(
        tagger, draw, steps=steps, learning_rate=learning_rate, validate=lambda: _loss(tagger, dev), checks=checks
    )
    return {
        **training,
        "tags": list(tags),
        "sentences": {split: len(one.ids) for split, one in splits.items()},
        "left_out": {split: one.left_out for split, one in splits.items()},
        "before": before,
        "after": _cones(tagger, test, len(tags), draws, trained=True, layers=layers),
        "weights_hash": weights_of(source),
        "device": str(device()),
        "versions": dict(versions()),
    }


class EncoderTagger(nn.Module):
    """Linear(d, tags) on the states of a translator's encoder, for which transformers has no tagger."""

    def __init__(self, encoder: nn.Module, width: int, tags: int) -> None:
        super().__init__()
        self.encoder, self.classifier = encoder, nn.Linear(width, tags)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None, **told: Any) -> Any:
        out = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **told)
        logits = self.classifier(out.last_hidden_state)
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return SimpleNamespace(loss=loss, logits=logits, hidden_states=out.hidden_states)


def _tagger(source: str, start: str, tags: tuple[str, ...]) -> Any:
    config = transformers.AutoConfig.from_pretrained(source)
    if config.is_encoder_decoder:
        opened = transformers.AutoModel
        whole = opened.from_config(config) if start == "random" else opened.from_pretrained(source)
        return EncoderTagger(whole.get_encoder().float(), config.d_model, len(tags)).to(device())
    names = dict(enumerate(tags))
    told = {"id2label": names, "label2id": {tag: number for number, tag in names.items()}}
    quiet = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()  # the head is new, as it should be
    try:
        if start == "random":
            config = transformers.AutoConfig.from_pretrained(source, **told)
            return transformers.AutoModelForTokenClassification.from_config(config, dtype=torch.float32).to(device())
        opened = transformers.AutoModelForTokenClassification.from_pretrained
        return opened(source, use_safetensors=True, dtype=torch.float32, **told).to(device())
    finally:
        transformers.logging.set_verbosity(quiet)


def _read(
    tokenizer: Any, name: str, limit: int | None, data: str | None
) -> tuple[tuple[str, ...], dict[str, Sentences]]:
    kept = {
        split: list(islice(corpus(name, split=split, data=data), limit if split == "train" or not limit else 48))
        for split in SPLITS
    }
    tags = tuple(sorted({tag for example in kept["train"] for tag in example.tags["upos"]}))
    number = {tag: place for place, tag in enumerate(tags)}
    return tags, {split: _sentences(tokenizer, examples, number) for split, examples in kept.items()}


def _sentences(tokenizer: Any, examples: list[Any], number: dict[str, int]) -> Sentences:
    """A sentence of more than 150 pieces, or with a tag unknown to training, is left out and counted."""
    ids, tags, left_out = [], [], 0
    for example, (pieces, words) in zip(examples, _pieces(tokenizer, examples), strict=True):
        own = example.tags["upos"]
        if len(pieces) > MAX_LENGTH or any(tag not in number for tag in own):
            left_out += 1
            continue
        first = [word is not None and word not in words[:at] for at, word in enumerate(words)]
        ids.append(torch.tensor(pieces))
        tags.append(torch.tensor([number[own[w]] if yes else NOTHING for w, yes in zip(words, first, strict=True)]))
    return Sentences(ids, tags, left_out)


def _pieces(tokenizer: Any, examples: list[Any]) -> list[tuple[list[int], Sequence[int | None]]]:
    """Ids of each sentence, and the word that each is of; word by word where the tokenizer does not tell that."""
    if tokenizer.is_fast:
        encoded = tokenizer([list(example.words) for example in examples], is_split_into_words=True)
        return [(ids, encoded.word_ids(place)) for place, ids in enumerate(encoded["input_ids"])]
    found: list[tuple[list[int], Sequence[int | None]]] = []
    for example in examples:
        words = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in example.words]
        places: list[int | None] = [place for place, pieces in enumerate(words) for _ in pieces]
        found.append(([piece for pieces in words for piece in pieces] + [tokenizer.eos_token_id], [*places, None]))
    return found


@torch.no_grad()
def _answers(tagger: Any, sentences: Sentences, sums: LayerSums | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Last states, logits and tags of all words; `sums` is shown the states of every layer."""
    tagger.eval()
    states, logits, tags = [], [], []
    order = sorted(range(len(sentences.ids)), key=lambda number: len(sentences.ids[number]))
    for begin in range(0, len(order), _BATCH):
        batch = sentences.batch(order[begin : begin + _BATCH])
        labels = batch.pop("labels")
        found = tagger(**batch, output_hidden_states=True)
        words = labels != NOTHING
        if sums is not None:
            sums.add(found.hidden_states, batch["attention_mask"].bool(), ~words)
        states.append(found.hidden_states[-1][words].double().cpu())
        logits.append(found.logits[words].float().cpu())
        tags.append(labels[words].cpu())
    return torch.cat(states), torch.cat(logits), torch.cat(tags)


def _loss(tagger: Any, sentences: Sentences) -> float:
    _, logits, tags = _answers(tagger, sentences)
    return float(torch.nn.functional.cross_entropy(logits, tags))


def _cones(
    tagger: Any, test: Sentences, classes: int, draws: int, *, trained: bool, layers: bool = False
) -> dict[str, Any]:
    """Before training every word counts as tagged right."""
    sums = LayerSums() if layers else None
    states, logits, tags = _answers(tagger, test, sums)
    guess = logits.argmax(-1)
    found = cone_numbers(states, tags, guess if trained else tags, classes, draws=draws)
    del found["quantile"]  # seventeen times seventeen boxes are no figure
    if sums is not None:
        found |= {"sim": sums.numbers(), "nearest": nearest_numbers(states, tags, guess if trained else tags, classes)}
    return {"tag_accuracy": round(float((guess == tags).double().mean()), 6), **found}
