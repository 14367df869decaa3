"""Tokens that stand for a place of a picture: which they are, and where on the picture each of them is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.errors import UserError, shown, whole_numbers
from lorgnette.types import PretrainedConfig

IMAGE, VIDEO, TEXT, SPECIAL = "image", "video", "text", "special"
"""The parts of a text with pictures: every token is in one of them."""

Grid = tuple[int, int, int]
"""Frames, rows and columns of the tokens of one picture, tile or video."""


@dataclass(frozen=True)
class Patches:
    """Where on a picture each token stands, all counted from 0; −1 for tokens that stand for no picture.

    `tile` counts the pictures of a text, or the tiles that its processor cut them into, in the order of their tokens.
    """

    tile: Int[Tensor, "batch token"]
    frame: Int[Tensor, "batch token"]
    row: Int[Tensor, "batch token"]
    column: Int[Tensor, "batch token"]

    def pictures(self, values: Float[Tensor, " token"], text: int = 0) -> list[Float[np.ndarray, "row column"]]:
        """One number for each token of a text, as a table for each of its tiles and frames: NaN where there is none."""
        tables = []
        numbers, tile, frame = values.detach().double().cpu(), self.tile[text].cpu(), self.frame[text].cpu()
        for place in self.tables(text):
            here = (tile == place[0]) & (frame == place[1])
            rows, columns = self.row[text].cpu()[here], self.column[text].cpu()[here]
            table = np.full((int(rows.max()) + 1, int(columns.max()) + 1), np.nan)
            table[rows.numpy(), columns.numpy()] = numbers[here].numpy()
            tables.append(table)
        return tables

    def tables(self, text: int = 0) -> list[tuple[int, int]]:
        """The tiles and frames of a text, in the order of `pictures`."""
        tile, frame = self.tile[text].tolist(), self.frame[text].tolist()
        return sorted({(t, f) for t, f in zip(tile, frame, strict=True) if t >= 0})

    def names(self, mask: Bool[Tensor, "batch token"], text: int = 0) -> dict[int, str]:
        """What to call the pieces of a text that stand for a place: its row and column from 1, and which tile."""
        several = len(self.tables(text)) > 1
        places = zip(
            *(each[text][mask[text]].tolist() for each in (self.tile, self.frame, self.row, self.column)), strict=True
        )
        names = {}
        for piece, (tile, frame, row, column) in enumerate(places):
            if tile >= 0:
                where = f"{tile + 1}.{frame + 1}: " if frame else f"{tile + 1}: " if several else ""
                names[piece] = f"[{where}{row + 1},{column + 1}]"
        return names

    def changed(self, change: Callable[[Tensor], Tensor]) -> "Patches":
        """A copy with a function applied to every tensor."""
        return Patches(change(self.tile), change(self.frame), change(self.row), change(self.column))


def pictured_in(
    ids: Int[Tensor, "batch token"], config: PretrainedConfig | None
) -> dict[str, Bool[Tensor, "batch token"]]:
    """Which tokens stand for pictures, and which for videos, by the ids that the config names, if there are any."""
    found = {}
    for kind in (IMAGE, VIDEO):
        named = (getattr(config, name, None) for name in (f"{kind}_token_id", f"{kind}_token_index"))
        number = next((number for number in named if isinstance(number, int)), None)
        if number is not None and bool((ids == number).any()):
            found[kind] = ids == number
    return found


def before_patches(ids: Int[Tensor, "batch token"], config: PretrainedConfig | None) -> Bool[Tensor, "batch token"]:
    """Which positions a patch follows: a language model is given it, and does not predict it."""
    out = torch.zeros_like(ids, dtype=torch.bool)
    for pictured in pictured_in(ids, config).values():
        out[:, :-1] |= pictured[:, 1:]
    return out


def patches_of(
    pictured: Mapping[str, Bool[Tensor, "batch token"]],
    inputs: Mapping[str, Tensor],
    config: PretrainedConfig | None,
    grid: Sequence[int] | None,
) -> Patches | None:
    """The places of these tokens, from `grid` (rows and columns of a tile), the inputs or the config; None if none of
    them says it.
    """
    tables = [torch.full_like(next(iter(pictured.values())).long(), -1) for _ in range(4)] if pictured else []
    for kind, where in pictured.items():
        grids = None if grid is not None else _counted(kind, inputs, config)
        tile = _tile(grid) if grid is not None else _tile_of(config)
        if grid is None and _has_tiles_of_any_size(config):
            placed = _with_line_ends(where, inputs, config)
        else:
            placed = None if grids is None and tile is None else _placed(where, grids, tile)
        if placed is None and grid is not None:
            counts = ", ".join(map(str, where.sum(-1).tolist()))
            raise UserError(
                f"grid is {grid[0]} × {grid[1]}, and the texts have {counts} {kind} tokens: expected whole grids. Pass "
                "the rows and columns of the tokens of one picture or tile."
            )
        if placed is None:
            return None
        for table, numbers in zip(tables, placed, strict=True):
            table[where] = numbers.to(table)
    return Patches(*tables) if tables else None


def _tile(grid: Sequence[int]) -> Grid:
    """The grid of every tile, as a user gave it."""
    sizes = whole_numbers(grid, "grid", at_least=1)
    if len(sizes) != 2:
        raise UserError(f"grid must be (rows, columns) of the tokens of a picture. Got {shown(grid)} instead.")
    return 1, sizes[0], sizes[1]


def _counted(kind: str, inputs: Mapping[str, Tensor], config: PretrainedConfig | None) -> list[Grid] | None:
    """The grids of all pictures in order, where the processor gave their sizes."""
    vision = getattr(config, "vision_config", None)
    merged = next((int(n) for n in (getattr(c, "spatial_merge_size", None) for c in (config, vision)) if n), 1)
    sizes, patch = inputs.get("image_sizes"), one_side(getattr(vision, "patch_size", None))
    counted = inputs.get(f"{kind}_grid_thw")
    if counted is not None:
        return [(t, h // merged, w // merged) for t, h, w in counted.tolist()]
    if kind == IMAGE and (shapes := inputs.get("spatial_shapes")) is not None:  # LFM2-VL: patches of each tile
        smaller = int(getattr(config, "downsample_factor", 1))
        return [(1, h // smaller, w // smaller) for h, w in shapes.tolist()]
    if kind == IMAGE and (places := inputs.get("image_position_ids")) is not None:  # Gemma 4: column and row, or −1
        smaller = int(getattr(vision, "pooling_kernel_size", 1))
        return [(1, (h + 1) // smaller, (w + 1) // smaller) for w, h in places.amax(1).tolist()]
    if sizes is None or patch is None or kind != IMAGE or _has_tiles_of_any_size(config):
        return None
    return [(1, h // (patch * merged), w // (patch * merged)) for h, w in sizes.tolist()]


def _tile_of(config: PretrainedConfig | None) -> Grid | None:
    """The square of tokens that every picture or tile becomes, by the config."""
    vision = getattr(config, "vision_config", None)
    patch, size = (one_side(getattr(vision, name, None)) for name in ("patch_size", "image_size"))
    if patch is None or size is None or _has_tiles_of_any_size(config):
        return None
    shrinks = ("scale_factor", "downsample_factor", "spatial_merge_size")
    smaller = next((int(n) for n in (getattr(config, name, None) for name in shrinks) if n), 1)
    ratio = getattr(config, "downsample_ratio", None) or getattr(vision, "pixel_shuffle_ratio", None)
    tokens = getattr(config, "mm_tokens_per_image", None)
    side = size // patch // (round(1 / ratio) if ratio else smaller)
    side = side if tokens is None else round(tokens**0.5)
    return (1, side, side) if side and tokens in (None, side * side) else None


def _with_line_ends(
    where: Bool[Tensor, "batch token"], inputs: Mapping[str, Tensor], config: PretrainedConfig | None
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """The places of LLaVA-NeXT and its relatives: each picture as a whole, then its tiles as one table, with the end of
    each of its lines as a token of its own, which stands nowhere; None if that is not what the texts have.
    """
    sizes = inputs.get("image_sizes")
    if sizes is None or config is None or config.vision_config is None:
        return None
    pictures = [_two_tables(config, height, width) for height, width in sizes.tolist()]
    places: list[tuple[int, int, int, int]] = []
    for count in where.sum(-1).tolist():
        tile, end = 0, len(places) + count
        while len(places) < end and pictures:
            (rows, columns), (more_rows, more_columns) = pictures.pop(0)
            places += [(tile, 0, row, column) for row in range(rows) for column in range(columns)]
            for row in range(more_rows):
                places += [(tile + 1, 0, row, column) for column in range(more_columns)]
                places.append((-1, -1, -1, -1))
            tile += 2
        if len(places) != end:
            return None
    if pictures:
        return None
    table = torch.tensor(places).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def _two_tables(config: PretrainedConfig, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of a picture of this size as a whole, and of its tiles without the padding around them."""
    from transformers.image_processing_utils import select_best_resolution

    size = config.vision_config.image_size
    side = size // config.vision_config.patch_size
    high, wide = select_best_resolution((height, width), config.image_grid_pinpoints)
    rows, columns = high // size * side, wide // size * side
    if width / height > columns / rows:
        rows -= (rows - int(round(height * columns / width, 7))) // 2 * 2
    else:
        columns -= (columns - int(round(width * rows / height, 7))) // 2 * 2
    most = str(getattr(config, "vision_aspect_ratio", "")).removeprefix("anyres_max_")
    if most.isdigit() and (ratio := (rows * columns / (int(most) * side**2)) ** 0.5) > 1.1:
        rows, columns = int(rows // ratio), int(columns // ratio)
    return (side, side), (rows, columns)


def _has_tiles_of_any_size(config: PretrainedConfig | None) -> bool:
    """Whether the ends of lines are among the tokens of a picture (LLaVA-NeXT)."""
    return hasattr(config, "image_grid_pinpoints")


def one_side(size: object) -> int | None:
    """The side of a square."""
    sides = set(size) if isinstance(size, list | tuple) else {size}
    side = sides.pop()
    return side if isinstance(side, int) and not sides else None


def _placed(
    where: Bool[Tensor, "batch token"], grids: Sequence[Grid] | None, every: Grid | None
) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
    """Tile, frame, row and column of these tokens, text by text; None if they are not whole grids.

    `grids` are those of all pictures in order; None: each is like `every`.
    """
    places: list[tuple[int, int, int, int]] = []
    ahead = list(grids or ())
    for count in where.sum(-1).tolist():
        tile = 0
        while count > 0:
            grid = every if grids is None else ahead.pop(0) if ahead else None
            if grid is None:
                return None
            frames, rows, columns = grid
            count -= frames * rows * columns
            places += [(tile, f, r, c) for f in range(frames) for r in range(rows) for c in range(columns)]
            tile += 1
        if count:
            return None
    if ahead:
        return None
    table = torch.tensor(places).reshape(-1, 4)
    return table[:, 0], table[:, 1], table[:, 2], table[:, 3]


def parts_of(
    pictured: Mapping[str, Bool[Tensor, "batch token"]],
    mask: Bool[Tensor, "batch token"],
    special: Bool[Tensor, "batch token"],
) -> dict[str, Bool[Tensor, "batch token"]]:
    """The parts of texts with pictures: image (or video), text and special share out all tokens."""
    seen = torch.stack(list(pictured.values())).any(0)
    return {**pictured, TEXT: mask & ~special & ~seen, SPECIAL: special & mask}
