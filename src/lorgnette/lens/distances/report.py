"""What the pages show of the distances between heads: a map, and how many heads are of each kind."""

from collections.abc import Iterator

from lorgnette.axes import HEAD, LAYER, STACK
from lorgnette.figures import charts
from lorgnette.figures.cells import said, shown
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, head_places
from lorgnette.figures.lens_report import READING, HeadPlace, HeadRole, LensReport
from lorgnette.figures.sentences import has, the_category
from lorgnette.figures.variables import figure_per_variable
from lorgnette.results import Result

_PATTERNS = {
    "previous": "on the previous token",
    "next": "on the next token",
    "self": "on the token itself",
}
_FAMILIES = {"cls": "special tokens", "sep": "special tokens", "period_comma": "punctuation", "broad": "broad"}
_FAMILIES |= dict.fromkeys(("previous", "next", "self"), "positional")


def figures(result: Result) -> list[Figure]:
    if "kind" not in result.data or not {"x", "y"} <= set(shown(result)):
        return figure_per_variable(result)
    frame = result.data[["x", "y", "kind"]].to_dataframe().dropna().reset_index()
    caption = (
        "Heads with similar rows (Jensen–Shannon divergence) are close to each other; the axes have no unit. "
        "Heads with a dominant pattern are named where there is room."
    )
    return [Figure("head_map", "Map of the heads", caption, charts.head_map(result), frame, frame, True)]


def findings(result: Result) -> Iterator[Finding]:
    """How many heads are of each kind on the map of heads."""
    cells = [kind for kind in result.data["kind"].values.ravel().tolist() if isinstance(kind, str) and kind != "other"]
    if cells:
        counts = {kind: cells.count(kind) for kind in sorted(set(cells), key=lambda kind: (-cells.count(kind), kind))}
        at = {kind: _PATTERNS.get(kind, f"on {the_category(kind)}") for kind in counts if kind != "broad"}
        places = [f"{{{kind}}} {words}" for kind, words in at.items()]
        rest = sum(kind == "other" for kind in result.data["kind"].values.ravel())
        parts = [", ".join(places)] if places else []
        if "broad" in counts:
            parts.append(f"{{broad}} {'is' if counts['broad'] == 1 else 'are'} broad (entropy above 3.8 nats)")
        parts.append(f"{{other}} {has(rest)} no dominant pattern")
        mostly = "Heads with more than half of their attention in one place (each counts once, neighbours first)"
        lead = mostly if places else "No head has more than half of its attention in one place"
        yield Finding(f"{lead}: {'; '.join(parts)}.", {**counts, "other": rest})


def roles(result: Result) -> dict[HeadPlace, HeadRole]:
    """What the map calls each head."""
    out = {}
    if "kind" in result.data:
        for place in head_places(result.data["x"]):
            kind = result.data["kind"].sel(dict(zip((STACK, LAYER, HEAD), place, strict=True))).item()
            if isinstance(kind, str) and kind != "other":
                words = "broad" if kind == "broad" else f"attends to the {said(kind).removeprefix('the ')}"
                out[place] = HeadRole(words, _FAMILIES.get(kind, "none"))
    return out


REPORT = LensReport(
    title="Which heads are alike",
    chapter=READING,
    figures=figures,
    findings=findings,
    compared=(),
    roles=roles,
    meaning=("by", "smoothing"),
    rank=-4,
)
