"""Batches prepared ahead: in the background for a GPU, so that it never waits for the tokenizer."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TypeVar

from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.sides import Encoded

T = TypeVar("T")
DEPTH = 8
"""The number of batches prepared ahead."""
PATIENCE = 0.25
"""Seconds that the next batch waits for the first to be launched, at most."""


def prepared(
    subject: Subject,
    stream: Iterable[list[Encoded]],
    *,
    launched: Event,
    words: bool = False,
    step: int = 1,
) -> Iterator[tuple[list[Encoded], Batch | None]]:
    """Batches as texts and as tensors, in their order; texts without a token make no tensors.

    `launched`: set once a pass was launched. `words`: on a GPU, also find their words, which a lens will want; those of
    the first batch while the GPU works on it. `step`: pad to multiples of it.
    """
    on_gpu = subject.device.type == "cuda"

    def made() -> Iterator[tuple[list[Encoded], Batch | None]]:
        for number, encoded in enumerate(stream):
            batch = subject.encoder.collate(encoded, step) if len(encoded[0].source) > 0 else None
            if batch is not None and on_gpu and words:
                for side in filter(None, (batch.source, batch.target)):
                    _ = side.occurrences if number else side.word  # made now, so that nobody waits for them
            yield encoded, batch.pinned() if batch is not None and on_gpu else batch
            if batch is not None and on_gpu:
                launched.wait(PATIENCE)  # a second Python thread would hold up the recording of a pass

    return ahead(made(), DEPTH) if on_gpu else made()


def ahead(stream: Iterator[T], depth: int) -> Iterator[T]:
    """Make the items in one background thread, at most `depth` of them ahead."""
    end = object()
    with ThreadPoolExecutor(1) as worker:
        waiting = deque(worker.submit(next, stream, end) for _ in range(min(2, depth)))
        while (item := waiting.popleft().result()) is not end:
            waiting.extend(worker.submit(next, stream, end) for _ in range(min(2, depth - len(waiting))))
            yield item  # type: ignore[misc]
