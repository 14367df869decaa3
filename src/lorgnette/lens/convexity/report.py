"""What the pages show of convexity: how much of the cone that the values span attention uses."""

from collections.abc import Iterator

import numpy as np

from lorgnette.figures.doubt import head_extreme
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import HALF, Finding, heads
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    titles = {
        "used": "Share of the values' cone that attention uses",
        "distance": "Distance of a head's output from the uniform average of the values",
        "cone_widest": "Width of the cone of the values (radians)",
    }
    return titled_figures(result, titles) or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    """How much of the cone is used, and the heads that do hardly more than average."""
    ranked = heads(result.data["distance"])
    if not ranked:
        return
    most, names = head_extreme(result.data, "distance")
    numbers = {
        "used": float(result.data["used"].mean()),
        "near": sum(one.value < HALF for one in ranked),
        "heads": len(ranked),
        "least": str(ranked[-1]),
        "most": str(ranked[0]),
        "widest": float(np.degrees(result.data["cone_widest"].mean())),
    }
    yield Finding(
        "For {near} of {heads} heads, the output differs from the uniform average of the values by less than half of "
        "the length of that average (from {least} to "
        f"{{most}}{most.beside(names)}); attention uses {{used:.0%}} of the cone that the values span (mean width "
        "{widest:.0f}°).",
        numbers,
    )


REPORT = LensReport(
    title="How far attention departs from uniform averaging",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(Compared("used", "share of the cone used"), Compared("distance", "distance from the uniform average")),
)
