"""Real Chromium: Playwright drives the one that the system has."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The browser to drive: LORGNETTE_CHROMIUM, or the first that is installed."""
    return os.environ.get("LORGNETTE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


# Not for the session: Playwright's event loop would run on under the tests of other modules, which have their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = chromium()
    if found is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium), so no page was opened in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield running
        running.close()


class Watched:
    """A page with everything that it said or asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: message.type in ("error", "warning") and self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.requests.append(request.url))

    def outside(self) -> list[str]:
        """Requests that are neither the page nor something inside it."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:", "about:"))]


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    """Opens pages in a window of its own: `opened(width=…, scheme=…)`."""
    contexts = []

    def open_page(width: int = 1280, height: int = 900, scheme: str = "light", **more: Any) -> Watched:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **more)
        context.set_default_timeout(20_000)
        contexts.append(context)
        return Watched(context.new_page())

    yield open_page
    for context in contexts:
        context.close()
