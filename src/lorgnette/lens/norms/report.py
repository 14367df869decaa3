"""What the pages show of the norms: what of the weight arrives, and how long the vectors are that are sent."""

from collections.abc import Iterator

import xarray as xr

from lorgnette.axes import CATEGORY, HEAD, LAYER
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
from lorgnette.statistics.estimate import LEVEL, Estimate
from lorgnette.texts.parts import SPEAKERS
from lorgnette.types import Json

_DRAWN = ("cls", "sep", "punctuation", "other")
_NAMED = {CATEGORY: ("cls", "sep")}
_SMALL_P = 0.001
_FEWEST_HEADS = 5
"""Over fewer, no rank correlation is significant."""


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
    """Attention and output norm of the most attended special token; if they differ much, how its ‖f(x)‖ goes with it.

    That is between heads: one point for each, its mean weight on the token and the mean of ‖f(x)‖. ρ over single pairs
    pools heads, so it shows the difference between them once more; it is given by layer.
    """
    data = result.data
    if not {"f_norm", "norm_share"} <= set(data):
        return None
    weights = {kind: data["weight"].sel({CATEGORY: kind}) for kind in SPECIAL if kind in data[CATEGORY].values}
    means = {kind: float(weight.mean()) for kind, weight in weights.items() if bool(weight.notnull().any())}
    if not means:
        return None
    kind = max(means, key=lambda name: means[name])
    share = float(data["norm_share"].sel({CATEGORY: kind}).mean())
    numbers: Json = {"kind": the_category(kind), "weight": means[kind], "share": share}
    supplies = "supply" if kind == "period_comma" else "supplies"
    words = (
        f"{{weight:.0%}} of the attention is on {{kind}}, which {supplies} {{share:.0%}} of the output norm (means "
        "over heads)."
    )
    between = _between_heads(weights[kind], data["f_norm"].sel({CATEGORY: kind}))
    if between is None or not share < means[kind] * HALF:
        return Finding(words, numbers)
    numbers |= dict(zip(("rho", "p", "heads"), between, strict=True))
    tends = "does not depend significantly on the weight"
    if numbers["p"] < LEVEL:
        tends = f"tends to be {'smaller' if numbers['rho'] < 0 else 'larger'} where the weight is higher"
    words += f" Between heads, ‖f(x)‖ there {tends} (ρ = {{rho:.2f}} over {{heads}} heads, "
    words += "p < 0.001" if numbers["p"] < _SMALL_P else "p = {p:.2g}"
    within = data["spearman"].sel({CATEGORY: kind}).dropna(LAYER) if "spearman" in data else None
    if within is not None and within.size:
        numbers |= {"low": float(within.min()), "high": float(within.max())}
        words += "; over single pairs of a query and a key, by layer, ρ is {low:.2f} to {high:.2f}"
    return Finding(f"{words}).", numbers)


def _between_heads(weight: xr.DataArray, norm: xr.DataArray) -> tuple[float, float, int] | None:
    """Spearman's ρ over the heads that have both, its p, and how many they are; None for too few or a constant."""
    from scipy.stats import spearmanr

    cells = xr.Dataset({"weight": weight, "norm": norm}).stack(cell=(LAYER, HEAD)).dropna("cell")
    columns = [cells[name].values for name in ("weight", "norm")]
    if cells.sizes["cell"] < _FEWEST_HEADS or any(len(set(column.tolist())) < 2 for column in columns):
        return None
    found = spearmanr(*columns)
    return float(found.statistic), float(found.pvalue), cells.sizes["cell"]


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
    meaning=("by",),
    rank=-1,
)
