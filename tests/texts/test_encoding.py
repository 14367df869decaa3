"""Ids, word maps and categories, for tokenizers of every kind."""

import numpy as np
import pytest
import torch
from tiny import bert, gpt2, marian, subject
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, ByT5Tokenizer, CanineTokenizer, PreTrainedTokenizer, PreTrainedTokenizerFast

import lorgnette as lo
from lorgnette.attending.words import to_words
from lorgnette.errors import UserError
from lorgnette.texts.batch import spans
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.example import Example


def test_words_of_plain_text():
    batch = bert().encode(["The unbelievable cat, sat."])
    tokens = batch.source
    assert tokens.pieces[0] == ("[CLS]", "the", "un", "##believ", "##able", "cat", ",", "sat", ".", "[SEP]")
    assert tokens.word[0].tolist() == [-1, 0, 1, 1, 1, 2, 3, 4, 5, -1]
    assert tokens.words[0] == ("The", "unbelievable", "cat", ",", "sat", ".")
    named = {name: flags[0].nonzero().flatten().tolist() for name, flags in tokens.categories.items()}
    assert named == {
        "cls": [0],
        "sep": [9],
        "punctuation": [6, 8],
        "period_comma": [6, 8],
        "other": [1, 2, 3, 4, 5, 7],
        "first": [0],
        "last": [9],
    }


def test_given_words_keep_their_numbers():
    """A gold word that the tokenizer splits, one that it cannot read, and punctuation inside a word."""
    words = ("The", "cat.", "🙂", "not,ran", "unbelievable")
    tokens = bert().encode([Example("x", "ignored", words=words)]).source
    assert tokens.words[0] == words
    by_word = {}
    for piece, word in zip(tokens.pieces[0], tokens.word[0].tolist(), strict=True):
        by_word.setdefault(word, []).append(piece)
    assert by_word == {
        -1: ["[CLS]", "[SEP]"],
        0: ["the"],
        1: ["cat", "."],
        2: ["[UNK]"],
        3: ["not", ",", "ran"],
        4: ["un", "##believ", "##able"],
    }


def test_pairs_number_their_words_through():
    tokens = bert().encode([Example("x", "The cat.", pair="A dog ran.")]).source
    assert tokens.word[0].tolist() == [-1, 0, 1, 2, -1, 3, 4, 5, 6, -1]
    assert tokens.words[0] == ("The", "cat", ".", "A", "dog", "ran", ".")
    assert tokens.categories["sep"][0].nonzero().flatten().tolist() == [4, 9]
    types = bert().encode([Example("x", "The cat.", pair="A dog ran.")]).inputs["token_type_ids"]
    assert types[0].tolist() == [0] * 5 + [1] * 5


def test_categories_that_a_tokenizer_does_not_have():
    categories = gpt2().encode(["The cat."]).source.categories
    assert not categories["cls"].any()
    assert not categories["sep"].any()


def test_padding_is_never_anything():
    batch = bert().encode(["good", "The cat sat on the mat."])
    tokens = batch.source
    padding = ~tokens.mask
    assert padding.sum() == 6
    for flags in (tokens.special, *tokens.categories.values()):
        assert not (flags & padding).any()
    assert (tokens.word[padding] == -1).all()


def test_a_decoder_without_a_start_token_is_told_so(monkeypatch):
    """A T5 whose config was made in code has none: the text is not at fault."""
    t5 = subject("t5")
    monkeypatch.delattr(t5.model.config, "decoder_start_token_id")
    with pytest.raises(UserError, match=r"no decoder_start_token_id.* = tokenizer\.pad_token_id"):
        t5.trace("The cat sat.")


@pytest.mark.parametrize("start", [58100, -1])
def test_a_start_of_the_decoder_without_a_vector_is_refused(monkeypatch, start):
    subject = marian()
    monkeypatch.setattr(subject.model.config, "decoder_start_token_id", start)
    with pytest.raises(UserError, match=f"decoder_start_token_id {start!r}, and its decoder has vectors for the ids 0"):
        lo.look(subject, ["the cat sat"], "weights", progress=False)


def test_a_translation_is_read_behind_the_start_token():
    subject = marian()
    batch = subject.encode([Example("x", "The cat ran.", target="le chat")])
    assert batch.target.pieces[0] == ("[PAD]", "le", "chat")
    assert batch.target.special[0].tolist() == [True, False, False]
    assert batch.target.mask.all()  # the start token has the padding's id and is no padding
    alone = subject.encode([Example("x", "The cat ran.")])
    assert alone.target.ids.tolist() == [[0]]
    assert alone.inputs["decoder_attention_mask"].tolist() == [[1]]
    assert not alone.target.mask.any()  # it is there for the model, not for the lenses


def test_truncation_keeps_what_closes_the_text():
    subject = bert()
    batch = subject.encode([Example("x", "cat " * 100)], truncate=True)
    assert batch.source.ids.shape[1] == 64
    assert batch.source.pieces[0][-1] == "[SEP]"
    with pytest.raises(UserError, match="102 tokens and the model takes 64"):
        subject.encode([Example("x", "cat " * 100)])


def test_of_a_pair_the_longer_text_is_cut():
    example = Example("x", "cat " * 90, pair="A dog ran.")
    tokens = bert().encode([example], truncate=True).source
    assert tokens.ids.shape[1] == 64
    assert tokens.pieces[0][-6:] == ("[SEP]", "a", "dog", "ran", ".", "[SEP]")
    assert tokens.pieces[0][:2] == ("[CLS]", "cat")
    assert tokens.categories["sep"][0].sum() == 2


def test_words_from_pieces_sum_and_average():
    """To a word the sum, from a word the mean, against a loop."""
    torch.manual_seed(0)
    weights = torch.rand(2, 5, 5, dtype=torch.float64).softmax(-1)
    word = torch.tensor([-1, 0, 0, 1, -1])
    number = spans(word)
    assert number.tolist() == [0, 1, 1, 2, 3]
    out = to_words(weights, number, number)
    groups = [[0], [1, 2], [3], [4]]
    for h in range(2):
        for a, rows in enumerate(groups):
            for b, columns in enumerate(groups):
                expected = sum(float(weights[h, i, j]) for i in rows for j in columns) / len(rows)
                assert float(out[h, a, b]) == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(out.sum(-1), torch.ones(2, 4, dtype=torch.float64))


def _made(pieces: list[str], model: type, **parts):
    """A tokenizer with these pieces."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(["<pad>", "<unk>", *pieces]))}
    tokenizer = Tokenizer(model(vocabulary, [], unk_token="<unk>"))
    for name, part in parts.items():
        setattr(tokenizer, name, part)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>")


def test_a_tokenizer_that_takes_a_text_for_one_word():
    """Llama's and Gemma's do: they leave the marked text in one part, so `word_ids` is 0 everywhere."""
    from tokenizers import models, pre_tokenizers

    whole = pre_tokenizers.Metaspace(split=False)
    tokenizer = _made(list("▁thecats."), models.BPE, pre_tokenizer=whole)
    assert set(tokenizer("the cat sat.").word_ids()) == {0}
    encoder = Encoder(tokenizer, bert().model.config, None)
    side = encoder.encode(Example("x", "the cat  sat.")).source
    assert side.words == ("the", "cat", "sat.")
    assert side.word.tolist() == [0] * 4 + [1] * 4 + [2] * 6
    side = encoder.encode(Example("x", "the cat", pair="cat sat.")).source
    assert side.words == ("the", "cat", "cat", "sat.")
    assert side.word.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 5


def test_punctuation_in_pieces_of_bytes():
    """’ is three bytes, written âĢĻ; the last byte of 你 is written ł and of û is written », which is no mark there."""
    from tokenizers import decoders, models, pre_tokenizers

    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = _made(
        [*sorted(pre_tokenizers.ByteLevel.alphabet()), "âĢĻ", "Ġ.", "##"],
        models.BPE,
        pre_tokenizer=level,
        decoder=decoders.ByteLevel(),
    )
    encoder = Encoder(tokenizer, bert().model.config, None)
    named = tokenizer.get_vocab()
    punctuation = {piece for piece, number in named.items() if encoder.kinds._punctuation[number]}
    assert {"âĢĻ", "Ġ.", "##", ",", "!"} <= punctuation
    assert not {"»", "¿", "¡", "§", "a", "Ġ", "Ċ", "<pad>"} & punctuation
    assert {piece for piece, number in named.items() if encoder.kinds._period_comma[number]} == {".", ",", "Ġ."}


def test_a_target_that_is_cut_word_by_word_is_cut_as_a_target():
    """Marian has pieces of its own for each side; a word that is normalised to several must not mix them."""

    class TwoSided:
        is_fast, pad_token_id, unk_token_id, all_special_ids = False, 0, 9, [0, 1]

        def __call__(self, text=None, text_target=None, add_special_tokens=True):
            offset, words = (10, text) if text_target is None else (20, text_target)
            ids = [offset + len(word) for word in words.split()]
            return {"input_ids": [*ids, 1] if add_special_tokens else ids}

        def convert_ids_to_tokens(self, ids):
            return ["x" for _ in ids]  # no mark: the count is off

        def build_inputs_with_special_tokens(self, ids):
            return [*ids, 1]

    target = Encoder(TwoSided(), marian().model.config, None).encode(Example("x", "a bc", target="abc de f")).target
    assert target.ids.tolist() == [0, 23, 22, 21]
    assert target.word.tolist() == [-1, 0, 1, 2]


def test_a_fast_tokenizer_cuts_the_translation_as_a_target():
    """NLLB and mBART put the code of the language around a text, and a translation has another than its source."""

    class TwoLanguages(PreTrainedTokenizerFast):
        def _speaks(self, code):
            special = [(name, self.convert_tokens_to_ids(name)) for name in (code, "</s>")]
            self.backend_tokenizer.post_processor = TemplateProcessing(f"{code} $A </s>", special_tokens=special)

        def _switch_to_target_mode(self):
            self._speaks("fr")

        def _switch_to_input_mode(self):
            self._speaks("en")

    backend = Tokenizer(WordLevel({"<pad>": 0, "</s>": 1, "en": 2, "fr": 3, "cat": 4, "chat": 5, "noir": 6}, "<pad>"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = TwoLanguages(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")
    tokenizer._switch_to_input_mode()
    encoder = Encoder(tokenizer, marian().model.config, None)
    pair = Example("x", "cat", target="chat noir")
    encoded = encoder.encode(pair)
    assert encoded.source.ids.tolist() == [2, 4, 1]
    assert encoded.target.ids.tolist() == [encoder.decoder_start, 3, 5, 6]
    assert encoded.target.word.tolist() == [-1, -1, 0, 1]
    reference = encoder.reference(pair)
    assert reference.ids.tolist() == [3, 5, 6, 1]
    assert reference.special.tolist() == [True, False, False, True]
    cut = Encoder(tokenizer, marian().model.config, 3).reference(pair, truncate=True)
    assert cut.ids.tolist() == [3, 5, 1]  # the code of the language and the end stay


def test_special_tokens_that_are_typed_are_words():
    """With either kind of tokenizer: special is what the tokenizer adds."""

    class Slow:
        is_fast, pad_token_id, unk_token_id, all_special_ids = False, 0, 9, [0, 1]

        def __call__(self, text):
            return {"input_ids": self.build_inputs_with_special_tokens([1 if w == "</s>" else 5 for w in text.split()])}

        def convert_ids_to_tokens(self, ids):
            return ["▁</s>" if number == 1 else "▁x" for number in ids]

        def build_inputs_with_special_tokens(self, ids):
            return [*ids, 1]

    slow = Encoder(Slow(), marian().model.config, None).encode(Example("x", "a </s> b")).source
    assert slow.special.tolist() == [False, False, False, True]
    assert slow.word.tolist() == [0, 1, 2, -1]
    fast = bert().encode([Example("x", "The [SEP] cat")])
    assert fast.source.pieces[0] == ("[CLS]", "the", "[SEP]", "cat", "[SEP]")
    assert fast.source.special[0].tolist() == [True, False, False, False, True]
    assert fast.source.categories["sep"][0].tolist() == [False, False, False, False, True]


def test_padding_is_the_configs_where_the_tokenizer_has_none():
    """A GPT-2 with a classifier looks for the last token that is not the config's padding."""
    subject = gpt2()
    subject.tokenizer.pad_token = None
    subject.model.config.pad_token_id = 7
    from lorgnette.subject import Subject

    batch = Subject(subject.model, subject.tokenizer).encode(["the cat sat", "cat"])
    assert batch.inputs["input_ids"][1, 1:].tolist() == [7, 7]


PAIRS = [
    Example("pair", "A dog ran.", pair="It was good."),
    Example("empty pair", "A dog ran.", pair=""),
    Example("long pair", "cat " * 40, pair="A dog, not a cat, sat " * 30),
    Example("half given", "a cat", pair="don't  sit", words=("a", "cat")),
    Example("given", "x", pair="y", words=("The", "cat.", "🙂", "not,ran"), extra={"pair_start": 2}),
]


def told(encoded):
    """All that is known of an example, as plain values."""
    sides = [side for side in (encoded.source, encoded.target) if side is not None]
    rows = [[row.tolist() for row in (side.ids, side.special, side.word)] for side in sides]
    return encoded.example.id, rows, [(side.words, side.types, side.cut, side.parts) for side in sides]


@pytest.mark.parametrize("maker", [bert, gpt2, marian])
def test_together_as_one_by_one(maker):
    encoder = maker().encoder
    examples = [
        Example("plain", "The cat, sat on the mat."),
        Example("words", "x", words=("The", "cat.", "🙂", "not,ran")),
        Example("empty", ""),
        Example("long", "cat " * 12),
        *([] if maker is marian else PAIRS),
        Example("target", "good", target="le chat"),
    ]
    each = [told(encoder.encode(example, truncate=True)) for example in examples]
    for words in (False, True):
        assert [told(encoded) for encoded in encoder.encode_all(examples, truncate=True, words=words)] == each
    with pytest.raises(UserError, match="half a character"):
        encoder.encode_all([*examples, Example("half", "\ud800")])


class Written(PreTrainedTokenizer):
    """A tokenizer in Python: a mark before each word, which is cut after three letters; [CLS] a [SEP] b [SEP]."""

    def __init__(self):
        pieces = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "▁the", "▁cat", "▁a", "▁dog", "▁run", "s", "▁sat"]
        self.numbers = {piece: number for number, piece in enumerate(pieces)}
        names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        super().__init__(**names, special_tokens_pattern="bert")
        self.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]

    @property
    def vocab_size(self):
        return len(self.numbers)

    def get_vocab(self):
        return dict(self.numbers)

    def _tokenize(self, text, **_):
        words = ("▁" + word for word in text.split())
        return [piece for word in words for piece in (word[:4], word[4:]) if piece]

    def _convert_token_to_id(self, token):
        return self.numbers.get(token, 3)

    def _convert_id_to_token(self, index):
        return list(self.numbers)[index]

    def build_inputs_with_special_tokens(self, token_ids_0, token_ids_1=None):
        return [1, *token_ids_0, 2, *([] if token_ids_1 is None else [*token_ids_1, 2])]

    def create_token_type_ids_from_sequences(self, token_ids_0, token_ids_1=None):
        return [0] * (len(token_ids_0) + 2) + [1] * (0 if token_ids_1 is None else len(token_ids_1) + 1)


@pytest.mark.parametrize("pair", ["the cat runs", "the cat sat", "a", "the"])  # the first text again, and its beginning
def test_a_tokenizer_written_in_python_takes_pairs(pair):
    """As `train` on entailment needs them: the tokenizer's own ids, words of both texts, and their parts."""
    tokenizer = Written()
    assert not tokenizer.is_fast
    encoder = Encoder(tokenizer, BertConfig(vocab_size=11), 32)
    (encoded,) = encoder.encode_all([Example("x", "the cat runs", pair=pair)])
    whole, side = tokenizer("the cat runs", pair), encoded.source
    assert side.ids.tolist() == whole["input_ids"]
    assert side.types == whole["token_type_ids"]
    assert side.words == ("the", "cat", "runs", *pair.split())
    owned = [pieces for number in range(3, len(side.words)) for pieces in np.flatnonzero(side.word == number)]
    second = tokenizer(pair, add_special_tokens=False)["input_ids"]
    assert side.ids[owned].tolist() == second
    assert [part for part in side.parts if part] == ["text"] * 4 + ["pair"] * len(second)
    assert side.special.tolist() == [number in (1, 2) for number in side.ids]
    batch = encoder.collate([encoded])
    assert batch.source.categories["pair"].sum() == len(second)


@pytest.mark.parametrize("make", [ByT5Tokenizer, CanineTokenizer])
@pytest.mark.parametrize("text", ["the cät sat", " two  spaces ", "日本 語 naïve"])
def test_the_model_reads_what_its_tokenizer_gives(make, text):
    """A tokenizer without offsets and without word marks: spaces are ids too, and words are those between them."""
    cutter = make()
    side = Encoder(cutter, BertConfig(), None).encode(Example("1", text)).source
    assert side.ids.tolist() == cutter(text)["input_ids"]
    assert side.words == tuple(text.split())
    pieces = cutter.convert_ids_to_tokens(side.ids.tolist())
    for number, word in enumerate(text.split()):
        own = [piece for piece, of_word in zip(pieces, side.word.tolist(), strict=True) if of_word == number]
        assert cutter.convert_tokens_to_string(own).strip() == word
