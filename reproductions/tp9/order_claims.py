"""Whether positions are what a model needs to read word order and negation."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float

from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.statistics import mean_of
from reproductions.tp9.grid import BLOCKS, ORDERED

NAMES = {"sst2": "SST-2 sentences", "imdb": "IMDB reviews"}
POSITIONS = {
    "none": "no positions",
    "sinusoidal": "sinusoidal positions",
    "scaled": "sinusoidal positions with a smaller factor",
    "relative": "relative positions",
    "learnt": "learnt positions",
}
UNCHANGED = 0.001
"""Of the answers: what may differ by the rounding of a sum in another order."""
_ORDER = Published("without positions there is no notion of sequence, a problem for negation", "section 3")
Seeds = Float[np.ndarray, " seed"]


class Orders:
    """The models that were asked about word order, by corpus, block and positions."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells.where(step="order")

    def of(self, path: str, corpus: str, family: str, positions: str) -> Seeds:
        found = self.cells.of(corpus=corpus, family=family, positions=positions)
        return np.array([cell.value(path) for cell in found], dtype=float)

    def lost(self, *where: str) -> Seeds:
        """Accuracy as written less accuracy shuffled."""
        return np.asarray(self.of("shuffled.whole", *where) - self.of("shuffled.accuracy", *where))

    def places(self) -> Iterator[tuple[str, str]]:
        """Corpus and block of which two seeds of models without positions are there."""
        for corpus, family in product(NAMES, BLOCKS):
            if len(self.of("shuffled.whole", corpus, family, "none")) > 1:
                yield corpus, family

    def positions(self, corpus: str, family: str) -> list[str]:
        """Kinds of positions that have as many seeds as the models without."""
        whole = len(self.of("shuffled.whole", corpus, family, "none"))
        return [one for one in ORDERED if one != "none" and len(self.of("pairs.right", corpus, family, one)) == whole]


def order_claims(cells: Finished) -> Iterator[Claim]:
    orders = Orders(cells)
    for corpus, family in orders.places():
        yield _blind(orders, corpus, family)
        for positions in orders.positions(corpus, family):
            yield from _sighted(orders, corpus, family, positions)
    yield from _balanced(cells)


def _balanced(cells: Finished) -> Iterator[Claim]:
    """Contrast pairs without what a preference for early or late words does."""
    for family, positions in product(BLOCKS, ORDERED):
        found = cells.of(step="pairs", family=family, positions=positions)
        if len(found) < 2:
            continue
        sides = {side: np.mean([cell.value(f"pairs.denied_{side}") for cell in found]) for side in ("first", "last")}
        yield Claim(
            id=f"order-balanced-sst2-{family}-{positions}",
            text=f"{NAMES['sst2']}, {family}, {POSITIONS[positions]}: more than half of the contrast pairs are ranked "
            "correctly, those with the denied word first and last counting alike",
            estimate=mean_of([cell.value("pairs.balanced") for cell in found]),
            bound=Bound.above(0.5),
            published=_ORDER,
            note=f"denied word first {sides['first']:.2f}, last {sides['last']:.2f}; added when the pairs themselves "
            "were known",
        )


def _blind(orders: Orders, corpus: str, family: str) -> Claim:
    where = (corpus, family, "none")
    right = orders.of("pairs.right", *where)
    return Claim(
        id=f"order-blind-{corpus}-{family}",
        text=f"{NAMES[corpus]}, {family}: without positions, shuffling the words changes no answer (share of changed "
        f"answers below {UNCHANGED})",
        estimate=mean_of(orders.of("shuffled.changed", *where)),
        bound=Bound.below(UNCHANGED),
        published=_ORDER,
        note=f"contrast pairs right: {right.mean():.3f}",
    )


def _sighted(orders: Orders, corpus: str, family: str, positions: str) -> Iterator[Claim]:
    where, none = (corpus, family, positions), (corpus, family, "none")
    name, said = f"{NAMES[corpus]}, {family}", POSITIONS[positions]
    whole, mixed = (orders.of(f"shuffled.{which}", *where).mean() for which in ("whole", "accuracy"))
    about: dict[str, Any] = {"published": _ORDER}
    yield Claim(
        id=f"order-shuffled-{corpus}-{family}-{positions}",
        text=f"{name}, {said}: accuracy is lost when the words are shuffled",
        estimate=mean_of(orders.lost(*where)),
        bound=Bound.above(0.0),
        note=f"{whole:.3f} → {mixed:.3f}; {orders.of('shuffled.changed', *where).mean():.1%} of the answers change",
        **about,
    )
    yield Claim(
        id=f"order-pairs-{corpus}-{family}-{positions}",
        text=f"{name}, {said}: more than half of the contrast pairs (“not bad, it was good” against “not good, it was "
        "bad”) are ranked correctly",
        estimate=mean_of(orders.of("pairs.right", *where)),
        bound=Bound.above(0.5),
        note=f"{int(orders.of('pairs.pairs', *where)[0])} pairs; without positions every one is a tie",
        **about,
    )
    gains = {part: orders.of(f"negation.{part}", *where) - orders.of(f"negation.{part}", *none) for part in _PARTS}
    yield Claim(
        id=f"order-negation-{corpus}-{family}-{positions}",
        text=f"{name}, {said}: they add more accuracy on sentences with a negation than on others (SST-2, difference "
        "of the two gains, by seed)",
        estimate=mean_of(gains["with"] - gains["without"]),
        bound=Bound.above(0.0),
        note=f"gain {gains['with'].mean():+.3f} with a negation, {gains['without'].mean():+.3f} without one",
        **about,
    )


_PARTS = ("with", "without")
