"""The best head for each relation beside the best offset, the controls and the paper; UAS of all heads together."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.syntax import Syntax
from reproductions.clark2019.syntax_reading import best
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.record import Figure

_OFFSET, _PUBLISHED = "best offset", "published, BERT"
_SERIES = (TRAINED, _OFFSET, SHUFFLED, RANDOM, _PUBLISHED)
_COLOURS = (COLOURS[0], COLOURS[3], COLOURS[1], COLOURS[-1], "black")


def figures(found: Syntax, numbers: Mapping[str, Any]) -> list[Figure]:
    printed = numbers["relations"]["value"]
    return [_relations(m, cells, printed) for m, cells in found.get("relations", {}).items() if TRAINED in cells]


def _relations(model: str, cells: Mapping[str, Any], printed: Mapping[str, Any]) -> Figure:
    rows, lines = [], []
    for name, one in STANFORD_TO_UD.items():
        label = f"{one.relation} ({name})" if one.relation != name else name
        row = best(cells[TRAINED], name)
        if row is None:
            continue
        rows.append({"relation": label, "of": TRAINED, "share": row["accuracy"]})
        lines.append({"relation": label, "of": TRAINED, "low": row["low"], "high": row["high"]})
        rows.append({"relation": label, "of": _OFFSET, "share": row["baseline"]})
        if name in printed:
            rows.append({"relation": label, "of": _PUBLISHED, "share": printed[name]["accuracy"]})
        for condition in (c for c in (SHUFFLED, RANDOM) if c in cells):
            if (there := best(cells[condition], name)) is not None:
                rows.append({"relation": label, "of": condition, "share": there["accuracy"]})
    colour = alt.Color(
        field="of", type="nominal", title=None, scale=alt.Scale(domain=list(_SERIES), range=list(_COLOURS))
    )
    y = alt.Y(field="relation", type="nominal", sort=None, title=None)
    shares = {"title": "share of pairs found", "scale": alt.Scale(domain=[0, 1])}
    dots = alt.Chart(alt.Data(values=rows), width=420, height=alt.Step(20)).mark_point(filled=True, size=55)
    bars = alt.Chart(alt.Data(values=lines)).mark_rule(strokeWidth=3, opacity=0.35)
    chart = alt.layer(
        bars.encode(y=y, x=alt.X(field="low", type="quantitative", **shares), x2=alt.X2(field="high"), color=colour),
        dots.encode(
            y=y,
            x=alt.X(field="share", type="quantitative", **shares),
            color=colour,
            shape=alt.Shape(field="of", type="nominal", title=None, scale=alt.Scale(domain=list(_SERIES))),
        ),
    )
    caption = (
        f"{model} on UD_English-EWT: share of each relation's pairs that the best head finds, chosen on one half of "
        "the sentences and told from the other (bars: 95 %), beside the best fixed offset and the controls, which "
        "choose their own heads; and what the paper prints for BERT on another treebank and scheme."
    )
    return Figure(f"relations-{model}", chart, caption)
