"""Pages from results: what is generic. What a lens shows is in its own room, `lorgnette/lens/<lens>/report.py`.

contents   → what a page says of results, and in which order: found from their lenses
atlas      → a card per head, with an example; examples → the texts in which heads can be seen
page       → `Report`: one HTML file
compare    → two runs, head by head; comparison → the page on it
views      → one text, token by token: this part, and `notebook`, does know traces
"""

from lorgnette.figures.charts import categories_by_layer, head_map, heat_map, layer_curves
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.figures.lens_report import LensReport
from lorgnette.figures.variables import variable_figure
from lorgnette.reporting.comparison import Comparison
from lorgnette.reporting.contents import figures_of, findings
from lorgnette.reporting.examples import examples_of
from lorgnette.reporting.page import Report, figures

__all__ = [
    "Comparison",
    "Figure",
    "Finding",
    "LensReport",
    "Report",
    "categories_by_layer",
    "examples_of",
    "figures",
    "figures_of",
    "findings",
    "head_map",
    "heat_map",
    "layer_curves",
    "variable_figure",
]
