"""Numbers of every stack of every model, by signal: how it ranks heads one at a time, and what its order saves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean

from lorgnette.types import Json
from reproductions.frame.finished import Finished, Measured
from reproductions.which_signal.grid import SHARES

REFERENCE = "zero"
"""Heads are removed by setting their output to zero, singly as well as together."""
HALF = 0.5
NAMES = {
    "minilm": "MiniLM",
    "e5-small": "e5-small",
    "opus-mt-en-fr": "opus-mt en–fr",
    "marian-small": "marian-small en–fr",
    "smollm2-135m": "SmolLM2-135M",
}
CORPORA = {"sst2": "SST-2", "hatexplain": "HateXplain", "multi30k": "Multi30k", "wikitext2": "WikiText-2"}
RANDOM = "random"


@dataclass(frozen=True)
class Place:
    """A model on a corpus."""

    model: str
    corpus: str

    @property
    def name(self) -> str:
        return f"{NAMES.get(self.model, self.model)}, {CORPORA.get(self.corpus, self.corpus)}"


Reading = Callable[[Place, str, str], float | None]
"""A number of a stack of a model, by signal."""


class Readings:
    """Means over seeds, for every place and stack."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        self.shares: list[float] = list(SHARES)
        self.places = list(dict.fromkeys(Place(str(c.labels["model"]), str(c.labels["corpus"])) for c in cells))

    @cached_property
    def signals(self) -> list[str]:
        """Those that some cell has, in the order of the lenses; ablations last."""
        names = [name for cell in self.cells for part in cell.result["stacks"].values() for name in part["signals"]]
        return list(dict.fromkeys(names))

    def stacks(self, place: Place) -> list[str]:
        return list(self._cells(place)[0].result["stacks"])

    def rho(self, place: Place, stack: str, signal: str, how: str = REFERENCE) -> float | None:
        """Spearman's ρ with the change of the loss without each head, on other texts.

        `how` says what stands in place of its output: zero, or its mean, which no free constant moves.
        """
        return self._mean(place, stack, lambda part: part["signals"].get(signal, {}).get(f"spearman_{how}"))

    def ceiling(self, place: Place, stack: str, signal: str) -> float | None:
        return self._mean(place, stack, lambda part: part["signals"].get(signal, {}).get(f"ceiling_{REFERENCE}"))

    def change(self, place: Place, stack: str, signal: str, share: float = HALF, metric: str = "loss") -> float | None:
        """What removing that share of the heads by this signal does to the loss, or to accuracy."""
        at = self.shares.index(share)

        def read(part: Json) -> float | None:
            values = part["signals"].get(signal, {}).get("values", ())
            if len(values) > 1 and len(set(values)) == 1:
                return (
                    None  # the same for all heads: an order by it is that of the model (direct effects of an encoder)
                )
            numbers = part["removed"].get(signal, {}).get(metric)
            return None if numbers is None else numbers[at]

        return self._mean(place, stack, read)

    def intact(self, place: Place, metric: str) -> float | None:
        stack = self.stacks(place)[0]
        return self._mean(place, stack, lambda part: part["intact"].get(metric))

    def saved(self, place: Place, stack: str, signal: str, share: float = HALF) -> float | None:
        """Share of the damage of random sets that the signal's order avoids: 1 − Δ / Δ_random."""
        own, random = (self.change(place, stack, name, share) for name in (signal, RANDOM))
        return None if own is None or random is None or random <= 0 else 1 - own / random

    def of_places(self, read: Reading, signal: str, stacks: Sequence[str] | None = None) -> list[float | None]:
        """One number for every place: the mean over its stacks, None where it has none."""
        out: list[float | None] = []
        for place in self.places:
            own = [stack for stack in self.stacks(place) if stacks is None or stack in stacks]
            values = [value for stack in own if (value := read(place, stack, signal)) is not None]
            out.append(mean(values) if values else None)
        return out

    def every(self) -> Iterator[tuple[Place, str]]:
        for place in self.places:
            for stack in self.stacks(place):
                yield place, stack

    def _cells(self, place: Place) -> list[Measured]:
        return self.cells.of(model=place.model, corpus=place.corpus)

    def _mean(self, place: Place, stack: str, read: Callable[[Json], float | None]) -> float | None:
        values = [read(cell.result["stacks"][stack]) for cell in self._cells(place)]
        known = [value for value in values if value is not None]
        return mean(known) if known else None


def title(stack: str) -> str:
    return {"cross": "cross-attention"}.get(stack, stack)


def words(signal: str) -> str:
    return signal.replace("_", " ")
