"""What the pages show of composition: which earlier heads write what a head looks by, and which other parts do."""

from collections.abc import Iterator

import altair as alt
import numpy as np
import xarray as xr

from lorgnette.axes import HEAD, HEAD_A, LAYER, STACK, WAY, WRITER
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, written
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport, Measure
from lorgnette.figures.sentences import has, over_texts
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate

_SIDES = {"query": "queries", "key": "keys"}
_DRAWN = 12
"""Pairs of heads in a chart, of each side."""
_NAMED = 3
_WRITERS = {
    "heads": "earlier heads together",
    "feed-forward": "feed-forward parts",
    "embeddings": "the rest of the embeddings",
}


def figures(result: Result) -> list[Figure]:
    drawn = [_strongest(result)] if bool((result.data["composition"].fillna(0) != 0).any()) else []
    titles = {"advantage": "How far the score of what a head attends to is beyond the mean"}
    return [*drawn, *titled_figures(result, titles), _by_kind(result)]


def _strongest(result: Result) -> Figure:
    """The largest parts that one head writes into the queries or keys of another, with intervals."""
    data = result.data
    found = Estimate.of(data, "composition")
    many = data.sizes[STACK] > 1
    frame = xr.Dataset({"part": found.value, "half": found.half}).to_dataframe().reset_index().dropna(subset=["part"])
    frame = frame[frame["part"] != 0]
    frame["size"] = frame["part"].abs()
    frame = frame.sort_values("size", ascending=False, kind="stable").groupby(WAY, sort=False).head(_DRAWN)
    rows = []
    for row in frame.itertuples(index=False):
        half = 0.0 if np.isnan(row.half) else float(row.half)
        early = str(getattr(row, HEAD_A)).replace("-", ".")
        pair = f"{early if many else early.split(' ')[-1]} → {f'{row.stack} ' * many}{row.layer}.{row.head}"
        rows.append({"pair": pair, "side": _SIDES[row.way], "part": float(row.part),
                     "low": float(row.part) - half, "high": float(row.part) + half})  # fmt: skip
    base = alt.Chart(alt.Data(values=rows), width=360, height=alt.Step(16))
    side = alt.Color(
        field="side", type="nominal", legend=alt.Legend(title="written into the", orient="top"),
        scale=alt.Scale(domain=list(_SIDES.values()), range=list(COLOURS[:2])),
    )  # fmt: skip
    down = alt.Y(field="pair", type="nominal", sort=None, title=None)
    offset = alt.YOffset(field="side", type="nominal")
    bars = base.mark_bar().encode(
        x=alt.X(field="part", type="quantitative", title="part of the advantage"), y=down, yOffset=offset, color=side
    )
    lines = base.mark_rule().encode(
        x=alt.X(field="low", type="quantitative"), x2=alt.X2(field="high"), y=down, yOffset=offset
    )
    caption = (
        "Earlier head → head that reads it: how much of the score of what the head attends to, beyond the mean of the "
        "row, the earlier head writes. Lines are 95 % confidence intervals over texts."
    )
    table = frame.drop(columns=["size", "half"]).round(4)
    return Figure(
        "strongest", "Earlier heads that write each head's queries and keys", caption, bars + lines, table, table
    )


def _by_kind(result: Result) -> Figure:
    """Parts by kind of writer, mean over the heads of each layer."""
    parts = result.data["parts"].mean(HEAD)
    frame = parts.to_dataframe("part").reset_index().dropna(subset=["part"])
    frame["kind"] = [_kind(name) for name in frame["writer"]]
    frame = frame.groupby([STACK, LAYER, WAY, "kind"], sort=False, as_index=False)["part"].sum()
    rows = [{"layer": int(row.layer), "panel": f"{row.stack}, {_SIDES[row.way]}", "kind": row.kind,
             "part": float(row.part)} for row in frame.itertuples(index=False)]  # fmt: skip
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    chart = alt.Chart(alt.Data(values=rows), width=220, height=160).mark_bar().encode(
        x=alt.X(field="layer", type="ordinal", title="layer"),
        y=alt.Y(field="part", type="quantitative", title="part of the advantage", aggregate="sum"),
        color=alt.Color(field="kind", type="nominal", title=None, sort=kinds, scale=alt.Scale(domain=kinds)),
        facet=alt.Facet(field="panel", type="nominal", columns=2, title=None, sort=None),
    )  # fmt: skip
    caption = "Mean over the heads of a layer; bars above and below zero together are the advantage."
    return Figure("by_kind", "What writes queries and keys, by layer", caption, chart, frame.round(4), frame, wide=True)


def _kind(writer: str) -> str:
    """A source's name without its stack and layer."""
    return writer.split(" ")[-1]


def findings(result: Result) -> Iterator[Finding]:
    """How many pairs of heads compose significantly, and which most."""
    data = result.data
    for side, words in _SIDES.items():
        found = Estimate.of(data, "composition", {WAY: side})
        exists = found.value.notnull() & (found.value != 0)
        pairs = int(exists.sum())
        if not pairs:
            continue
        sure = exists & (data["composition_q"].sel({WAY: side}) < LEVEL)
        count = int(sure.sum())
        numbers: dict[str, int | str] = {"count": count, "pairs": pairs}
        if not count:
            yield Finding(
                f"No head writes a significant part of the advantage of a later head into its {words}"
                f"{over_texts(found)}.",
                numbers,
                nothing=True,
            )
            continue
        numbers["named"] = _largest(found, sure)
        yield Finding(
            f"{{count}} of {{pairs}} pairs of an earlier and a later head {has(count)} a part of the later head's "
            f"advantage, written into its {words}, that differs significantly from zero (false discovery rate 5 %); "
            "the largest: {named}.",
            numbers,
        )
    yield from _about_writers(data)


def _about_writers(data: xr.Dataset) -> Iterator[Finding]:
    """How many heads look by what each kind of writer gives, earlier heads counted together."""
    q = data["parts_q"]
    for side, words in _SIDES.items():
        own = q.sel({WAY: side})
        of_heads = (own < LEVEL).stack(cell=[dim for dim in own.dims if dim != WRITER]).transpose("cell", WRITER)
        kinds = np.array([_kind(str(name)) for name in own[WRITER].values])
        counts = {kind: int(of_heads.values[:, kinds == kind].any(1).sum()) for kind in dict.fromkeys(kinds.tolist())}
        known = {kind: count for kind, count in counts.items() if count}
        if known:
            told = ", ".join(f"{_WRITERS.get(kind, kind)} for {count}" for kind, count in known.items())
            yield Finding(
                f"Into the {words}, a significant part of the advantage (false discovery rate 5 % over heads, writers "
                "and both sides) comes from {told} of {heads} heads.",
                {"told": told, "heads": int(own.notnull().any(WRITER).sum())},
            )


def _largest(found: Estimate, sure: xr.DataArray) -> str:
    """The largest of the parts that are sure: earlier head → later head, and its value."""
    flat = found.value.where(sure).stack(cell=found.value.dims).dropna("cell")
    order = np.argsort(-np.abs(flat.values), kind="stable")[:_NAMED]
    half = found.half.stack(cell=found.value.dims).sel(cell=flat["cell"])
    digits = decimals(*(float(half[n]) for n in order))
    own = str(found.value[STACK].item()) if STACK in found.value.coords else ""
    names = []
    for n in order:
        cell = {name: flat["cell"][n][name].item() for name in found.value.dims}
        value = written(float(flat[n]), f"+.{digits}f")
        stack, _, early = str(cell[HEAD_A]).replace("-", ".").rpartition(" ")
        early = early if stack == own or not own else f"{stack} {early}"
        names.append(f"{early} → {cell[LAYER]}.{cell[HEAD]} ({value})")
    return ", ".join(names)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure(
        "advantage", "score of what the head attends to, beyond the mean of the row", result.data["advantage"], ".2f"
    )


REPORT = LensReport(
    title="What makes each head attend where it does",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(Compared("advantage", "score of what is attended to beyond the mean"),),
    cards=cards,
)
