"""Figures 7 to 10 of the paper, measured again, and the same for classifiers."""

from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt

from lorgnette.figures.charts import COLOURS
from reproductions.frame.record import Figure
from reproductions.voita2019.pruning_reading import (
    LONGER,
    NAMES,
    ROLES,
    STACKS,
    Outcome,
    Point,
    change,
    roles,
    survival,
)


def figures(outcome: Outcome) -> Iterator[Figure]:
    for make in (_bleu, _role, _types, _layers, _classes):
        figure = make(outcome)
        if figure is not None:
            yield figure


def _colour(field: str, names: list[str]) -> Any:
    return alt.Color(f"{field}:N", scale=alt.Scale(domain=names, range=list(COLOURS[: len(names)])), title=None)


def _heads(title: str) -> alt.X:
    return alt.X("heads:Q", title=title, axis=alt.Axis(tickCount=5))


_WAYS = ["gates", "gates, trained longer", "chance", "no encoder heads"]


def _bleu(outcome: Outcome) -> Figure | None:
    """Figure 7, and the same for all attentions."""
    charts = []
    for name in (name for name in NAMES if not name.endswith(LONGER)):
        if len(outcome.curve(name)) < 2:
            continue
        rows = [*_dots(outcome.curve(name), _WAYS[0]), *_dots(outcome.curve(name + LONGER), _WAYS[1])]
        base = alt.Chart(alt.Data(values=rows), width=300, height=200, title=NAMES[name])
        x = _heads("heads left")
        y = alt.Y("BLEU:Q", scale=alt.Scale(zero=False))
        colour = _colour("chosen by", _WAYS)
        bars = base.mark_rule().encode(x=x, y=alt.Y("low:Q", title="BLEU"), y2="high:Q", color=colour)
        charts.append(base.mark_line(point=True).encode(x=x, y=y, color=colour) + bars)
    if not charts:
        return None
    caption = (
        "BLEU on the Flickr test sentences by heads left (figure 7 of the paper and the same for all attentions); "
        "bars: 95 % of the change against the unpruned model, trained as long."
    )
    return Figure("bleu", alt.concat(*charts, columns=2), caption)


def _dots(points: Sequence[Point], way: str) -> list[dict[str, Any]]:
    """A dot for every model of a curve, and one for its control."""
    rows: list[dict[str, Any]] = []
    for point in points:
        whole = points[0].bleu()
        low, high = change(point, points[0]).interval
        kind = _WAYS[3] if point.strength is None else way
        rows.append(
            {"heads": point.left, "BLEU": point.bleu(), "low": whole + low, "high": whole + high, "chosen by": kind}
        )
        if point.control is not None:
            rows.append({"heads": point.left, "BLEU": point.control, "chosen by": _WAYS[2]})
    return rows


def _role(outcome: Outcome) -> Figure | None:
    """Figure 8: encoder heads by role, as heads are pruned."""
    charts = []
    for name, source in (("opus-encoder", "opus-tuned"), ("small-all", "small-en-fr")):
        points = outcome.gated(name)
        looked = outcome.found.get(source, {}).get("patterns")
        if not points or looked is None:
            continue
        given, alive = roles(looked), survival(points, "encoder")
        rows = [{"λ": "0", "role": role, "heads": sum(row.count(role) for row in given)} for role in ROLES]
        for point, table in zip(points, alive, strict=True):
            for role in ROLES:
                count = sum(table[i, j] for i, row in enumerate(given) for j, one in enumerate(row) if one == role)
                rows.append({"λ": f"{point.strength:g}", "role": role, "heads": int(count)})
        order = ["0", *(f"{point.strength:g}" for point in points)]
        chart = alt.Chart(alt.Data(values=rows), width=300, height=200, title=NAMES[name]).mark_bar()
        colour = _colour("role", list(ROLES))
        charts.append(
            chart.encode(
                x=alt.X("λ:N", sort=order, axis=alt.Axis(labelAngle=0)),
                y=alt.Y("heads:Q", title="encoder heads"),
                color=colour,
            )
        )
    if not charts:
        return None
    return Figure(
        "roles", alt.concat(*charts, columns=2), "Encoder heads that stay, by what they do before pruning (figure 8)."
    )


def _types(outcome: Outcome) -> Figure | None:
    """Figure 9: active heads by kind of attention."""
    charts = []
    for name in ("opus-all", "small-all", "small-scratch"):
        points = [point for point in outcome.curve(name) if point.strength is not None]
        if len(points) < 2:
            continue
        rows = [
            {"heads": point.left, "kept": point.heads(stack), "attention": title}
            for point in points
            for stack, title in STACKS.items()
        ]
        chart = alt.Chart(alt.Data(values=rows), width=260, height=200, title=NAMES[name]).mark_line(point=True)
        x, y = _heads("heads left in all"), alt.Y("kept:Q", title="heads left of this kind")
        charts.append(chart.encode(x=x, y=y, color=_colour("attention", list(STACKS.values()))))
    if not charts:
        return None
    return Figure("types", alt.concat(*charts, columns=3), "Active heads by kind of attention (figure 9).")


def _layers(outcome: Outcome) -> Figure | None:
    """Figure 10: the decoder's heads by layer."""
    charts = []
    for name in ("opus-all", "small-all"):
        points = [point for point in outcome.gated(name) if 0.05 < point.share < 0.95]
        if not points:
            continue
        rows = []
        for stack in ("decoder", "cross"):
            share = survival(points, stack).mean(axis=(0, 2))
            rows += [{"layer": n + 1, "share": float(x), "attention": STACKS[stack]} for n, x in enumerate(share)]
        chart = alt.Chart(alt.Data(values=rows), width=260, height=200, title=NAMES[name]).mark_line(point=True)
        y = alt.Y("share:Q", title="share of heads that stay, mean over λ")
        colour = _colour("attention", [STACKS["decoder"], STACKS["cross"]])
        charts.append(
            chart.encode(x=alt.X("layer:O", title="decoder layer", axis=alt.Axis(labelAngle=0)), y=y, color=colour)
        )
    if not charts:
        return None
    return Figure("layers", alt.concat(*charts, columns=2), "Heads of the decoder that stay, by layer (figure 10).")


def _classes(outcome: Outcome) -> Figure | None:
    charts = []
    for name, results in outcome.classifiers().items():
        rows = [
            {"heads": point["heads"], "accuracy": point[way]["test"], "chosen by": way}
            for result in results
            for point in result["points"]
            for way in ("gates", "importance", "random")
            if way in point
        ]
        chart = alt.Chart(alt.Data(values=rows), width=300, height=200, title=name).mark_circle(size=40, opacity=0.8)
        y = alt.Y("accuracy:Q", scale=alt.Scale(zero=False), title="test accuracy")
        colour = _colour("chosen by", ["gates", "importance", "random"])
        charts.append(chart.encode(x=_heads("heads left"), y=y, color=colour))
    if not charts:
        return None
    caption = (
        "Classifiers: test accuracy by heads left, a dot for each λ and seed; every one trained as long after pruning."
    )
    return Figure("classes", alt.concat(*charts, columns=2), caption)
