"""The figures of many classes: accuracy, and the largest cosine beside its bound."""

from typing import TYPE_CHECKING, Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.fosse2023.bounds import least_largest_cosine
from reproductions.frame.record import Figure

if TYPE_CHECKING:
    from reproductions.fosse2023.classes_page import Found

_X = {"title": "number of classes", "scale": alt.Scale(type="log", base=2)}


def accuracy_chart(found: "Found") -> Figure:
    rows = [
        {"width": f"width {width}", "classes": classes, "accuracy": one["accuracy"]}
        for (width, classes), results in found.planted.items()
        for one in results
    ]
    names = [f"width {width}" for width in found.widths]
    colour = alt.Color("width:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    base = alt.Chart(alt.Data(values=rows), width=360, height=220)
    x = alt.X("classes:Q", **_X)
    line = base.mark_line().encode(x=x, y=alt.Y("mean(accuracy):Q", title="accuracy"), color=colour)
    dots = base.mark_circle(size=20, opacity=0.5).encode(x=x, y=alt.Y("accuracy:Q", title="accuracy"), color=colour)
    return Figure(
        "classes-accuracy",
        alt.layer(line, dots),
        "Accuracy on planted classes by their number and the width of the model; a dot is a seed.",
    )


def cosine_chart(found: "Found") -> Figure:
    rows: list[dict[str, Any]] = []
    for (width, classes), results in found.planted.items():
        where = {"width": f"width {width}", "classes": classes}
        rows += [{**where, "of": "class means", "cosine": one["raw"]["largest"]} for one in results]
        rows += [{**where, "of": "centred", "cosine": one["centred"]["largest"]} for one in results]
        rows.append({**where, "of": "bound", "cosine": least_largest_cosine(classes, width - 1)})
    order = ["class means", "centred", "bound"]
    chart = alt.Chart(alt.Data(values=rows), width=150, height=170).mark_line(point=alt.OverlayMarkDef(size=14))
    chart = chart.encode(
        x=alt.X("classes:Q", **_X),
        y=alt.Y("mean(cosine):Q", title="largest cosine", scale=alt.Scale(domain=[-1, 1])),
        color=alt.Color("of:N", scale=alt.Scale(domain=order, range=list(COLOURS[:3])), title=None),
        column=alt.Column("width:N", sort=[f"width {width}" for width in found.widths], title=None),
    )
    return Figure(
        "classes-cosines",
        chart,
        "Largest cosine between class directions on planted classes, as they are and with their mean removed, beside "
        "what no arrangement in d − 1 dimensions can go below; means over seeds.",
    )
