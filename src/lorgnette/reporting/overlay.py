"""Numbers of patches, seen on their picture: PNG or SVG."""

import base64
import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.errors import UserError, optional, outside, shown
from lorgnette.files import writing, written_whole
from lorgnette.texts.batch import Batch
from lorgnette.texts.pictures import Picture
from lorgnette.texts.readable import readable_piece
from lorgnette.texts.seen import seen_pictures

if TYPE_CHECKING:
    from PIL.Image import Image

    from lorgnette.explaining import Next
    from lorgnette.subject.trace import Trace
else:
    Image = object

POSITIVE, NEGATIVE, SINK = "#0072b2", "#c04d00", "#111111"
"""The colours of the views: for and against."""
MOST = 0.75
"""How opaque the patch with the largest number is."""
SINK_SHARE = 0.3
"""A patch that receives more of the weight, mean over queries, is framed: a sink (Gu et al. 2025)."""
_SMALL = 96
"""Pixels up to which a picture is kept as PNG; larger ones are photographs, of which JPEG makes a tenth."""


@dataclass(frozen=True)
class Overlay:
    """A number for each patch, drawn on the picture: the larger, the more opaque; orange below zero; sinks are framed.

    `numbers` [row column] are what `batch.source.patches.pictures(values)` gives of attention, norms or relevance;
    `sinks`, of the same shape, says which patches to frame. The picture lies under the grid from edge to edge, in
    shades of grey so that no colour is taken for a number; None: there is none to draw on.
    """

    picture: Image | None
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
            from lorgnette.figures.drawing import renderer

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
        rows, columns = self.numbers.shape
        size = (columns, rows) if self.picture is None else self.picture.size
        scale = self.side / max(size)
        width, height = (round(each * scale) for each in size)
        wide, high = width / columns, height / rows
        known = self.numbers[np.isfinite(self.numbers)]
        largest = float(np.abs(known).max()) if known.size else 0.0
        parts = []
        if self.picture is not None:
            shades = as_data(self.picture.convert("L").convert("RGB"))
            parts.append(f'<image href="{shades}" width="{width}" height="{height}" preserveAspectRatio="none"/>')
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
    threshold: float = SINK_SHARE,
    title: str = "",
) -> Overlay:
    """A number for each token of a text (attention from a query, norms, relevance), on the picture of the text.

    It is drawn on what the model saw: the picture as its processor cut and scaled it. `picture`, a path or a picture of
    Pillow, is drawn on instead, stretched over all patches. `table` counts tiles and frames. `received` is the mean
    weight that each token gets from all queries: patches above `threshold` are framed as sinks.
    """
    patches = batch.source.patches
    if patches is None:
        raise UserError("Where the patches of this batch are is not known: give lo.batch config= or grid=.")
    tables = patches.pictures(values, text)
    if not tables:
        raise UserError("This text has no picture to draw on.")
    if not 0 <= table < len(tables):
        raise UserError(f"The text has {len(tables)} tiles and frames, counted from 0. Got {table}.")
    sinks = None if received is None else np.nan_to_num(patches.pictures(received, text)[table]) > threshold
    drawn = ground_of(batch, picture, text=text, table=table)
    return Overlay(drawn, tables[table], sinks, title)


def overlay_of(
    trace: "Trace",
    layer: int,
    head: int,
    *,
    query: int = -1,
    measure: str = "weights",
    stack: str | None = None,
    table: int = 0,
) -> Overlay:
    """What one head reads of the picture, from one token: see `Trace.overlay`."""
    if measure not in ("weights", "norms"):
        raise UserError(f"measure must be 'weights' or 'norms'. Got {shown(measure)} instead.")
    weights = torch.as_tensor(trace.head(layer, head, stack=stack).values)
    count = len(weights)
    if not -count <= query < count:
        raise UserError(f"There is no token {query}: the text has {count}, counted from 0, or from the end from −1.")
    values = weights[query]
    if measure == "norms":
        site = next(
            each for each in trace.sites if each.name == (stack or trace.only_stack()) and each.layer == layer - 1
        )
        attention = trace.subject.anatomy[site]
        index = attention.numbers.index(head - 1)
        call = trace.calls[site]
        value, weight = call.value[0, index].detach(), attention.output_weights(gated=True)[0][index].detach()
        sent = (value if call.gate is None else value * call.gate[0, index, query].to(value)) @ weight
        values = values * sent.float().norm(dim=-1).cpu()
    pieces = trace.pieces(stack)
    title = f"head {layer}.{head}, {measure} from {readable_piece(pieces[query])!r}"
    drawn = overlay(trace.batch, values, table=table, received=weights.mean(0), title=title)
    return replace(drawn, picture=ground_of(trace.batch, table=table, processor=trace.subject.processor))


def relevance_of(trace: "Trace", method: str, target: "str | Next | None" = None, *, table: int = 0) -> Overlay:
    """The relevance of each patch for the prediction, by one method of `lo.explanations()`."""
    from lorgnette.explaining.target import named
    from lorgnette.reporting.views.gather import relevance, target_of

    wanted = target_of(trace, target)
    values = relevance(trace, [method], target=wanted)[method]
    logits = getattr(trace.output, "logits", None)
    what = "" if logits is None else f" of {named(trace.subject, trace.batch, logits, wanted)[0]}"
    drawn = overlay(trace.batch, values, table=table, title=f"{method}{what}")
    return replace(drawn, picture=ground_of(trace.batch, table=table, processor=trace.subject.processor))


def ground_of(
    batch: Batch, picture: object = None, *, text: int = 0, table: int = 0, processor: object = None
) -> Image | None:
    """What to draw on: the given picture, or what the model saw, or that of the example; None if there is neither."""
    pillow = optional("PIL.Image", "pictures")
    if picture is not None:
        return Picture.of(picture, batch.examples[text].id).open()
    patches, own = batch.source.patches, batch.examples[text].image
    assert patches is not None
    tile, _ = patches.tables(text)[table]
    seen = seen_pictures(batch.inputs, patches, text, processor)
    drawn = None if seen is None else seen[tile]
    if drawn is not None:
        return pillow.fromarray(drawn)
    return None if own is None or (tile and seen is None) else own.open()


def as_data(image: Image) -> str:
    """A picture as an address that holds it."""
    kind, buffer = "PNG" if max(image.size) <= _SMALL else "JPEG", io.BytesIO()
    image.save(buffer, format=kind, **({} if kind == "PNG" else {"quality": 90}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
