"""The cells of the pruning part as curves of BLEU by heads left, and the statistics of which heads stay."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean
from typing import Any

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float

from lorgnette.training.gates.gates import STRETCH, VOITA
from lorgnette.training.gates.hard_concrete import probability_one, probability_open
from reproductions.frame.claims import Estimate
from reproductions.frame.finished import Finished, MissingCell
from reproductions.frame.statistics import percentile
from reproductions.voita2019.grid import RELEASED
from reproductions.voita2019.heads import STACKS

CURVES = {
    "opus-encoder": "opus-mt, encoder alone",
    "opus-all": "opus-mt, all attentions",
    "opus-encoder-long": "opus-mt, encoder alone, trained longer",
    "opus-all-long": "opus-mt, all attentions, trained longer",
    "small-all": "marian-small, all attentions",
    "small-scratch": "marian-small, gates from scratch",
}
DATA = {"wmt": "WMT", "opensubtitles": "OpenSubtitles"}
"""What the paper's models were trained on: with --published they have curves too, by these names."""
_OF_THE_PAPER = {"encoder": "encoder alone", "all": "all attentions", "scratch": "gates from scratch"}
CURVES |= {f"{data}-{what}": f"{title}, {said}" for data, title in DATA.items() for what, said in _OF_THE_PAPER.items()}
LONGER = "-long"
_SCRATCH = "-scratch"
PATTERNS_OF = {"opus-encoder": ("tuned", {}), "opus-all": ("tuned", {}), "small-all": ("small", {"languages": "en-fr"})}
PATTERNS_OF |= {
    f"{data}-{what}": ("small", {"languages": RELEASED[data]}) for data in DATA for what in ("encoder", "all")
}
"""Which cell says what the encoder heads of a curve's model look at: kind, and further labels."""
SURE = 0.9
"""The probability of 0 or of 1 above which a gate has converged."""
POSITIONAL, MOSTLY = 0.9, 0.5
"""Shares of argmaxes on one pattern: the paper's criterion for a positional head, and half of them."""
ROLES = ("positional", "mostly positional", "rarest word", "end of sentence", "none of these")
TEST = "test"


@dataclass(frozen=True)
class Point:
    """A model with some heads left. λ is 0 for the unpruned model and None for an encoder without heads."""

    strength: float | None
    cell: Mapping[str, Any]
    alive: xr.DataArray
    """1 where a head stays [stack layer head]; stacks that the curve does not prune are whole."""
    pruned: Sequence[str]

    def heads(self, stack: str) -> int:
        return int(self.alive.sel(stack=stack).sum())

    @property
    def left(self) -> int:
        """Heads left in the stacks that the curve prunes."""
        return int(self.alive.sel(stack=list(self.pruned)).sum())

    @property
    def share(self) -> float:
        return self.left / self.alive.sel(stack=list(self.pruned)).size

    @property
    def label(self) -> str:
        return "no encoder heads" if self.strength is None else f"{self.strength:g}"

    def bleu(self, split: str = TEST) -> float:
        return float(self.cell["scores"][split]["bleu"])

    @property
    def draws(self) -> Float[np.ndarray, " draw"]:
        """BLEU on each draw of the test sentences; the draws are the same for all models."""
        return np.array(self.cell["scores"][TEST]["draws"])

    @cached_property
    def control(self) -> "Point | None":
        """As many heads, chosen at random."""
        return Point(self.strength, self.cell["control"], self.alive, self.pruned) if "control" in self.cell else None

    def minus(self, other: "Point") -> Estimate:
        """BLEU less that of another on the same sentences: paired bootstrap (Koehn 2004)."""
        return less(self.cell["scores"][TEST], other.cell["scores"][TEST])

    @property
    def undecided(self) -> int:
        """Heads on which the two rules of removal do not agree."""
        rules = self.cell.get("gates", {}).get("kept_by")
        return 0 if rules is None else abs(rules["code"] - rules["paper"])

    @property
    def unfinished(self) -> int | None:
        """Gates that have not converged: neither 0 nor 1 has a probability above .9; None without gates."""
        alpha = self.cell.get("gates", {}).get("log_alpha")
        if alpha is None:
            return None
        values = torch.tensor([value for rows in alpha.values() for row in rows for value in row], dtype=torch.float64)
        one = probability_one(values, VOITA, STRETCH)
        none = 1 - probability_open(values, VOITA, STRETCH)
        return int(((one <= SURE) & (none <= SURE)).sum())

    @property
    def gates(self) -> int:
        return sum(len(row) for rows in self.cell["gates"]["log_alpha"].values() for row in rows)


def less(one: Mapping[str, Any], other: Mapping[str, Any]) -> Estimate:
    """The same from two scores as they are in cells."""
    apart = np.array(one["draws"]) - np.array(other["draws"])
    return percentile(one["bleu"] - other["bleu"], apart, n=one["texts"], over="sentences")


@dataclass(frozen=True)
class Curve:
    """The whole model first, then every λ, then, where it was run, the encoder without heads."""

    name: str
    points: Sequence[Point]

    @staticmethod
    def of(cells: Finished, name: str) -> "Curve":
        """Gates from scratch stand beside the unpruned model of the other training, and need it."""
        whole = cells.one(curve=other(name) if from_scratch(name) else name, strength=0.0)
        pruned = ["encoder"] if "encoder" in name else list(whole["kept"])
        results = {cell.labels["strength"]: cell.result for cell in cells.of(curve=name)} | {0.0: whole}
        order = sorted(results, key=lambda strength: np.inf if strength is None else strength)
        return Curve(name, [Point(s, results[s], _alive(results[s]["kept"], whole["kept"]), pruned) for s in order])

    @property
    def title(self) -> str:
        return CURVES[self.name]

    @property
    def whole(self) -> Point:
        return self.points[0]

    @property
    def gated(self) -> list[Point]:
        """Those with a λ."""
        return [point for point in self.points if point.strength]

    @property
    def some_left(self) -> list[Point]:
        """Those that lost some heads and not all."""
        return [point for point in self.gated if 0.05 < point.share < 0.95]

    def best_with(self, most: float = 1 / 3) -> Point | None:
        """Of the points with at most so large a share of heads left, the best on the validation sentences."""
        sparse = [point for point in self.gated if point.share <= most]
        return max(sparse, key=lambda point: point.bleu("validation"), default=None)

    def sparsest_within(self, loss: float = 1.0) -> Point | None:
        """The sparsest point that loses at most so much BLEU on the validation sentences."""
        good = [p for p in self.gated if p.bleu("validation") >= self.whole.bleu("validation") - loss]
        return min(good, key=lambda point: point.left, default=None)

    def at(self, heads: int) -> tuple[float, Float[np.ndarray, " draw"]]:
        """BLEU at a number of heads, on the line between the neighbours, and the same of every draw of sentences."""
        ordered = sorted((p for p in self.points if p.strength is not None), key=lambda point: point.left)
        left = [point.left for point in ordered]
        draws = np.array([point.draws for point in ordered]).T
        value = float(np.interp(heads, left, [point.bleu() for point in ordered]))
        return value, np.array([np.interp(heads, left, column) for column in draws])

    def reaches(self, point: Point) -> bool:
        """Whether a number of heads lies within this curve."""
        left = [one.left for one in self.points if one.strength is not None]
        return len(left) > 1 and min(left) <= point.left <= max(left)


def from_scratch(name: str) -> bool:
    return name.endswith(_SCRATCH)


def other(name: str) -> str:
    """All attentions of the trained model, for the curve from scratch; and the other way round."""
    return name.replace(_SCRATCH, "-all") if from_scratch(name) else name.replace("-all", _SCRATCH)


def data_of(name: str) -> str:
    """The data of the paper whose numbers stand beside a curve: its own, or WMT."""
    return next((data for data in DATA if name.startswith(f"{data}-")), "wmt")


def of_the_paper(name: str) -> bool:
    """Whether a curve is of the paper's own setting."""
    return name.startswith(tuple(f"{data}-" for data in DATA))


def curves(cells: Finished) -> list[Curve]:
    """Those that were begun."""
    out = []
    for name in CURVES:
        try:
            out.append(Curve.of(cells, name))
        except MissingCell:
            continue
    return out


def survival(points: Sequence[Point]) -> xr.DataArray:
    """1 where a head stays [point stack layer head]."""
    return xr.concat([point.alive for point in points], "point")


def listed(points: Sequence[Point]) -> str:
    """Their λ."""
    return ", ".join(point.label for point in points)


def _alive(kept: Mapping[str, Any], whole: Mapping[str, Any]) -> xr.DataArray:
    layers, heads = len(whole["encoder"]), max(len(row) for row in whole["encoder"])
    out = np.zeros((len(STACKS), layers, heads))
    for number, stack in enumerate(STACKS):
        for layer, row in enumerate(kept.get(stack, whole[stack])):
            out[number, layer, row] = 1
    return xr.DataArray(out, dims=("stack", "layer", "head"), coords={"stack": list(STACKS)})


def patterns(cells: Finished, curve: str) -> xr.Dataset:
    """Where the encoder heads of the model before pruning look [layer head]."""
    kind, labels = PATTERNS_OF[curve]
    looked = cells.one(kind=kind, **labels)["patterns"]
    return xr.Dataset({name: (("layer", "head"), rows) for name, rows in looked.items() if isinstance(rows, list)})


def roles(looked: xr.Dataset) -> xr.DataArray:
    """The role of each head by where the largest weight of a word's row is; the first that fits."""
    near = np.max([looked[f"peak_{name}"] for name in ("previous", "next", "self")], axis=0)
    fits = [near >= POSITIONAL, near >= MOSTLY, looked["rarest"] >= MOSTLY, looked["peak_last"] >= MOSTLY]
    return looked["confidence"].copy(data=np.select(fits, ROLES[:4], ROLES[4]))


def clarity(looked: xr.Dataset) -> xr.DataArray:
    """The largest share of argmaxes on a neighbour or on the rarest word: the paper's roles but for syntax."""
    names = ("peak_previous", "peak_next", "rarest")
    return looked["confidence"].copy(data=np.max([looked[name] for name in names], axis=0))


def unfinished(**runs: Any) -> list[str]:
    """Which runs were at their best in their last epoch: they had not learnt all that they could."""
    return [name for name, run in runs.items() if run["best"]["epoch"] >= run["epochs"]]


def classifiers(cells: Finished) -> dict[tuple[str, str], list[Any]]:
    """(model, corpus) → the points of each seed."""
    models, sets = (cells.labels(name, kind="classes") for name in ("model", "corpus"))
    return {
        (model, corpus): [cell.result["points"] for cell in cells.of(kind="classes", model=model, corpus=corpus)]
        for model in models
        for corpus in sets
    }


def seed_means(seeds: Sequence[Any], first: str, second: str) -> list[float]:
    """For each seed the mean over λ of the difference of two test accuracies, where heads were removed at all."""
    pruned = [
        [point for point in points if point["lambda"] > 0 and point["heads"] < points[0]["heads"]] for points in seeds
    ]
    return [mean(point[first][TEST] - point[second][TEST] for point in points) for points in pruned if points]
