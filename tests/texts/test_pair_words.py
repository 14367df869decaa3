"""The gold words of a pair of sentences reach the batch once, in their order."""

from types import SimpleNamespace

from transformers import BertTokenizerFast

from lorgnette.texts import Example
from lorgnette.texts.encoding import Encoder


def encoded(tmp_path, example):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "##s", "do", "n", "'", "t", "sleep", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(str(tmp_path / "vocab.txt"))
    return Encoder(tokenizer, SimpleNamespace(is_encoder_decoder=False), None).encode(example).source


def test_words_of_the_pair_follow_those_of_the_text(tmp_path):
    words = ("cats", "do", "n't", "sleep", ".", "a", "cat", "do", "n't")
    example = Example("1", "cats do n't sleep .", pair="a cat do n't", words=words, extra={"pair_start": 5})
    side = encoded(tmp_path, example)
    assert side.words == words
    # [CLS] cat ##s do n ' t sleep . [SEP] a cat do n ' t [SEP]
    assert side.word.tolist() == [-1, 0, 0, 1, 2, 2, 2, 3, 4, -1, 5, 6, 7, 8, 8, 8, -1]


def test_a_pair_without_gold_words_of_its_own_is_split_by_the_tokenizer(tmp_path):
    side = encoded(tmp_path, Example("1", "a cat", pair="do n't", words=("a", "cat")))
    assert side.words == ("a", "cat", "do", "n", "'", "t")
    assert side.word.tolist() == [-1, 0, 1, -1, 2, 3, 4, 5, -1]
