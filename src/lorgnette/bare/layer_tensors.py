"""What `lo.calls` is given, by layer: tensors, numbers and masks, checked."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real

import numpy as np
import torch
from torch import Tensor

from lorgnette.errors import UserError, shown, whole_number, whole_numbers
from lorgnette.texts.padding import real_tokens

Captured = Tensor | np.ndarray | Sequence[Tensor] | Mapping[int, Tensor]
"""Tensors [text head token dim]: of one layer, stacked over layers, as a list, or by number of the layer (from 1)."""
Optional = Tensor | np.ndarray | Sequence[Tensor | None] | Mapping[int, Tensor | None] | None
"""A tensor for all layers, or one for each; None for none."""
PerLayer = float | int | None | Sequence[float | int | None] | Mapping[int, float | int | None]
"""A number for all layers, or one for each; None for none."""
AXES = "[text head token dim]"


def by_layer(given: object, what: str, layers: Sequence[int] | None, axes: str = AXES) -> dict[int, Tensor]:
    """The tensors by number of the layer, from 1; the numbers are those of `layers`, if they are known."""
    size = axes.count(" ") + 1
    if isinstance(given, Mapping):
        found = {whole_number(number, f"A layer of {what}", at_least=1): each for number, each in given.items()}
        if layers is not None and set(found) != set(layers):
            raise UserError(f"{what} has the layers {listed(found)}; expected are {listed(layers)}.")
    else:
        tensors = list(given) if isinstance(given, list | tuple) else _unstacked(given, what, size)
        numbers = range(1, len(tensors) + 1) if layers is None else whole_numbers(layers, "layers", at_least=1)
        if len(numbers) != len(tensors) or len(set(numbers)) != len(tensors):
            raise UserError(f"{what} has {len(tensors)} layers, and the layers are {listed(numbers)}: one for each.")
        found = dict(zip(numbers, tensors, strict=True))
    if not found:
        raise UserError(f"{what} has no layer: expected tensors {axes}.")
    made = {number: as_tensor(found[number], what) for number in sorted(found)}
    for number, tensor in made.items():
        if tensor.dim() != size or 0 in tensor.shape or not tensor.is_floating_point():
            kind = str(tensor.dtype).removeprefix("torch.")
            raise UserError(f"{what} of layer {number} must be {axes}. Got {shape_of(tensor.shape)} of {kind}.")
        if not bool(torch.isfinite(tensor).all()):
            raise UserError(f"{what} of layer {number} contains NaN or infinity: every number would be wrong.")
    return made


def _unstacked(given: object, what: str, size: int) -> list[Tensor]:
    """A tensor of all layers, or of a single one."""
    tensor = as_tensor(given, what)
    return list(tensor) if tensor.dim() == size + 1 else [tensor]


def as_tensor(given: object, what: str) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    if isinstance(given, np.ndarray) and given.dtype.kind in "fbiu":
        return torch.from_numpy(np.ascontiguousarray(given))
    raise UserError(f"{what} must be a tensor, a list of them, or a mapping by layer. Got {shown(given)} instead.")


def numbers_of(given: object, what: str, layers: Iterable[int]) -> dict[int, float | None]:
    """One number above 0 for each layer, or None."""
    out: dict[int, float | None] = {}
    for layer, number in spread(given, what, layers).items():
        value = float(number) if isinstance(number, Real) and not isinstance(number, bool) else None
        if number is not None and (value is None or not value > 0):
            raise UserError(f"{what} must be a number above 0, or one for each layer. Got {shown(number)} instead.")
        out[layer] = value
    return out


def sinks_of(given: object, queries: Mapping[int, Tensor]) -> dict[int, Tensor | None]:
    """The scores of learnt sinks, one for each head of a layer."""
    given = list(as_tensor(given, "sinks")) if getattr(given, "ndim", 1) == 2 else given
    out: dict[int, Tensor | None] = {}
    for layer, sinks in spread(given, "sinks", queries).items():
        out[layer] = None if sinks is None else as_tensor(sinks, "sinks").to(queries[layer].device)
        heads = queries[layer].shape[1]
        if sinks is not None and tuple(out[layer].shape) != (heads,):  # type: ignore[union-attr]
            raise UserError(f"sinks of layer {layer} must be {heads} numbers, one for each head.")
    return out


def biases_of(given: object, queries: Mapping[int, Tensor], keys: Mapping[int, Tensor]) -> dict[int, Tensor | None]:
    """The biases that are added to the scores of each layer."""
    given = list(as_tensor(given, "bias")) if getattr(given, "ndim", 4) == 5 else given
    out: dict[int, Tensor | None] = {}
    for layer, bias in spread(given, "bias", queries).items():
        out[layer] = None if bias is None else as_tensor(bias, "bias").to(queries[layer])
        whole = (*queries[layer].shape[:3], keys[layer].shape[2])
        shape = whole if bias is None else tuple(out[layer].shape)  # type: ignore[union-attr]
        if len(shape) != 4 or any(size not in (1, most) for size, most in zip(shape, whole, strict=True)):
            raise UserError(
                f"bias of layer {layer} must broadcast to {shape_of(whole)} (texts × heads × queries × keys). Got "
                f"{shape_of(shape)}."
            )
    return out


def spread(given: object, what: str, layers: Iterable[int]) -> dict[int, object]:
    """One value for every layer, from a single value or a list."""
    numbers = list(layers)
    if isinstance(given, Mapping):
        if unknown := next((number for number in given if number not in numbers), None):
            raise UserError(f"{what} names layer {unknown}, and the layers are {listed(numbers)}.")
        return {number: given.get(number) for number in numbers}
    if isinstance(given, list | tuple):
        if len(given) != len(numbers):
            raise UserError(f"There are {len(numbers)} layers and {len(given)} of {what}.")
        return dict(zip(numbers, given, strict=True))
    return dict.fromkeys(numbers, given)


def mask_of(given: object, query: Tensor, key: Tensor) -> Tensor:
    """A mask of tokens [text token], or of pairs [text 1 query key]."""
    mask = as_tensor(given, "mask").to(query.device)
    texts, queries, keys = query.shape[0], query.shape[2], key.shape[2]
    if mask.dim() == 2:
        return real_tokens(mask, (texts, keys), "mask")
    fits = mask.dim() == 4 and mask.shape[0] in (1, texts) and mask.shape[2] in (1, queries) and mask.shape[3] == keys
    if not fits:
        raise UserError(
            f"mask must be [text token], or [text 1 query key] with {queries} queries and {keys} keys. Got "
            f"{shape_of(mask.shape)}."
        )
    return mask.to(query.dtype) if mask.is_floating_point() else mask != 0


def listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))


def shape_of(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape))
