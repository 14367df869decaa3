"""The parts of a prompt as bars: what the answer loses without each, and what signals say of it."""

from collections.abc import Mapping, Sequence

import altair as alt

from lorgnette.figures.charts import COLOURS
from lorgnette.types import Chart

PANELS = {
    "drop": "drop without it (nats)",
    "alone": "gain with it alone (nats)",
    "attention": "attention",
    "norm": "norm (share)",
    "relevance": "relevance",
}
_WIDTH = 110


def part_bars(rows: Sequence[Mapping[str, object]], first: str | None) -> Chart:
    """A panel of bars for each number of `PANELS`, a row for each part in the order of the prompt.

    `rows` have the name (`part`) and the numbers; `first` is drawn in another colour.
    """
    order = [str(row["part"]) for row in rows]
    panels = []
    for place, (name, title) in enumerate(PANELS.items()):
        values = [
            {"part": row["part"], "value": row[name], "kind": "first" if row["part"] == first else "other",
             "label": f"{row['part']}: {name} {row[name]:.3g}"}
            for row in rows if row[name] == row[name]
        ]  # fmt: skip
        axis = alt.Axis(ticks=False, domain=False, labelLimit=180) if place == 0 else None
        scale = alt.Scale(domain=["first", "other"], range=[COLOURS[3], COLOURS[0]])
        panels.append(
            alt.Chart(alt.Data(values=values), width=_WIDTH, height=alt.Step(18), title=title)
            .mark_bar()
            .encode(
                x=alt.X(field="value", type="quantitative", title=None, axis=alt.Axis(tickCount=3)),
                y=alt.Y(field="part", type="nominal", title=None, sort=order, axis=axis, scale=alt.Scale(domain=order)),
                color=alt.Color(field="kind", type="nominal", scale=scale, legend=None),
                description=alt.Description(field="label", type="nominal"),
            )
        )
    return alt.hconcat(*panels, spacing=14)
