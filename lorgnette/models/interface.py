"""Our name in transformers' attention interface: the attention function, and the masks that go with it."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, prepare_padding_mask, sdpa_mask

from lorgnette.attending import attend

# Not a name with "flash" in it: transformers would take it for a kernel to download.
NAME = "lorgnette"


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = bidirectional_mask_function,
    attention_mask: Tensor | None = None,
    **kwargs: object,
) -> Tensor | None:
    """The mask for `attend`: [batch 1 1 key] where every row may see the same keys, n×n only for causal and windows."""
    if mask_function is not bidirectional_mask_function:
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length].bool()
    return None if bool(padding.all()) else padding[:, None, None, :]


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, attention_mask)
