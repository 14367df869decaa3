"""What the report says of single heads: what they are for, whether they matter, and which signal to trust."""

from collections.abc import Iterator
from typing import Any

import altair as alt
import numpy as np

from lorgnette.axes import ABLATION, HEAD, LAYER, PART, ROLE, SIGNAL, SIGNAL_B, STACK
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.report.findings import findings_for
from lorgnette.report.pruning import candidates, ranked
from lorgnette.report.sections import figures_for, variable_figure
from lorgnette.results import Result

FAMILIES = {
    "dead": ("dead",),
    "syntactic": ("syntactic",),
    "rare words": ("rare",),
    "positional": ("positional", "self", "previous", "next"),
    "repeats": ("same_word", "induction"),
    "punctuation": ("punctuation",),
    "special tokens": ("special", "last"),
    "broad": ("broad",),
    "none": (),
}
"""What a head with several labels is drawn as: the first of these that fits."""
_NOISY = 0.5
_FAMILY_COLOURS = dict(
    zip(FAMILIES, ("#9A9A9A", *(COLOURS[place] for place in (2, 4, 0, 3, 5, 1, 6)), "#E4E4E4"), strict=True)
)


@figures_for("importance")
def of_importance(result: Result) -> list[Figure]:
    figures = (
        [variable_figure(result, "loss_change", "What the loss does without the head")] if _has_changes(result) else []
    )
    steep = variable_figure(result, "sensitivity", "How steeply the loss depends on the head")
    return [*ranked(result), *figures, steep]


def _has_changes(result: Result) -> bool:
    return "loss_change" in result.data and bool(result.data["loss_change"].notnull().any())


@figures_for("roles")
def of_roles(result: Result) -> list[Figure]:
    frame = result.to_dataframe("roles")
    table = frame[frame["roles"].notnull()]
    caption = "Labels that fit in both parts of the corpus; a head with several is drawn as the first of the legend."
    return [Figure("roles", "What each head is for", caption, role_map(result), table, result.to_dataframe("number"))]


def role_map(result: Result) -> Any:
    """Layer × head, coloured by what the head is for; stacks side by side."""
    label = result.data["label"]
    panels = []
    for stack in label[STACK].values.tolist():
        rows = []
        for layer in label[LAYER].values.tolist():
            for head in label[HEAD].values.tolist():
                cell = {STACK: stack, LAYER: layer, HEAD: head}
                if not int(result.data["peak_count"].sel(cell).sum()):
                    continue
                given = [str(role) for role in label[ROLE].values if bool(label.sel({**cell, ROLE: role}))]
                words = str(result.data["roles"].sel(cell).item())
                rows.append(
                    {"layer": layer, "head": head, "family": family(given), "label": f"{layer}.{head}: {words}"}
                )
        if rows:
            panels.append(_panel(rows).properties(title=stack if label.sizes[STACK] > 1 else ""))
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def family(given: list[str]) -> str:
    return next((name for name, roles in FAMILIES.items() if set(roles) & set(given)), "none")


def _panel(rows: list[dict[str, Any]]) -> Any:
    axis = alt.Axis(labelAngle=0, ticks=False, domain=False)
    scale = alt.Scale(domain=list(_FAMILY_COLOURS), range=list(_FAMILY_COLOURS.values()))
    chart = alt.Chart(alt.Data(values=rows), width=alt.Step(22), height=alt.Step(22)).mark_rect(stroke="white")
    return chart.encode(
        x=alt.X(field="head", type="ordinal", title="head", axis=axis),
        y=alt.Y(field="layer", type="ordinal", title="layer", axis=axis),
        color=alt.Color(field="family", type="nominal", scale=scale, title=None),
        description=alt.Description(field="label", type="nominal"),
        tooltip=alt.Tooltip(field="label", type="nominal"),
    )


@figures_for("agreement")
def of_agreement(result: Result) -> list[Figure]:
    figures = []
    titles = {
        "spearman": "Do the signals rank the heads of a stack alike? (Spearman's ρ)",
        "within": "Do they rank the heads of a layer alike?",
    }
    for name, title in titles.items():
        rows = result.to_dataframe(name).dropna(subset=[name])
        if len(rows):
            caption = "1: the same order, 0: no relation, −1: the opposite order. Intervals are in the table."
            chart = signal_matrix(rows, name)
            figures.append(Figure(name, title, caption, chart, rows, rows, rows[STACK].nunique() > 1))
    return figures


def signal_matrix(frame: Any, value: str) -> Any:
    """Signal × signal with ρ in each cell, a panel for each stack."""
    scale = alt.Scale(scheme="blueorange", domain=[-1, 1], domainMid=0, reverse=True)
    panels = []
    for stack, part in frame.groupby(STACK, sort=False):
        rows = [
            {"down": _said(d), "across": _said(a), "value": float(v), "label": f"{v:.2f}"}
            for d, a, v in part[[SIGNAL, SIGNAL_B, value]].itertuples(index=False)
        ]
        axis = alt.Axis(ticks=False, domain=False)
        base = alt.Chart(alt.Data(values=rows), width=alt.Step(36), height=alt.Step(28)).encode(
            x=alt.X(field="across", type="nominal", title=None, sort=None, axis=alt.Axis(labelAngle=-40, ticks=False)),
            y=alt.Y(field="down", type="nominal", title=None, sort=None, axis=axis),
        )
        cells = base.mark_rect().encode(color=alt.Color(field="value", type="quantitative", scale=scale, title="ρ"))
        text = base.mark_text(fontSize=10).encode(text=alt.Text(field="label", type="nominal"))
        panels.append((cells + text).properties(title=str(stack)))
    return alt.hconcat(*panels) if len(panels) > 1 else panels[0]


def _said(name: Any) -> str:
    return str(name).replace("_", ", ", 1).replace("_", " ")


@findings_for("importance")
def importance_findings(result: Result) -> Iterator[Finding]:
    """The heads that the loss misses most, and how many it does not miss."""
    if not _has_changes(result):
        return
    how = next(h for h in ("mean", "zero") if h in result.data[ABLATION].values and bool(
        result.data["loss_change"].sel({ABLATION: h}).notnull().any()))  # fmt: skip
    change = result.data["loss_change"].sel({ABLATION: how}, drop=True)
    error = result.data["loss_change_se"].sel({ABLATION: how}, drop=True)
    found = heads(change)
    surely = int((change > 1.96 * error).sum())
    what = {"mean": "its mean", "zero": "nothing"}[how]
    numbers = {"count": surely, "heads": len(found), "named": ", ".join(_signed(one) for one in found[:3])}
    yield Finding(
        f"With {what} in the place of one head, the loss surely grows for {{count}} of {{heads}} heads; "
        "it grows most without {named}.",
        numbers,
    )
    if (free := candidates(result)) is not None:
        yield free


def _signed(one: Any) -> str:
    return f"{one.layer}.{one.head} ({one.value:+.2g})"


@findings_for("roles")
def role_findings(result: Result) -> Iterator[Finding]:
    """How many heads have each label."""
    label = result.data["label"]
    there = result.data["peak_count"].sum(PART) > 0
    total = int(there.sum())
    counts = {str(role): int(label.sel({ROLE: role}).sum()) for role in label[ROLE].values}
    named = {role: count for role, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count}
    if not total:
        return
    none = int(((label.sum(ROLE) == 0) & there).sum())
    words = ", ".join(f"{{{role}}} {role.replace('_', '-')}" for role in named)
    told = "None of {heads} heads fits any role."
    if named:
        told = f"Of {{heads}} heads: {words}; {{none}} fit no role (a head may have several)."
    yield Finding(told, {**named, "heads": total, "none": none})


@findings_for("agreement")
def agreement_findings(result: Result) -> Iterator[Finding]:
    """The signal that ranks the heads most like ablation does."""
    rho = result.data["spearman"]
    trust = {n: _trust(result, n) for n in ("ablation_mean", "ablation_zero") if n in rho[SIGNAL].values}
    reference = max(trust, key=lambda name: trust[name], default=None)
    others = [n for n in rho[SIGNAL].values.tolist() if not n.startswith("ablation")]
    if reference is None or not others:
        return
    row = rho.sel({SIGNAL: reference}).sel({SIGNAL_B: others}).dropna(SIGNAL_B)
    if not row.size:
        return
    best, worst = (str(row[SIGNAL_B].values[place(row.values)]) for place in (np.argmax, np.argmin))
    cell = {SIGNAL: reference, SIGNAL_B: best}
    numbers = {"best": _said(best), "rho": float(row.max()), "worst": _said(worst), "least": float(row.min())}
    numbers |= {end: float(result.data[f"spearman_{end}"].sel(cell)) for end in ("low", "high")}
    told = (
        "Of the cheap signals, {best} ranks the heads most as ablation does "
        "(ρ {rho:.2f}, 95 % {low:.2f} to {high:.2f}), {worst} least ({least:.2f})."
    )
    if trust[reference] < _NOISY:
        numbers["trust"] = trust[reference]
        told += " But of what ablation tells the heads apart by, all but {trust:.0%} is noise: look at more texts."
    yield Finding(told, numbers)


def _trust(result: Result, signal: str) -> float:
    found = float(result.data["reliability"].sel({SIGNAL: signal}))
    return found if found == found else 0.0
