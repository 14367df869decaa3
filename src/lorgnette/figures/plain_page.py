"""A page of one answer: a sentence, a drawing and tables, as one file that needs no network."""

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lorgnette.figures.drawing import can_draw
from lorgnette.figures.plot import Plot, plot_html
from lorgnette.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.15rem .7rem;text-align:right}"
    "th:first-child,td:first-child{text-align:left}pre{white-space:pre-wrap}mark{background:#0072b22e;color:inherit}"
    "mark.first{background:#d55e0059}"
)


def write_page(path: str | os.PathLike[str], title: str, body: str) -> Path:
    """A page with this body, in HTML."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><h1>{escape(title)}</h1>{body}"
        "</body></html>\n"
    )
    return write_whole(path, page)


def write_answer(
    path: str | os.PathLike[str], title: str, said: str, plot: Plot, tables: "Mapping[str, pd.DataFrame]"
) -> Path:
    """A page of what was found: in a sentence, drawn (where charts can be drawn), and as tables with their titles."""
    drawn = plot_html(plot) if can_draw() else ""
    rows = "".join(f"<h2>{escape(name)}</h2>{_table(frame)}" for name, frame in tables.items())
    return write_page(path, title, f"<p>{escape(said)}</p>{drawn}{rows}")


def _table(frame: "pd.DataFrame") -> str:
    made = frame.to_html(index=False, border=0, na_rep="–", escape=True, float_format=lambda value: f"{value:.4f}")
    return str(made).replace(">-", ">−")
