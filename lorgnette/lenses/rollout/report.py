"""What the pages show of rollout: how much of the input is left in the states, layer by layer."""

from collections.abc import Iterator
from typing import Any

from lorgnette.axes import CATEGORY, LAYER, MEASURE
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import READING, Compared, LensReport
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    titles = {
        "share": "What of the input is left in the states, by layer",
        "entropy": "How many input tokens are mixed in a state (entropy, nats)",
    }
    return titled_figures(result, titles)


def findings(result: Result) -> Iterator[Finding]:
    """The share of a token's own input in its last state, by weights and by norms."""
    share = result.data["share"]
    if "self" not in share[CATEGORY].values:
        return
    own = share.sel({CATEGORY: "self"}).dropna(LAYER, how="all")
    if not own.sizes[LAYER]:
        return
    last = own.isel({LAYER: -1})
    numbers: dict[str, Any] = {name: float(last.sel({MEASURE: name})) for name in ("weights", "norms")}
    if any(value != value for value in numbers.values()):
        return
    numbers["layer"] = int(last[LAYER])
    yield Finding(
        "After layer {layer}, {weights:.0%} of a token's state is still its own input by rollout of the weights, "
        "{norms:.0%} by rollout of the norms.",
        numbers,
    )


REPORT = LensReport(
    title="What reaches the top",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(Compared("share", named={CATEGORY: ("self", "cls", "sep")}), Compared("entropy")),
)
