"""What every head reads in one text, to be looked at: head, matrix, model, text, tree and compare view.

pack   → a trace as a small JSON document: weights as bytes, deflated
page   → the document and the views (ES modules beside this file) as one HTML file, or as a cell of a notebook
"""

from lorgnette.reporting.views.pack import pack
from lorgnette.reporting.views.page import notebook_html, page_html, write_page

__all__ = ["notebook_html", "pack", "page_html", "write_page"]
