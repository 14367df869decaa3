"""Numbers of patches, seen on their picture: PNG or SVG."""

import base64
import io
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.errors import UserError, outside
from lorgnette.figures.drawing import renderer
from lorgnette.files import writing, written_whole
from lorgnette.texts.batch import Batch
from lorgnette.texts.pictures import Picture

POSITIVE, NEGATIVE, SINK = "#d62728", "#1f77b4", "#111111"
MOST = 0.75
"""How opaque the patch with the largest number is."""


@dataclass(frozen=True)
class Overlay:
    """A number for each patch, drawn on the picture: the larger, the more opaque; blue below zero; sinks are framed.

    `numbers` [row column] are what `batch.source.patches.pictures(values)` gives of attention, norms or relevance;
    `sinks`, of the same shape, says which patches to frame. The picture is stretched to the grid of its patches, as
    most processors do: one that was cropped or padded does not lie exactly below them.
    """

    picture: Picture
    numbers: Float[np.ndarray, "row column"]
    sinks: Bool[np.ndarray, "row column"] | None = None
    title: str = ""
    side: int = 384
    """pixels of the longer side"""

    def save(self, path: str | Path) -> Path:
        """Write it as .svg or .png."""
        path = Path(path)
        if path.suffix == ".svg":
            written = self.svg().encode()
        elif path.suffix == ".png":
            with outside("The overlay cannot be drawn as PNG", "Write it as .svg."):
                written = bytes(renderer().svg_to_png(self.svg()))
        else:
            raise UserError(f"An overlay is written as .svg or .png. Got {path.suffix or path.name!r} instead.")
        with writing(path), written_whole(path) as partial:
            partial.write_bytes(written)
        return path

    def _repr_svg_(self) -> str:
        return self.svg()

    def svg(self) -> str:
        """The picture with its patches, and under it the range of their numbers."""
        image = self.picture.open()
        scale = self.side / max(image.size)
        width, height = (round(size * scale) for size in image.size)
        rows, columns = self.numbers.shape
        wide, high = width / columns, height / rows
        known = self.numbers[np.isfinite(self.numbers)]
        largest = float(np.abs(known).max()) if known.size else 0.0
        parts = [f'<image href="{_as_png(image)}" width="{width}" height="{height}" preserveAspectRatio="none"/>']
        for row, column in np.ndindex(rows, columns):
            number = float(self.numbers[row, column])
            box = f'x="{column * wide:.2f}" y="{row * high:.2f}" width="{wide:.2f}" height="{high:.2f}"'
            if np.isfinite(number) and largest:
                colour, share = POSITIVE if number >= 0 else NEGATIVE, MOST * abs(number) / largest
                told = f"row {row}, column {column}: {number:.4g}"
                parts.append(f'<rect {box} fill="{colour}" fill-opacity="{share:.3f}"><title>{told}</title></rect>')
            if self.sinks is not None and self.sinks[row, column]:
                parts.append(f'<rect {box} fill="none" stroke="{SINK}" stroke-width="3" stroke-dasharray="6 3"/>')
        ends = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
        told = f"{self.title + ': ' if self.title else ''}{ends[0]:.3g} to {ends[1]:.3g}"
        told += ", framed: sinks" if self.sinks is not None and self.sinks.any() else ""
        parts.append(
            f'<text x="4" y="{height + 18}" font-family="sans-serif" font-size="13" fill="#111">{escape(told)}</text>'
        )
        frame = f'width="{width}" height="{height + 26}" viewBox="0 0 {width} {height + 26}"'
        ground = f'<rect width="{width}" height="{height + 26}" fill="#fff"/>'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {frame}>{ground}{"".join(parts)}</svg>'


def overlay(
    batch: Batch,
    values: Float[Tensor, " token"],
    picture: object = None,
    *,
    text: int = 0,
    table: int = 0,
    received: Float[Tensor, " token"] | None = None,
    threshold: float = 0.3,
    title: str = "",
) -> Overlay:
    """A number for each token of a text (attention from a query, norms, relevance), on the picture of the text.

    `picture`: a path or a picture of Pillow; None is that of the example. `table` counts tiles and frames. `received`
    is the mean weight that each token gets from all queries: patches above `threshold` are framed as sinks.
    """
    patches, own = batch.source.patches, batch.examples[text].image
    if patches is None:
        raise UserError("Where the patches of this batch are is not known: give lo.batch config= or grid=.")
    if picture is None and own is None:
        raise UserError("This text has no picture to draw on: pass its path, or a picture of Pillow.")
    tables = patches.pictures(values, text)
    if not 0 <= table < len(tables):
        raise UserError(f"The text has {len(tables)} tiles and frames, counted from 0. Got {table}.")
    sinks = None if received is None else np.nan_to_num(patches.pictures(received, text)[table]) > threshold
    drawn = own if picture is None else Picture.of(picture, batch.examples[text].id)
    assert drawn is not None
    return Overlay(drawn, tables[table], sinks, title)


def _as_png(image: object) -> str:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")  # type: ignore[attr-defined]
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
