"""What is said of long work, on stderr: its cost beforehand; then a bar in a terminal, or a line from time to time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

EVERY = 15.0
"""Seconds between two lines where there is no terminal."""
SLOW = 20.0
"""Tokens a second below which seconds a text say more."""
ONE = {"texts": "text", "copies": "copy", "steps": "step"}
"""What is counted, in the singular."""


def tell_cost(what: str, cost: str) -> None:
    """Say what something takes before it starts."""
    print(f"{what}: {cost}.", file=sys.stderr, flush=True)


def bars(console: "Console") -> "Progress":
    """A bar, the count, the time left; any further text gets the remaining width."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    said = TextColumn("{task.description} {task.fields[said]}", table_column=Column(ratio=1, no_wrap=True))
    width = 40 if console.width >= 110 else 12
    return Progress(
        BarColumn(bar_width=width), MofNCompleteColumn(), TimeRemainingColumn(), said, console=console, expand=True
    )


class Lines:
    """Occasional lines for logs: how far, how fast, and how long it will take."""

    def __init__(self, what: str, total: int | None, unit: str, done: int = 0) -> None:
        self.what, self.total, self.unit, self.first = what, total, unit, done
        self.began = self.last = time.monotonic()

    def advance(self, done: int, said: str = "") -> None:
        """Print a line if one is due."""
        now = time.monotonic()
        if now - self.last < EVERY or done <= self.first:
            return
        self.last = now
        unit = ONE[self.unit] if (self.total or done) == 1 else self.unit
        parts = [f"{done:,}{'' if self.total is None else f' of {self.total:,}'} {unit}", said]
        if self.total is not None and done < self.total:
            left = (now - self.began) / (done - self.first) * (self.total - done)
            parts.append(f"{int(left) // 60}:{int(left) % 60:02d} left")
        print(f"{self.what}: {', '.join(filter(None, parts))}", file=sys.stderr, flush=True)


@contextmanager
def progress_bar(
    what: str, total: int | None, *, enabled: bool = True, unit: str = "texts"
) -> Iterator[Callable[..., None]]:
    """Yields a function to call with (texts, tokens) as they are done; texts that are skipped do not count as speed."""
    if not enabled:
        yield lambda *_, **__: None
        return
    from rich.console import Console

    console, began = Console(stderr=True), time.monotonic()
    done = texts_done = tokens_done = 0
    shown: Any = bars(console) if console.is_terminal else None
    lines = Lines(what, total, unit)
    task = None if shown is None else shown.add_task(what, total=total, said="")

    def advance(texts: int, tokens: int, *, skipped: bool = False) -> None:
        nonlocal done, tokens_done, texts_done
        done += texts
        if not skipped:
            texts_done, tokens_done = texts_done + texts, tokens_done + tokens
        speed = _speed(texts_done, tokens_done, time.monotonic() - began, unit)
        if shown is not None:
            shown.update(task, advance=texts, said=speed)
        elif not skipped:
            lines.advance(done, speed)

    if shown is None:
        yield advance
        return
    with shown:
        yield advance


def _speed(texts: int, tokens: int, seconds: float, unit: str) -> str:
    """Tokens a second; where a lens takes many passes and they are few, seconds a text."""
    if seconds <= 0.5 or not tokens:
        return ""
    return (
        f"{tokens / seconds:,.0f} tokens/s" if tokens / seconds >= SLOW else f"{seconds / texts:,.1f} s a {ONE[unit]}"
    )
