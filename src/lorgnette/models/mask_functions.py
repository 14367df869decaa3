"""Which of transformers' mask functions describe a band along the diagonal, recognised by their code."""

from collections.abc import Callable
from functools import cache
from types import FunctionType

import torch
from jaxtyping import Bool
from torch import Tensor
from transformers.masking_utils import (
    bidirectional_mask_function,
    causal_mask_function,
    sliding_window_bidirectional_mask_function,
    sliding_window_causal_mask_function,
)

from lorgnette.attending.band import Band

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
