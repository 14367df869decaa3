"""What the pages show of the logit lens: how predictions form from layer to layer, and which heads write them."""

from collections.abc import Iterator

import numpy as np
import xarray as xr

from lorgnette.axes import STATE
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, decimals, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport, Measure
from lorgnette.figures.sentences import at_state, over_texts, significant_heads
from lorgnette.figures.variables import states_as_layers, titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery
from lorgnette.types import Json

_OF_STATES = {
    "agreement": "How often each layer predicts what the model predicts",
    "chance": "The same at another position of the text",
    "settled": "Share of predictions that have settled",
    "divergence": "KL divergence of the final prediction from that of each layer (nats)",
    "reciprocal_rank": "Reciprocal rank of the correct token",
    "loss": "Cross-entropy of the correct token (nats)",
}
_OF_HEADS = {
    "head_contrast": "What each head adds to the correct token, beyond what it adds to those of other positions",
    "head_agreement": "How often the top token of a head alone is the model's",
}


def figures(result: Result) -> list[Figure]:
    return titled_figures(states_as_layers(result), _OF_STATES) + titled_figures(result, _OF_HEADS)


def findings(result: Result) -> Iterator[Finding]:
    """Where predictions settle, where agreement is more than chance, and which heads write the correct token."""
    data = result.data
    if STATE in data.dims and bool(data["agreement"].notnull().any()):
        yield from _depth(data)
        yield from _above_chance(data)
    if "head_contrast" in data:
        yield from _heads(data)


def _depth(data: xr.Dataset) -> Iterator[Finding]:
    found = Estimate.of(data, "depth")
    if bool(found.value.isnull()):
        return
    half = float(found.half)
    d = f".{decimals(half)}f"
    sure = f" ± {{half:{d}}}" if half == half else ""
    interval = " (95 % CI over texts)" if sure else " (one text)"
    numbers: Json = {"depth": float(found.value), "half": half, "layers": int(data[STATE].max())}
    yield Finding(
        f"On average over predictions, the top token is the model's own, and stays so, from state "
        f"{{depth:{d}}}{sure} of "
        f"{{layers}} on{interval}; state 0 is the embeddings.",
        numbers,
    )


def _above_chance(data: xr.Dataset) -> Iterator[Finding]:
    """The states before the last, which agrees with itself."""
    before = data.isel({STATE: slice(0, -1)})
    excess = Estimate.of(before, "excess")
    if not bool(np.isfinite(excess.p).any()):
        return
    sure = false_discovery(excess.p_above) < LEVEL
    count, states = int(sure.sum()), before.sizes[STATE]
    numbers: Json = {"count": count, "states": states}
    if not count:
        yield Finding(
            "At none of the {states} states before the last does the top token agree with the model's own "
            f"significantly more often than with its predictions at other positions of the text{over_texts(excess)}.",
            numbers,
        )
        return
    first = int(before[STATE].values[int(sure.values.argmax())])
    at = {STATE: first}
    halves = [100 * float(Estimate.of(before, name, at).half) for name in ("agreement", "chance")]
    d = f".{decimals(*halves, least=0)}%"
    numbers |= {
        "first": first,
        "agreement": float(before["agreement"].sel(at)),
        "chance": float(before["chance"].sel(at)),
    }
    yield Finding(
        "At {count} of the {states} states before the last, the top token agrees with the model's own significantly "
        "more often than with its predictions at other positions of the text (false discovery rate 5 %), first "
        f"{at_state(first, 'first')}: {{agreement:{d}}} against {{chance:{d}}}.",
        numbers,
    )


def _heads(data: xr.Dataset) -> Iterator[Finding]:
    cells = heads(abs(data["head_contrast"]))
    if not cells or cells[0].value == 0:  # an encoder has no direct path to a translation
        return
    found = Estimate.of(data, "head_contrast")
    sure = false_discovery(found.p) < LEVEL
    sizes = Estimate(abs(found.value), found.se, found.count)
    named, doubt = significant_heads(sizes, sure, found.value, data.get("head_contrast_top_q"))
    count = int(sure.sum())
    numbers = {"count": count, "heads": len(cells), "named": named}
    words = "more to the correct token than to those of the text's other positions, or less"
    if not named:
        yield Finding(f"No head adds significantly {words}{over_texts(found)}.", numbers, nothing=True)
        return
    yield Finding(
        f"{{count}} of {{heads}} heads {'adds' if count == 1 else 'add'} significantly {words} (false discovery rate "
        f"5 %); the largest differences of logits are those of {{named}}{doubt}.",
        numbers,
    )


def cards(result: Result) -> Iterator[Measure]:
    if "head_contrast" in result.data:
        about = "what the head adds to the logit of the correct token, beyond those of the text's other positions"
        yield Measure("correct token", about, result.data["head_contrast"], "+.3f")


REPORT = LensReport(
    title="What each layer would predict",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(
        Compared("agreement", "agreement with the final prediction"),
        Compared("divergence", "KL divergence of the final prediction"),
        Compared("head_contrast", "what heads add to the correct token"),
    ),
    cards=cards,
)
