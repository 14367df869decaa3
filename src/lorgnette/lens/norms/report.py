"""What the pages show of the norms: what of the weight arrives, and how long the vectors are that are sent."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.axes import CATEGORY, HEAD
from lorgnette.figures.cells import PARTITION, shown
from lorgnette.figures.doubt import significantly_above
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
from lorgnette.statistics.estimate import Estimate
from lorgnette.texts.parts import SPEAKERS

_DRAWN = ("cls", "sep", "punctuation", "other")
_NAMED = {CATEGORY: ("cls", "sep")}
_SOME = -0.2  # a correlation above it is not worth a conclusion


def figures(result: Result) -> list[Figure]:
    present = shown(result)
    if not {"weight", "norm_share"} <= set(present):
        return figure_per_variable(result)
    drawn = [share_figure(result, "Attention weight and norm of the contribution")]
    kinds = categories_present(result, "norm_share", (*_DRAWN, *SPEAKERS))
    drawn += figures_by_stack(result, "norm_share", "Share of the output norm ‖αf(x)‖ by category of token", kinds)
    for name, title in (("f_norm", "Transformed-value norm ‖f(x)‖"), ("f_cv", "Coefficient of variation of ‖f(x)‖")):
        if name in present:
            selection = {"category": kinds} if CATEGORY in result.data[name].dims else {}
            drawn.append(variable_figure(result, name, title, **selection))
    if "contribution_share" in present:
        title = "Signed share of the output norm by category of token (negative: opposes the output)"
        drawn += figures_by_stack(result, "contribution_share", title, kinds)
    layers = {"expansion": "Expansion ‖f(x)‖ / ‖x‖", "mixing": "Mixing ratio: contribution of the other tokens"}
    return drawn + titled_figures(result, layers)


def findings(result: Result) -> Iterator[Finding]:
    return (finding for finding in (arriving(result), cancelling(result), opposing(result)) if finding is not None)


def arriving(result: Result) -> Finding | None:
    """The share of attention on the most attended special token, and its share of the output norm."""
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
    which = (
        "The head with more than half of its"
        if numbers["count"] == 1
        else "The {count} heads with more than half of their"
    )
    verb, owner = ("puts", "its") if numbers["count"] == 1 else ("put", "their")
    turn = "but that token supplies only" if share < read - CLEAR else "and that token supplies"
    return Finding(
        f"{which} attention on {{kind}} {verb} {{weight:.0%}} there, {turn} {{norm:.0%}} of {owner} output norm "
        "‖αf(x)‖.",
        numbers,
    )


def cancelling(result: Result) -> Finding | None:
    """ρ of α with ‖f(x)‖ over all pairs, for the special token with the lowest."""
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
        return Finding(
            "Attention weights on {kind} do not fall with the norm ‖f(x)‖ of what they multiply (ρ = {rho:.2f} over "
            "all pairs).",
            numbers,
        )
    end = ": small value norms offset the high attention weights." if special[kind] < _SOME else "."
    return Finding(
        "Attention weights on {kind} are negatively correlated with the norm ‖f(x)‖ of what they multiply "
        f"(ρ = {{rho:.2f}} over all pairs){end}",
        numbers,
    )


def opposing(result: Result) -> Finding | None:
    """Heads in which the most read special token points against the output."""
    if "contribution_share" not in result.data:
        return None
    share = result.data["contribution_share"]
    kinds = [kind for kind in SPECIAL if bool(share.sel({CATEGORY: kind}).notnull().any())]
    if not kinds:
        return None
    kind = max(kinds, key=lambda name: float(result.data["weight"].sel({CATEGORY: name}).mean()))
    found = Estimate.of(result.data, "contribution_share", {CATEGORY: kind})
    value, against = found.value, significantly_above(Estimate(-found.value, found.se, found.count), 0.0)
    numbers = {"kind": the_category(kind), "count": against, "heads": int(value.notnull().sum())}
    numbers |= {"mean": float(value.mean()), "weight": float(result.data["weight"].sel({CATEGORY: kind}).mean())}
    return Finding(
        "Projected on the output, the share of {kind} in its norm is {mean:.0%} with {weight:.0%} of the attention "
        "(means over heads); in {count} of {heads} heads it is significantly negative (false discovery rate 5 %).",
        numbers,
    )


def norm_shares(data: xr.Dataset) -> xr.DataArray:
    """A head's share of Σ_j ‖α f(x_j)‖ of its layer."""
    kinds = [kind for kind in PARTITION if kind in data[CATEGORY].values]
    moved = data["norm"].sel({CATEGORY: kinds}).sum(CATEGORY, min_count=1)
    return moved / moved.sum(HEAD)


def cards(result: Result) -> Iterator[Measure]:
    yield Measure("norm", "share of its layer's output norm", norm_shares(result.data), ".1%")


REPORT = LensReport(
    title="How much each token contributes",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(
        Compared("norm_share", "share of the output norm", select={CATEGORY: _DRAWN}, named=_NAMED),
        Compared("f_norm", "transformed-value norm ‖f(x)‖", select={CATEGORY: _DRAWN}, named=_NAMED),
        Compared("mixing", "mixing ratio"),
    ),
    cards=cards,
)
