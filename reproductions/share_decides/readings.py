"""Leads of one signal over another, by model and share; a model on a corpus counts once."""

from collections.abc import Sequence
from statistics import mean

from reproductions.frame.finished import Finished, Measured
from reproductions.share_decides.grid import PLACES, SHARES

HALF = 0.5
RANDOM = "random"
NAMES = {"minilm": "MiniLM", "e5-small": "e5-small", "opus-mt-fr-en": "opus-mt fr–en"}
CORPORA = {"imdb": "IMDB", "esnli": "e-SNLI", "yelphat": "YelpHat", "multi30k": "Multi30k"}
Place = tuple[str, str]


class Readings:
    """Means over seeds, then over the stacks of a model."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells
        every = [(model, corpus.partition(":")[0]) for model, corpus in PLACES]
        self.places: list[Place] = [place for place in every if self._cells(place)]
        self.shares: Sequence[float] = SHARES

    def seeds(self, place: Place) -> int:
        return len(self._cells(place))

    def stacks(self, place: Place) -> list[str]:
        return list(self._cells(place)[0].result["stacks"])

    def intact(self, place: Place, metric: str) -> float | None:
        """Of the model with all its heads."""
        values = [cell.result["intact"].get(metric) for cell in self._cells(place)]
        return None if None in values else mean(values)

    def change(self, place: Place, stack: str, signal: str, share: float, metric: str = "loss") -> float:
        """What is lost without that share of the heads of a stack, the least important by the signal."""
        at = list(self.shares).index(share)
        removed = [cell.result["stacks"][stack]["removed"][signal] for cell in self._cells(place)]
        return mean(float(one[metric][at]) for one in removed)

    def lead(self, place: Place, one: str, other: str, share: float) -> float:
        """By how much less is lost by the first signal, over what random sets of half of the heads lose."""
        return mean(
            (self.change(place, s, other, share) - self.change(place, s, one, share)) / self._unit(place, s)
            for s in self.stacks(place)
        )

    def saved(self, place: Place, signal: str, share: float) -> float:
        """Share of the damage of random sets of as many heads that the signal avoids, as in which_signal."""
        return mean(
            1 - self.change(place, s, signal, share) / self.change(place, s, RANDOM, share) for s in self.stacks(place)
        )

    def leads(self, one: str, other: str, share: float) -> list[float]:
        return [self.lead(place, one, other, share) for place in self.places]

    def _unit(self, place: Place, stack: str) -> float:
        return self.change(place, stack, RANDOM, HALF)

    def _cells(self, place: Place) -> list[Measured]:
        model, corpus = place
        return self.cells.of(model=model, corpus=corpus)


def name(place: Place) -> str:
    model, corpus = place
    return f"{NAMES[model]}, {CORPORA[corpus]}"
