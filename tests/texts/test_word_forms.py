"""Numbers of words as places in texts, against one string at a time."""

import re
from itertools import product

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from lorgnette.texts.sides import WordSpans
from lorgnette.texts.word_forms import Forms, form_numbers, word_number

WORDS = st.lists(st.text(alphabet=st.sampled_from("abAÉé1_. \0\U0001d400😀"), max_size=5), max_size=8)


def by_hand(word):
    return word_number(word) if re.search(r"\w", word) else -1


@given(st.lists(st.tuples(WORDS, st.sampled_from(["", " ", "😀"])), max_size=4))
@example([([], ""), (["", "a", "", "a\0", "\0a"], " ")])
def test_each_word_has_the_number_of_its_string(texts):
    spans = [WordSpans.of(words, between) for words, between in texts]
    assert [one.names() for one in spans] == [tuple(words) for words, _ in texts]
    for _ in range(2):  # the second time from the table
        assert form_numbers(spans).tolist() == [by_hand(word) for words, _ in texts for word in words]


def test_words_may_overlap():
    spans = WordSpans("abcab", np.array([0, 3, 1, 2]), np.array([2, 5, 4, 2]))
    assert spans.names() == ("ab", "ab", "bca", "")
    assert form_numbers([spans]).tolist() == [by_hand(word) for word in spans.names()]


def test_words_do_not_share_a_number_in_the_table_wherever_they_stand():
    """All words of up to four of these characters, each twice, between others: as many keys as words."""
    words = ["".join(letters) for size in range(1, 5) for letters in product("\0aAb e\u0301é😀1", repeat=size)]
    for bits in (4, 18):
        spans, forms = WordSpans.of([*words, *reversed(words)], "x"), Forms(bits)
        found = forms.of(spans.text, spans.start, spans.stop).tolist()
        assert found == [by_hand(word) for word in [*words, *reversed(words)]]
