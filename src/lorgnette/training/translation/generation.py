"""Translations by a model: in batches of similar length, greedy or by beam, in the order of the texts."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lorgnette.errors import UserError
from lorgnette.models.pruned.stock import cache_is_short
from lorgnette.progress import progress_bar
from lorgnette.texts.encoding import Encoder
from lorgnette.texts.example import Example
from lorgnette.types import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

ROOM = 20
"""A translation may have twice the tokens of its source and so many more."""


def translate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    beams: int = 1,
    batch_size: int = 64,
    limit: int | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    bf16: bool = False,
    progress: bool = False,
) -> list[str]:
    """The translation of each text; beams 1 is greedy.

    A source longer than `limit` tokens (the model's own by default) is cut; a translation ends there at the latest, or
    when it has twice the tokens of its source and `ROOM`. That is each text's own: what is translated beside it does
    not matter.
    """
    if beams < 1 or batch_size < 1:
        raise UserError(f"beams and batch_size must be at least 1; got {beams} and {batch_size}.")
    longest = limit or int(model.config.max_position_embeddings)
    encoder = Encoder(tokenizer, model.config, longest)
    sources = [encoder.source(Example(str(n), text), truncate=True).ids.tolist() for n, text in enumerate(texts)]
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    translations: dict[int, str] = {}
    was_training = model.training
    model.eval()
    with progress_bar("translating", len(sources), enabled=progress) as advance, torch.inference_mode():
        for numbers in _batches(order, sources, batch_size, beams):
            with _precision(model, bf16):
                ids = _generated(model, [sources[n] for n in numbers], tokenizer.pad_token_id, beams, longest)
            ids = _ended(
                ids,
                [_cap(sources[n], longest) for n in numbers],
                model.generation_config,
                target_tokenizer or tokenizer,
            )
            said = (target_tokenizer or tokenizer).batch_decode(ids, skip_special_tokens=True)
            translations.update(zip(numbers, said, strict=True))
            advance(len(numbers), int(ids.numel()))
    model.train(was_training)
    return [translations[number] for number in range(len(sources))]


def _generated(
    model: PreTrainedModel, sources: list[list[int]], padding: int, beams: int, longest: int
) -> torch.Tensor:
    width = max(map(len, sources))
    ids = torch.tensor([[*one, *[padding] * (width - len(one))] for one in sources], device=model.device)
    lengths = torch.tensor([len(one) for one in sources], device=model.device)
    mask = (torch.arange(width, device=model.device) < lengths[:, None]).long()
    config = copy.deepcopy(model.generation_config)
    # Override the length and the beams of the checkpoint's generation config.
    most = max(_cap(one, longest) for one in sources)
    config.update(num_beams=beams, do_sample=False, max_new_tokens=None, max_length=most)
    if beams == 1:
        config.update(early_stopping=False, length_penalty=1.0)
    if cache_is_short(model):
        config.update(use_cache=False)
    return model.generate(input_ids=ids, attention_mask=mask, generation_config=config)


def _batches(order: list[int], sources: list[list[int]], size: int, beams: int) -> Iterator[list[int]]:
    """Numbers of texts. A beam ends by the length that a translation may have, so its texts must be of one length."""
    start = 0
    while start < len(order):
        stop = min(start + size, len(order))
        if beams > 1:
            length = len(sources[order[start]])
            stop = next((n for n in range(start, stop) if len(sources[order[n]]) != length), stop)
        yield order[start:stop]
        start = stop


def _cap(source: list[int], longest: int) -> int:
    """The tokens that a translation may have, its start token counted."""
    return min(2 * len(source) + ROOM, longest)


def _ended(
    ids: torch.Tensor, caps: list[int], config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> torch.Tensor:
    """Each translation, cut where it would have ended in a batch of its own: at its cap, less the forced end token."""
    lengths = [cap - 1 if config.forced_eos_token_id is not None else cap for cap in caps]
    place = torch.arange(ids.shape[1], device=ids.device)
    over = torch.tensor(caps, device=ids.device) < ids.shape[1]
    too_far = (place[None] >= torch.tensor(lengths, device=ids.device)[:, None]) & over[:, None]
    return ids.masked_fill(too_far, tokenizer.pad_token_id)


def _precision(model: PreTrainedModel, bf16: bool) -> AbstractContextManager[Any]:
    return torch.autocast(model.device.type, dtype=torch.bfloat16) if bf16 else nullcontext()
