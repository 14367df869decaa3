"""Pages and figures from results; knows nothing of models.

cells      → numbers of a result as records for a chart, rows for a table
charts     → one result, one Altair chart
sections   → which charts a result has: by its lens, and for a lens that is not known a heat map per variable
heads      → the charts and sentences about single heads: roles, importance, agreement
syntax     → those about trees, relations, coreference
flow       → those about what goes where: frequency, rollout, gradients, relevance, alignment
shape      → those about the shape of vectors: geometry, cones, convexity, probes
trust      → those about explanations: rationales
pruning    → the order in which heads could go
chapters   → what belongs together, and the order of the page
findings   → the sentences at the top, with their numbers
drawing    → a chart as SVG for the page, or as PNG, SVG or PDF for a paper
atlas      → a card per head; seen, examples → the texts in which heads can be seen
page       → `Report`: one HTML file
compare    → two runs, head by head; comparison → the page on it
views      → one text, token by token: this part, and `notebook`, does know traces
"""

from lorgnette.figures.charts import categories_by_layer, head_map, heat_map, layer_curves
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding
from lorgnette.report import flow, shape, trust
from lorgnette.report.comparison import Comparison
from lorgnette.report.examples import examples_of
from lorgnette.report.findings import findings, findings_for
from lorgnette.report.heads import role_map, signal_matrix
from lorgnette.report.page import Report, figures
from lorgnette.report.sections import figures_for, figures_of
from lorgnette.report.syntax import best_relations, best_trees

__all__ = [
    "Comparison",
    "Figure",
    "Finding",
    "Report",
    "best_relations",
    "best_trees",
    "categories_by_layer",
    "examples_of",
    "figures",
    "figures_for",
    "figures_of",
    "findings",
    "findings_for",
    "flow",
    "head_map",
    "heat_map",
    "layer_curves",
    "role_map",
    "shape",
    "signal_matrix",
    "trust",
]
