"""Words from a tokenizer's numbers for its pieces, many texts at once, against one piece at a time."""

from hypothesis import example, given
from hypothesis import strategies as st

from lorgnette.texts.word_maps import by_tokenizer


def runs_by_hand(text):
    """For each character the number of its run between white space, one character at a time."""
    out, number, inside = [], 0, False
    for character in text:
        number += inside and character.isspace()
        inside = not character.isspace()
        out.append(number)
    return [*out, number]


def words_by_hand(text, pieces):
    """A word is a number of the tokenizer's within a run between white space, numbered as they are first met."""
    runs, spans, word = runs_by_hand(text), {}, []
    for number, (start, end) in pieces:
        key = (number, runs[max(end - 1, 0)])
        if number is not None:
            opened, closed = spans.get(key, (start, 0))
            spans[key] = opened, max(closed, end)
        word.append(-1 if number is None else list(spans).index(key))
    return word, tuple(text[start:end].strip() for start, end in spans.values())


@st.composite
def cut_texts(draw):
    text = draw(st.text(alphabet=st.sampled_from("ab .\0\x01\t\n\u2003\u3000é😀"), max_size=20))
    place = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(place, place).map(sorted).map(tuple), max_size=12))
    numbers = [draw(st.none() | st.integers(0, 5)) for _ in spans]
    if draw(st.booleans()):  # as tokenizers number and place them; else words come back
        spans.sort()
        rising = iter(sorted(number for number in numbers if number is not None))
        numbers = [None if number is None else next(rising) for number in numbers]
    return text, list(zip(numbers, spans, strict=True))


@given(st.lists(cut_texts(), max_size=4))
@example([(" a b", [(None, (0, 0)), (0, (1, 2)), (0, (2, 4))]), ("", [(0, (0, 0))]), ("\0b", [(0, (0, 2))])])
@example([("aaa ", [(1, (0, 4)), (0, (0, 0)), (1, (0, 0))])])  # a word that comes back behind another
@example([("a", []), (" b", [(0, (0, 0)), (0, (0, 2))])])  # a piece without a place stays in its text
def test_words_of_many_texts_are_those_found_by_hand(texts):
    numbers = [[number for number, _ in pieces] for _, pieces in texts]
    offsets = ([span for _, span in pieces] for _, pieces in texts)
    found = by_tokenizer([text for text, _ in texts], numbers, offsets)
    assert [(word.tolist(), words.names()) for word, words in found] == [words_by_hand(*one) for one in texts]
