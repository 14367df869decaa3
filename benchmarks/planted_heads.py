"""Models whose heads are set by hand, so that what each lens must find is known, and attention that is pure chance.

The text is the planted corpus with each word carrying the position of its head in the gold tree (`cat|5`), so that one
head can follow the tree. Embeddings are blocks of one-hot codes: position, position of the tree's head, and flags;
every token has the same number of ones, so LayerNorm treats them alike. Scores between a matching query and key are
larger than all others by `SHARPNESS`.
"""

from collections.abc import Iterable
from dataclasses import replace

import torch
from jaxtyping import Float
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from lorgnette.attending import Call, Tap
from lorgnette.errors import UserError
from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example
from lorgnette.types import PreTrainedModel

HEADS = ("previous", "next", "sep", "uniform", "dead", "tree", "rare", "first")
"""What each head of the planted model does, in order. `dead` attends to the previous token and adds nothing."""

LONGEST = 48
SHARPNESS = 30.0
_WIDTH = len(HEADS) * LONGEST
_FLAGS = ("sep", "rare", "first")
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


def annotated(corpus: Iterable[Example]) -> Corpus:
    """The same sentences with each word as `word|position of its head`, counted from [CLS] at 0; roots point to 0."""
    examples = []
    for example in corpus:
        if example.words is None or example.heads is None:
            raise UserError("The planted model needs a corpus with words and gold trees, such as 'planted'.")
        if len(example.words) > LONGEST - 2:
            continue
        rare = set(example.extra.get("rare", ()))
        flags = ["!" if number in rare else "" for number in range(len(example.words))]
        words = tuple(f"{w}|{h}{f}" for w, h, f in zip(example.words, example.heads, flags, strict=True))
        examples.append(replace(example, words=words, text=" ".join(words)))
    return Corpus.of(examples, name="planted")


def planted_subject(corpus: Corpus, *, control: bool = False, seed: int = 0) -> Subject:
    """A one-layer BERT with the heads of `HEADS`, for a corpus made by `annotated`.

    `control` gives the same architecture with random weights: no lens may find anything in it.
    """
    vocabulary = {word: number for number, word in enumerate(_SPECIAL)}
    for example in corpus:
        for word in example.words or ():
            vocabulary.setdefault(word, len(vocabulary))
    tokenizer = _tokenizer(vocabulary)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=_WIDTH,
        num_hidden_layers=1,
        num_attention_heads=len(HEADS),
        intermediate_size=16,
        max_position_embeddings=LONGEST,
        pad_token_id=0,
        initializer_range=0.06 if control else 0.02,
    )
    model = BertModel(config, add_pooling_layer=False).eval()
    if not control:
        with torch.no_grad():
            _set_embeddings(model, vocabulary)
            _set_heads(model)
    return Subject(model, tokenizer, name="planted control" if control else "planted heads")


def _tokenizer(vocabulary: dict[str, int]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=LONGEST, **names)


def _blocks() -> dict[str, int]:
    """Where each code starts in the embedding: two blocks of positions, then a pair (yes, no) per flag."""
    starts = {"position": 0, "tree": LONGEST}
    for number, flag in enumerate(_FLAGS):
        starts[flag] = 2 * LONGEST + 2 * number
    return starts


def _set_embeddings(model: PreTrainedModel, vocabulary: dict[str, int]) -> None:
    embeddings, at = model.embeddings, _blocks()
    for table in (embeddings.word_embeddings, embeddings.position_embeddings, embeddings.token_type_embeddings):
        table.weight.zero_()
    for position in range(LONGEST):
        embeddings.position_embeddings.weight[position, at["position"] + position] = 1.0
    for word, number in vocabulary.items():
        row = embeddings.word_embeddings.weight[number]
        head = 0 if word in _SPECIAL or "|" not in word else int(word.rsplit("|", 1)[1].rstrip("!"))
        flags = {"sep": word == "[SEP]", "rare": word.endswith("!"), "first": word == "[CLS]"}
        row[at["tree"] + head] = 1.0
        for flag, value in flags.items():
            row[at[flag] + (0 if value else 1)] = 1.0


def _set_heads(model: PreTrainedModel) -> None:
    attention = model.encoder.layer[0].attention
    for projection in (attention.self.query, attention.self.key, attention.self.value):
        projection.bias.zero_()
    query, key, value = (getattr(attention.self, name).weight.view(len(HEADS), LONGEST, _WIDTH) for name in
                         ("query", "key", "value"))  # fmt: skip
    query.zero_(), key.zero_()
    eye, at = torch.eye(LONGEST), _blocks()
    position = slice(at["position"], at["position"] + LONGEST)
    tree = slice(at["tree"], at["tree"] + LONGEST)
    before, after = _shift(-1), _shift(+1)
    strength = SHARPNESS * LONGEST**0.5 / _contrast() ** 2
    for number, name in enumerate(HEADS):
        if name in ("previous", "dead", "next", "tree"):
            key[number, :, position] = eye
        if name in ("previous", "dead"):
            query[number, :, position] = before * strength
        elif name == "next":
            query[number, :, position] = after * strength
        elif name == "tree":
            query[number, :, tree] = eye * strength
        elif name in _FLAGS:
            # Every query has exactly one position, so the sum over its block is the same for all: a constant.
            query[number, 0, position] = strength
            key[number, 0, at[name]], key[number, 0, at[name] + 1] = 1.0, -1.0
    value[HEADS.index("dead")] = 0.0


def _shift(by: int) -> Tensor:
    """[code, position]: the code asked for at each position is that of its neighbour; the ends ask for themselves."""
    out = torch.zeros(LONGEST, LONGEST)
    for position in range(LONGEST):
        out[min(max(position + by, 0), LONGEST - 1), position] = 1.0
    return out


def _contrast() -> float:
    """Difference between a one and a zero after LayerNorm: 1 / sd of a vector with that many ones."""
    share = (2 + len(_FLAGS)) / _WIDTH
    return float((share * (1 - share)) ** -0.5)


_NOISE, _COLUMN = 3.0, 6.0
"""Standard deviations of random scores: by row and key, and by key alone."""
_HIDDEN = -1e4
"""Scores below this belong to keys that a row may not see."""


class RandomAttention(Tap):
    """Sharp rows drawn at random; heads of the second half favour some words of a text whoever asks, as sinks do.

    Give it to `subject.tapped` around a look. What is found then was in no model and no text.
    """

    def __init__(self, seed: int = 0) -> None:
        self.draw: torch.Generator = torch.Generator().manual_seed(seed)

    def scores(
        self, call: Call, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        texts, heads, _, keys = scores.shape
        noise = _NOISE * torch.randn(scores.shape, generator=self.draw)
        column = _COLUMN * torch.randn(texts, heads, 1, keys, generator=self.draw)
        column[:, : heads // 2] = 0
        return torch.where(scores > _HIDDEN, (noise + column).to(scores), scores)
