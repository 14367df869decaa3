"""What the pages show of alignment: which head of the cross-attention links words as people do."""

from collections.abc import Iterator

from lorgnette.axes import HEAD, LAYER, MEASURE, READING
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads, written
from lorgnette.figures.lens_report import FUNCTION, Compared, LensReport
from lorgnette.figures.variables import titled_figures
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate
from lorgnette.types import Json


def figures(result: Result) -> list[Figure]:
    titles = {
        "aer": "Alignment error rate of each head (lower is better)",
        "layer_aer": "Alignment error rate of each layer (mean over heads)",
    }
    return titled_figures(result, titles)


def findings(result: Result) -> Iterator[Finding]:
    """The head whose links are nearest to the gold ones, by weights and by norms."""
    aer, best = result.data["aer"], {}
    for measure in aer[MEASURE].values.tolist():
        # The lowest error over both readings of the decoder's rows.
        cells = [
            (one.value, one.layer, one.head, reading)
            for reading in aer[READING].values.tolist()
            for one in heads(aer.sel({MEASURE: measure, READING: reading}))
        ]
        if cells:
            best[measure] = min(cells)
    if set(best) != {"weights", "norms"}:
        return
    numbers: Json = {"cells": int(aer.sel({MEASURE: "norms"}).notnull().sum())}
    for measure, (value, layer, head, reading) in best.items():
        at = {MEASURE: measure, READING: reading, LAYER: layer, HEAD: head}
        half = float(Estimate.of(result.data, "aer", at).half)
        numbers |= {measure: value, f"{measure}_head": f"{layer}.{head}", f"{measure}_row": f"{reading} row"}
        numbers[f"{measure}_half"] = written(half, ".1%") if half == half else "unknown"
    yield Finding(
        "Lowest alignment error rate of {cells} (heads, each by its output and its input row): head {norms_head} by "
        "norms ({norms:.1%} ± {norms_half}, {norms_row}), head {weights_head} by weights ({weights:.1%} ± "
        "{weights_half}, {weights_row}). The 95 % intervals over texts leave out that these are the lowest of many.",
        numbers,
    )


REPORT = LensReport(
    title="Word alignment in cross-attention",
    chapter=FUNCTION,
    figures=figures,
    findings=findings,
    compared=(
        Compared("aer", "alignment error rate of a head"),
        Compared("layer_aer", "alignment error rate of a layer"),
    ),
)
