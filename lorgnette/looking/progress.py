"""A progress bar on stderr that says how fast it goes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(what: str, total: int | None, *, enabled: bool = True) -> Iterator[Callable[..., None]]:
    """Yields a function to call with (texts, tokens) as they are done; texts that are skipped do not count as speed."""
    if not enabled:
        yield lambda *_, **__: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns: list[Any] = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    ]
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(what, total=total, speed="")
        seen = 0

        def advance(texts: int, tokens: int, *, skipped: bool = False) -> None:
            nonlocal seen
            seen += 0 if skipped else tokens
            elapsed = bars.tasks[task].elapsed or 0.0
            speed = f"{seen / elapsed:,.0f} tokens/s" if elapsed > 0.5 and seen else ""
            bars.update(task, advance=texts, speed=speed)

        yield advance
