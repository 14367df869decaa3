"""What every way to choose the heads that remain costs, beside random sets."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished
from reproductions.frame.page import Figure
from reproductions.frame.statistics import mean_of
from reproductions.heavy_lifting.claims import GAPS, LOST
from reproductions.heavy_lifting.readings import ARMS, SHARES, Readings

_FREE = "random heads of all layers"
_MARKS = "The point is the mean over seeds, the bar its 95 % interval; small dots are seeds, grey dots random sets."


def figures(cells: Finished) -> Iterator[Figure]:
    readings = Readings(cells)
    after = [left for left in readings.left if readings.cut("gates", left)]
    if after:
        caption = (
            f"Loss right after the cut, minus that of the whole model; all sets are cut out of one model. {_MARKS}"
        )
        charts = [_cut(readings, left) for left in after]
        yield Figure("cut", alt.vconcat(*charts).resolve_scale(x="shared"), caption)
    caption = f"BLEU minus that of the whole model, equal steps for all. {_MARKS} Crosses: published, on WMT."
    charts = [_bleu(readings, left) for left in readings.left]
    yield Figure("bleu", alt.vconcat(*charts).resolve_scale(x="shared"), caption)


def _cut(readings: Readings, left: int) -> Any:
    cells = readings.cells.of(kind="after", left=left)
    whole = {int(str(c.labels["seed"])): float(c.result["before"]) for c in cells}
    names = {name: ARMS[name] for name in ("gates", "confidence", "gradient", "random")} | {"free": _FREE}
    arms = {
        title: [value - whole[seed] for seed, value in readings.cut(name, left).items()]
        for name, title in names.items()
    }
    sets = {
        names[name]: [loss - float(c.result["before"]) for c in cells for loss in c.result[name]]
        for name in ("random", "free")
    }
    return _rows(left, arms, sets, "loss minus that of the whole model")


def _bleu(readings: Readings, left: int) -> Any:
    whole = readings.whole()
    arms = {
        title: [value - whole[seed] for seed, value in readings.arm(name, left).items() if seed in whole]
        for name, title in ARMS.items()
    }
    draws = readings.draws(left).items()
    sets = {ARMS["random"]: [value - whole[seed] for seed, values in draws if seed in whole for value in values]}
    return _rows(left, arms, sets, "BLEU minus that of the whole model", _published(left))


def _published(left: int) -> dict[str, float]:
    """Of the pruned model, and of one from scratch, about the same share of the heads."""
    if left not in LOST:
        return {}
    lost = float(LOST[left].value)
    return {ARMS["own"]: lost, ARMS["scratch"]: lost - float(GAPS[left].value)}


def _rows(
    left: int,
    arms: Mapping[str, Sequence[float]],
    sets: Mapping[str, Sequence[float]],
    title: str,
    printed: Mapping[str, float] | None = None,
) -> Any:
    there = {way: values for way, values in arms.items() if values}
    dots = [{"way": way, "change": value} for way, values in there.items() for value in values]
    grey = [{"way": way, "change": value} for way, values in sets.items() for value in values]
    crosses = [{"way": way, "change": value} for way, value in (printed or {}).items() if way in there]
    means = [
        {"way": way, "change": one.value, "low": one.low, "high": one.high}
        for way, values in there.items()
        if (one := mean_of(values)).interval is not None
    ]
    x, y = alt.X("change:Q", title=title), alt.Y("way:N", sort=list(there), title=None)
    base = alt.Chart(alt.Data(values=means))
    seeds = alt.Chart(
        alt.Data(values=dots), width=420, height=28 * len(there), title=f"{SHARES[left]} of the heads ({left})"
    )
    layers = (
        alt.Chart(alt.Data(values=[{"change": 0}])).mark_rule(color="grey").encode(x=x),
        alt.Chart(alt.Data(values=grey)).mark_circle(size=22, opacity=0.35, color="grey").encode(x=x, y=y),
        seeds.mark_circle(size=18, opacity=0.7, color=COLOURS[0]).encode(x=x, y=y),
        base.mark_rule(color=COLOURS[0], clip=True).encode(x=alt.X("low:Q", title=title), x2="high:Q", y=y),
        base.mark_point(filled=True, size=60, opacity=1, color=COLOURS[0]).encode(x=x, y=y),
        alt.Chart(alt.Data(values=crosses))
        .mark_point(shape="cross", angle=45, filled=True, size=60, color="black", opacity=1)
        .encode(x=x, y=y),
    )
    return alt.layer(*layers)
