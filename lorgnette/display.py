"""How things show themselves in a notebook: the drawing lies above what is drawn, so it is named here, not imported."""

from importlib import import_module
from typing import Any

_DRAWN_BY = {
    "Trace": ("lorgnette.reporting.notebook", "trace_html"),
    "Result": ("lorgnette.reporting.notebook", "result_html"),
    "Results": ("lorgnette.reporting.notebook", "results_html"),
}


def html_of(thing: Any) -> str:
    """The HTML of a trace or a result: it needs no network."""
    module, name = _DRAWN_BY[type(thing).__name__]
    return str(getattr(import_module(module), name)(thing))


class NotebookDisplay:
    """Something that shows itself in Jupyter."""

    def _repr_html_(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
