"""Tokens as a person can read them, whatever the tokenizer writes for white space and bytes."""

import pytest
import torch
from tiny import gpt2

from lorgnette.explaining import explain
from lorgnette.texts.batch import Tokens, TokenTexts
from lorgnette.texts.readable import readable, readable_piece


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        ("Ġ", "␣"),
        ("ĠĠthe", "␣␣the"),
        ("ĊĊ", "⏎⏎"),
        ("ĉ", "⇥"),
        ("▁the", "␣the"),
        ("<0x0A>", "⏎"),
        ("<0xE2>", "<0xE2>"),  # part of a character
        ("æľ¬", "本"),
        ("Ĺ", "Ĺ"),  # part of a character
        ("##able", "##able"),
        ("é", "é"),
        ("日本", "日本"),
        ("<|im_start|>", "<|im_start|>"),
        ("", "∅"),
    ],
)
def test_a_piece_is_shown_as_text(piece, shown):
    assert readable_piece(piece) == shown


def test_words_are_text_already():
    assert [readable(word) for word in ("Ġorġ", "a b", "\u00a0", "\r\n")] == ["Ġorġ", "a␣b", "⍽", "␍⏎"]
    assert readable(readable("\n x")) == readable("\n x")


def test_a_word_of_white_space_is_named_by_its_token():
    """SmolLM2 and its kin have tokens for newlines, which are words without letters."""
    there = torch.ones(1, 3, dtype=torch.bool)
    tokens = Tokens(
        ids=torch.tensor([[5, 6, 7]]),
        mask=there,
        special=~there,
        categories={},
        text=TokenTexts.of(torch.tensor([[0, 1, 2]]), (("the", "Ċ", "Ġ"),), (("the", "", ""),)),
    )
    assert tokens.units().labels == ("the", "⏎", "␣")
    assert tokens.word_labels() == ("the", "⏎", "␣")
    assert tokens.shown() == ("the", "⏎", "␣")


def test_what_is_explained_is_never_blank(monkeypatch):
    subject = gpt2()
    monkeypatch.setattr(subject.tokenizer, "decode", lambda ids: "\n")
    assert explain(subject, "the cat sat", "gradient_x_input").explained == ("⏎",)
