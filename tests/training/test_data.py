"""Batches: every text once, similar lengths together, the same order for the same seed and epoch."""

import numpy as np
import pytest
import torch
from transformers import BertTokenizerFast

from lorgnette.errors import UserError
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.tokenizer import build_tokenizer
from lorgnette.texts import Corpus, Example
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.planted import planted_corpus
from lorgnette.training.data import Bucketed, Collator, Items, Reader, Streamed
from lorgnette.training.heuristic import Heuristic
from lorgnette.training.preparation import rationale

CORPUS = planted_corpus("train", size=230)
TOKENIZER = build_tokenizer((example.text for example in CORPUS), cls=True)
CONFIG = SelfAttentionClassifierConfig()


def reader(max_length=None, **maps):
    return Reader(TOKENIZER, CONFIG, max_length, maps)


def key(item):
    return tuple(item["input_ids"].tolist())


@pytest.fixture(scope="module")
def items():
    return Items(reader(), CORPUS)


@pytest.fixture(params=["memory", "stream"])
def texts(request, items, monkeypatch):
    monkeypatch.setattr(Bucketed, "POOL", 5)
    if request.param == "memory":
        return Bucketed(items.items, 16, seed=3)
    return Streamed(reader(), CORPUS, len(CORPUS), 16, seed=3)


def test_every_text_once_in_an_order_of_seed_and_epoch(texts, items):
    first = [key(item) for item in texts]
    assert sorted(first) == sorted(map(key, items))
    assert len(texts) == len(items)
    assert first == [key(item) for item in texts]
    texts.set_epoch(1)
    assert first != [key(item) for item in texts]
    texts.set_epoch(0)
    assert first == [key(item) for item in texts]


def test_batches_have_little_padding(texts, items):
    def padding(order):
        batches = [order[start : start + 16] for start in range(0, len(order), 16)]
        return sum(max(lengths) * len(lengths) - sum(lengths) for lengths in batches)

    bucketed = [len(item["input_ids"]) for item in texts]
    plain = [len(item["input_ids"]) for item in items]
    assert padding(bucketed) < padding(plain) / 2


def test_collated_batches_mask_what_is_padding(items):
    batch = Collator(0)([items[0], items[1]])
    for row, item in enumerate((items[0], items[1])):
        count = len(item["input_ids"])
        assert batch["input_ids"][row, :count].tolist() == item["input_ids"].tolist()
        assert batch["attention_mask"][row].tolist() == [1] * count + [0] * (batch["input_ids"].shape[1] - count)
        assert (batch["input_ids"][row, count:] == 0).all()
    assert batch["input_ids"].dtype == torch.int64


PAIR = Example(
    "p",
    "a man can't sleep",
    pair="nobody sleeps .",
    words=("a", "man", "can't", "sleep", "nobody", "sleeps", "."),
    label=1,
    rationale=(0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0),
    extra={"pair_start": 4},
)


def test_a_piece_has_the_value_of_its_word_on_both_sides_of_a_pair():
    tokenizer = build_tokenizer(["a man can not sleep nobody sleeps ."], cls=True)
    mapped = Reader(tokenizer, CONFIG, None, {"gold": rationale})
    item, cut = next(iter(mapped.read([PAIR])))
    assert tokenizer.convert_ids_to_tokens(item["input_ids"].tolist()) == [
        "<cls>", "a", "man", "can", "not", "sleep", "nobody", "sleeps", ".",
    ]  # fmt: skip
    assert item["gold"].tolist() == [0, 0, 0, 1, 1, 1, 0, 1, 0]
    assert not cut


@pytest.mark.parametrize("max_length", [None, 6])
def test_with_and_without_word_maps_the_ids_are_the_same(max_length):
    for examples in ([PAIR], list(CORPUS)[:20], [Example("x", "Not words, but TEXT!", label=0)]):
        plain = list(reader(max_length).read(examples))
        mapped = list(reader(max_length, gold=rationale).read(examples))
        assert [(key(item), cut) for item, cut in plain] == [(key(item), cut) for item, cut in mapped]
        if max_length:
            assert all(len(item["input_ids"]) <= 6 for item, _ in plain)


ALONE = Example("alone", "nobody sleeps", label=0)


@pytest.fixture(scope="module")
def separating(tmp_path_factory):
    """BERT's tokenizer, which closes both texts of a pair."""
    place = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "man", "can", "not", "sleep", "nobody", "sleeps", "."]
    place.write_text("\n".join(words))
    return BertTokenizerFast(str(place))


def pieces(tokenizer, max_length, examples, **maps):
    own = Reader(tokenizer, CONFIG, max_length, maps)
    return [tokenizer.convert_ids_to_tokens(item["input_ids"].tolist()) for item, _ in own.read(examples)]


@pytest.mark.parametrize("first", [ALONE, PAIR])
def test_every_text_keeps_its_second_text_whatever_comes_first(separating, first):
    pair = Example("p", "a man", pair="nobody sleeps", label=1)
    found = pieces(separating, None, [first, pair, ALONE])[1:]
    assert found == [
        ["[CLS]", "a", "man", "[SEP]", "nobody", "sleeps", "[SEP]"],
        ["[CLS]", "nobody", "sleeps", "[SEP]"],
    ]


def test_a_pair_is_cut_as_look_cuts_it_with_and_without_a_rationale(separating):
    pair = Example("p", "a man not sleep a man", pair="nobody sleeps .", label=1)
    seen = ["[CLS]", "a", "man", "not", "[SEP]", "nobody", "sleeps", ".", "[SEP]"]
    assert pieces(separating, 9, [pair]) == pieces(separating, 9, [pair], gold=rationale) == [seen]
    side = Encoder(separating, CONFIG, 9).encode(pair, truncate=True).source
    assert separating.convert_ids_to_tokens(side.ids.tolist()) == seen


def test_what_is_cut_is_counted():
    assert Items(reader(5), CORPUS).cut == sum(len(e.words) + 1 > 5 for e in CORPUS) > 0


def test_an_empty_text_is_refused():
    plain = build_tokenizer(["some words"])
    with pytest.raises(UserError, match="'void' has no token"):
        Items(Reader(plain, CONFIG, None), Corpus.of([Example("void", "  ", label=0)]))


def test_the_heuristic_map_is_the_softmax_of_cosines():
    words = ["dog", "cat", "runs", "quickly"]
    vectors = np.array([[1.0, 0], [0.8, 0.6], [0, 2.0], [1.0, 1.0]], dtype=np.float32)
    pair = Example(
        "h", "the dog runs", pair="the cat", words=("the", "dog", "runs", "the", "cat"), extra={"pair_start": 3}
    )
    found = Heuristic(words, vectors).of(pair, pair.words)
    # "the" is a stop word; cos(dog, cat) = .8, cos(runs, cat) = .6
    expected = np.exp([0.8, 0.6]) / np.exp([0.8, 0.6]).sum()
    assert found == pytest.approx([0, expected[0] / 2, expected[1] / 2, 0, 0.5])
    tagged = Example("t", pair.text, pair=pair.pair, words=pair.words, extra=pair.extra,
                     tags={"upos": ("DET", "ADV", "VERB", "DET", "NOUN")})  # fmt: skip
    assert Heuristic(words, vectors).of(tagged, pair.words) == pytest.approx([0, 0, 0.5, 0, 0.5])
    with pytest.raises(UserError, match="two sentences"):
        Heuristic(words, vectors).of(Example("o", "one text"), ["one", "text"])
