"""How things show themselves: the drawing lies above what is drawn, so it is named here, not imported."""

import os
from collections.abc import Mapping
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from lorgnette.errors import UserError

if TYPE_CHECKING:
    from lorgnette.figures.plot import Plot
    from lorgnette.reporting.overlay import Overlay

_DRAWN_BY = {
    "Trace": ("lorgnette.reporting.notebook", "trace_html"),
    "Result": ("lorgnette.reporting.notebook", "result_html"),
    "Results": ("lorgnette.reporting.notebook", "results_html"),
    "Report": ("lorgnette.reporting.notebook", "report_html"),
    "Figure": ("lorgnette.reporting.notebook", "figure_html"),
    "Sources": ("lorgnette.reporting.sources", "sources_html"),
    "Views": ("lorgnette.reporting.views.bare", "views_html"),
    "Plot": ("lorgnette.figures.plot", "plot_html"),
}
_PLOTTED_BY = {
    "Trace": ("lorgnette.reporting.plots", "trace_plot"),
    "Result": ("lorgnette.reporting.plots", "result_plot"),
    "Sources": ("lorgnette.reporting.sources", "sources_plot"),
    "LensCallback": ("lorgnette.reporting.plots", "steps_plot"),
}


def html_of(thing: object) -> str:
    """The HTML of a trace, a result or a report: it needs no network."""
    module, name = _DRAWN_BY[type(thing).__name__]
    return str(getattr(import_module(module), name)(thing))


def plot_of(thing: object, *what: object, **selection: object) -> "Plot":
    """A chart of a result, a trace or a training."""
    module, name = _PLOTTED_BY[type(thing).__name__]
    made: Plot = getattr(import_module(module), name)(thing, *what, **selection)
    return made


def overlay_of(trace: object, layer: int, head: int, **what: object) -> "Overlay":
    """What a head reads of the picture of a trace."""
    made: Overlay = import_module("lorgnette.reporting.overlay").overlay_of(trace, layer, head, **what)
    return made


def page_of(trace: object, path: str | os.PathLike[str]) -> Path:
    """Writes the views of a trace as one page."""
    return Path(import_module("lorgnette.reporting.notebook").trace_page(trace, path))


def sources_page_of(sources: object, path: str | os.PathLike[str]) -> Path:
    """Writes what an answer used as one page."""
    return Path(import_module("lorgnette.reporting.sources").sources_page(sources, path))


class NotebookDisplay:
    """Something that shows itself in Jupyter."""

    def show(self) -> None:
        """Draw it here, in a notebook: what the last line of a cell does by itself."""
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            shell = None
        else:
            shell = get_ipython()
        if shell is None:
            raise UserError("show() works only in a notebook: write a file instead.")
        display(self)

    def _repr_html_(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


class Facts:
    """Something small that shows itself in Jupyter as a table of what is to be known of it."""

    def facts(self) -> Mapping[str, object]:
        """Names and values to display; a value of None is left out."""
        raise NotImplementedError

    def __repr__(self) -> str:
        known = (f"{name} {value}" for name, value in self.facts().items() if value is not None)
        return f"{type(self).__name__}({'; '.join(known)})"

    def _repr_html_(self) -> str:
        known = {name: value for name, value in self.facts().items() if value is not None}
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in known.items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{rows}</table>"
