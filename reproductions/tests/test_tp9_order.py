"""Word order: contrast pairs are the same words, and a model without positions cannot tell them apart."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from reproductions.tp9 import order


def model(positions: str) -> SelfAttentionClassifier:
    torch.manual_seed(0)
    told = preset(
        "tp9-base",
        vocab_size=30,
        width=8,
        layers=2,
        embedding_source="random",
        num_labels=2,
        positions=positions,
        initializer_range=0.6,
    )
    return SelfAttentionClassifier(told).eval()


def items(count: int = 40):
    dice = torch.Generator().manual_seed(1)
    lengths = torch.randint(4, 12, (count,), generator=dice).tolist()
    return [
        {"input_ids": torch.randint(3, 30, (length,), generator=dice), "labels": number % 2}
        for number, length in enumerate(lengths)
    ]


def test_contrast_pairs_differ_in_order_alone():
    pairs = order.contrast_pairs()
    assert len(set(pairs)) == len(pairs) >= 200
    for positive, negative in pairs:
        assert positive != negative
        assert Counter(positive.split()) == Counter(negative.split())
        assert not order.NEGATIONS.isdisjoint(positive.split()) or "far from" in positive


def test_without_positions_nothing_changes_with_positions_something_does():
    texts, dice = items(), torch.Generator().manual_seed(2)
    blind = order.shuffled(model("none"), texts, 2, dice)
    assert blind["changed"] == 0
    assert blind["accuracy"] == blind["whole"]
    sees = model("sinusoidal")
    mixed = [{**item, "input_ids": item["input_ids"].flip(0)} for item in texts]
    assert not torch.allclose(order.margins(sees, texts), order.margins(sees, mixed), atol=1e-3)
    assert torch.allclose(order.margins(model("none"), texts), order.margins(model("none"), mixed), atol=1e-4)


def test_margins_are_in_the_order_of_the_items():
    one, texts = model("sinusoidal"), items(7)
    for place, item in enumerate(texts):
        logits = (
            one(input_ids=item["input_ids"][None], attention_mask=torch.ones_like(item["input_ids"][None]))
            .logits[0]
            .detach()
        )
        assert float(order.margins(one, texts)[place]) == pytest.approx(float(logits[1] - logits[0]), abs=1e-5)


def test_a_tie_counts_a_half():
    gaps = torch.tensor([0.5, -0.5, 1e-7, 0.0], dtype=torch.float64)
    assert order._half(gaps).tolist() == [1.0, 0.0, 0.5, 0.5]


def test_pairs_of_a_model_that_counts_words_are_ties(monkeypatch):
    monkeypatch.setattr(order, "margins", lambda _, texts: torch.tensor([len(t["words"]) for t in texts]).double())
    monkeypatch.setattr(order, "_items", lambda _, examples: [{"words": one.text.split()} for one in examples])
    assert order.pairs_right(SimpleNamespace(), SimpleNamespace())["right"] == 0.5


def test_pairs_of_a_model_that_reads_the_last_word_are_told_apart(monkeypatch):
    good = {yes for yes, _ in order._OPPOSITES}
    ends = lambda text: max((text.split().index(w), w in good) for w in text.split() if w in _adjectives())[1]  # noqa: E731
    monkeypatch.setattr(order, "margins", lambda _, texts: torch.tensor([float(ends(t)) for t in texts]).double())
    monkeypatch.setattr(order, "_items", lambda _, examples: [one.text for one in examples])
    right = order.pairs_right(SimpleNamespace(), SimpleNamespace(), balanced=True)
    assert (right["denied_first"], right["denied_last"], right["balanced"]) == (1.0, 0.0, 0.5)  # goes by place alone
    # Where the denied word comes last, the rule is wrong: two of the six templates.
    wrong = sum("and not" in one or "would be so" in one for one, _ in order.contrast_pairs())
    assert right["right"] == pytest.approx(1 - wrong / right["pairs"])


def _adjectives() -> set[str]:
    return {word for pair in order._OPPOSITES for word in pair}
