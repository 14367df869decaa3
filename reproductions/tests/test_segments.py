"""Segments: whole sentences, in order, never too long, halves that meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import word_pieces

from lorgnette.errors import UserError
from reproductions.frame.segments import (
    detokenised,
    documents,
    half,
    packed,
    segments,
    shuffled_words,
    wikitext_sentences,
)

SENTENCE = "The cat sat on the mat."  # 7 pieces
DOCUMENTS = [("one", [SENTENCE, "A dog ran.", "It was good.", SENTENCE] * 6), ("two", ["good"] * 40), ("three", [])]


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 25))
def test_spans_are_as_long_as_they_can_be(lengths, room):
    spans = list(packed(lengths, room))
    inside = [at for start, stop in spans for at in range(start, stop)]
    assert inside == [at for at, length in enumerate(lengths) if length <= room]
    for start, stop in spans:
        assert sum(lengths[start:stop]) <= room
        assert stop == len(lengths) or sum(lengths[start : stop + 1]) > room


@given(st.lists(st.integers(1, 30), min_size=2, max_size=12))
def test_the_half_is_the_best_split(lengths):
    k = half(lengths)
    assert 1 <= k < len(lengths)
    apart = [abs(sum(lengths[:j]) - sum(lengths[j:])) for j in range(1, len(lengths))]
    assert apart[k - 1] == min(apart)


@pytest.mark.parametrize("pairs", [True, False])
def test_segments_fill_the_room_with_whole_sentences(pairs):
    tokenizer = word_pieces()
    made = segments(DOCUMENTS, tokenizer, pairs=pairs, tokens=24, count=5)
    assert len({example.id for example in made}) == 5
    assert {example.extra["document"] for example in made} == {"one", "two"}
    sentences = {title: " ".join(texts) for title, texts in DOCUMENTS}
    for example in made:
        length = len(tokenizer(example.text, example.pair)["input_ids"])
        assert 0.75 * (24 - 3) <= length <= 24
        whole = example.text if example.pair is None else f"{example.text} {example.pair}"
        assert whole in sentences[example.extra["document"]]
        assert (example.pair is None) is not pairs
    assert made == segments(DOCUMENTS, tokenizer, pairs=pairs, tokens=24, count=5)


def test_too_few_are_refused():
    with pytest.raises(UserError, match="1000 are needed"):
        segments(DOCUMENTS, word_pieces(), tokens=24, count=1000)


def test_shuffled_words_are_the_same_words():
    made = segments(DOCUMENTS, word_pieces(), tokens=48, count=3)
    mixed = shuffled_words(made, 0)
    assert mixed == shuffled_words(made, 0)
    assert mixed != shuffled_words(made, 1)
    for before, after in zip(made, mixed, strict=True):
        assert after.id == before.id
        assert sorted(after.text.split()) == sorted(before.text.split())
        assert sorted(after.pair.split()) == sorted(before.pair.split())
    assert any(after.text != before.text for before, after in zip(made, mixed, strict=True))


def test_wikitext_is_put_together_again():
    assert detokenised('It was 1 @,@ 000 well @-@ known ( old ) " cats " , not dogs .') == (
        'It was 1,000 well-known (old) "cats", not dogs.'
    )
    assert wikitext_sentences("The cat sat . The <unk> ran . It didn 't stop !") == ["The cat sat.", "It didn 't stop!"]


def test_documents_come_in_order(tmp_path):
    folder = tmp_path / "ud_en_gum"
    folder.mkdir()
    row = "1\t{0}\t{0}\tX\tX\t_\t0\troot\t_\t_\n"
    for split in ("train", "dev", "test"):
        (folder / f"en_gum-ud-{split}.conllu").write_text(
            f"# newdoc id = {split} b\n# text = one raw.\n{row.format('one')}\n# text = two\n{row.format('two')}\n"
            f"# newdoc id = {split} a\n# text = three\n{row.format('three')}\n"
        )
    assert list(documents("ud_en_gum", str(tmp_path))) == [
        (f"{split} {title}", texts)
        for split in ("train", "dev", "test")
        for title, texts in (("b", ["one raw.", "two"]), ("a", ["three"]))
    ]
    with pytest.raises(UserError, match="Segments are made from"):
        documents("imdb")
