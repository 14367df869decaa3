"""What the pages show of convexity: how much of the cone that the values span attention uses."""

from collections.abc import Iterator

import numpy as np

from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import HALF, Finding, heads
from lorgnette.figures.lens_report import GEOMETRY, Compared, LensReport
from lorgnette.figures.variables import figure_per_variable, titled_figures
from lorgnette.results import Result


def figures(result: Result) -> list[Figure]:
    titles = {
        "used": "How much of the values' cone attention uses",
        "distance": "How far what a head gives lies from the plain mean of the values",
        "cone_widest": "How wide the cone of the values is (radians)",
    }
    return titled_figures(result, titles) or figure_per_variable(result)


def findings(result: Result) -> Iterator[Finding]:
    """How much of the cone is used, and the heads that do hardly more than average."""
    ranked = heads(result.data["distance"])
    if not ranked:
        return
    numbers = {
        "used": float(result.data["used"].mean()),
        "near": sum(one.value < HALF for one in ranked),
        "heads": len(ranked),
        "least": str(ranked[-1]),
        "most": str(ranked[0]),
        "widest": float(np.degrees(result.data["cone_widest"].mean())),
    }
    yield Finding(
        "Attention uses {used:.0%} of the cone that the values span ({widest:.0f}° wide on average); what {near} of "
        "{heads} heads give lies within half a length of the plain mean of the values, from {least} to {most}.",
        numbers,
    )


REPORT = LensReport(
    title="How much of the values' cone attention uses",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    compared=(Compared("used"), Compared("distance")),
)
