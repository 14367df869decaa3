"""Our name in transformers' attention interface: the attention function, and the masks that go with it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import FunctionType
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    prepare_padding_mask,
    sdpa_mask,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from lorgnette.attending import attend
from lorgnette.attending.band import Band, BandMask

_EXAMPLE = 3
"""The window of the examples that a function is compared with."""


def band_of(mask_function: Callable[..., Tensor]) -> Band | None:
    """The band that this function describes; None if it is not known to be a band."""
    numbers: list[int] = []
    make = _known().get(_anatomy(mask_function, numbers))
    return None if make is None else make(*numbers)


def _anatomy(part: object, numbers: list[int]) -> object:
    """The code that a function runs and what it closes over, down to plain functions; its numbers are taken out."""
    if type(part) is int:
        numbers.append(part)
        return int
    if isinstance(part, tuple):
        return tuple(_anatomy(each, numbers) for each in part)
    if isinstance(part, FunctionType):
        cells = part.__closure__ or ()
        return id(part.__code__), *(_anatomy(cell.cell_contents, numbers) for cell in cells)
    return id(part)


@cache
def _known() -> dict[object, Callable[..., Band]]:
    """The functions of this transformers that are bands, by anatomy: each is tried on all pairs of a few positions.

    A later version that counts its windows otherwise fails here, and its masks are made by transformers.
    """
    examples: list[tuple[Callable[..., Tensor], Callable[..., Band], tuple[int, ...]]] = [
        (bidirectional_mask_function, Band, ()),
        (causal_mask_function, lambda: Band(causal=True), ()),
        (sliding_window_causal_mask_function(_EXAMPLE), lambda size: Band(causal=True, window=size - 1), (_EXAMPLE,)),
        (sliding_window_bidirectional_mask_function(_EXAMPLE), lambda size: Band(window=size), (_EXAMPLE,)),
    ]
    known, places = {}, torch.arange(3 * _EXAMPLE)
    for function, make, given in examples:
        numbers: list[int] = []
        anatomy = _anatomy(function, numbers)
        seen = function(0, 0, places[:, None], places).expand(len(places), len(places))
        if tuple(numbers) == given and torch.equal(seen, _square(make(*given), len(places))):
            known[anatomy] = make
    return known


def _square(band: Band, size: int) -> Bool[Tensor, "query key"]:
    return band.keys(slice(None), size, size, torch.device("cpu"))


# Not a name with "flash" in it: transformers would take it for a kernel to download.
NAME = "lorgnette"

PACKED = "lorgnette_flash"
"""The name for modules that cut packed pictures into one call for each, unless they think that the function does."""

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


for _name in (NAME, PACKED):
    AttentionInterface.register(_name, attend)
    AttentionMaskInterface.register(_name, attention_mask)
