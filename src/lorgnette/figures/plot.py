"""`Plot`: a chart that shows itself in a notebook and writes itself to a file."""

import hashlib
import json
import os
from html import escape
from pathlib import Path

import altair as alt

from lorgnette.constraints import checked
from lorgnette.display import NotebookDisplay
from lorgnette.errors import UserError, near
from lorgnette.figures.drawing import FORMATS, drawn, inline_svg, renderer
from lorgnette.files import written_whole
from lorgnette.types import Chart


class Plot(NotebookDisplay):
    """A chart that a notebook displays; `save` writes it as .svg, .png (300 dpi), .pdf or .html.

        >>> results["weights"].plot("entropy").save("entropy.svg").name
        'entropy.svg'

    `chart` is the Altair chart, which you can modify or combine with others. The files need no network.
    """

    chart: alt.TopLevelMixin
    title: str

    def __init__(self, chart: alt.TopLevelMixin, title: str) -> None:
        self.chart, self.title = chart, title

    def __repr__(self) -> str:
        return f"Plot({self.title!r})"

    @checked
    def save(self, path: str | os.PathLike[str], *, width: str | int | float | None = None) -> Path:
        """Write the file atomically; its suffix determines the format.

        `width`: "column" (240 points), "page" (500), or points: the chart is at most that wide, with 8-point letters.

        >>> results["weights"].plot("entropy").save("entropy.svg", width="column").name
        'entropy.svg'
        """
        path, known = Path(path), (*FORMATS, "html")
        ending = path.suffix.removeprefix(".").lower()
        if ending not in known:
            raise UserError(f"A plot cannot be saved as {path.name!r}.{near(ending, known)} Give .{', .'.join(known)}.")
        if ending == "html" and width is not None:
            raise UserError(f"A width is for paper: save the plot as .{', .'.join(FORMATS)}.")
        renderer()
        content = _page(self).encode() if ending == "html" else drawn(self.chart, ending, width=width)
        with written_whole(path) as partial:
            partial.write_bytes(content)
        return path

    @classmethod
    def below_each_other(cls, charts: dict[str, Chart], title: str) -> "Plot":
        """Several charts below each other with their titles, each with its own scales."""
        named = [chart.properties(title=name) for name, chart in charts.items()]
        if len(named) == 1:
            return cls(named[0], title)
        return cls(alt.vconcat(*named).resolve_scale(color="independent"), title)


def plot_html(plot: Plot) -> str:
    """The drawing as SVG; ids differ between charts, since several cells of a notebook stand on one page."""
    known = hashlib.sha256(json.dumps(plot.chart.to_dict(), sort_keys=True).encode()).hexdigest()[:8]
    return inline_svg(plot.chart, f"lorgnette-{known}-", plot.title)


def _page(plot: Plot) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(plot.title)}</title></head>\n<body>{plot_html(plot)}</body></html>\n"
    )
