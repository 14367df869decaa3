"""What the pages show of probes: what can be read off each layer."""

from collections.abc import Iterator

from lorgnette.axes import LABEL, PROBE, STATE
from lorgnette.figures.doubt import extreme_of
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport
from lorgnette.figures.sentences import at_state
from lorgnette.figures.variables import figure_per_variable, states_as_layers, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    label = _label(result)
    titles = {
        "accuracy": f"Probe accuracy by layer: {label}",
        "selectivity": f"Selectivity (accuracy minus control task): {label}",
    }
    return titled_figures(states_as_layers(result), titles) or figure_per_variable(result)


def _label(result: Result) -> str:
    return str(result.data.attrs.get("label", "the label"))


def findings(result: Result) -> Iterator[Finding]:
    """The layer that knows most, beside its control and the most frequent label."""
    accuracy = result.data["accuracy"]
    for probe in accuracy[PROBE].values.tolist():
        row = accuracy.sel({PROBE: probe}).dropna(STATE)
        if not row.sizes[STATE]:
            continue
        states = [int(state) for state in row[STATE].values]
        best = extreme_of(result.data.sel({PROBE: probe}).dropna(STATE, subset=["accuracy"]), "accuracy", STATE)
        doubt = best.beside([f"layer {state}" if state else "the embeddings" for state in states])
        state = states[best.place]
        numbers = {
            "accuracy": best.value,
            "state": state,
            "probe": str(probe),
            "majority": float(result.data["majority"]),
            "selectivity": float(result.data["selectivity"].sel({PROBE: probe, STATE: state})),
            LABEL: _label(result),
        }
        yield Finding(
            f"A {{probe}} probe predicts {{label}} best {at_state(state, 'state')}: accuracy {{accuracy:.0%}}{doubt}; "
            "selectivity {selectivity:.2f}; the majority class reaches {majority:.0%}.",
            numbers,
        )
        break
    converged = result.data["converged"].dropna(STATE) if "converged" in result.data else None
    if converged is not None and bool((converged == 0).any()):
        short = int((converged == 0).sum())
        yield Finding(
            "{short} of {states} linear probes stopped before their minimum: do not compare them with the others.",
            {"short": short, "states": converged.sizes[STATE]},
        )


REPORT = LensReport(
    title="What each layer encodes",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(Compared("accuracy", "accuracy"), Compared("selectivity", "selectivity")),
    meaning=("label",),
)
