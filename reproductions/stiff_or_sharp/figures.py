"""What sharpening does with values free and held, and what stiffening does."""

from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.frame.statistics import mean_of
from reproductions.stiff_or_sharp.runs import CONTRASTS, MEASURES, Runs

_SHOWN = ("value", "entropy", "auprc", "flipped.uniform")


def figures(cells: Finished) -> list[Figure]:
    caption = (
        "Difference between two runs of one seed, by what was changed: the point is the mean over seeds, the bar its "
        "95 % interval, the small dots are seeds."
    )
    return [Figure("effects", _effects(Runs(cells)), caption)]


def _effects(runs: Runs) -> Any:
    names, order = [NAMES[corpus] for corpus in runs.corpora], list(CONTRASTS)
    colour = alt.Color("corpus:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)
    charts = []
    for path, title in ((path, MEASURES[path]) for path in _SHOWN):
        dots, means = [], []
        for corpus in runs.corpora:
            for name, arms in CONTRASTS.items():
                values = runs.effect(corpus, arms, path)[0].tolist()
                where = {"corpus": NAMES[corpus], "change": name}
                dots += [{**where, "value": value} for value in values]
                one = mean_of(values)
                if one.interval is not None:
                    means.append({**where, "value": one.value, "low": one.low, "high": one.high})
        y = alt.Y("change:N", sort=order, title=None)
        shift = alt.YOffset("corpus:N", sort=names)
        x = alt.X("value:Q", title=f"change of {title}")
        rule = alt.Chart(alt.Data(values=[{"value": 0}])).mark_rule(color="grey").encode(x="value:Q")
        base = alt.Chart(alt.Data(values=means), width=270, height=190)
        bars = base.mark_rule().encode(
            x=alt.X("low:Q", title=f"change of {title}"), x2="high:Q", y=y, yOffset=shift, color=colour
        )
        points = base.mark_point(filled=True, size=50, opacity=1).encode(x=x, y=y, yOffset=shift, color=colour)
        seeds = alt.Chart(alt.Data(values=dots)).mark_circle(size=12, opacity=0.5)
        seeds = seeds.encode(x=x, y=y, yOffset=shift, color=colour)
        charts.append(alt.layer(rule, seeds, bars, points))
    return alt.concat(*charts, columns=2)
