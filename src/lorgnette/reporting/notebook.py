"""What a notebook shows of a trace and of results: the same components as the report, offline."""

import os
from html import escape
from pathlib import Path

from lorgnette.figures.drawing import inline_svg
from lorgnette.figures.figure import Figure
from lorgnette.figures.sentences import counted_texts
from lorgnette.reporting.contents import figures_of
from lorgnette.reporting.page import Report
from lorgnette.reporting.views.gather import document_of
from lorgnette.reporting.views.page import notebook_html, write_page
from lorgnette.results import Result, Results
from lorgnette.subject.trace import Trace

FRAME = "width: 100%; height: 900px; border: 0; resize: vertical"
MOST_FIGURES = 2  # of a result; the report has them all


def trace_html(trace: Trace) -> str:
    """All views of the text, with the default explanations where the model predicts something."""
    return notebook_html(document_of(trace))


def trace_page(trace: Trace, path: str | os.PathLike[str]) -> Path:
    """The page of a trace as a file."""
    return write_page(document_of(trace), path)


def result_html(result: Result) -> str:
    """The first figures of the result, what its variables are, and the first rows of its table."""
    origin = result.provenance
    head = f"{result.lens}: {origin.model} on {origin.corpus}, {counted_texts(origin.texts)}, {origin.tokens:,} tokens"
    rows = "".join(
        f"<tr><td>{escape(str(name))}</td><td>{escape(' × '.join(map(str, array.dims)) or '·')}</td>"
        f"<td>{escape(str(array.attrs.get('description', '')))}</td></tr>"
        for name, array in result.data.data_vars.items()
    )
    columns = "<tr><th>variable</th><th>axes</th><th>what it is</th></tr>"
    preview = result.to_dataframe().head(8).to_html(index=False, escape=True, border=0, na_rep="–")
    details = f"<details><summary>Variables and numbers</summary><table>{columns}{rows}</table>{preview}</details>"
    return f"<div><p><b>{escape(head)}</b></p>{_figures(result)}{details}</div>"


def results_html(results: Results) -> str:
    return "".join(map(result_html, results.values()))


def report_html(report: Report) -> str:
    """The page in a frame of its own, which can neither see the notebook around it nor reach the network."""
    page = escape(report.html(), quote=True)
    what = f'sandbox="allow-scripts allow-downloads" title="Lorgnette" loading="lazy" style="{FRAME}" srcdoc="{page}"'
    return f"<iframe {what}></iframe>"


def figure_html(figure: Figure) -> str:
    svg = inline_svg(figure.chart, f"lorgnette-figure-{figure.name}-", figure.title)
    return f"<figure><figcaption><b>{escape(figure.title)}</b> {escape(figure.caption)}</figcaption>{svg}</figure>"


def _figures(result: Result) -> str:
    out = []
    for place, figure in enumerate(figures_of(result)[:MOST_FIGURES]):
        # Several cells of a notebook stand on one page: ids must differ, and be the same for the same result.
        svg = inline_svg(figure.chart, f"lorgnette-{result.lens}-{place}-", figure.title)
        out.append(f"<figure><figcaption>{escape(figure.title)}</figcaption>{svg}</figure>")
    return "".join(out)
