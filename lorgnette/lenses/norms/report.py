"""What the pages show of the norms: what of the weight arrives, and how long the vectors are that are sent."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.axes import CATEGORY, HEAD
from lorgnette.figures.cells import PARTITION, shown
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import HALF, Finding, above
from lorgnette.figures.lens_report import READING, Compared, LensReport, Measure
from lorgnette.figures.sentences import CLEAR, SPECIAL, the_category
from lorgnette.figures.variables import (
    categories_present,
    figure_per_variable,
    figures_by_stack,
    share_figure,
    titled_figures,
    variable_figure,
)
from lorgnette.results import Result

_DRAWN = ("cls", "sep", "punctuation", "other")
_NAMED = {CATEGORY: ("cls", "sep")}
_SOME = -0.2  # a correlation above it is not worth a conclusion


def figures(result: Result) -> list[Figure]:
    present = shown(result)
    if not {"weight", "norm_share"} <= set(present):
        return figure_per_variable(result)
    drawn = [share_figure(result, "Weight beside norm: what is read, and what of it arrives")]
    kinds = categories_present(result, "norm_share", _DRAWN)
    drawn += figures_by_stack(result, "norm_share", "Share of the norm by kind of token", kinds)
    for name, title in (("f_norm", "Length of what a token would give, ‖f(x)‖"), ("f_cv", "How much ‖f(x)‖ varies")):
        if name in present:
            selection = {"category": kinds} if CATEGORY in result.data[name].dims else {}
            drawn.append(variable_figure(result, name, title, **selection))
    layers = {"expansion": "How much longer f makes a vector", "mixing": "Mixing: what a token gets from the others"}
    return drawn + titled_figures(result, layers)


def findings(result: Result) -> Iterator[Finding]:
    return (finding for finding in (arriving(result), cancelling(result)) if finding is not None)


def arriving(result: Result) -> Finding | None:
    """What the most read kind of special token gets of the weight, and what of it arrives as norm."""
    weight, norm = result.data["weight"], result.data["norm"]
    kinds = [kind for kind in SPECIAL if bool(weight.sel({CATEGORY: kind}).notnull().any())]
    if not kinds:
        return None
    most = max(kinds, key=lambda kind: len(above(weight.sel({CATEGORY: kind}))))
    mostly = weight.sel({CATEGORY: most}) > HALF
    if not bool(mostly.any()):
        return None
    parts = norm.sel({CATEGORY: [kind for kind in PARTITION if kind in norm[CATEGORY].values]}).where(mostly)
    share = float(parts.sel({CATEGORY: most}).sum() / parts.sum())
    read = float(weight.sel({CATEGORY: most}).where(mostly).mean())
    numbers = {"count": int(mostly.sum()), "kind": the_category(most), "weight": read, "norm": share}
    which = "The head that gives" if numbers["count"] == 1 else "The {count} heads that give"
    return Finding(
        f"{which} {{kind}} more than half of the weight ({{weight:.0%}} on average) "
        "take {norm:.0%} of what they move from there, by norm.",
        numbers,
    )


def cancelling(result: Result) -> Finding | None:
    """Whether what is read much is short: ρ of α with ‖f(x)‖ over all pairs, for the most read special token."""
    if "spearman_all" not in result.data:
        return None
    rho = result.data["spearman_all"]
    by_kind = {str(kind): float(rho.sel({CATEGORY: kind})) for kind in rho[CATEGORY].values}
    special = {kind: by_kind[kind] for kind in SPECIAL if kind in by_kind and by_kind[kind] == by_kind[kind]}
    if not special:
        return None
    kind = min(special, key=lambda name: special[name])
    numbers = {"kind": the_category(kind), "rho": special[kind]}
    if special[kind] >= -CLEAR:
        return Finding("A larger weight on {kind} does not come with a shorter vector (ρ {rho:+.2f}).", numbers)
    end = ": the norm takes back what the weight gives." if special[kind] < _SOME else "."
    return Finding(
        "The larger the weight on {kind}, the shorter the vector that is sent from there "
        f"(ρ {{rho:+.2f}} over all pairs){end}",
        numbers,
    )


def norm_shares(data: xr.Dataset) -> xr.DataArray:
    """A head's share of Σ_j ‖α f(x_j)‖ of its layer."""
    kinds = [kind for kind in PARTITION if kind in data[CATEGORY].values]
    moved = data["norm"].sel({CATEGORY: kinds}).sum(CATEGORY, min_count=1)
    return moved / moved.sum(HEAD)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("norm", "share of what its layer moves", norm_shares(result.data), ".1%")


REPORT = LensReport(
    title="How much of it arrives",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("norm_share", "share of the norm by kind of token", select={CATEGORY: _DRAWN}, named=_NAMED),
        Compared("f_norm", "length of what a token would give, ‖f(x)‖", select={CATEGORY: _DRAWN}, named=_NAMED),
        Compared("mixing"),
    ),
    cards=cards,
)
