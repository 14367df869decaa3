"""What the figures share: a dot for each seed, a line through their means, crosses for what was published."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS

Row = dict[str, Any]


def colours(field: str, names: Sequence[Any], title: str | None = None, last: str | None = None) -> alt.Color:
    """A colour for each name, in their order; `last` for the last of them."""
    chosen = [*COLOURS[: len(names) - 1], last] if last else list(COLOURS[: len(names)])
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=list(names), range=chosen), title=title)


@dataclass(frozen=True)
class Axis:
    """The field of the values, and what is written beside them."""

    name: str
    title: str
    scale: alt.Scale = field(default_factory=alt.Scale)


def seeds_and_means(
    ours: Sequence[Row], published: Sequence[Row], x: alt.X, y: Axis, colour: alt.Color, **size: Any
) -> alt.LayerChart:
    """One panel."""
    base = alt.Chart(alt.Data(values=list(ours)), **size)
    mean = alt.Y(f"mean({y.name}):Q", title=y.title)
    each = alt.Y(f"{y.name}:Q", title=y.title, scale=y.scale)
    layers = [
        base.mark_line().encode(x=x, y=mean, color=colour),
        base.mark_circle(opacity=0.5, size=16).encode(x=x, y=each, color=colour),
    ]
    if published:
        cross = alt.Chart(alt.Data(values=list(published))).mark_point(shape="cross", size=40)
        layers.append(cross.encode(x=x, y=each, color=colour))
    return alt.layer(*layers)
