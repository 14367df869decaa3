"""A GPT-2 of two layers that copies, set by hand: previous-token and duplicate-token heads, then an induction head.

Each token has a one-hot code of its word and of its position. Layer 1: head 1 reads the token before and writes its
word into a buffer, head 2 reads the same word earlier. Layer 2: head 1 looks for its own word in the buffer and writes
the word that stands there, which the output embeddings, equal to the words' codes, then say; head 2 does nothing.
"""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from lorgnette.lens.synthetic import haystack
from lorgnette.subject import Subject

POSITIONS = 160
SHARP = 40.0


def vocabulary():
    parts = " ".join((*haystack.WHO, *haystack.DID, *haystack.WHAT, *haystack.WHEN)).split()
    frame = ("The", "secret", "code", "of", "is", ":", ".")
    words = ["[PAD]", *dict.fromkeys((*parts, *haystack.NAMES, *haystack.CODES, *frame))]
    return {word: number for number, word in enumerate(words)}


def copying(*, control=False):
    words = vocabulary()
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[PAD]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=POSITIONS, pad_token="[PAD]")
    size = len(words)
    width = 2 * (size + POSITIONS)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=size, n_embd=width, n_layer=2, n_head=2, n_positions=POSITIONS, n_inner=8, bos_token_id=0,
        eos_token_id=0, initializer_range=0.2,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).eval()
    if not control:
        with torch.no_grad():
            _set(model, size)
    return Subject(model, fast, name="control" if control else "copying")


def _set(model, size):
    for parameter in model.parameters():
        parameter.zero_()
    for norm in (module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)):
        norm.weight.fill_(1.0)
    width, half = model.config.n_embd, model.config.n_embd // 2
    word, place, buffer = slice(0, size), slice(size, size + POSITIONS), slice(size + POSITIONS, 2 * size + POSITIONS)
    model.transformer.wte.weight[:, word] = torch.eye(size)
    model.transformer.wpe.weight[:, place] = torch.eye(POSITIONS)
    first, second = (layer.attn for layer in model.transformer.h)
    query, key, value = (slice(start, start + half) for start in (0, width, 2 * width))

    def maps(attention, head, what):
        """The columns of c_attn for the query, key or value of a head: [width, half]."""
        return attention.c_attn.weight[:, what.start + head * half : what.start + head * half + half]

    strength = SHARP * half**0.5 * 2 / width  # a one is about √(width / 2) after the norm
    maps(first, 0, query)[place, :POSITIONS] = torch.eye(POSITIONS).roll(-1, 1) * strength
    maps(first, 0, key)[place, :POSITIONS] = torch.eye(POSITIONS)
    maps(first, 0, value)[word, :size] = torch.eye(size)
    first.c_proj.weight[:size, buffer] = torch.eye(size) * 0.1
    maps(first, 1, query)[word, :size] = torch.eye(size) * strength
    maps(first, 1, key)[word, :size] = torch.eye(size)
    maps(first, 1, query)[place, size:] = -2 * strength * torch.eye(POSITIONS)  # not itself
    maps(first, 1, key)[place, size:] = torch.eye(POSITIONS)
    maps(second, 0, query)[word, :size] = torch.eye(size) * strength
    maps(second, 0, key)[buffer, :size] = torch.eye(size)
    maps(second, 0, value)[word, :size] = torch.eye(size)
    second.c_proj.weight[:size, word] = torch.eye(size)
