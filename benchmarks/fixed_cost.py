"""What a look costs beside its passes: checksums of weights, batches, states, tests of heads, results.

A decoder of many heads (32 layers of 32) and few numbers, on four short texts: nearly all of the time is such cost. In
seconds of one core, which other processes hardly disturb.
"""

import statistics
import time
from collections.abc import Iterator
from unittest.mock import patch

import torch
from transformers import LlamaConfig, LlamaModel

from benchmarks import shapes
from benchmarks.harness import Figure
from lorgnette.looking.driver import Driver
from lorgnette.looking.look import look
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

MANY_HEADS = {"hidden_size": 128, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
MANY_HEADS |= {"intermediate_size": 256}
TEXTS = 4
LENSES = ("weights", "norms", "sinks", "geometry")


def fixed_cost(repeats: int = 5) -> Iterator[Figure]:
    """Seconds of a look without those of its forward passes, in which lenses are told of every call."""
    before, run, passes = torch.get_num_threads(), Driver.run, 0.0

    def timed(driver: Driver, batch: Batch) -> ModelOutput:
        nonlocal passes
        start = time.process_time()
        try:
            return run(driver, batch)
        finally:
            passes += time.process_time() - start

    torch.set_num_threads(1)
    try:
        subject = shapes.subject(MANY_HEADS, made=lambda settings: LlamaModel(LlamaConfig(**settings)))
        texts = shapes.texts(TEXTS, 16)
        for lens in LENSES:
            beside, through = [], []
            with patch.object(Driver, "run", timed):
                for _ in range(repeats + 1):
                    start, passes = time.process_time(), 0.0
                    look(subject, texts, lens, progress=False)
                    beside.append(time.process_time() - start - passes)
                    through.append(passes)
            details = {"passes_s": round(statistics.median(through[1:]), 4), "heads": 1024, "texts": TEXTS}
            yield Figure(
                f"fixed_cost_{lens}_s", statistics.median(beside[1:]), 0.2, details=details
            )  # the first warms up
    finally:
        torch.set_num_threads(before)


BENCHES = {"fixed_cost": fixed_cost}
