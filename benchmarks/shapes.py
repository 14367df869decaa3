"""Subjects of known shapes with random weights: speed does not depend on what the weights are."""

from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from lorgnette.subject import Subject
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

E5_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 1536}
BERT_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
LLAMA_8B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA_8B |= {"intermediate_size": 14336}
LLAMA_1B = {"hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA_1B |= {"intermediate_size": 8192}
WORDS = 2000
CLASSES = ("LABEL_0", "LABEL_1")


def subject(
    shape: dict[str, int],
    *,
    longest: int = 512,
    layers: int | None = None,
    classes: int = 0,
    made: Callable[[dict[str, Any]], PreTrainedModel] | None = None,
) -> Subject:
    """A BERT, or where keys are grouped a Llama on the GPU, or what `made` makes, with a word-level tokenizer."""
    torch.manual_seed(0)
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", ".", ","]
    vocabulary = {word: number for number, word in enumerate([*specials, *(f"w{n}" for n in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=longest, **names)
    settings = {
        **shape,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": longest,
        "attn_implementation": "sdpa",
    }
    if layers is not None:
        settings["num_hidden_layers"] = layers
    if made is not None:
        model = made(settings)
    elif "num_key_value_heads" in shape:
        model = decoder(settings)
    elif classes:
        model = BertForSequenceClassification(BertConfig(**settings, num_labels=classes))
    else:
        model = BertModel(BertConfig(**settings), add_pooling_layer=False)
    return Subject(model.eval(), fast, name="random weights")


def decoder(settings: dict[str, Any]) -> LlamaModel:
    """Made on the GPU in the precision of its weights: on a CPU, billions of numbers take minutes to draw."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda"):
            return LlamaModel(LlamaConfig(**settings))
    finally:
        torch.set_default_dtype(before)


def texts(count: int, tokens: int) -> Corpus:
    """Texts of exactly this many tokens, specials included."""
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randint(0, WORDS, (count, tokens - 2), generator=generator)
    return Corpus.of(
        [_text(index, row) for index, row in enumerate(numbers.tolist())],
        name=f"{count} texts of {tokens} tokens",
        labels=CLASSES,
    )


def mixed_texts(count: int, mean: int, longest: int) -> Corpus:
    """Texts of 20 words or more, as long as texts are: few are long. Specials are included in `longest`."""
    generator = torch.Generator().manual_seed(1)
    lengths = (20 - (mean - 20) * torch.rand(count, generator=generator).log()).long().clamp(max=longest - 2)
    rows = [torch.randint(0, WORDS, (int(length),), generator=generator).tolist() for length in lengths]
    return Corpus.of([_text(index, row) for index, row in enumerate(rows)], name=f"{count} texts of mixed lengths")


def _text(index: int, numbers: list[int]) -> Example:
    words = [f"w{n}" if place % 9 else "," for place, n in enumerate(numbers, start=1)]
    return Example(f"text {index}", " ".join(words), label=index % 2)
