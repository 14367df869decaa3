"""What explanations cost that hide tokens or weigh by gradients, and the alignment of words, in plain passes."""

from collections.abc import Iterator
from importlib.util import find_spec

import torch
from tokenizers import processors
from transformers import MarianConfig, MarianMTModel

import lorgnette as lo
from benchmarks.harness import Figure, side_by_side
from benchmarks.relevance import classifier, forward
from benchmarks.shapes import E5_SMALL, subject, texts
from lorgnette.explaining import explain
from lorgnette.explaining.by_captum import DRAWN
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example

TOKENS, TOGETHER, PAIRS, WORDS = 64, 32, 16, 24
COPIES = {"chefer2021": 1, "occlusion": TOKENS, "shap": DRAWN + 2 * TOKENS, "lime": DRAWN + 2 * TOKENS}
"""Texts that a method runs the model on, to explain one text."""
BOUNDS = {"chefer2021": 4.0, "occlusion": 1.5, "shap": 1.5, "lime": 1.5}


def explanations() -> Iterator[Figure]:
    """Each method over plain passes of as many copies: one of the text, or one for each hidden set of tokens."""
    watched = classifier(layers=2, shape=E5_SMALL)
    text = list(texts(1, TOKENS))
    one = watched.encode(text)
    for method, copies in COPIES.items():
        if method in ("shap", "lime") and find_spec("captum") is None:
            continue
        together = min(TOGETHER, copies)
        batch = watched.encode(text * together)
        ratio = side_by_side(
            lambda times=copies // together, batch=batch: _passes(watched, batch, times),
            lambda method=method: explain(watched, one, method), least=3,
        )  # fmt: skip
        details = ratio.details(tokens=TOKENS, copies=copies)
        yield Figure(f"{method}_over_plain_copies", ratio.value, BOUNDS[method], details=details)


def align() -> Iterator[Figure]:
    """`lo.align` over three plain passes of half of its texts: two to choose heads, and one over the other half."""
    watched = _translator()
    links = " ".join(f"{word}-{word}" for word in range(WORDS - 4))
    examples = [
        Example(f"{number}", example.text, target=example.text, extra={"alignment": links})
        for number, example in enumerate(texts(PAIRS, WORDS))
    ]
    half = PAIRS // 2
    batch = watched.encode(examples[:half])
    ratio = side_by_side(
        lambda: _passes(watched, batch, 3),
        lambda: lo.align(watched, examples[:half], examples[half:], progress=False), least=3,
    )  # fmt: skip
    yield Figure("align_over_plain_passes", ratio.value, 2.0, details=ratio.details(texts=PAIRS, tokens=WORDS))


def _passes(watched: Subject, batch: Batch, times: int) -> None:
    once = forward(watched, batch)
    for _ in range(times):
        once()


def _translator() -> Subject:
    """Six layers of opus-mt's width on either side, random weights."""
    tokenizer = subject(E5_SMALL, longest=64, layers=1).tokenizer
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(
        single="$A [SEP]", special_tokens=[("[SEP]", 3)]
    )
    tokenizer.eos_token = "[SEP]"
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=len(tokenizer), d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=3, decoder_start_token_id=0, forced_eos_token_id=3,
    )  # fmt: skip
    return Subject(MarianMTModel(config).eval(), tokenizer, name="random weights")


BENCHES = {"explanations": explanations, "align": align}
