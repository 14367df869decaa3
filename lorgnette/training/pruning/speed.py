"""How much faster a model with fewer heads is, beside how much faster it could be."""

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

SECONDS = 4.0
"""How long two models are timed."""


@dataclass(frozen=True)
class SpeedUp:
    """Times of one forward pass before and after, measured in turns, and the share of the operations that went."""

    before: float
    after: float
    saved: float

    @property
    def measured(self) -> float:
        return self.before / self.after

    @property
    def possible(self) -> float:
        """If time were proportional to multiplications and additions."""
        return 1 / (1 - self.saved)


def operations(model: Any, batch: Mapping[str, Tensor]) -> int:
    """Multiplications and additions of the matrix products of one forward pass."""

    def fused(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return sdpa_flop_count(query, key, value)

    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused}
    with FlopCounterMode(display=False, custom_mapping=mapping) as counter, torch.no_grad():
        model(**batch)
    return int(counter.get_total_flops())


def speed_up(whole: Any, pruned: Any, batch: Mapping[str, Tensor]) -> SpeedUp:
    """Passes over one batch, whole and pruned in turns for some seconds; medians."""
    saved = 1 - operations(pruned, batch) / operations(whole, batch)
    times: dict[int, list[float]] = {0: [], 1: []}
    until = time.perf_counter() + SECONDS
    with torch.inference_mode():
        while len(times[1]) < 3 or time.perf_counter() < until:
            for number, model in enumerate((whole, pruned)):
                times[number].append(_timed(model, batch))
    return SpeedUp(statistics.median(times[0][1:]), statistics.median(times[1][1:]), saved)


def _timed(model: Any, batch: Mapping[str, Tensor]) -> float:
    start = time.perf_counter()
    model(**batch)
    if batch["input_ids"].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
