"""Tiny random models, made on the spot: no download.

tiny_model("gpt2")          a model of a family (`FAMILIES`), weights large enough for peaked attention; `inputs` for it
subject("gpt2")             the same with a tokenizer of numbered words, for `examples()`
bert(), classifier(), …     with a tokenizer of English words, for `TEXTS`, `EXAMPLES` and the trees of `TREEBANK`
planted()                   the hand-set model, whose heads are known, with its corpus
tiny.architectures          a model of any text architecture of transformers, from its table of configs
"""

from tiny.models import (
    BERT,
    COPIES,
    FALCON,
    FAMILIES,
    FLOAT32_SOFTMAX,
    LLAMA,
    MARIAN,
    SINKS,
    SIZE,
    eager_attentions,
    inputs,
    tiny_model,
)
from tiny.subjects import (
    EXAMPLES,
    MAKERS,
    NUMBERED,
    PROMPTS,
    TEXTS,
    TREEBANK,
    WORDS,
    bert,
    classifier,
    examples,
    gpt2,
    loud,
    marian,
    own_classifier,
    planted,
    subject,
    tokenizer,
    word_pieces,
)

__all__ = [
    "BERT", "COPIES", "EXAMPLES", "FALCON", "FAMILIES", "FLOAT32_SOFTMAX", "LLAMA", "MAKERS", "MARIAN", "NUMBERED",
    "PROMPTS", "SINKS", "SIZE", "TEXTS", "TREEBANK", "WORDS", "bert", "classifier", "eager_attentions", "examples",
    "gpt2", "inputs", "loud", "marian", "own_classifier", "planted", "subject", "tiny_model", "tokenizer",
    "word_pieces",
]  # fmt: skip
