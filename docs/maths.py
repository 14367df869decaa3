"""Formulas on the site: TeX becomes MathML when the site is built, so that a page needs neither a script nor a network.

Sphinx's own renderers fetch MathJax from elsewhere or draw pictures with LaTeX; every browser of today shows MathML.
"""

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def inline(translator, node):
    translator.body.append(convert(node.astext()))
    raise SkipNode


def displayed(translator, node):
    """One line per formula; `aligned` inside it may break it."""
    translator.body.append(f'<div class="formula">{convert(node.astext(), display="block")}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
