"""`lo.report` and `lo.compare`: the commands as functions."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from lorgnette.constraints import check
from lorgnette.errors import UserError
from lorgnette.figures.drawing import known_formats, renderer
from lorgnette.figures.width import known_width
from lorgnette.reporting.comparison import Comparison
from lorgnette.reporting.page import Report
from lorgnette.reporting.page import figures as draw
from lorgnette.results import Result, Results

Run = str | os.PathLike[str] | Results


def report(
    run: Run | Result | Mapping[str, Results],
    out: str | os.PathLike[str] | None = None,
    *,
    figures: str | Sequence[str] | None = None,
    width: str | int | float | None = None,
    figure: str | None = None,
    title: str | None = None,
) -> list[Path]:
    """Write results as one HTML page that needs no network: the command `lorgnette report`.

        >>> [path.name for path in lo.report(results, "bert.html")]
        ['bert.html']
        >>> folder = results.save("runs/bert")
        >>> page, *files = lo.report(folder, figures="svg")          # runs/bert/report.html, runs/bert/figures/…
        >>> both = lo.report({"before": results, "after": results}, "both.html")    # several subjects on one page

    `run` is the folder of a run, or the results that `lo.look` returned; results in memory need `out`. Figures are at
    most `width` wide ("column", "page", or points); `figure` ("weights-mass") writes only that one. Returns the files
    that were written, the page first.
    """
    if figures is None and (width is not None or figure is not None):
        figures = "pdf"
    formats = None if figures is None else known_formats(figures)
    if formats is not None:
        renderer()
    points = None if width is None else known_width(width)
    check(figure, str | None, "The name of the figure")
    page = Report(run, title=title).write(_page(run) if out is None else out)
    if formats is None:
        return [page]
    return [page, *draw(run, page.parent / "figures", formats, width=points, only=figure)]


def _page(run: Run | Result | Mapping[str, Results]) -> Path:
    if not isinstance(run, str | os.PathLike):
        raise UserError("These results are in memory: say where the page goes, lo.report(results, 'report.html').")
    return Path(run) / "report.html"


def compare(before: Run, after: Run, out: str | os.PathLike[str] | None = None) -> Comparison:
    """What differs between two runs of models of the same shape: the command `lorgnette compare`.

        >>> compared = lo.compare(results, results, "compare.html")
        >>> "confidence" in compared.differences().results["weights"].data      # after − before, with intervals
        True

    A run is a folder, or the results that `lo.look` returned. With `out`, the page is written too.

    What it does not tell you: why they differ, or whether a significant difference matters.
    """
    compared = Comparison.of(before, after)
    if out is not None:
        compared.write(out)
    return compared
