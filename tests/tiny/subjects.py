"""Tiny random models with a tokenizer that knows their texts: English words, or numbered ones."""

import random
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from lorgnette.subject import Subject
from lorgnette.texts.example import Example
from lorgnette.texts.parts import answered, prompt
from tiny.models import BERT, MARIAN, tiny_model

# fmt: off
WORDS = [
    "the", "cat", "sat", "on", "mat", "a", "dog", "ran", "and", "slept", "it", "was", "good", "bad", "not", "very",
    ",", ".", "!", "?", "un", "##believ", "##able", "##ly", "be", "le", "chat", "chien", "sur", "tapis",
]
# fmt: on
TEXTS = (
    "The cat sat on the mat.",
    "A dog ran, and it was good!",
    "good",
    "It was not very unbelievably bad. The dog slept on the cat, and the cat ran.",
    "cat dog cat dog .",
)
_DOCUMENTS = {"start": "the", "document 1": "the cat sat on the mat .", "document 3": "it was not very good"}
EXAMPLES = tuple(
    Example(
        f"text {number}",
        text,
        label=number % 2,
        target=text.lower().replace("cat", "chat"),
        extra={"alignment": "0-0", "counterpart": text.lower().replace("cat", "dog").replace("good", "bad")},
    )
    for number, text in enumerate(TEXTS)
)

PROMPTS = tuple(
    answered(replace(prompt({**_DOCUMENTS, "document 2": said, "question": asks}), id=f"prompt {number}"), f" {answer}")
    for number, (said, asks, answer) in enumerate(
        (("a dog ran", "it was", "good"), ("it slept", "the dog was", "bad !"), ("the mat was good", "a cat", "sat on"),
         ("not very bad", "the dog", "ran , and slept"), ("cat dog cat", "dog", "cat"))
    )
)  # fmt: skip

_TREES = (  # words, heads (0 the root) and relations of each
    ("The cat sat on the mat .", "2 3 0 6 6 3 3", "det nsubj root case det obl punct"),
    ("A dog ran , and it was good !", "2 3 0 8 8 8 8 3 3", "det nsubj root punct cc nsubj cop conj punct"),
    ("good", "0", "root"),
    ("It was not very unbelievably bad .", "6 6 6 5 6 0 6", "nsubj:pass cop advmod advmod advmod root punct"),
    ("cat dog cat dog .", "2 0 2 3 2", "compound root appos appos punct"),
    ("the cat ran on unbelievably , bad mat", "2 3 0 8 3 8 8 3", "det nsubj root case advmod punct amod obl"),
    ("a dog was the cat", "2 5 5 5 0", "det nsubj:pass cop det root"),
)  # fmt: skip
TREEBANK = tuple(
    Example(
        f"tree {number}",
        words,
        words=tuple(words.split()),
        heads=tuple(map(int, heads.split())),
        relations=tuple(relations.split()),
        tags={"upos": tuple("PUNCT" if word in ".,!" else "X" for word in words.split())},
        target=words.lower().replace("cat", "chat"),
        label=number % 2,
        rationale=tuple(float(place % 3 == 0) for place in range(len(words.split()))),
        extra={
            "mentions": tuple(
                (at, at + 1, at, word, "nominal") for at, word in enumerate(words.split()) if word in ("cat", "dog")
            )
        },
    )
    for number, (words, heads, relations) in enumerate(_TREES)
)


def word_pieces(specials: bool = True) -> PreTrainedTokenizerFast:
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: number for number, word in enumerate([*names, *dict.fromkeys(WORDS)])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    kinds: dict[str, Any] = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    if specials:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        kinds["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
        kinds |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **kinds)


def loud(cls: Any, config: Any, seed: int = 0, **more: Any) -> Any:
    """Random weights large enough for attention that is not uniform; the seed decides all of them, embeddings too."""
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = cls(config, **more)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "embed" not in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.15)
            elif parameter.dim() == 1 and "norm" not in name.lower():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model.eval()


def bert(dtype: torch.dtype = torch.float64, seed: int = 0) -> Subject:
    return Subject(loud(BertModel, BertConfig(**BERT), seed).to(dtype), word_pieces(), name="tiny bert")


def classifier(dtype: torch.dtype = torch.float64, seed: int = 0) -> Subject:
    model = loud(BertForSequenceClassification, BertConfig(**BERT, num_labels=2), seed)
    return Subject(model.to(dtype), word_pieces(), name="tiny classifier")


def gpt2(dtype: torch.dtype = torch.float64, seed: int = 0) -> Subject:
    config = GPT2Config(vocab_size=97, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=1)
    return Subject(loud(GPT2LMHeadModel, config, seed).to(dtype), word_pieces(specials=False), name="tiny gpt2")


def marian(dtype: torch.dtype = torch.float64, seed: int = 0) -> Subject:
    tokenizer = word_pieces(specials=False)
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", special_tokens=[("[SEP]", 3)]
    )
    tokenizer.eos_token = "[SEP]"
    return Subject(loud(MarianMTModel, MarianConfig(**MARIAN), seed).to(dtype), tokenizer, name="tiny marian")


def own_classifier(name: str, texts: Iterable[str], dtype: torch.dtype = torch.float64) -> Subject:
    """One of our presets, untrained, with a tokenizer that knows the words of these texts."""
    from lorgnette.models.classifier import SelfAttentionClassifier
    from lorgnette.models.classifier.presets import preset
    from lorgnette.models.classifier.tokenizer import build_tokenizer

    config = preset(name, width=16, vocab_size=100)
    torch.manual_seed(0)
    model = SelfAttentionClassifier(config).eval().to(dtype)
    return Subject(model, build_tokenizer(texts, cls=config.uses_cls), name=name)


@cache
def planted(control: bool = False) -> tuple[Subject, Any]:
    """The hand-set model with its corpus."""
    from benchmarks.planted_heads import annotated, planted_subject
    from lorgnette.texts import corpus

    texts = annotated(corpus("planted", split="test").take(60))
    return planted_subject(texts, control=control), texts


MAKERS = {"bert": bert, "gpt2": gpt2, "marian": marian}


# Of any family: a word per piece, numbered.
_SPECIALS = ("[PAD]", "</s>", "[CLS]", "[SEP]", "[MASK]")
NUMBERED = (".", ",", *(f"w{number}" for number in range(7, 97)))
_TRANSLATES = ("marian", "t5")
_BARE = ("gpt2",)  # no opening or closing token


def tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
    """A word per piece, 97 in all; what opens and closes a text depends on the family."""
    vocabulary = {word: number for number, word in enumerate((*_SPECIALS, *NUMBERED))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[MASK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]"}
    if family in _TRANSLATES:
        single, pair, specials = "$A </s>", "$A </s> $B </s>", [("</s>", 1)]
        names |= {"eos_token": "</s>"}
    elif family in _BARE:
        single, pair, specials = "$A", "$A $B", []
    else:
        single, pair, specials = "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", [("[CLS]", 2), ("[SEP]", 3)]
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    inner.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=specials)
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=64, **names)


def subject(family: str = "bert", seed: int = 0, dtype: torch.dtype = torch.float64) -> Subject:
    return Subject(tiny_model(family, seed, dtype), tokenizer(family), name=f"tiny {family}")


def examples(lengths: tuple[int, ...] = (9, 4, 1, 6, 12), seed: int = 0, **fields: Any) -> list[Example]:
    """Texts of random words, some of them "." and ",", each with a target and a label."""
    rng = random.Random(seed)
    text = lambda length: " ".join(rng.choice(NUMBERED[: 2 + rng.choice((0, 88))]) for _ in range(length))  # noqa: E731
    return [
        Example(f"{number + 1}", text(length), target=text(max(1, length - 1)), label=number % 3, **fields)
        for number, length in enumerate(lengths)
    ]
