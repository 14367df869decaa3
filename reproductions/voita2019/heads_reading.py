"""The finished cells of the heads part as arrays, and the statistics that are read off them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from lorgnette.statistics.rank_agreement import spearman_matrix, within_groups
from reproductions.frame.readings import array
from reproductions.voita2019.heads import MAPS, MULTI30K, TRAINED
from reproductions.voita2019.pruning_reading import Interval

PREFIX = "heads-"
STACKS = {"encoder": "encoder self", "decoder": "decoder self", "cross": "decoder-encoder"}
THREE = ("positional", "syntactic", "rare")
"""The functions of the paper."""
GRADIENT, ABLATION = "gradient", "loss without"
_DRAWS = 2000
Blocks = Float[np.ndarray, "block layer head"]
HeadMap = Float[np.ndarray, "layer head"]


@dataclass(frozen=True)
class Looked:
    """All that the cells gave, by key without the prefix."""

    done: Mapping[str, Any]

    @cached_property
    def found(self) -> dict[str, Any]:
        return {key.removeprefix(PREFIX): result for key, result in self.done.items()}

    def blocks(self, name: str, stack: str, corpus: str = MULTI30K, condition: str = TRAINED) -> Blocks | None:
        """A map of one stack in every block of texts; None where its cell was not run."""
        for key in (f"maps-{corpus}-{condition}-{name}", f"maps-{corpus}-{condition}"):
            cell = self.found.get(key)
            if cell is not None and name in cell["maps"]:
                return array(cell["maps"][name])[:, cell["stacks"].index(stack)]
        return None

    def without(self, what: str, stack: str) -> Blocks | None:
        """`change` of the loss without each head, or `gradient`, by block."""
        cells = [cell for key, cell in sorted(self.found.items()) if key.startswith("without-")]
        blocks = [array(cell[what])[cell["stacks"].index(stack)] for cell in cells]
        known = [block for block in blocks if not np.isnan(block).all()]  # some cells are about one stack
        return np.array(known) if known else None

    def signals(self, stack: str) -> dict[str, Blocks]:
        """Every number there is for each head of a stack: confidence, relevance by each rule, gradient, ablation."""
        given = {name: self.blocks(name, stack) for name in MAPS}
        given |= {GRADIENT: self.without("gradient", stack), ABLATION: self.without("change", stack)}
        return {name: blocks for name, blocks in given.items() if blocks is not None}

    def roles(self, corpus: str, condition: str = TRAINED) -> "Roles | None":
        cell = self.found.get(f"roles-{corpus}-{condition}")
        return None if cell is None else Roles(cell)


@dataclass(frozen=True)
class Roles:
    """What a `roles` cell found."""

    cell: Mapping[str, Any]

    def number(self, role: str, part: str, stack: str = "encoder", what: str = "number") -> HeadMap:
        whole = array(self.cell[what])[self.cell["stacks"].index(stack)]
        return whole[..., self.cell["roles"].index(role), self.cell["parts"].index(part)]

    def label(self, role: str, stack: str = "encoder") -> np.ndarray:
        whole = np.array(self.cell["label"], dtype=bool)[self.cell["stacks"].index(stack)]
        return whole[..., self.cell["roles"].index(role)]

    def words(self, stack: str) -> list[list[str]]:
        """The labels of each head as text."""
        return [list(row) for row in self.cell["words"][self.cell["stacks"].index(stack)]]

    def best(self, role: str) -> tuple[int, int]:
        """The encoder head that is best in the development part (from 0)."""
        found = np.nan_to_num(self.number(role, "development"), nan=-1.0)
        layer, head = np.unravel_index(int(found.argmax()), found.shape)
        return int(layer), int(head)

    def held_out(self, role: str, place: tuple[int, int]) -> Interval:
        """Its number in the other part, with the interval."""
        low, value, high = (
            float(self.number(role, "held_out", what=what)[place]) for what in ("number_low", "number", "number_high")
        )
        return Interval(value, (low, high))

    @property
    def chance(self) -> float:
        return float(self.cell["rare_chance"][1])

    def relation(self, relation: str, way: str) -> Mapping[str, Any] | None:
        """The best head for a relation and way, and the best offset, in the held-out part."""
        rows = self.cell.get("relations", ())
        return next((row for row in rows if (row["relation"], row["way"]) == (relation, way)), None)


def excess(row: Mapping[str, Any]) -> Interval:
    """Accuracy less that of the best offset; the errors of both are taken as independent."""
    errors = [(row[f"{name}high"] - row[f"{name}low"]) / 3.92 for name in ("", "baseline_")]
    value, half = row["accuracy"] - row["baseline"], 1.96 * float(np.hypot(*errors))
    return Interval(value, (value - half, value + half))


def top_shares(blocks: Blocks, top: int = 2) -> Float[np.ndarray, " block"]:
    """Share of all relevance, regardless of sign, that the `top` heads of a layer have; mean over layers.

    Which heads these are is decided by the other half of the blocks, so that noise alone gives top / heads.
    """
    out = np.empty(len(blocks))
    for half in (0, 1):
        first = np.argsort(-np.abs(blocks[1 - half :: 2].mean(axis=0)), axis=-1)[:, :top]
        size = np.abs(blocks[half::2])
        chosen = np.take_along_axis(size, np.broadcast_to(first, (len(size), *first.shape)), axis=-1)
        out[half::2] = (chosen.sum(axis=-1) / size.sum(axis=-1)).mean(axis=-1)
    return out


def over_blocks(statistic: Callable[..., float], *maps: Blocks, seed: int = 0) -> Interval:
    """A statistic of mean maps, with the interval of a bootstrap over blocks; maps of equal length are drawn together.

    It says what other texts would give.
    """
    dice = np.random.default_rng(seed)
    value = statistic(*(blocks.mean(axis=0) for blocks in maps))
    drawn = []
    for _ in range(_DRAWS):
        chosen = {size: dice.integers(size, size=size) for size in sorted({len(blocks) for blocks in maps})}
        drawn.append(statistic(*(blocks[chosen[len(blocks)]].mean(axis=0) for blocks in maps)))
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(value), (float(low), float(high)))


def place_in_layer(values: HeadMap, place: tuple[int, int]) -> int:
    """1 for the head with the largest number of its layer."""
    layer, head = place
    return 1 + int((values[layer] > values[layer, head]).sum())


def correlation(one: HeadMap, other: HeadMap) -> Interval:
    """ρ of ranks within layers; the interval from a bootstrap over heads."""
    rho, bounds = correlations({"one": one, "other": other})
    return Interval(float(rho[0, 1]), (float(bounds[0, 0, 1]), float(bounds[1, 0, 1])))


def correlations(maps: Mapping[str, HeadMap]) -> tuple[np.ndarray, np.ndarray]:
    """The same of every two maps, and both ends of the intervals."""
    values = np.array([values.ravel() for values in maps.values()])
    layers, heads = next(iter(maps.values())).shape
    return spearman_matrix(within_groups(values, np.repeat(np.arange(layers), heads)), draws=_DRAWS)


def reliability(blocks: Blocks) -> float:
    """ρ within layers between the two halves of the texts, stepped up to all of them (Spearman-Brown)."""
    if len(blocks) < 2:
        return float("nan")
    half = correlation(blocks[::2].mean(axis=0), blocks[1::2].mean(axis=0)).value
    return 2 * half / (1 + half) if half > 0 else 0.0
