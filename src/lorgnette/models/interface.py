"""Our name in transformers' attention interface: the attention function, and the masks that go with it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, prepare_padding_mask, sdpa_mask

from lorgnette.attending import attend
from lorgnette.attending.band import Band, BandMask
from lorgnette.models.mask_functions import band_of

# Not a name with "flash" in it: transformers would take it for a kernel to download.
NAME = "lorgnette"

_PADDED: ContextVar[bool | None] = ContextVar("padded", default=None)
"""Whether the texts of the pass have padding, where that is known without waiting for a GPU."""
_ONE_MASK = {"input_ids", "attention_mask", "token_type_ids"}


@contextmanager
def padding_known(inputs: Mapping[str, Tensor], padded: bool | None) -> Iterator[None]:
    """Say whether these inputs have padding, for a pass with no mask but theirs."""
    token = _PADDED.set(padded if set(inputs) <= _ONE_MASK else None)
    try:
        yield
    finally:
        _PADDED.reset(token)


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Tensor] = bidirectional_mask_function,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """The mask for `attend`: padding [batch 1 1 key] where all rows may see the same keys, with a band a `BandMask`.

    Anything else (packed texts, chunks, a static cache) is n×n, as transformers makes it. A mask that hides anything is
    never left out: `attend` takes a missing mask to hide nothing, as transformers' eager attention does. Only sdpa may
    be given none for a causal model, because it asks the module (`is_causal`), and not every module says the truth.
    """
    band = band_of(mask_function)
    # The last query stands at the last key: what `Band` means by a row's position.
    aligned = isinstance(q_offset, int) and q_offset - kv_offset == kv_length - q_length
    if band is None or (band and not aligned) or torch.compiler.is_compiling():
        kwargs["allow_is_causal_skip"] = False
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length].bool()[:, None, None]
        padding = padding if _is_padded(padding) else None
    if band.window is not None and band.window >= kv_length - 1:
        band = Band(band.causal)
    if not band and (padding is not None or kwargs.get("allow_is_bidirectional_skip", True)):
        return padding
    return BandMask((batch_size, 1, q_length, kv_length), padding, band, kwargs.get("device", "cpu"))


def _is_padded(mask: Tensor) -> bool:
    known = _PADDED.get()
    if known is None and mask.is_cuda and torch.cuda.is_current_stream_capturing():
        return True  # a mask that hides nothing changes nothing
    return not bool(mask.all()) if known is None else known


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, attention_mask)
