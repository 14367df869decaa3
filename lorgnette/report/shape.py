"""Charts and sentences about the shape of vectors: geometry, convexity, cones, probes."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lorgnette.axes import DIRECTION, DIRECTION_B, LABEL, LAYER, PROBE, STATE, VECTORS
from lorgnette.figures.cells import shown
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.report.findings import findings_for
from lorgnette.report.sections import by_default, figures_for, states_as_layers, variable_figure
from lorgnette.results import Result


@findings_for("geometry")
def narrowness(result: Result) -> Iterator[Finding]:
    """How alike the tokens of a text are, from the embeddings to the top; and the heads' keys and values."""
    data = result.data
    if "state_sim" in data:
        sim = data["state_sim"].dropna(STATE)
        if sim.sizes[STATE] > 1:
            top = int(sim[STATE].values[-1])
            numbers: dict[str, Any] = {"first": float(sim[0]), "last": float(sim[-1]), "top": top}
            numbers |= {"most": float(sim.max()), "where": int(sim.idxmax(STATE))}
            yield Finding(
                "The tokens of a text have a mean cosine of {first:.2f} in the embeddings and {last:.2f} after layer "
                "{top}; it is highest after layer {where} ({most:.2f}).",
                numbers,
            )
    if "state_isoscore" in data:
        score = data["state_isoscore"].dropna(STATE)
        if score.sizes[STATE]:
            numbers = {"least": float(score.min()), "where": int(score.idxmin(STATE)), "most": float(score.max())}
            yield Finding(
                "The space is used least evenly after layer {where} (IsoScore {least:.2f}, of 1), and nowhere better "
                "than {most:.2f}.",
                numbers,
            )
    if "sim_all" in data:
        yield from _vectors(result)


def _vectors(result: Result) -> Iterator[Finding]:
    """Where queries, keys and values of a text are most alike."""
    sim = result.data["sim_all"]
    tops = {}
    for kind in sim[VECTORS].values.tolist():
        part = sim.sel({VECTORS: kind}).dropna(LAYER)
        if part.sizes[LAYER]:
            tops[str(kind)] = (float(part.mean()), float(part.max()), int(part.idxmax(LAYER)))
    if "key" not in tops or "value" not in tops:
        return
    numbers: dict[str, Any] = {}
    for kind, (mean, most, layer) in tops.items():
        numbers |= {f"{kind}_mean": mean, f"{kind}_most": most, f"{kind}_layer": layer}
    yield Finding(
        "Keys of a text have a mean cosine of {key_mean:.2f} (most in layer {key_layer}: {key_most:.2f}), values "
        "{value_mean:.2f} (layer {value_layer}: {value_most:.2f}).",
        numbers,
    )


@figures_for("convexity")
def of_convexity(result: Result) -> list[Figure]:
    titles = {
        "used": "How much of the values' cone attention uses",
        "distance": "How far what a head gives lies from the plain mean of the values",
        "cone_widest": "How wide the cone of the values is (radians)",
    }
    there = shown(result)
    return [variable_figure(result, name, title) for name, title in titles.items() if name in there] or by_default(
        result
    )


@findings_for("convexity")
def cone_used(result: Result) -> Iterator[Finding]:
    """How much of the cone is used, and the heads that do hardly more than average."""
    used, found = result.data["used"], heads(result.data["distance"])
    if not found:
        return
    near = [one for one in found if one.value < 0.5]
    widest = float(result.data["cone_widest"].mean()) * 180 / np.pi
    numbers = {"used": float(used.mean()), "near": len(near), "heads": len(found), "least": str(found[-1]),
               "most": str(found[0]), "widest": widest}  # fmt: skip
    yield Finding(
        "Attention uses {used:.0%} of the cone that the values span ({widest:.0f}° wide on average); what {near} of "
        "{heads} heads give lies within half a length of the plain mean of the values, from {least} to {most}.",
        numbers,
    )


@findings_for("cones")
def directions(result: Result) -> Iterator[Finding]:
    """How well the direction of one text of a class tells the class, and the angle between classes."""
    auroc = result.data["auroc"].dropna(DIRECTION)
    if not auroc.sizes[DIRECTION]:
        return
    worst = str(auroc[DIRECTION].values[int(auroc.values.argmin())])
    numbers: dict[str, Any] = {"mean": float(auroc.mean()), "least": float(auroc.min()), "worst": worst}
    words = (
        "A text lies nearer in direction to a text of its own class than a text of another class does with a chance of "
        "{mean:.0%} (least for {worst}, {least:.0%})"
    )
    between = result.data["class_cosine"]
    other = [
        float(between.sel({DIRECTION: a, DIRECTION_B: b}))
        for a in between[DIRECTION].values
        for b in between[DIRECTION_B].values
        if a != b
    ]
    other = [value for value in other if value == value]
    if other:
        numbers["cosine"] = float(np.mean(other))
        words += "; the mean directions of two classes have a cosine of {cosine:+.2f}"
    yield Finding(words + ".", numbers)


@figures_for("probes")
def of_probes(result: Result) -> list[Figure]:
    states = Result(result.lens, states_as_layers(result.data), result.provenance)
    titles = {"accuracy": "What each layer knows", "selectivity": "The same, less what a probe learns by heart"}
    label = result.data.attrs.get("label", "the label")
    drawn = [(states, name, f"{title}: {label}") for name, title in titles.items() if name in shown(states)]
    return [variable_figure(*one) for one in drawn] or by_default(result)


@findings_for("probes")
def best_states(result: Result) -> Iterator[Finding]:
    """The layer that knows most, beside its control and the most frequent label."""
    accuracy = result.data["accuracy"]
    for probe in accuracy[PROBE].values.tolist():
        row = accuracy.sel({PROBE: probe}).dropna(STATE)
        if not row.sizes[STATE]:
            continue
        state = int(row.idxmax(STATE))
        numbers = {
            "accuracy": float(row.max()),
            "state": state,
            "probe": str(probe),
            "majority": float(result.data["majority"]),
        }
        numbers["selectivity"] = float(result.data["selectivity"].sel({PROBE: probe, STATE: state}))
        numbers[LABEL] = str(result.data.attrs.get("label", "the label"))
        yield Finding(
            "A {probe} probe reads {label} best after layer {state}: {accuracy:.0%} right, {selectivity:+.2f} beyond "
            "its control; the most frequent label is right in {majority:.0%}.",
            numbers,
        )
        return
