"""What the pages show of rollout: how much of the input is left in the states, layer by layer."""

from collections.abc import Iterator

from lorgnette.axes import CATEGORY, LAYER, MEASURE
from lorgnette.figures.doubt import difference
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals
from lorgnette.figures.lens_report import READING, Compared, LensReport
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    titles = {
        "share": "Share of the input in the states, by layer",
        "entropy": "Entropy of a state over input tokens (nats)",
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
    numbers: Json = {name: float(last.sel({MEASURE: name})) for name in ("weights", "norms")}
    if any(value != value for value in numbers.values()):
        return
    numbers["layer"] = int(last[LAYER])
    at = {CATEGORY: "self", LAYER: last[LAYER].item()}
    found = {name: Estimate.of(result.data, "share", {**at, MEASURE: name}) for name in ("weights", "norms")}
    numbers |= {f"{name}_half": float(one.half) for name, one in found.items()}
    told = difference(result.data, "share_difference", at, found["weights"], found["norms"]).significant()
    d = f".{decimals(*(100 * float(one.half) for one in found.values()), least=0)}%"
    yield Finding(
        f"After layer {{layer}}, a token's own input makes up {{weights:{d}}} ± {{weights_half:{d}}} of its state "
        f"by rollout of the attention weights, {{norms:{d}}} ± {{norms_half:{d}}} by rollout of the norms (95 % CI "
        f"over texts){told}.",
        numbers,
    )


REPORT = LensReport(
    title="How much of the input remains",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("share", "share of the input", named={CATEGORY: ("self", "cls", "sep")}),
        Compared("entropy", "entropy over input tokens"),
    ),
    meaning=("by",),
)
