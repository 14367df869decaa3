"""The live page: type a sentence, see all views, switch heads off, compare two models.

schemas  → requests and responses (pydantic), from which OpenAPI's description is made
guard    → checks of every request (Host, Origin, token, size), and the headers of every answer
work     → one working thread, its queue, and the cache of responses
models   → models loaded without blocking the page
app      → the addresses
server   → slow clients are dropped, Ctrl-C ends
page.html, live.css, live.js → the page; it uses the modules of `lorgnette.reporting.views`
"""

from lorgnette.serve.app import make_app
from lorgnette.serve.guard import Access
from lorgnette.serve.models import Models

__all__ = ["Access", "Models", "make_app"]
