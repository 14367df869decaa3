"""The figures of many classes: accuracy, and the largest cosine beside its bound."""

from collections.abc import Iterator

import altair as alt

from reproductions.fosse2023.charts import Axis, Row, colours, seeds_and_means
from reproductions.fosse2023.classes.claims import planted
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure

_LABELLED = (2, 16, 128, 4096)
"""Numbers of classes that the axis names: more would not fit under a small panel."""


def figures(cells: Finished) -> Iterator[Figure]:
    runs = planted(cells)
    if not runs:
        return
    names = list(dict.fromkeys(f"width {width}" for width, _ in runs))
    accuracies: list[Row] = []
    cosines: list[Row] = []
    for (width, classes), one in runs.items():
        where = {"width": f"width {width}", "classes": classes}
        accuracies += [{**where, "accuracy": value} for value in one.array("accuracy").values.tolist()]
        for title, path in (("class means", "raw.largest"), ("centred", "centred.largest")):
            cosines += [{**where, "of": title, "cosine": value} for value in one.array(path).values.tolist()]
        cosines.append({**where, "of": "bound", "cosine": one.bound})
    axis = alt.Axis(values=[n for n in _LABELLED if n <= max(classes for _, classes in runs)])
    x = alt.X("classes:Q", title="number of classes", scale=alt.Scale(type="log", base=2), axis=axis)
    y = Axis("accuracy", "accuracy")
    yield Figure(
        "classes-accuracy",
        seeds_and_means(accuracies, (), x, y, colours("width", names), width=360, height=220),
        "Accuracy on planted classes by their number and the width of the model; a dot is a seed.",
    )
    chart = alt.Chart(alt.Data(values=cosines), width=150, height=170).mark_line(point=alt.OverlayMarkDef(size=14))
    chart = chart.encode(
        x=x,
        y=alt.Y("mean(cosine):Q", title="largest cosine", scale=alt.Scale(domain=[-1, 1])),
        color=colours("of", ["class means", "centred", "bound"]),
        column=alt.Column("width:N", sort=names, title=None),
    )
    yield Figure(
        "classes-cosines",
        chart,
        "Largest cosine between class directions on planted classes, as they are and with their mean removed, beside "
        "what no arrangement in d − 1 dimensions can go below; means over seeds.",
    )
