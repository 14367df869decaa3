"""What questions about a prompt cost, in plain passes over the copies that they need."""

from collections.abc import Iterator

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import lorgnette as lo
from benchmarks.harness import Figure, side_by_side
from lorgnette.lens.ablation.copies import copies_together
from lorgnette.lens.context.together import StreamedTogether
from lorgnette.lens.context.windowed import Stream
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

WORDS, LAYERS, PARTS, LONG = 2000, 10, 10, 20
"""SmolLM2-135M's width, with a third of its layers; ten documents and a question of twenty words each."""


def _subject() -> Subject:
    torch.manual_seed(0)
    vocabulary = {word: number for number, word in enumerate(["[PAD]", *(f"w{n}" for n in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, pad_token="[PAD]")
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=576, num_hidden_layers=LAYERS, num_attention_heads=9,
        num_key_value_heads=3, intermediate_size=1536, max_position_embeddings=512, attn_implementation="sdpa",
    )  # fmt: skip
    return Subject(LlamaForCausalLM(config).eval(), fast, name="random weights")


def _words(first: int, count: int) -> str:
    return " ".join(f"w{(first + number) % WORDS}" for number in range(count))


def _plain(subject: Subject, batch: Batch, copies: int) -> None:
    together = copies_together(batch)
    for start in range(0, copies, together):
        inputs = {name: tensor.repeat(min(together, copies - start), 1) for name, tensor in batch.inputs.items()}
        with torch.no_grad():
            subject.model(**inputs, use_cache=False)


def sources() -> Iterator[Figure]:
    """`lo.sources` in all, its forward and backward for relevance too, over plain passes of the same copies."""
    subject = _subject()
    parts = {f"document {number}": _words(number * LONG, LONG) for number in range(PARTS)}
    prompt = {**parts, "question": _words(0, LONG)}
    batch = subject.encode([" ".join([*prompt.values(), "w7"])])
    copies = 2 * PARTS + 2  # without each part, with each source alone, without any source
    ratio = side_by_side(
        lambda: _plain(subject, batch, copies), lambda: lo.sources(subject, prompt, " w7", progress=False)
    )
    yield Figure("sources_over_plain_copies", ratio.value, 1.5, details=ratio.details(copies=copies))


def streaming() -> Iterator[Figure]:
    """Sets of key heads that stream together, over plain passes of as many copies."""
    subject = _subject()
    every = [(each.site, group) for each in subject.anatomy.sites for group in range(each.groups)]
    sets = {size: [every[:size], every[-size:]] for size in (5, 10, 15, 20)}
    batch = subject.encode([_words(0, 256), _words(99, 256)])
    outputs = subject.run(batch, return_dict=True)

    def streamed() -> None:
        lens = StreamedTogether(Stream(4, 64), sets)
        lens.bind(subject)
        lens.finish(batch, outputs)

    ratio = side_by_side(lambda: _plain(subject, batch, 8), streamed)
    yield Figure("streaming_over_plain_copies", ratio.value, 2.0, details=ratio.details(copies=8))


def copies() -> Iterator[Figure]:
    """Eight copies of a long text in passes of their own, over the same copies in one pass.

    `context` runs as many copies together as have 4,096 tokens, which for long texts is few: see what that costs.
    """
    subject = _subject()
    batch = subject.encode([_words(0, 512)])
    every = {name: tensor.repeat(8, 1) for name, tensor in batch.inputs.items()}

    def ran(inputs: dict[str, torch.Tensor], times: int) -> None:
        with torch.no_grad():
            for _ in range(times):
                subject.model(**inputs, use_cache=False)

    ratio = side_by_side(lambda: ran(every, 1), lambda: ran(batch.inputs, 8))
    yield Figure("copies_alone_over_together", ratio.value, 1.5, details=ratio.details(tokens=512, copies=8))


def asked() -> Iterator[Figure]:
    """Lenses that ask a language model, on four texts of 128 tokens, over the plain pass of these texts.

    `context` masks every key head by itself: 30 partial passes, 15 whole ones in sum.
    """
    subject = _subject()
    texts = [_words(number * LONG, 128) for number in range(4)]
    batch = subject.encode(texts)
    for name, lens, bound in (
        ("context", "context:window=32,windows=32,losses=shared", 35.0),
        ("logitlens", "logitlens", 8.0),
        ("composition", "composition", 15.0),
        ("edges", "edges:strongest=0,drawn=0,ablation=zero", 25.0),
    ):
        ratio = side_by_side(
            lambda: _plain(subject, batch, 1), lambda one=lens: lo.look(subject, texts, one, progress=False)
        )
        yield Figure(f"{name}_over_plain_pass", ratio.value, bound, details=ratio.details(tokens=4 * 128))


BENCHES = {"sources": sources, "streaming": streaming, "copies": copies, "asked": asked}
