"""Translations by a model: in batches of similar length, greedy or by beam, in the order of the texts."""

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lorgnette.errors import UserError
from lorgnette.looking.progress import progress_bar

ROOM = 20
"""A translation may have twice the tokens of its source and so many more."""


def translate(
    model: Any,
    tokenizer: Any,
    texts: Sequence[str],
    *,
    beams: int = 1,
    batch_size: int = 64,
    limit: int | None = None,
    target_tokenizer: Any = None,
    bf16: bool = False,
    progress: bool = False,
) -> list[str]:
    """The translation of each text; beams 1 is greedy.

    A source longer than `limit` tokens (the model's own by default) is cut; a translation ends there at the latest.
    """
    if beams < 1 or batch_size < 1:
        raise UserError(f"beams and batch_size must be at least 1; got {beams} and {batch_size}.")
    longest = limit or int(model.config.max_position_embeddings)
    sources = [_cut(ids, longest) for ids in tokenizer(list(texts), verbose=False)["input_ids"]] if texts else []
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    found: dict[int, str] = {}
    was_training = model.training
    model.eval()
    with progress_bar("translating", len(sources), enabled=progress) as advance, torch.inference_mode():
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            with _precision(model, bf16):
                ids = _generated(model, [sources[n] for n in numbers], tokenizer.pad_token_id, beams, longest)
            said = (target_tokenizer or tokenizer).batch_decode(ids, skip_special_tokens=True)
            found.update(zip(numbers, said, strict=True))
            advance(len(numbers), int(ids.numel()))
    model.train(was_training)
    return [found[number] for number in range(len(sources))]


def _generated(model: Any, sources: list[list[int]], padding: int, beams: int, longest: int) -> torch.Tensor:
    width = max(map(len, sources))
    ids = torch.tensor([[*one, *[padding] * (width - len(one))] for one in sources], device=model.device)
    lengths = torch.tensor([len(one) for one in sources], device=model.device)
    mask = (torch.arange(width, device=model.device) < lengths[:, None]).long()
    config = copy.deepcopy(model.generation_config)
    # The checkpoint's own length and beam are for its users; here they are what was asked for.
    config.update(num_beams=beams, do_sample=False, max_new_tokens=None, max_length=min(2 * width + ROOM, longest))
    if beams == 1:
        config.update(early_stopping=False, length_penalty=1.0)
    return model.generate(input_ids=ids, attention_mask=mask, generation_config=config)


def _precision(model: Any, bf16: bool) -> AbstractContextManager[Any]:
    return torch.autocast(model.device.type, dtype=torch.bfloat16) if bf16 else nullcontext()


def _cut(ids: list[int], longest: int) -> list[int]:
    return ids if len(ids) <= longest else [*ids[: longest - 1], ids[-1]]
