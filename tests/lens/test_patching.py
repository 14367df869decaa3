"""Patching against `lo.patched` text by text, its ratio against NumPy, and what cannot be patched."""

from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats
from tiny import classifier, gpt2, marian

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.lens.patching.lens import Patching, clustered_error, ratio_of_sums
from lorgnette.lens.patching.pairs import pair_key
from lorgnette.texts.example import Example

PAIRS = [
    Example("a", "the cat sat on the mat", extra={"counterpart": "the dog sat on the mat"}),
    Example("b", "it was very good .", extra={"counterpart": "it was very bad ."}),
    Example("c", "a dog ran and slept", extra={"counterpart": "a cat ran and slept"}),
]


def asked(pairs, **more):
    return [Example(pair.id, pair.text, extra={**pair.extra, **more}) for pair in pairs]


def numbers(subject, pairs):
    return lo.look(subject, pairs, [Patching()], progress=False)["patching"].data


def by_hand(subject, pair, answer, other, at):
    """D of the clean, the corrupt and every patched pass."""
    clean, corrupt = (subject.encode([text]).inputs for text in (pair.text, pair.extra["counterpart"]))
    source = lo.attention(subject, parts=["context"], **clean)

    def difference(inputs):
        with torch.no_grad():
            logits = subject.model(**inputs).logits[0]
        row = logits if at is None else logits[at]
        return float(row[answer] - row[other])

    patched = {}
    for layer in range(1, 1 + len(subject.sites)):
        for head in range(1, 1 + subject.heads):
            with lo.patched(subject, source, [f"{layer}.{head}"]):
                patched[layer, head] = difference(corrupt)
    return difference(clean), difference(corrupt), patched


@pytest.mark.parametrize("kind", ["classifier", "gpt2"])
def test_every_number_is_that_of_the_bare_model(kind):
    subject = classifier() if kind == "classifier" else gpt2()
    if kind == "classifier":
        subject.model.config.id2label = {0: "no", 1: "yes"}
        pairs, answer, other, at = asked(PAIRS, answer="yes", other="no"), 1, 0, None
    else:
        pairs = asked(PAIRS, answer="good", other="bad")
        answer, other = (subject.tokenizer.convert_tokens_to_ids(word) for word in ("good", "bad"))
        at = -1
    data = numbers(subject, pairs)
    rows = [by_hand(subject, pair, answer, other, at) for pair in pairs]
    assert float(data["clean"]) == pytest.approx(np.mean([row[0] for row in rows]), abs=1e-10)
    assert float(data["corrupt"]) == pytest.approx(np.mean([row[1] for row in rows]), abs=1e-10)
    whole = sum(row[0] - row[1] for row in rows)
    for layer, head in rows[0][2]:
        cell = data.isel(stack=0).sel(layer=layer, head=head)
        assert float(cell["patched"]) == pytest.approx(np.mean([row[2][layer, head] for row in rows]), abs=1e-10)
        effect = sum(row[2][layer, head] - row[1] for row in rows) / whole
        assert float(cell["effect"]) == pytest.approx(effect, abs=1e-8)
        assert float(cell["effect_low"]) - 1e-9 <= effect <= float(cell["effect_high"]) + 1e-9


def translated(subject, example):
    return subject.encode([example]).inputs


def test_translation_is_patched_on_the_source_with_one_target():
    """Encoder, decoder and cross heads against the bare model; the answer is what comes behind the target."""
    subject = marian()
    pairs = [Example(p.id, p.text, target=target, extra={**p.extra, "answer": "good", "other": "bad"})
             for p, target in zip(PAIRS, ("the cat", "it was very", "a"), strict=True)]  # fmt: skip
    answer, other = (subject.tokenizer.convert_tokens_to_ids(word) for word in ("good", "bad"))
    data = numbers(subject, pairs)

    def difference(inputs):
        with torch.no_grad():
            row = subject.model(**inputs).logits[0, -1]
        return float(row[answer] - row[other])

    rows, clean = [], []
    for pair in pairs:
        own, counterpart = (
            translated(subject, Example("x", text, target=pair.target))
            for text in (pair.text, pair.extra["counterpart"])
        )
        source, cells = lo.attention(subject, parts=["context"], **own), {}
        clean.append(difference(own))
        for stack, layer, head in (
            ("encoder", 1, 2),
            ("decoder", 2, 1),
            ("decoder", 3, 4),
            ("cross", 1, 3),
            ("cross", 3, 1),
        ):
            with lo.patched(subject, source, [f"{stack}.{layer}.{head}"]):
                cells[stack, layer, head] = difference(counterpart)
        rows.append(cells)
    assert float(data["clean"]) == pytest.approx(np.mean(clean), abs=1e-10)
    for stack, layer, head in rows[0]:
        patched = float(data["patched"].sel(stack=stack, layer=layer, head=head))
        assert patched == pytest.approx(np.mean([row[stack, layer, head] for row in rows]), abs=1e-10)
    assert float(data["effect"].sel(stack="decoder", layer=1).sum()) == 0  # it has not seen the source yet


def test_without_a_target_the_first_token_of_the_translation_is_asked_for():
    subject = marian()
    pair = Example("x", PAIRS[0].text, extra={**PAIRS[0].extra, "answer": "good", "other": "bad"})
    with torch.no_grad():
        row = subject.model(**translated(subject, Example("x", pair.text))).logits[0, 0]
    answer, other = (subject.tokenizer.convert_tokens_to_ids(word) for word in ("good", "bad"))
    assert float(numbers(subject, [pair])["clean"]) == pytest.approx(float(row[answer] - row[other]), abs=1e-10)


def test_without_an_answer_it_is_what_the_model_says_of_each():
    subject = gpt2()
    data = numbers(subject, PAIRS)
    values = []
    for pair in PAIRS:
        texts = (pair.text, pair.extra["counterpart"])
        with torch.no_grad():
            last = [subject.run(subject.encode([text])).logits[0, -1] for text in texts]
        answer = int(last[0].argmax())
        other = next(int(number) for number in last[1].argsort(descending=True) if int(number) != answer)
        values.append(float(last[0][answer] - last[0][other]))
    assert float(data["clean"]) == pytest.approx(np.mean(values), abs=1e-10)


def test_a_classifier_is_asked_for_the_label_of_the_text():
    subject = classifier()
    one, two = (
        numbers(subject, [Example(p.id, p.text, label=label, extra=p.extra) for p in PAIRS]) for label in (0, 1)
    )
    assert float(one["clean"]) == pytest.approx(-float(two["clean"]))
    np.testing.assert_allclose(one["effect"].values, two["effect"].values, rtol=1e-6)


def test_the_interval_is_linearised_over_pairs():
    draw = np.random.default_rng(0)
    whole = 2.0 + draw.normal(size=200)
    change = 0.5 * whole + 0.3 * draw.normal(size=200)
    value, low, high = ratio_of_sums(change, whole)
    assert value == pytest.approx(change.sum() / whole.sum())
    error = np.std(change - value * whole, ddof=1) / np.sqrt(200) / whole.mean()  # linearised
    assert (high - low) / (2 * stats.t.ppf(0.975, 199)) == pytest.approx(error)
    assert np.isnan(ratio_of_sums(np.zeros(3), np.zeros(3))[0])


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (Example("x", "the cat"), "no counterpart"),
        (Example("x", "the cat", extra={"counterpart": "the cat sat on"}), "2 tokens"),
        (Example("x", "the cat", extra={"counterpart": "the dog", "answer": "unbelievable"}), "3 tokens"),
    ],
)
def test_what_cannot_be_patched_is_said_in_one_line(pair, words):
    with pytest.raises(UserError, match=words):
        numbers(gpt2(), [pair])


def test_planted_pairs_have_counterparts_of_as_many_words():
    pairs = list(lo.corpus("planted", split="pairs").take(20))
    texts = {pair.text for pair in pairs}
    for pair in pairs:
        assert pair.extra["counterpart"] in texts
        assert sorted(pair.extra["counterpart"].split()) == sorted(pair.text.split())


def test_both_directions_of_a_pair_are_one():
    draw = np.random.default_rng(0)
    values, alone = draw.normal(size=30), np.arange(30.0)
    assert clustered_error(values, alone) == pytest.approx(values.std(ddof=1) / np.sqrt(30))
    twice = clustered_error(np.concatenate([values, values]), np.concatenate([alone, alone]))
    assert twice == pytest.approx(clustered_error(values, alone))  # the second direction adds nothing that is new
    pairs = list(lo.corpus("planted", split="pairs").take(20))
    assert len({pair_key(pair) for pair in pairs}) == 10
    both = [Example(f"{p.id}{n}", text, extra={"counterpart": other})
            for p in PAIRS
            for n, (text, other) in enumerate(permutations((p.text, p.extra["counterpart"])))]  # fmt: skip
    data = numbers(gpt2(), both)
    assert data.attrs["pairs"] == len(PAIRS)
    assert int(data["clean_count"]) == 2 * len(PAIRS)
