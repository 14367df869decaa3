"""What the pages show of context: where the attention of each head lies, and which heads the loss needs far away."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport, Measure
from lorgnette.figures.sentences import over_texts, significant_heads
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import LEVEL, Estimate, false_discovery
from lorgnette.types import Json

_TITLES = {
    "loss_change": "Increase of the loss when the head sees only sinks and window",
    "shared_change": "The same with all heads that share its keys and values",
    "far_mass": "Attention beyond sinks and window",
    "sink_mass": "Attention to the first tokens",
    "local_mass": "Attention to the last tokens",
}


def figures(result: Result) -> list[Figure]:
    known = {name: title for name, title in _TITLES.items() if name in result.data}
    return titled_figures(result, {name: title for name, title in known.items() if _any(result.data[name])})


def _any(values: xr.DataArray) -> bool:
    return bool(values.notnull().any())


def findings(result: Result) -> Iterator[Finding]:
    """How many heads raise the loss when they see only sinks and a window, and which raise it most."""
    data = result.data
    if "loss_change" not in data:
        return
    numbers: Json = {"sinks": int(data.attrs["sinks"]), "window": int(data.attrs["size"])}
    kept = "the first {sinks} tokens and the last {window}"
    if not _any(data["loss_change"]):
        yield Finding(
            f"No text is long enough to tell which heads need the context beyond {kept}: give longer texts, or a "
            "smaller window.",
            numbers,
        )
        return
    found = Estimate.of(data, "loss_change")
    sure = (false_discovery(found.p) < LEVEL) & (found.value > 0)
    named, doubt = significant_heads(found, sure, q=data.get("loss_change_top_q"))
    numbers |= {"count": int(sure.sum()), "heads": len(heads(found.value)), "named": named}
    if not named:
        yield Finding(
            f"Letting a single head see only {kept} raises the loss significantly for none of {{heads}} heads"
            f"{over_texts(found)}.",
            numbers,
        )
        return
    yield Finding(
        f"Letting a single head see only {kept} raises the loss significantly for {{count}} of {{heads}} heads (false "
        f"discovery rate 5 %); the largest increases are those of {{named}}{doubt}.",
        numbers,
    )


def cards(result: Result) -> Iterator[Measure]:
    if "loss_change" in result.data and _any(result.data["loss_change"]):
        about = "increase of the loss when the head sees only sinks and window"
        yield Measure("long context", about, result.data["loss_change"], "+.4f")


REPORT = LensReport(
    title="Which heads need the long context",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(
        Compared("loss_change", "increase of the loss with sinks and window alone"),
        Compared("far_mass", "attention beyond sinks and window"),
    ),
    cards=cards,
)
