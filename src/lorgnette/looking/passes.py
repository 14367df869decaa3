"""Run one batch through the model under the lenses; if it does not fit into memory, its halves."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

import torch

from lorgnette.errors import Unreplayable, UserError
from lorgnette.kernels import recordings
from lorgnette.lens.base import Lens
from lorgnette.looking.driver import Driver
from lorgnette.looking.texts import Analysed
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.sides import Encoded

if TYPE_CHECKING:
    from lorgnette.gpu.recording import CheckedPass, Recordings

SIGNS = (
    "out of memory",  # CUDA, HIP, MPS
    "can't allocate memory",  # the allocator of the CPU
    "not enough memory",  # … on Windows
    "bad_alloc",
    "ALLOC_FAILED",  # cuBLAS, cuDNN, cuSPARSE
    "could not create a primitive",  # oneDNN
    "could not create a memory",
    "Cannot allocate memory",  # the operating system
)


def out_of_memory(error: BaseException) -> bool:
    """Whether this error means that memory ran out, which libraries report in many ways."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error) for sign in SIGNS)


def let_go() -> None:
    """Free unused memory: reference cycles that hold tensors, and blocks that the GPU's allocator has cached."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def memory_given_back() -> Iterator[None]:
    """What is taken of a GPU inside is free for others afterwards; use it around a function that holds lenses.

    Lenses and recordings are in cycles. They are found in a moment, as nothing that was there before is searched.
    """
    if not torch.cuda.is_available():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        gc.unfreeze()
        torch.cuda.empty_cache()


STEP = 32
"""Where passes are recorded, the lengths of batches are multiples of so many tokens."""


class Passes:
    """Runs the batches of a corpus through a model, one after the other."""

    def __init__(self, subject: Subject, lenses: Sequence[Lens]) -> None:
        self.driver = Driver(subject, lenses)
        self.recordings: Recordings | None = recordings(subject, lenses, self.driver.paths)
        self.launched = Event()
        """Whether any pass has been launched."""
        self.analysed = Analysed()
        """The texts that the states hold, while `batches` is not None."""
        self.batches: int | None = 0
        """How many batches have gone through; None while one of them is only partly in the states."""
        self._without: int | None = 0
        """The value of `batches` if the current texts are discarded."""

    @property
    def step(self) -> int:
        """Lengths of batches are multiples of this: for recorded passes, few shapes matter more than little padding."""
        return 1 if self.recordings is None else STEP

    def close(self) -> None:
        """Drop the recordings and free their memory."""
        if self.recordings is not None:
            self.recordings.close()
        self.recordings = None

    def take(self, encoded: list[Encoded], batch: Batch | None = None, number: int = 0) -> None:
        """These texts, as this batch, the one after `number` others.

        Halves run once the failed batch is forgotten: an exception holds, by its traceback, all that did not fit.
        """
        waiting, self._without = [encoded], self.batches
        while waiting:
            texts = waiting.pop()
            fitted = self._fitted(texts, batch if texts is encoded else None)
            if fitted:
                continue
            let_go()
            half = (len(texts) + 1) // 2
            waiting += [texts] if fitted is None else [texts[half:], texts[:half]]
        self.analysed.add(encoded)
        self.batches = number + 1

    def count(self, encoded: list[Encoded], number: int) -> None:
        """Count texts without a token, which do not go through the model."""
        self.batches = None
        self.analysed.add(encoded)
        self.batches = number + 1

    def _fitted(self, encoded: list[Encoded], batch: Batch | None) -> bool | None:
        """Whether the batch went through; if not, the states are as before it. None: it should be tried once more.

        Memory ran out, or the pass of such batches cannot be recorded, which is not tried again.
        """
        before = self.driver.snapshot()
        self.batches = None
        try:
            checked = self._look_at(self.driver.subject.encoder.collate(encoded) if batch is None else batch)
        except BaseException as error:
            self.driver.discard(before)
            self.batches = self._without
            self.close()  # what was recorded adds to states that are not there any more, and takes memory
            if isinstance(error, Unreplayable):
                return None
            if not out_of_memory(error):
                raise
            if len(encoded) == 1:
                raise _too_large(encoded[0], error) from error
            return False
        self._without = None  # from here on, these texts are in the states for good
        if checked is not None:
            checked.commit()
        self.driver.commit()  # what is left, if some of it was replayed
        return True

    def _look_at(self, batch: Batch) -> "CheckedPass | None":
        """One pass, watched by the lenses. Returns how it ran, if not in the usual way."""
        checked = None if self.recordings is None else self.recordings.ready(batch, self.driver.run)
        batch = batch.to(self.driver.subject.device) if checked is None else checked.taken(batch)
        self.driver.begin(batch)
        if checked is None:
            self.driver.run(batch)
        else:
            checked.run()
        self.launched.set()
        return checked


def _too_large(text: Encoded, error: BaseException) -> UserError:
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(
        f"The text {text.example.id!r} ({text.tokens} tokens) does not fit into memory by itself ({first}). "
        "Split it, use --truncate, or a machine with more memory."
    )
