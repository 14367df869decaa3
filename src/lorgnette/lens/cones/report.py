"""What the pages show of cones: the angles between classes, and the texts of each class in the cone of each."""

from collections.abc import Iterator

import numpy as np

from lorgnette.axes import DIRECTION, DIRECTION_B, LABEL
from lorgnette.figures import charts
from lorgnette.figures.doubt import extreme_of
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import GEOMETRY, LensReport
from lorgnette.results import Result
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    matrices = (
        ("class_cosine", DIRECTION_B, "Cosine between the mean directions of the classes"),
        ("cosine", LABEL, "Mean cosine of a class's texts with a representative of each class"),
    )
    drawn = []
    for name, across, title in matrices:
        rows = result.to_dataframe(name).dropna(subset=[name])
        if len(rows):
            caption = "1: same direction; 0: orthogonal; −1: opposite."
            chart = charts.class_matrix(rows, DIRECTION, across, name)
            drawn.append(Figure(name, title, caption, chart, rows, rows))
    return drawn


def findings(result: Result) -> Iterator[Finding]:
    """How well the direction of one text of a class tells the class, and the angle between classes."""
    auroc = result.data["auroc"].dropna(DIRECTION)
    if not auroc.sizes[DIRECTION]:
        return
    classes = [str(name) for name in auroc[DIRECTION].values]
    worst = extreme_of(result.data.dropna(DIRECTION, subset=["auroc"]), "auroc", DIRECTION, largest=False)
    numbers: Json = {"mean": float(auroc.mean()), "least": worst.value, "worst": classes[worst.place]}
    words = (
        "In {mean:.0%} of comparisons, a text of a class is closer (cosine) to a representative of the class than a "
        f"text of another class is (mean over classes; lowest for {{worst}}, {{least:.0%}}"
        f"{worst.beside(classes, 'below')})"
    )
    between = result.data["class_cosine"].transpose(DIRECTION, DIRECTION_B).values
    other = between[np.eye(*between.shape) == 0]
    if np.isfinite(other).any():
        numbers["cosine"] = float(np.nanmean(other))
        words += "; the mean directions of two classes have a mean cosine of {cosine:.2f}"
    yield Finding(words + ".", numbers)


REPORT = LensReport(
    title="Class directions",
    chapter=GEOMETRY,
    figures=figures,
    findings=findings,
    meaning=("representative", "keep", "vector"),
)
