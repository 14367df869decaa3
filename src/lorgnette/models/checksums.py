"""Checksums of the weights in memory, taken where they are: they tell in a moment whether anything has changed.

The version counters of tensors would be quicker, but miss a fused optimizer and writes through `.data` or NumPy. On a
CPU it is CRC-32. On a GPU it is a sum of mixed words: copying 16 GB of weights to the CPU takes longer than a look.
"""

import zlib
from collections.abc import Iterator, Mapping

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor, nn

Checksums = Mapping[str, tuple[str, int]]
"""By name of a parameter or buffer: the kind of checksum, and its value."""
CRC, MIXED = "crc32", "mixed sum"
_CHUNK = 2**22
"""Words of eight bytes that are mixed together."""
_MIX, _TURN, _GOLDEN = 0x369DEA0F31A53F85, 0x27BB2EE687B0B0FD, 0x1E3779B97F4A7C15
"""Odd, so that multiplying by them loses nothing."""


def checksums(model: nn.Module, like: Checksums | None = None) -> Checksums:
    """Checksums of every parameter and buffer, of the same kinds as in `like`, even where another kind would be
    quicker.
    """
    out: dict[str, tuple[str, int]] = {}
    waiting: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, Tensor) or tensor.is_meta:  # offloaded: read from its file for every pass
            continue
        kind = CRC if tensor.is_cpu else MIXED
        if like is not None and name in like:
            kind = like[name][0]
        if kind == CRC:
            parts = b"".join(zlib.crc32(bytes_of(part)).to_bytes(4, "big") for part in plain(tensor))
            out[name] = CRC, zlib.crc32(parts)
        else:
            sums = [_mixed_sum(part) for part in plain(tensor)]
            waiting[name] = _folded(sums)
    devices = {each.device for each in waiting.values()}
    for device in devices:  # a GPU is waited for once
        names = [name for name, each in waiting.items() if each.device == device]
        values = torch.stack([waiting[name] for name in names]).tolist()
        out |= {name: (MIXED, value) for name, value in zip(names, values, strict=True)}
    return out


def bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor as bytes on the CPU."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data


def plain(tensor: Tensor) -> Iterator[Tensor]:
    """The tensor itself, or those that one of a special kind (quantised by torchao) is made from."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for part in tensor.__tensor_flatten__()[0]:
        yield from plain(getattr(tensor, part))


def _mixed_sum(tensor: Tensor) -> Int64[Tensor, ""]:
    """Σ mix(word ⊕ key of its place): one-to-one for every word, so that no single change goes unseen."""
    data: UInt8[Tensor, " byte"] = tensor.detach().contiguous().flatten().view(torch.uint8)
    if missing := -data.numel() % 8:
        data = torch.cat([data, data.new_zeros(missing)])
    if data.storage_offset() % 8:
        data = data.clone()
    words = data.view(torch.int64)
    total = words.new_tensor(tensor.numel())
    keys = torch.arange(min(len(words), _CHUNK), device=words.device).mul_(_GOLDEN)
    for number, some in enumerate(words.split(_CHUNK)):
        mixed = (keys[: len(some)] + number * _TURN).bitwise_xor_(some).mul_(_MIX)
        total = total + mixed.bitwise_xor_(mixed >> 32).sum() * _TURN  # that of every word, taken out of the sum
    return total


def _folded(sums: list[Tensor]) -> Int64[Tensor, ""]:
    first, *others = sums
    for other in others:
        first = first * _MIX + other.to(first.device)
    return first
