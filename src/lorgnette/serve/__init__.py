"""The live page: type a sentence, see all views, switch heads off, compare two models.

schemas   → what is asked and answered (pydantic), which is what OpenAPI says
guard    → who may ask: Host, Origin, token, size; and the headers of every answer
work     → one working thread and the queue before it
answers  → responses that are kept: equal requests are computed once
models   → models loaded without blocking the page
app      → the addresses
server   → slow clients are dropped, Ctrl-C ends
page.html, live.css, live.js → the page; it uses the modules of `lorgnette.reporting.views`
"""

from lorgnette.serve.app import make_app
from lorgnette.serve.guard import Access
from lorgnette.serve.models import Models

__all__ = ["Access", "Models", "make_app"]
