"""Error rates of places and ways of reading, chosen on one half of the sentences and judged on the other."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from lorgnette.looking.controls import RANDOM, TRAINED
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import percentile
from reproductions.norms_align.grid import MODELS
from reproductions.norms_align.measure import MEASURES, READINGS, RULES, error_rate

__all__ = ["BLOCKS", "LEVELS", "MEASURES", "RANDOM", "READINGS", "RULES", "RULE_NAMES", "WAYS", "Readings"]
BLOCKS = "blocks of pairs"
LEVELS = ("heads", "layers")
DRAWS = 2000
RULE_NAMES = {
    "target": "a source word for each target word",
    "source": "a target word for each source word",
    "both": "links on which both agree",
    "either": "links that either has",
}
Way = tuple[str, str]
"""Reading and rule."""
WAYS: tuple[Way, ...] = tuple(product(READINGS, RULE_NAMES))
Blocks = Int[np.ndarray, "block count"]
"""|A∩S|, |A∩P|, |A| and |S| of each block."""


def rate(counts: Int[np.ndarray, "*rest count"]) -> np.ndarray:
    """AER of counts with |S| behind them."""
    return error_rate(counts[..., :3], counts[..., 3])


class Readings:
    """What the cells say of one condition; half 0 are the blocks of even number."""

    def __init__(self, cells: Finished, condition: str = TRAINED) -> None:
        self.cells, self.condition = cells, condition
        self.directions = [one for one in MODELS if cells.of(direction=one, condition=condition)]

    def cell(self, direction: str) -> xr.Dataset:
        cell: xr.Dataset = self.cells.one(direction=direction, condition=self.condition)
        return cell

    def counts(self, direction: str, level: str, measure: str, way: Way) -> Int[np.ndarray, "block place count"]:
        """Of all places (heads or layers) read in one way."""
        reading, rule = way
        cell = self.cell(direction)
        found = cell[level].sel(measure=measure, reading=reading)
        if rule == "either":  # |A ∪ B| = |A| + |B| − |A ∩ B|, and so for the links in S and in P
            found = found.sel(rule="target") + found.sel(rule="source") - found.sel(rule="both")
        else:
            found = found.sel(rule=rule)
        places = [dim for dim in ("layer", "head") if dim in found.dims]
        values = found.transpose("block", *places, "count").to_numpy()
        values = values.reshape(len(values), -1, values.shape[-1])
        sure = np.broadcast_to(cell["sure"].to_numpy()[:, None, None], (*values.shape[:2], 1))
        return np.concatenate([values, sure], -1)

    def rates(self, direction: str, level: str, measure: str, way: Way) -> Float[np.ndarray, " place"]:
        """AER of all places over all sentences."""
        return rate(self.counts(direction, level, measure, way).sum(0))

    def chosen(self, direction: str, level: str, measure: str, ways: Sequence[Way]) -> list[tuple[Way, int]]:
        """The way and place of fewest errors on the other half, for half 0 and half 1."""
        every = [self.counts(direction, level, measure, way) for way in ways]
        best = []
        for half in (0, 1):
            found = np.array([rate(counts[1 - half :: 2].sum(0)) for counts in every])
            way, place = np.unravel_index(found.argmin(), found.shape)
            best.append((ways[int(way)], int(place)))
        return best

    def held_out(self, direction: str, level: str, measure: str, ways: Sequence[Way]) -> Blocks:
        """Counts of each block, read as was best on the half to which it does not belong."""
        out = np.zeros((self.cell(direction).sizes["block"], 4), dtype=int)
        for half, (way, place) in enumerate(self.chosen(direction, level, measure, ways)):
            out[half::2] = self.counts(direction, level, measure, way)[half::2, place]
        return out

    def baseline(self, direction: str, name: str) -> Blocks:
        cell = self.cell(direction)
        return np.column_stack([cell["baselines"].sel(baseline=name).to_numpy(), cell["sure"].to_numpy()])


def gap(first: Blocks, second: Blocks) -> Estimate:
    """AER of the first less that of the second, over all blocks; the same blocks are drawn for both."""
    return mean_gap(first[:, None], second[:, None])


def one_rate(counts: Blocks) -> Estimate:
    drawn = rate(_sums(counts))
    return percentile(float(drawn[0]), drawn[1:], n=len(counts), over=BLOCKS)


def mean_gap(first: Int[np.ndarray, "block place count"], second: Int[np.ndarray, "block place count"]) -> Estimate:
    """Mean over places of the AER of the first less that of the second."""
    drawn = (rate(_sums(first)) - rate(_sums(second))).mean(-1)
    return percentile(float(drawn[0]), drawn[1:], n=len(first), over=BLOCKS)


def _sums(counts: Int[np.ndarray, "block *place count"]) -> Int[np.ndarray, "draw *place count"]:
    """Summed over all blocks, and then over as many drawn with replacement, the same in every call (Efron 1979)."""
    blocks = len(counts)
    drawn = np.random.default_rng(0).integers(blocks, size=(DRAWS, blocks))
    times = np.stack([np.bincount(one, minlength=blocks) for one in [np.arange(blocks), *drawn]])
    return np.tensordot(times, counts, 1)
