"""The word-level tokenizer: what becomes a word, what a word belongs to, and what is never a special."""

import pytest
from transformers import AutoTokenizer

from lorgnette.errors import UserError
from lorgnette.models.classifier.tokenizer import build_tokenizer


def pieces(text, style="default", **keywords):
    """Built from the text itself, so that nothing in it is unknown."""
    tokenizer = build_tokenizer([text], style=style, **keywords)
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A good Film.", "a good film ."),
        ("bad.<br /><br />Very bad<BR>indeed<br/>", "bad . very bad indeed"),
        ("I didn't, couldn't", "i did not , could not"),
        ("I didn’t", "i did not"),
        ("You can't, won't, shan't; CAN'T!", "you can not , will not , shall not ; can not !"),
        ("cannot ain't", "cannot ai not"),
        ("ca n't", "ca not"),
        ("It's what they'll say: I'm 'quoted'", "it 's what they 'll say : i 'm ' quoted '"),
        ("well-made... 10/10 '80s", "well - made . . . 10 / 10 ' 80s"),
        ("(wow!!)", "( wow ! ! )"),
        ("café cafe\u0301", "café café"),
        ("love ❤️ 👩\u200d🚀 👍", "love ❤️ 👩\u200d🚀 👍"),
        ("日本語 naïve", "日本語 naïve"),
        ("in\u00a0line\nand\ttab", "in line and tab"),
    ],
)
def test_default_style(text, expected):
    assert pieces(text) == expected.split(" ")


def test_whitespace_style_is_that_of_the_starter_code():
    assert pieces("I didn't.<br />GOOD film!", style="whitespace") == ["i", "didn't.<br", "/>good", "film!"]


@pytest.mark.parametrize("style", ["default", "whitespace"])
def test_a_text_that_names_a_special_stays_text(style, tmp_path):
    tokenizer = build_tokenizer(["a film"], style=style, cls=True)
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = each("a <pad> film <CLS> <unk>")["input_ids"]
        assert ids.count(each.cls_token_id) == 1
        assert each.pad_token_id not in ids


def test_unknown_is_not_padding():
    tokenizer = build_tokenizer(["a good film"])
    encoded = tokenizer(["good elephant", "a good film"], padding=True)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.cls_token_id) == (0, 1, 2)
    good = tokenizer.get_vocab()["good"]
    assert encoded["input_ids"][0] == [good, 1, 0]
    assert encoded["attention_mask"] == [[1, 1, 0], [1, 1, 1]]
    assert "token_type_ids" not in encoded


@pytest.mark.parametrize("text", ["", " \n", "<br />"])
def test_an_empty_text_has_no_token_but_cls(text):
    assert build_tokenizer(["a film"])(text)["input_ids"] == []
    assert build_tokenizer(["a film"], cls=True)(text)["input_ids"] == [2]


def test_words_of_a_text_and_of_given_words():
    tokenizer = build_tokenizer(["i did not like it 's"], cls=True)
    assert tokenizer("I didn't like it").word_ids() == [None, 0, 1, 2, 3, 4]
    given = tokenizer(["I", "didn't", "like", "<br", "/>", "it's"], is_split_into_words=True)
    assert given.word_ids() == [None, 0, 1, 1, 2, 5, 5]
    offsets = tokenizer("I didn't like", return_offsets_mapping=True)["offset_mapping"]
    assert [("I didn't like"[start:end]) for start, end in offsets[1:3]] == ["I", "did"]
    assert "I didn't like"[slice(*offsets[4])] == "like"


def test_a_pair_has_one_cls_and_no_separator():
    tokenizer = build_tokenizer(["a man sleeps"], cls=True)
    pair = tokenizer("a man", "sleeps")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == ["<cls>", "a", "man", "sleeps"]
    assert pair.sequence_ids() == [None, 0, 0, 1]


def test_vocabulary_by_frequency_then_alphabet_or_as_given():
    texts = ["b b a c", "c d a b"]
    for order in (texts, texts[::-1]):
        tokenizer = build_tokenizer(order)
        assert tokenizer.convert_ids_to_tokens(range(7)) == ["<pad>", "<unk>", "<cls>", "b", "a", "c", "d"]
    assert len(build_tokenizer(texts, max_vocabulary=2)) == 5
    assert "d" not in build_tokenizer(texts, min_count=2).get_vocab()
    given = build_tokenizer(vocabulary=["the", "<unk>", "of", "the"], max_vocabulary=3)
    assert given.get_vocab() == {"<pad>": 0, "<unk>": 1, "<cls>": 2, "the": 3, "of": 4}


def test_round_trip(tmp_path):
    tokenizer = build_tokenizer(["I didn't like it.<br />At all!"], cls=True, max_length=77)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    for text in ("I don't like ❤️", "", "it's <br /> at-all"):
        assert again(text)["input_ids"] == tokenizer(text)["input_ids"]
        assert again(text).word_ids() == tokenizer(text).word_ids()
    assert again.model_max_length == 77
    assert again.model_input_names == ["input_ids", "attention_mask"]
    assert again.padding_side == "right"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one"),
        ({"texts": ["a"], "vocabulary": ["a"]}, "exactly one"),
        ({"texts": "a film"}, "one string"),
        ({"texts": ["a"], "style": "whitespaces"}, "Did you mean 'whitespace'"),
        ({"texts": ["", "<br />"]}, "no word"),
        ({"texts": ["a"], "max_vocabulary": 0}, "at least 1"),
    ],
)
def test_wrong_input_is_refused(arguments, message):
    with pytest.raises(UserError, match=message):
        build_tokenizer(**arguments)
