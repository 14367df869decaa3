"""The maps of heads and how signals go together; figures 7 to 10 of the paper, measured again; classifiers."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from lorgnette.figures.charts import COLOURS
from reproductions.frame.finished import Finished, MissingCell, made
from reproductions.frame.head_maps import colour, dots, head_map, named_map
from reproductions.frame.page import Figure, published
from reproductions.voita2019 import heads
from reproductions.voita2019.grid import CONFIDENCE, METHODS, MULTI30K, SHUFFLED, TRAINED, UD
from reproductions.voita2019.heads import ABLATION, GRADIENT, STACKS, labelled, signal, signals
from reproductions.voita2019.pruning import (
    CURVES,
    LONGER,
    ROLES,
    TEST,
    Curve,
    classifiers,
    curves,
    data_of,
    from_scratch,
    patterns,
    roles,
    survival,
)

FUNCTIONS = ("positional", "syntactic", "rare", "special", "punctuation", "broad", "another", "none")
_PANELS = {
    "voita2019": "(a) relevance, voita2019",
    "voita2021": "(a) relevance, voita2021",
    "attnlrp": "(a) relevance, attnlrp",
    "ah": "(a) relevance, ah",
    CONFIDENCE: "(b) confidence",
    GRADIENT: "gradient",
    ABLATION: "loss without the head",
}
_LOWEST = -12
_WAYS = ("gates", "gates, trained longer", "random heads", "no encoder heads", "published")


def figures(cells: Finished) -> Iterator[Figure]:
    makers: list[Callable[[], Figure]] = [partial(_maps, cells, stack, title) for stack, title in STACKS.items()]
    makers += [partial(make, cells) for make in (_scatter, _agreement, _bleu, _roles, _kinds, _layers, _classes)]
    yield from made(makers)


def _side_by_side(name: str, charts: Sequence[Any], caption: str, columns: int = 2, colours: str = "shared") -> Figure:
    if not charts:
        raise MissingCell(name)
    return Figure(name, alt.concat(*charts, columns=columns).resolve_scale(color=colours), caption)


def functions(cells: Finished, stack: str) -> list[list[str]]:
    """One function for each head, the first that fits; syntax from PUD, all else from Multi30k."""
    data = heads.roles(cells, MULTI30K)
    labels = {name: labelled(data, name, stack) for name in data["role"].values}
    if stack == "encoder" and (syntactic := _syntactic(cells)) is not None:
        labels["syntactic"] = syntactic
    else:
        labels.pop("syntactic", None)
    fits = [labels[name] for name in FUNCTIONS if name in labels]
    known = [name for name in FUNCTIONS if name in labels]
    other = np.where(np.any(list(labels.values()), axis=0), "another", "none")
    return np.select(fits, known, other).tolist()


def _syntactic(cells: Finished) -> np.ndarray | None:
    """Heads that are called syntactic, unless as many are on shuffled words: then the label says nothing of syntax."""
    conditions = [one for one in (TRAINED, SHUFFLED) if cells.of(kind="roles", corpus=UD, condition=one)]
    labels = [labelled(heads.roles(cells, UD, one), "syntactic") for one in conditions]
    if not labels or (len(labels) > 1 and labels[0].sum() <= labels[1].sum()):
        return None
    return labels[0]


def _maps(cells: Finished, stack: str, title: str) -> Figure:
    there = signals(cells, stack)
    panels = [head_map(heads.head_map(there[name]), text) for name, text in _PANELS.items() if name in there]
    for given in made([partial(functions, cells, stack)]):
        panels.append(named_map(given, "(c) functions", FUNCTIONS))
    caption = (
        f"The {title}-attention heads of opus-mt-en-fr on Multi30k, as in the paper's figures (a) to (c), and the "
        "effect of removing them. Relevance is a signed share of the layer's. *Special* "
        "heads attend to special tokens, *broad* ones to many, *another* is a role that the paper does not name."
        + (_on_syntax(cells) if stack == "encoder" else "")
    )
    return _side_by_side(f"heads_{stack}", panels, caption, 4, colours="independent")


def _on_syntax(cells: Finished) -> str:
    if _syntactic(cells) is None:
        return " The label *syntactic* is left out: as many heads get it on shuffled words."
    return " Syntax is from PUD."


def _scatter(cells: Finished) -> Figure:
    """Relevance beside confidence, by function: what the one finds and the other does not."""
    confidence, given = heads.head_map(signal(cells, CONFIDENCE)), functions(cells, "encoder")
    charts = []
    for method in (name for name in signals(cells) if name in METHODS):
        relevance = heads.head_map(signal(cells, method))
        rows = [
            {"confidence": float(confidence[at]), "relevance": float(value), "function": given[at[0]][at[1]]}
            for at, value in np.ndenumerate(relevance)
        ]
        chart = dots(rows, width=190, height=170, title=method).mark_circle(size=60, opacity=0.9)
        y = alt.Y("relevance:Q", title="relevance, share of the layer")
        charts.append(chart.encode(x="confidence:Q", y=y, color=colour("function", FUNCTIONS, _given(given))))
    caption = "Encoder heads: relevance by four rules beside confidence, coloured by function; a dot for each head."
    return _side_by_side("heads_relevance_confidence", charts, caption, columns=4)


def _given(names: Sequence[Sequence[str]]) -> list[str]:
    """The functions that some head has, in their order."""
    return [name for name in FUNCTIONS if any(name in layer for layer in names)]


def _agreement(cells: Finished) -> Figure:
    charts, order = [], [CONFIDENCE, *METHODS, GRADIENT]
    for stack, title in STACKS.items():
        there = signals(cells, stack)
        if ABLATION not in there:
            continue
        rows = []
        for name in (name for name in order if name in there):
            rho = heads.correlation(there[name], there[ABLATION])
            rows.append({"signal": name, "rho": rho.value, "low": rho.low, "high": rho.high})
        base = dots(rows, width=190, height=130, title=title)
        y = alt.Y("signal:N", sort=order, title=None)
        x = alt.X("rho:Q", title="ρ with the loss without the head", scale=alt.Scale(domain=[-1, 1]))
        zero = base.mark_rule(color="#9A9A9A", strokeDash=[3, 3]).encode(x=alt.datum(0))
        bars = base.mark_rule().encode(y=y, x=alt.X("low:Q"), x2="high:Q")
        charts.append(zero + bars + base.mark_circle(size=60, color=COLOURS[0]).encode(y=y, x=x))
    caption = "Which signal ranks the heads of a layer as taking them away does? ρ within layers, 95 % over heads."
    return _side_by_side("heads_agreement", charts, caption, columns=3)


def _lines(
    rows: Sequence[dict[str, Any]], title: str, x: Any, y: Any, by: str, order: Sequence[str], width: int
) -> Any:
    chart = dots(rows, width=width, height=200, title=title).mark_line(point=True, clip=True)
    return chart.encode(x=x, y=y, color=colour(by, order))


def _left(title: str = "heads left") -> alt.X:
    return alt.X("heads:Q", title=title, axis=alt.Axis(tickCount=5))


def _bleu(cells: Finished) -> Figure:
    """Figure 7, and the same for all attentions, as changes, so that the published points stand in the same axes."""
    there = {curve.name: curve for curve in curves(cells)}
    charts = []
    for name in (name for name in there if not name.endswith(LONGER)):
        rows = [*_points(there[name], _WAYS[0]), *_published(name)]
        if name + LONGER in there:
            rows += _points(there[name + LONGER], _WAYS[1])
        y = alt.Y("change:Q", title="BLEU minus the unpruned model's", scale=alt.Scale(domain=[_LOWEST, 1]))
        line = _lines(rows, CURVES[name], _left(), y, "chosen by", _WAYS, 300)
        bars = (
            dots(rows).mark_rule(clip=True).encode(x=_left(), y="low:Q", y2="high:Q", color=colour("chosen by", _WAYS))
        )
        charts.append(line + bars)
    caption = (
        "BLEU on the Flickr test sentences by heads left, minus that of the unpruned model, trained as long (figure 7 "
        f"of the paper, and table 2 for all attentions); bars: 95 % over sentences; what is below {_LOWEST} is cut "
        "off. Published points are of English-Russian models of six layers."
    )
    return _side_by_side("bleu", charts, caption)


def _points(curve: Curve, way: str) -> list[dict[str, Any]]:
    """A row for every model of a curve, and one for its control."""
    rows: list[dict[str, Any]] = []
    for point in curve.points:
        change = point.minus(curve.whole)
        kind = _WAYS[3] if point.strength is None else way
        rows.append(
            {"heads": point.left, "change": change.value, "low": change.low, "high": change.high, "chosen by": kind}
        )
        if point.control is not None:
            gap = point.control.bleu() - curve.whole.bleu()
            rows.append({"heads": point.left, "change": gap, "chosen by": _WAYS[2]})
    return rows


def _published(name: str) -> list[dict[str, Any]]:
    printed, data = published("voita2019"), data_of(name)
    if name.startswith("small"):
        return []  # the small model has half as many heads
    if name.endswith("encoder"):
        point = printed["encoder"][data]
        return [{"heads": point["heads"], "change": point["change"], "chosen by": _WAYS[4]}]
    table = printed["pruning"][data]
    return [
        {"heads": sum(heads), "change": bleu - table["trained"][0], "chosen by": _WAYS[4]}
        for heads, bleu in zip(table["heads"], table["scratch" if from_scratch(name) else "trained"], strict=True)
        if bleu is not None
    ]


def _roles(cells: Finished) -> Figure:
    """Figure 8: encoder heads by role, as heads are pruned."""
    charts = []
    for curve in (curve for curve in curves(cells) if curve.name.endswith("-encoder") or curve.name == "small-all"):
        for looked in made([partial(patterns, cells, curve.name)]):
            given, points = roles(looked).values, [curve.whole, *curve.gated]
            alive = survival(points).sel(stack="encoder").values
            rows = [
                {"λ": point.label, "role": role, "heads": int(left[given == role].sum())}
                for point, left in zip(points, alive, strict=True)
                for role in ROLES
            ]
            x = alt.X("λ:N", sort=[point.label for point in points], axis=alt.Axis(labelAngle=0))
            chart = dots(rows, width=300, height=200, title=curve.title).mark_bar()
            charts.append(chart.encode(x=x, y=alt.Y("heads:Q", title="encoder heads"), color=colour("role", ROLES)))
    return _side_by_side("roles", charts, "Encoder heads that stay, by what they do before pruning (figure 8).")


def _kinds(cells: Finished) -> Figure:
    """Figure 9: active heads by kind of attention."""
    charts = []
    for curve in (curve for curve in curves(cells) if curve.name.endswith(("-all", "-scratch"))):
        rows = [
            {"heads": point.left, "kept": point.heads(stack), "attention": title}
            for point in [curve.whole, *curve.gated]
            for stack, title in STACKS.items()
        ]
        y = alt.Y("kept:Q", title="heads left of this kind")
        x = _left("heads left in all")
        charts.append(_lines(rows, curve.title, x, y, "attention", list(STACKS.values()), 260))
    return _side_by_side("types", charts, "Active heads by kind of attention (figure 9).", columns=3)


def _layers(cells: Finished) -> Figure:
    """Figure 10: the decoder's heads by layer."""
    charts, shown = [], ("decoder", "cross")
    for curve in (curve for curve in curves(cells) if curve.name.endswith("-all") and curve.some_left):
        share = survival(curve.some_left).mean(("point", "head"))
        rows = [
            {"layer": layer + 1, "share": float(value), "attention": STACKS[stack]}
            for stack in shown
            for layer, value in enumerate(share.sel(stack=stack).values)
        ]
        x = alt.X("layer:O", title="decoder layer", axis=alt.Axis(labelAngle=0))
        y = alt.Y("share:Q", title="share of heads that stay, mean over λ")
        charts.append(_lines(rows, curve.title, x, y, "attention", [STACKS[stack] for stack in shown], 260))
    return _side_by_side("layers", charts, "Heads of the decoder that stay, by layer (figure 10).")


def _classes(cells: Finished) -> Figure:
    charts, ways = [], ("gates", "importance", "random")
    for (model, corpus), seeds in classifiers(cells).items():
        rows = [
            {"heads": point["heads"], "accuracy": point[way][TEST], "chosen by": way}
            for points in seeds
            for point in points
            for way in ways
            if way in point
        ]
        chart = dots(rows, width=300, height=200, title=f"{model}, {corpus}").mark_circle(size=40, opacity=0.8)
        y = alt.Y("accuracy:Q", scale=alt.Scale(zero=False), title="test accuracy")
        charts.append(chart.encode(x=_left(), y=y, color=colour("chosen by", ways)))
    caption = (
        "Classifiers: test accuracy by heads left, a dot for each λ and seed; every one trained as long after pruning."
    )
    return _side_by_side("classes", charts, caption)
