"""Formulas on the site: TeX becomes MathML when the site is built, so that a page needs neither a script nor a network.

Sphinx's own renderers fetch MathJax from elsewhere or draw pictures with LaTeX; every browser of today shows MathML.
"""

import re

from docutils.nodes import SkipNode
from latex2mathml.converter import convert


def mathml(tex: str, display: str = "inline") -> str:
    """The bars of a norm or a modulus as brackets, and a thin space between log and its argument, as TeX sets them."""
    tex = re.sub(r"(?<!\\left)(\\l[vV]ert)(?![a-zA-Z])", r"\\left\1", tex)
    tex = re.sub(r"(?<!\\right)(\\r[vV]ert)(?![a-zA-Z])", r"\\right\1", tex)
    return re.sub(
        r"(<mi>(?:log|ln|exp)</mi>)(?=<m(?!o))", r'\1<mspace width="0.167em" />', convert(tex, display=display)
    )


def inline(translator, node):
    translator.body.append(mathml(node.astext()))
    raise SkipNode


def displayed(translator, node):
    """One line per formula: browsers centre the columns of `align`, and latex2mathml prints the & of `aligned`."""
    translator.body.append(f'<div class="formula">{mathml(node.astext(), "block")}</div>')
    raise SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (displayed, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
