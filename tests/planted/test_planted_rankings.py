"""No method that `prune` offers may choose worse than chance where it is known which heads carry the class."""

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_planted_gates import HEADS, NO, WORDS, YES, learnt, planted

from lorgnette.attending import Site
from lorgnette.lens.importance.lens import Importance, need
from lorgnette.looking.look import look
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.models.tapping import tapped
from lorgnette.subject import Subject
from lorgnette.subject.knockout import Knockout
from lorgnette.texts.example import Example
from lorgnette.training.pruning.controls import Controls, Rates
from lorgnette.training.pruning.ranking import agreement_scores, importance_scores, top_heads

SITE = Site("encoder", "self", 0)
RANKINGS = {"importance": importance_scores, "agreement": agreement_scores}


def watched(carrier, seed):
    """The planted block with a tokenizer whose ids are the words' numbers."""
    words = [f"w{number}" for number in range(WORDS)]
    tokenizer = build_tokenizer(vocabulary=words, style="whitespace", cls=False)
    model = planted(carrier, seed)
    ids = {number: tokenizer.convert_tokens_to_ids(f"w{number}") for number in range(WORDS)}
    table = model.embeddings.words.weight.detach().clone()
    fresh = torch.zeros(len(tokenizer), table.shape[1])
    for number, place in ids.items():
        fresh[place] = table[number]
    model.embeddings.words.weight = torch.nn.Parameter(fresh)
    model.embeddings.words.num_embeddings = len(tokenizer)
    model.config.vocab_size = len(tokenizer)
    return Subject(model.eval(), tokenizer, name="planted")


def reviews(seed, count=48):
    draw, out = random.Random(seed), []
    for number in range(count):
        words = [f"w{draw.randrange(12, WORDS)}" for _ in range(8)]
        words[draw.randrange(8)] = f"w{YES if number % 2 else NO}"
        out.append(Example(f"{number}", " ".join(words), label=number % 2))
    return out


def accuracy(subject, gone):
    held = reviews(99, 64)
    with torch.no_grad(), tapped(subject.model, Knockout({SITE: sorted(gone)})):
        chosen = subject.run(subject.encode(held)).logits.argmax(-1)
    return (chosen == torch.tensor([example.label for example in held])).double().mean().item()


def choice(method, subject, carrier, seed):
    """Half of the heads, as `prune` would keep them."""
    if method in RANKINGS:
        return top_heads(RANKINGS[method](subject, reviews(seed)), HEADS // 2)
    assert method == "gates"
    torch.manual_seed(seed)
    gates, _ = learnt(planted(carrier, seed), steps=150, weight=0.5, keep=HEADS // 2)
    return gates.strongest(HEADS // 2)


@pytest.mark.parametrize("method", ["gates", "importance", "agreement"])
@pytest.mark.parametrize("seed", range(3))
def test_no_method_is_worse_than_random_sets(method, seed):
    carrier = (3 * seed + 1) % HEADS
    subject = watched(carrier, seed)
    kept = choice(method, subject, carrier, seed)
    chosen = accuracy(subject, set(range(HEADS)) - set(kept[SITE]))
    draw = random.Random(seed)
    others = [accuracy(subject, draw.sample(range(HEADS), HEADS // 2)) for _ in range(9)]
    assert chosen >= sum(others) / len(others)
    assert carrier in kept[SITE]


def test_the_report_and_prune_have_one_order():
    subject = watched(2, 0)
    scores = importance_scores(subject, reviews(0))
    found = need(look(subject, reviews(0), [Importance(())], progress=False)["importance"]).values.ravel()
    assert min(scores, key=scores.__getitem__) == (SITE, int(found.argmin()))
    assert sorted(scores.values()) == list(range(HEADS))


def test_a_head_that_stands_in_for_another_stays(monkeypatch):
    """Two heads carry the class alike: either can go, but not both."""
    from lorgnette.training.pruning import ranking

    subject, turns = watched(1, 3), []

    def needs(subject, texts, gone, **_):
        turns.append(len(gone))
        twins = {(SITE, 1), (SITE, 4)}
        alone = twins & set(gone)
        return {(SITE, n): 9.0 if alone and (SITE, n) in twins else 0.1 * n for n in range(HEADS)}

    monkeypatch.setattr(ranking, "_needs", needs)
    scores = importance_scores(subject, reviews(0))
    assert turns == list(range(HEADS))
    assert max(scores, key=scores.__getitem__) in {(SITE, 1), (SITE, 4)}


def test_a_choice_that_does_not_beat_chance_is_said():
    def rate(share: float) -> Rates:
        return Rates((np.arange(100) < 100 * share).astype(float), np.ones(100))

    good = Controls(rate(0.9), tuple(map(rate, (0.8, 0.7, 0.95, 0.6, 0.7))), 100, "test")
    assert good.as_good == 1
    assert good.beaten
    assert good.note() is None
    bad = replace(good, chosen=rate(0.54))
    assert bad.as_good == 5
    assert "5 of 5 random choices" in bad.note()
    assert "did as well as this one or better" in bad.note()
    assert Controls(rate(0.5), (), 10, "test").note() is None
