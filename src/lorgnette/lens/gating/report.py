"""What the pages show of gating: gates under both pressures, heads with a clear label, and the held-out loss."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import altair as alt
import xarray as xr

from lorgnette.axes import HEAD, LAYER, PRESSURE, STACK
from lorgnette.figures.charts import COLOURS, head_axis
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads
from lorgnette.figures.lens_report import PRUNING, Compared, LensReport, Measure
from lorgnette.figures.sentences import NAMED
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate

if TYPE_CHECKING:
    import pandas as pd

Cell = dict[str, str | int | float]
CLEAR = 0.8
"""A head has a label if the score is above this with every seed."""
SCORES = {"facilitation": "facilitates", "interference": "interferes", "irrelevance": "irrelevant"}
UNCLEAR = "unclear"


def figures(result: Result) -> list[Figure]:
    titles = {
        "facilitation": "Facilitation: the gate under pressure to remove",
        "interference": "Interference: 1 − the gate under pressure to keep",
        "irrelevance": "Irrelevance: the pressure alone decides",
    }
    return [gates(result), *titled_figures(result, titles)]


def gates(result: Result) -> Figure:
    """Every head with its gates under both pressures, those that stay open last."""
    columns = [f"{name}{part}" for name in SCORES for part in ("", "_low", "_high")]
    frame = result.data[columns].to_dataframe().reset_index().dropna(subset=["facilitation"])
    order = ["facilitation", "interference", LAYER, HEAD]
    frame = frame.sort_values(order, ascending=[True, False, True, True], kind="stable").reset_index(drop=True)
    which = frame[LAYER].astype(str) + "." + frame[HEAD].astype(str)
    frame.insert(0, "which", frame[STACK] + " " + which if frame[STACK].nunique() > 1 else which)
    frame["label"] = UNCLEAR
    for name, label in SCORES.items():
        frame.loc[frame[f"{name}_low"] > CLEAR, "label"] = label
    caption = (
        "Two gates for each head: pressed to stay open, and pressed to close; lines go from the smallest to the "
        "largest of the seeds. Far apart: the pressure alone decides, the head does not matter. Both open: it "
        f"facilitates. Both closed: it interferes. Named: heads whose facilitation is above {CLEAR} with every seed."
    )
    table = frame[["which", *SCORES, "label"]].round(3)
    return Figure("gates", "Gates of the heads under both pressures", caption, _line(frame), table, frame, wide=True)


def _line(frame: "pd.DataFrame") -> "alt.LayerChart":
    rows = []
    for place, row in enumerate(frame.to_dict("records"), 1):
        about = {"place": place, "which": row["which"], "label": row["label"]}
        ends = [row[f"facilitation{part}"] for part in ("", "_low", "_high")]
        rows.append(_gate(about, "pressed to close", *ends))
        ends = [1 - row[f"interference{part}"] for part in ("", "_high", "_low")]
        rows.append(_gate(about, "pressed to stay open", *ends))
    base = alt.Chart(alt.Data(values=rows), width=720, height=220)
    axis = head_axis(frame["which"].tolist())
    places = alt.Scale(domain=[0, len(frame) + 1], nice=False)
    x = alt.X(field="place", type="quantitative", title="heads, by facilitation", scale=places, axis=axis)
    unit = alt.Scale(domain=[0, 1])
    y = {name: alt.Y(field=name, type="quantitative", title="gate", scale=unit) for name in ("gate", "low")}
    colours = alt.Scale(domain=["pressed to close", "pressed to stay open"], range=[COLOURS[0], COLOURS[1]])
    colour = alt.Color(field="pressure", type="nominal", scale=colours, legend=alt.Legend(title=None, orient="top"))
    lines = base.mark_rule(strokeWidth=1.5, opacity=0.5).encode(x=x, y=y["low"], y2=alt.Y2(field="high"), color=colour)
    said = alt.Description(field="said", type="nominal")
    dots = base.mark_point(filled=True, size=28, opacity=1).encode(x=x, y=y["gate"], color=colour, description=said)
    clear = [row for row in rows[::2] if row["label"] == SCORES["facilitation"]]
    names = alt.Chart(alt.Data(values=clear)).mark_text(dx=-6, fontSize=9, angle=270, align="right")
    return alt.layer(lines, dots, names.encode(x=x, y=y["low"], text=alt.Text(field="which", type="nominal")))


def _gate(about: Cell, pressure: str, gate: float, low: float, high: float) -> Cell:
    said = f"head {about['which']} {pressure}: {gate:.2f} ({low:.2f} to {high:.2f})"
    return {**about, "pressure": pressure, "gate": gate, "low": low, "high": high, "said": said}


def findings(result: Result) -> Iterator[Finding]:
    """How many heads have each label with every seed, and what the gates do to the held-out loss."""
    data = result.data
    clear = {name: heads(data[f"{name}_low"].where(data[f"{name}_low"] > CLEAR)) for name in SCORES}
    count = len(heads(data["facilitation"]))
    if not count:
        return
    labelled = {(one.layer, one.head) for each in clear.values() for one in each}
    numbers: dict[str, int | str] = {name: len(each) for name, each in clear.items()}
    numbers |= {"heads": count, "seeds": len(data.attrs["seeds"]), "unclear": count - len(labelled)}
    for name, each in clear.items():
        numbers[f"{name}_named"] = ", ".join(f"{one.layer}.{one.head}" for one in each[:NAMED])
    named = {name: f" ({{{name}_named}})" if clear[name] else "" for name in ("facilitation", "interference")}
    yield Finding(
        f"{{facilitation}} of {{heads}} heads facilitate the task with each of {{seeds}} seeds{named['facilitation']}, "
        f"{{interference}} interfere{named['interference']}, {{irrelevance}} make no difference, {{unclear}} are "
        f"unclear.",
        numbers,
    )
    yield _loss(data)


def _loss(data: xr.Dataset) -> Finding:
    loss = {str(name): float(data["loss"].sel({PRESSURE: name})) for name in data[PRESSURE].values}
    numbers = {**loss, "left": int((data["facilitation"] > 0.5).sum()), "fit": data.attrs["texts"][0]}
    numbers["test"] = data.attrs["texts"][1]
    errors = {str(name): float(data["loss_se"].sel({PRESSURE: name})) for name in data[PRESSURE].values}
    seeds = len(data.attrs["seeds"])  # they are the sample here
    said = {}
    for name in ("free", "remove"):
        change = Estimate(loss[name], errors[name], seeds).minus_correlated(loss["none"])
        told = change.significant("change").removeprefix("; ")
        numbers |= {f"{name}_half": float(change.half)} if told else {}
        said[name] = f" ± {{{name}_half:.N}} ({told})" if told else ""
    halves = [numbers[f"{name}_half"] for name in said if said[name]]
    words = (
        "On {test} texts that no gate was fitted on, the unchanged model has a loss of {none:.N}; it is "
        f"{{free:.N}}{said['free']} with gates fitted without pressure, and {{remove:.N}}{said['remove']} with the "
        "{left} heads of this stack that stay open under pressure (95 % CI over seeds)."
    )
    return Finding(words.replace(".N}", f".{decimals(*halves, least=3)}f}}"), numbers)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("facilitation", "gate under pressure to remove every head", result.data["facilitation"], ".2f")
    yield Measure("interference", "1 − gate under pressure to keep", result.data["interference"], ".2f")


REPORT = LensReport(
    title="Heads that help, hurt or make no difference",
    chapter=PRUNING,
    figures=figures,
    findings=findings,
    compared=(Compared("facilitation", "facilitation"), Compared("interference", "interference")),
    cards=cards,
    meaning=("pressure",),
)
