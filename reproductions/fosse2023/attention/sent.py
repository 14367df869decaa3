"""What makes the model send embeddings in a direction? Which weights must be trained, and what single words say.

The slides ask and do not answer. Two measures. (1) A part of the weights stays as it was drawn while the rest is
trained: what the classes then lose, that part was needed for. (2) Every word alone gives a state of <cls>; the mean of
these over the words of a text is a direction without any weighing of words against each other: how often it has the
class that the whole model predicts.

Predicted before any run: frozen queries and keys cost less than .02 of accuracy, as do frozen values and outputs (the
word vectors can make up for either); frozen word vectors cost more; single words agree with the model on more than .8
of the texts.
"""

from collections.abc import Sequence
from typing import Any

import torch

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.subject import Subject
from reproductions.fosse2023.attention.explained import one_word_outputs
from reproductions.fosse2023.attention.geometry import passed
from reproductions.fosse2023.attention.measure import fitted, settings_of
from reproductions.fosse2023.attention.texts import Text, batches, test_texts
from reproductions.fosse2023.cones import nearest_numbers
from reproductions.frame.running import numbers_of, rounded
from reproductions.frame.settings import Machine

PARTS = {
    "nothing": (),
    "words": ("embeddings.words",),
    "attention": (".query.", ".key."),
    "values": (".value.", ".output."),
}
"""What stays as it was drawn → names of its parameters."""


def sent(*, machine: Machine, frozen: str, **told: Any) -> dict[str, Any]:
    """Trains one model without one part of its weights; accuracy, class directions, and what single words say."""

    def adjust(model: SelfAttentionClassifier) -> None:
        freeze(model, frozen)

    settings = settings_of(**told, data=machine.data, out=machine.scratch)
    run, subject, prepared = fitted(settings, machine, adjust)
    texts = test_texts(
        prepared, name=told["corpus"], data=machine.data, limit=told["test_limit"], max_length=told["max_length"]
    )
    return {**numbers_of(run), **rounded(directions(subject, texts, len(prepared.builder.labels)))}


def freeze(model: SelfAttentionClassifier, part: str) -> None:
    """These parameters are not trained."""
    for name, parameter in model.named_parameters():
        if any(piece in name for piece in PARTS[part]):
            parameter.requires_grad_(False)


@torch.no_grad()
def directions(subject: Subject, texts: Sequence[Text], classes: int) -> dict[str, Any]:
    """Nearest class directions of <cls>, and the mean state of single words, plain and weighed by attention."""
    single = one_word_outputs(subject, texts)
    states, gold, answers = [], [], []
    ways: dict[str, list[torch.Tensor]] = {"uniform": [], "weighed": []}
    near: dict[str, list[torch.Tensor]] = {"uniform": [], "weighed": []}
    for batch in batches(texts, subject.device):
        run = passed(subject, batch)
        words = batch.mask.clone()
        words[:, 0] = False
        row = run.calls[-1].weights[:, 0, 0] * words
        plain = words.to(row.dtype)
        for name, weight in (("uniform", plain), ("weighed", row)):
            share = weight / weight.sum(-1, keepdim=True).clamp(min=1e-12)
            mean = torch.einsum("bt,btd->bd", share, single[batch.ids])
            ways[name].append(subject.model.classifier(mean).argmax(-1).cpu())
            near[name].append(torch.cosine_similarity(mean, run.cls, dim=-1).double().cpu())
        states.append(run.cls.double().cpu())
        answers.append(run.logits.argmax(-1).cpu())
        gold.append(torch.tensor([texts[number].example.label for number in batch.numbers.tolist()]))
    labels, answer = torch.cat(gold), torch.cat(answers)
    words_alone = {}
    for name, found in ways.items():
        guess = torch.cat(found)
        agreed = {"accuracy": guess == labels, "agrees": guess == answer}
        words_alone[name] = {key: float(one.double().mean()) for key, one in agreed.items()}
        words_alone[name]["cosine"] = float(torch.cat(near[name]).mean())
    return {"nearest": nearest_numbers(torch.cat(states), labels, answer, classes), "alone": words_alone}
