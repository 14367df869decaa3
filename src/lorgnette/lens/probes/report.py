"""What the pages show of probes: what can be read off each layer."""

from collections.abc import Iterator

from lorgnette.axes import LABEL, PROBE, STATE
from lorgnette.figures.doubt import extreme_of
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport, TextTable
from lorgnette.figures.sentences import at_state
from lorgnette.figures.variables import figure_per_variable, states_as_layers, titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate


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


def table(result: Result) -> TextTable:
    """A row for each state: accuracy and selectivity of each probe, and the share of a learnt mix."""
    data, rows = result.data, []
    for state in data[STATE].values:
        here = data.sel({STATE: state})
        cells = []
        for name in data[PROBE].values:
            one = here.sel({PROBE: name})
            half = float(Estimate.of(one, "accuracy").half)
            cells += [f"{float(one.accuracy):.3f} ± {half:.3f}", f"{float(one.selectivity):+.3f}"]
        rows.append((str(int(state)), *cells, f"{float(here.mixing):.2f}"))
    embedding = ", ".join(f"{float(v):.3f}" for v in data.embedding_accuracy.values)
    note = (
        f"most frequent label {float(data.majority):.3f}, of each word type {float(data.type_majority):.3f}, "
        f"input embeddings {embedding}; {int(data.unseen_labels)} test items have a label that training lacks"
    )
    probes = [title for name in data[PROBE].values for title in (str(name), "selectivity")]
    title = f"{_label(result)}: {int(data.train_items):,} to train, {int(data.test_items):,} to test"
    return TextTable(("state", *probes, "mixing"), rows, (note,), title)


REPORT = LensReport(
    title="What each layer encodes",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(Compared("accuracy", "accuracy"), Compared("selectivity", "selectivity")),
    meaning=("label",),
    table=table,
)
