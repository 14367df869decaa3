"""How much smaller and faster a model with fewer heads is, beside what as many heads could save."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from lorgnette.attending import Site
from lorgnette.training.pruning.removal import remove_heads
from lorgnette.types import Json, PreTrainedModel

SECONDS = 4.0
"""How long two models are timed."""


@dataclass(frozen=True)
class SpeedUp:
    """Times of one forward pass before and after, measured in turns, and the share of the operations that went."""

    times: Float[np.ndarray, "pass 2"]
    saved: float

    @property
    def before(self) -> float:
        return float(np.median(self.times[:, 0]))

    @property
    def after(self) -> float:
        return float(np.median(self.times[:, 1]))

    @property
    def measured(self) -> float:
        """The median of before / after over pairs of passes, which follow each other: it lies within its spread."""
        return float(np.median(self.times[:, 0] / self.times[:, 1]))

    @property
    def spread(self) -> tuple[float, float]:
        """The middle half of before / after over pairs of passes."""
        low, high = np.quantile(self.times[:, 0] / self.times[:, 1], [0.25, 0.75])
        return float(low), float(high)

    @property
    def possible(self) -> float:
        """If time were proportional to multiplications and additions."""
        return 1 / (1 - self.saved)

    def record(self) -> Json:
        quartiles = np.quantile(1000 * self.times, [0.25, 0.5, 0.75], axis=0).T
        return {
            "measured": self.measured,
            "spread": list(self.spread),
            "possible": self.possible,
            "saved_operations": self.saved,
            "milliseconds": {"before": quartiles[0].tolist(), "after": quartiles[1].tolist()},
            "passes": len(self.times),
        }


@dataclass(frozen=True)
class Savings:
    """What a model saves against the whole one: parameters, bytes of its weights, operations, time."""

    parameters: tuple[int, int]
    bytes: tuple[int, int]
    speed: SpeedUp
    batch: tuple[int, int]
    """texts and tokens of the batch that was timed"""

    def record(self) -> Json:
        sizes = {"parameters": self.parameters, "bytes": self.bytes}
        both = {name: dict(zip(("before", "after"), pair, strict=True)) for name, pair in sizes.items()}
        return both | {"speed": self.speed.record() | {"batch": list(self.batch)}}


def savings(
    whole: PreTrainedModel, smaller: PreTrainedModel, batch: Mapping[str, Tensor], *, seconds: float | None = None
) -> Savings:
    """Count the parts of both models, and time them on one batch."""
    texts, tokens = batch["input_ids"].shape
    numbers = [sum(p.numel() for p in model.parameters()) for model in (whole, smaller)]
    sizes = [sum(p.numel() * p.element_size() for p in model.parameters()) for model in (whole, smaller)]
    speed = speed_up(whole, smaller, batch, seconds=seconds)
    return Savings((numbers[0], numbers[1]), (sizes[0], sizes[1]), speed, (int(texts), int(tokens)))


def forecast(
    whole: PreTrainedModel, heads: Mapping[Site, Sequence[int]], count: int, batch: Mapping[str, Tensor]
) -> Savings:
    """What keeping `count` of these heads can save: of a model without the others, whichever they will be.

    Heads of a stack have equal sizes, so that the numbers hold for any choice; layers are thinned evenly.
    """
    order = sorted((position, site) for site, numbers in heads.items() for position in range(len(numbers)))
    heads_left: dict[Site, list[int]] = {site: [] for site in heads}
    for position, site in order[:count]:
        heads_left[site].append(heads[site][position])
    return savings(whole, remove_heads(whole, heads_left), batch, seconds=SECONDS / 4)


def operations(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> int:
    """Multiplications and additions of the matrix products of one forward pass."""

    def fused(query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: object, **__: object) -> int:
        return sdpa_flop_count(query, key, value)

    mapping = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused}
    with _frozen(model), FlopCounterMode(display=False, custom_mapping=mapping) as counter, torch.no_grad():
        model(**batch)
    return int(counter.get_total_flops())


@contextmanager
def _frozen(model: PreTrainedModel) -> Iterator[None]:
    """No parameter needs a gradient: the counter refuses a module that is given one that does (DeBERTa's positions)."""
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learning:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)


def speed_up(
    whole: PreTrainedModel, pruned: PreTrainedModel, batch: Mapping[str, Tensor], *, seconds: float | None = None
) -> SpeedUp:
    """Passes over one batch, whole and pruned in turns for some seconds; the first pair warms up and is left out."""
    saved = 1 - operations(pruned, batch) / operations(whole, batch)
    times: list[list[float]] = []
    until = time.perf_counter() + (SECONDS if seconds is None else seconds)
    with torch.inference_mode():
        while len(times) < 4 or time.perf_counter() < until:
            times.append([_timed(model, batch) for model in (whole, pruned)])
    return SpeedUp(np.array(times[1:]), saved)


def _timed(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> float:
    start = time.perf_counter()
    model(**batch)
    if batch["input_ids"].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - start
