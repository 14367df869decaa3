"""The patches of one picture as tokens, as a tower of pictures reads them, with what it puts before them ([CLS])."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lorgnette.texts.batch import Batch, Tokens, TokenTexts
from lorgnette.texts.example import Example
from lorgnette.texts.patches import IMAGE, SPECIAL, Patches, one_side
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import PretrainedConfig

MOST_BEFORE = 8
"""A tower puts at most so many tokens before its patches: one that says what is seen, and registers."""


def tower_batch(
    example: Example, inputs: Mapping[str, Tensor], config: PretrainedConfig | None, tokens: int, tile: int
) -> Batch:
    """One picture (or tile) as so many tokens; their places are left open where nothing says them."""
    pixels = inputs.get("pixel_values")
    places = _places(inputs, getattr(config, "vision_config", None), tokens)
    before = tokens if places is None else tokens - len(places[0])
    mask = torch.ones(1, tokens, dtype=torch.bool)
    special = torch.zeros_like(mask)
    special[:, :before] = places is not None
    none, first = torch.zeros_like(mask), torch.zeros_like(mask)
    first[:, 0] = True
    kinds = {"cls": special, "sep": none, "punctuation": none, "period_comma": none, "other": ~special, "first": first}
    kinds |= {"last": first.flip(1)}
    assert set(kinds) == set(CATEGORIES)
    patches, named = None, [str(number + 1) for number in range(tokens)]
    if places is not None:
        table = torch.full((4, 1, tokens), -1)
        for row, numbers in zip(table, (torch.zeros_like(places[0]), *places), strict=True):
            row[0, before:] = numbers
        patches = Patches(*table)
        kinds |= {IMAGE: ~special, SPECIAL: special}
        named = ["[CLS]" if before == 1 else f"[{number + 1}]" for number in range(before)]
        named += [
            f"[{row + 1},{column + 1}]" for _, row, column in zip(*(each.tolist() for each in places), strict=True)
        ]
    word = torch.where(special, -1, (~special).long().cumsum(-1) - 1)
    words = tuple(name for name, is_special in zip(named, special[0].tolist(), strict=True) if not is_special)
    text = TokenTexts.of(word, (tuple(named),), (words,))
    seen = {} if pixels is None or pixels.dim() < 4 else {"pixel_values": pixels.flatten(0, -4)[tile : tile + 1]}
    return Batch(seen, Tokens(torch.arange(tokens)[None], mask, special, kinds, text, patches), None, (example,))


def _places(
    inputs: Mapping[str, Tensor], vision: PretrainedConfig | None, tokens: int
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Frame, row and column of each patch, in the order of the tower; None if they are not known."""
    grid, pixels, patch = inputs.get("image_grid_thw"), inputs.get("pixel_values"), None
    if grid is not None:
        # Squares of patches that become one token stand together, and those of a window (Qwen2.5-VL) before the next.
        frames, rows, columns = grid[0].tolist()
        sides = [int(getattr(vision, "spatial_merge_size", 1) or 1)]
        if vision is not None and hasattr(vision, "fullatt_block_indexes"):
            sides.insert(0, vision.window_size // (sides[0] * vision.patch_size) * sides[0])
        known = len(grid) == 1 and frames * rows * columns == tokens
        return _in_squares(frames, rows, columns, *sides) if known else None
    patch = one_side(getattr(vision, "patch_size", None))
    if patch is None or pixels is None or pixels.dim() < 4:
        return None
    sizes = inputs.get("image_sizes")
    packed = sizes is not None and len(sizes) == 1 and pixels.dim() == 4 and len(pixels) == 1
    height, width = sizes[0].tolist() if sizes is not None and packed else pixels.shape[-2:]
    rows, columns = height // patch, width // patch
    return _in_squares(1, rows, columns) if 0 <= tokens - rows * columns <= MOST_BEFORE else None


def _in_squares(frames: int, rows: int, columns: int, *sides: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row by row of squares of the first side, within each row by row of squares of the next, and so on."""
    frame, row, column = (each.ravel() for each in np.indices((frames, rows, columns)))
    keys = [frame, *(place // side for side in sides for place in (row, column)), row, column]
    order = np.lexsort(keys[::-1])
    return torch.from_numpy(frame[order]), torch.from_numpy(row[order]), torch.from_numpy(column[order])
