"""Pictures as the model saw them: cut, padded and in tiles as its processor made them, so that patches lie on them."""

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lorgnette.texts.patches import Patches

Pixels = UInt8[np.ndarray, "row column channel"]


def seen_pictures(
    inputs: Mapping[str, Tensor], patches: Patches, text: int = 0, processor: object = None
) -> list[Pixels | None] | None:
    """The pixels of each tile of a text, in the order of `Patches.tile`; None where the inputs do not hold pictures.

    None for the tiles of LLaVA-NeXT, which are one table of tokens for the picture as it was given.

    The normalisation is undone by the mean and the standard deviation of the `processor`; without one, the smallest
    number of a picture is drawn black and the largest white. A model of packed patches (Qwen-VL) has no pictures among
    its inputs: its processor only changes their size, so the picture itself lies under the patches.
    """
    pixels = inputs.get("pixel_values")
    counts = [int(each.max()) + 1 if each.numel() else 0 for each in patches.tile]
    tiles = None if pixels is None else _tiles(pixels, counts, text)
    if tiles is None or not len(tiles):
        return None
    sizes = inputs.get("image_sizes")
    start = sum(counts[:text])
    made: list[Pixels | None] = []
    for number, tile in enumerate(tiles.detach().float().cpu()):
        if sizes is not None and pixels is not None and pixels.dim() == 4 and len(sizes) == len(pixels):
            height, width = sizes[start + number].tolist()  # the rest is padding up to the largest of the batch
            tile = tile[:, :height, :width]
        made.append(_in_colours(tile, getattr(processor, "image_processor", None)))
    if sizes is not None and pixels is not None and pixels.dim() == 5:
        return [made[0], *[None] * (len(made) - 1)]
    return made


def _tiles(pixels: Tensor, counts: list[int], text: int) -> Float[Tensor, "tile channel row column"] | None:
    """Those of one text, whether all tiles are in one row or each text has a row of its own."""
    if pixels.dim() == 4 and len(pixels) == sum(counts):
        return pixels[sum(counts[:text]) : sum(counts[: text + 1])]
    with_pictures = [row for row, count in enumerate(counts) if count]
    if pixels.dim() == 5 and len(pixels) == len(with_pictures) and text in with_pictures:
        return pixels[with_pictures.index(text), : counts[text]]
    return None


def _in_colours(tile: Float[Tensor, "channel row column"], processor: object) -> Pixels:
    mean, spread = (getattr(processor, name, None) for name in ("image_mean", "image_std"))
    if processor is not None and not getattr(processor, "do_normalize", True):
        shares = tile
    elif mean is not None and spread is not None:
        shares = tile * torch.tensor(spread)[:, None, None] + torch.tensor(mean)[:, None, None]
    else:
        low, high = tile.min(), tile.max()
        shares = (tile - low) / (high - low).clamp(min=1e-12)
    out = (shares.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    return out if out.shape[2] == 3 else out[:, :, :1].repeat(3, axis=2)
