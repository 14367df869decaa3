"""Maps of heads (layer × head), and colours that are the same in every figure of a study."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from jaxtyping import Float

from lorgnette.figures.charts import COLOURS, signed_scale

_STEP = 19


def head_map(values: Float[np.ndarray, "layer head"], title: str, *, domain: tuple[float, float] | None = None) -> Any:
    """A square for each head: blues from zero, or, where there are negative values, blue above and orange below.

    The ends of a signed scale are as far from zero as the larger of both, so that equal colours are equal sizes.
    """
    rows = [{"layer": i + 1, "head": j + 1, "value": float(value)} for (i, j), value in np.ndenumerate(values)]
    if domain is None:
        most = float(np.nanmax(np.abs(values)))
        domain = (-most, most) if (values < 0).any() else (0.0, most)
    scale = signed_scale(domain[1]) if domain[0] < 0 else alt.Scale(scheme="blues", domain=list(domain))
    legend = alt.Legend(title=None, gradientLength=90, gradientThickness=8, tickCount=3)
    return _squares(rows, title).encode(**_axes(), color=alt.Color("value:Q", scale=scale, legend=legend))


def named_map(names: Sequence[Sequence[str]], title: str, order: Sequence[str]) -> Any:
    """The same with a name for each head."""
    rows = [
        {"layer": i + 1, "head": j + 1, "name": name} for i, layer in enumerate(names) for j, name in enumerate(layer)
    ]
    there = [name for name in order if any(name in layer for layer in names)]
    return _squares(rows, title).encode(**_axes(), color=colour("name", order, there))


def colour(field: str, order: Sequence[str], told: Sequence[str] | None = None) -> Any:
    """Names in the colours of the library, in the order given; the legend has those that are told, or all."""
    scale = alt.Scale(domain=list(order), range=list(COLOURS[: len(order)]))
    return alt.Color(f"{field}:N", scale=scale, legend=alt.Legend(title=None, values=list(told or order)))


def dots(rows: Sequence[dict[str, Any]], **size: Any) -> Any:
    """A chart of some rows, to be marked and encoded."""
    return alt.Chart(alt.Data(values=list(rows)), **size)


def _squares(rows: Sequence[dict[str, Any]], title: str) -> Any:
    return dots(rows, width=alt.Step(_STEP), height=alt.Step(_STEP), title=title).mark_rect()


def _axes() -> dict[str, Any]:
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
    return {"x": alt.X("head:O", title="head", axis=axis), "y": alt.Y("layer:O", title="layer", axis=axis)}
