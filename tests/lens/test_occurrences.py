"""Words of a batch with their numbers and vectors, against one word at a time."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import bert, gpt2

from lorgnette.lens.occurrences import occurrences, smallest_of_each, word_vectors
from lorgnette.statistics.hashing import splitmix64, text_key
from lorgnette.texts import word_forms
from lorgnette.texts.batch import TokenTexts
from lorgnette.texts.example import Example
from lorgnette.texts.word_forms import Forms, word_number

TEXTS = ["the Cat, sat: İstanbul É é ß", "... !", "cat cat CAT don't 3 _ 😀", "the  mat\u3000on\tit ran", "not"]
IDS = [f"text {number}" for number in range(len(TEXTS))]


def tokens_of(subject):
    """The first text is cut, so that it has words without a token."""
    encoded = [subject.encoder.encode(Example(*one)) for one in zip(IDS, TEXTS, strict=True)]
    first = replace(encoded[0], source=encoded[0].source.at(list(range(4))))
    return subject.encoder.collate([first, *encoded[1:]]).source


def by_hand(tokens):
    """(text, word, number of its form, its own number), one after the other."""
    out, one = [], lambda bits: int(splitmix64(np.array([bits], dtype=np.uint64))[0])
    for text, (words, present) in enumerate(zip(tokens.words, tokens.word.tolist(), strict=True)):
        for number in sorted(set(present) - {-1}):
            if re.search(r"\w", words[number]):
                own = one(text_key(IDS[text], "encoder") ^ one(number)) >> 16
                out.append((text, number, word_number(words[number]), own))
    return out


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("bits", [1, 18])  # with two places, words push one another out of the table
def test_every_word_with_its_numbers(make, bits, monkeypatch):
    monkeypatch.setattr(word_forms, "_FORMS", Forms(bits))
    subject = make()
    for _ in range(2):  # words that are met again come from a table
        tokens = tokens_of(subject)
        assert len(tokens.words[0]) > int(tokens.word[0].max()) + 1
        where, forms, items = occurrences(tokens, IDS, "encoder")
        assert [*zip(*where.T.tolist(), forms.tolist(), items.tolist(), strict=True)] == by_hand(tokens)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=40))
def test_the_smallest_of_each_text_is_the_first_of_them(pairs):
    pairs.sort(key=lambda pair: pair[0])
    text, items = torch.tensor(pairs).T
    expected = [
        min(n for n, p in enumerate(pairs) if p == min(q for q in pairs if q[0] == t)) for t in {*text.tolist()}
    ]
    assert smallest_of_each(text, items).tolist() == sorted(expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_vectors_are_means_over_pieces(dtype):
    tokens = bert().encode([Example("a", "", words=("The", "cat.", "not,ran")), Example("b", "A dog ran.")]).source
    where = occurrences(tokens, ["a", "b"], "encoder")[0][[4, 1, 2]]  # some, in any order
    states = [torch.randn(*tokens.ids.shape, 5).to(dtype) for _ in range(3)]
    pieces = [tokens.word[text] == word for text, word in where.tolist()]
    expected = [
        torch.cat([s[text, mine].double().mean(0) for s in states])
        for (text, _), mine in zip(where, pieces, strict=True)
    ]
    vectors = word_vectors(tokens, where, states)
    assert max(int(mine.sum()) for mine in pieces) > 1
    assert vectors.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(vectors.double(), torch.stack(expected), rtol=1e-6, atol=1e-6)
    assert word_vectors(tokens, where[:0], states).shape == (0, 15)


def test_a_word_that_comes_back_is_one_word():
    tokens = bert().encode([Example("a", "the cat ran"), Example("b", "it sat")]).source
    word = torch.tensor([[-1, 0, 1, 0, -1], [-1, 0, 1, -1, -1]])
    tokens = tokens.replaced(text=TokenTexts.of(word, tokens.pieces, tokens.words))
    states = [torch.randn(2, 5, 3)]
    vectors = word_vectors(tokens, torch.tensor([[1, 1], [0, 0], [0, 0]]), states)
    mean = states[0][0, [1, 3]].mean(0)
    torch.testing.assert_close(vectors, torch.stack([states[0][1, 2], mean, mean]))


def test_tokens_that_are_moved_keep_their_words():
    tokens = tokens_of(bert())
    found = tokens.occurrences
    assert tokens.changed(torch.clone).occurrences is found


def plain(tokens):
    """With everything made now."""
    return tokens.replaced(text=TokenTexts.of(tokens.word, tokens.pieces, tokens.words))
