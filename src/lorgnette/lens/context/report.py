"""What the pages show of context: where the attention of each head lies, and which heads the loss needs far away."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.axes import HEAD
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
    "retrieval_excess": "Attention to a distant copy of the next token, beyond chance",
    "far_mass": "Attention beyond sinks and window",
    "sink_mass": "Attention to the first tokens",
    "local_mass": "Attention to the last tokens",
}


_KEPT = "the first {sinks} tokens and the last {window}"


def figures(result: Result) -> list[Figure]:
    known = {name: title for name, title in _TITLES.items() if name in result.data}
    return titled_figures(result, {name: title for name, title in known.items() if _any(result.data[name])})


def _any(values: xr.DataArray) -> bool:
    return bool(values.notnull().any())


def findings(result: Result) -> Iterator[Finding]:
    """Which heads raise the loss when they see only sinks and a window, and which read the next token far away."""
    data = result.data
    numbers: Json = {"sinks": int(data.attrs["sinks"]), "window": int(data.attrs["size"])}
    if "loss_change" in data:
        yield _about_losses(data, numbers)
    if "shared_change" in data and _any(data["shared_change"]):
        yield _about_key_heads(data, numbers)
    if "retrieval_excess" in data and _any(data["retrieval_excess"]):
        yield _about_retrieval(data, numbers)


def _about_losses(data: xr.Dataset, numbers: Json) -> Finding:
    if not _any(data["loss_change"]):
        return Finding(
            f"No text is long enough to tell which heads need the context beyond {_KEPT}: give longer texts, or a "
            "smaller window.",
            numbers,
        )
    found, more, doubt = _above_zero(data, "loss_change")
    if not more["named"]:
        return Finding(
            f"Letting a single head see only {_KEPT} raises the loss significantly for none of {{heads}} heads"
            f"{over_texts(found)}.",
            numbers | more,
            nothing=True,
        )
    return Finding(
        f"Letting a single head see only {_KEPT} raises the loss significantly for {{count}} of {{heads}} heads (false "
        f"discovery rate 5 %); the largest increases are those of {{named}}{doubt}.",
        numbers | more,
    )


def _about_key_heads(data: xr.Dataset, numbers: Json) -> Finding:
    """The same for heads that share keys and values, of which the first stands for all."""
    change = data["shared_change"]
    first = change.notnull() & (change != change.shift({HEAD: 1}))
    found, more, doubt = _above_zero(data.where(first), "shared_change")
    what = f"Letting a key head, and the query heads that share it, see only {_KEPT} raises the loss significantly"
    if not more["named"]:
        return Finding(f"{what} for none of {{heads}} key heads{over_texts(found)}.", numbers | more, nothing=True)
    return Finding(
        f"{what} for {{count}} of {{heads}} key heads (false discovery rate 5 %); the largest increases, by the first "
        f"head that reads each, are those of {{named}}{doubt}.",
        numbers | more,
    )


def _about_retrieval(data: xr.Dataset, numbers: Json) -> Finding:
    found, more, doubt = _above_zero(data, "retrieval_excess")
    where = f"Where the next token has occurred before, outside {_KEPT},"
    if not more["named"]:
        return Finding(
            f"{where} none of {{heads}} heads has its largest weight on it significantly more often than chance"
            f"{over_texts(found)}.",
            numbers | more,
            nothing=True,
        )
    verb = "has its" if more["count"] == 1 else "have their"
    return Finding(
        f"{where} {{count}} of {{heads}} heads {verb} largest weight on it significantly more often than chance (false "
        f"discovery rate 5 %); the largest excesses are those of {{named}}{doubt}.",
        numbers | more,
    )


def _above_zero(data: xr.Dataset, variable: str) -> tuple[Estimate, Json, str]:
    """The variable, how many heads have it significantly above zero and which most, and the doubt about the first."""
    found = Estimate.of(data, variable)
    sure = (false_discovery(found.p) < LEVEL) & (found.value > 0)
    named, doubt = significant_heads(found, sure, q=data.get(f"{variable}_top_q"))
    return found, {"count": int(sure.sum()), "heads": len(heads(found.value)), "named": named}, doubt


def cards(result: Result) -> Iterator[Measure]:
    if "loss_change" in result.data and _any(result.data["loss_change"]):
        about = "increase of the loss when the head sees only sinks and window"
        yield Measure("long context", about, result.data["loss_change"], "+.4f")
    if "retrieval_excess" in result.data and _any(result.data["retrieval_excess"]):
        about = "how often its largest weight is on the next token, far before, beyond chance"
        yield Measure("retrieval", about, result.data["retrieval_excess"], "+.3f")


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
