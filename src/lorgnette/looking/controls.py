"""Control conditions, in which a lens should find nothing: random weights, and shuffled words."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch

from lorgnette.lens.base import Lens
from lorgnette.lens.roles.lens import Roles
from lorgnette.looking.look import look
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.texts.shuffled import drawn_order

TRAINED, RANDOM, SHUFFLED = "trained", "random weights", "shuffled words"


def roles_with_controls(
    subject: Subject, corpus: Iterable[Example], *, seed: int = 0, **options: Any
) -> dict[str, Result]:
    """The roles of a model, of the same architecture before any training, and of the model on shuffled words.

    A role that the controls have too says nothing about what was learnt (random weights) or about syntax (shuffled
    words: trees go with their words, so that a head that finds a relation there goes by the words alone).
    """
    return with_controls(subject, corpus, Roles, seed=seed, **options)


def with_controls(
    subject: Subject, corpus: Iterable[Example], make: Callable[[], Lens], *, seed: int = 0, **options: Any
) -> dict[str, Result]:
    """The result of a lens by condition; `options` go to `look`."""
    texts = list(corpus)
    name = str(getattr(corpus, "name", "texts"))
    conditions = {
        TRAINED: (subject, texts),
        RANDOM: (with_random_weights(subject, seed), texts),
        SHUFFLED: (subject, [shuffled(example, seed) for example in texts]),
    }
    results = {}
    for condition, (model, examples) in conditions.items():
        lens = make()
        shown = name if condition != SHUFFLED else f"{name}, words shuffled"
        results[condition] = look(model, Corpus.of(examples, name=shown), [lens], **options)[lens.name]
    return results


def with_random_weights(subject: Subject, seed: int) -> Subject:
    """The same architecture as its class initialises it before any training."""
    torch.manual_seed(seed)
    model = type(subject.model)(subject.model.config)
    model = model.to(subject.device, subject.dtype).eval()
    return Subject(model, subject.tokenizer if subject.has_tokenizer else None, name=f"{subject.name}, random weights")


def shuffled(example: Example, seed: int = 0) -> Example:
    """An example with its words in an order drawn from the seed and its id; annotations of a word move with it."""
    words = example.words if example.words is not None else tuple(example.text.split())
    order = drawn_order(len(words), f"{seed} {example.id} 1")
    place = {old: new for new, old in enumerate(order)}
    heads = None
    if example.heads is not None:
        heads = tuple(0 if example.heads[old] == 0 else place[example.heads[old] - 1] + 1 for old in order)
    pair = None
    if example.pair is not None:
        others = example.pair.split()
        pair = " ".join(others[old] for old in drawn_order(len(others), f"{seed} {example.id} 2"))
    mixed = tuple(words[old] for old in order)
    return replace(
        example,
        text=" ".join(mixed),
        pair=pair,
        words=mixed if example.words is not None else None,
        heads=heads,
        relations=None if example.relations is None else tuple(example.relations[old] for old in order),
        rationale=None if example.rationale is None else tuple(example.rationale[old] for old in order),
        tags={name: tuple(tags[old] for old in order) for name, tags in example.tags.items()},
    )
