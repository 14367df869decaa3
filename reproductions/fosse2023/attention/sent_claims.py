"""What makes the model send embeddings in a direction: claims about models of which a part is not trained."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from reproductions.fosse2023.grid import CORPORA, FROZEN, NAMES
from reproductions.frame.claims import Bound, Claim
from reproductions.frame.finished import Finished
from reproductions.frame.page import Table
from reproductions.frame.seeds import learnt, with_and_without
from reproductions.frame.statistics import SHARE, mean_of

BARELY = 0.02
"""Of accuracy: less is nothing lost, as for replaced weights."""
AGREES = 0.8
"""Share of texts on which single words say what the model says; fixed before any run."""
TITLES = {"words": "word vectors", "attention": "queries and keys", "values": "values and outputs"}
Seeds = Float[np.ndarray, " seed"]


class Sent:
    """The trainings by corpus and by what was not trained."""

    def __init__(self, cells: Finished) -> None:
        self.cells = cells.where(part="sent")

    def of(self, path: str, corpus: str, frozen: str = "nothing") -> Seeds:
        found = self.cells.of(corpus=corpus, frozen=frozen)
        return np.array([cell.value(path) for cell in found], dtype=float)

    def accuracy(self, corpus: str, frozen: str = "nothing") -> Seeds:
        return self.of("metrics.test.accuracy", corpus, frozen)

    def there(self, corpus: str) -> list[str]:
        """What was frozen in as many seeds as there are of the whole model; nothing for a single seed."""
        whole = len(self.accuracy(corpus))
        return [one for one in FROZEN if whole > 1 and len(self.accuracy(corpus, one)) == whole]


def sent_claims(cells: Finished) -> Iterator[Claim]:
    runs = Sent(cells)
    for corpus in CORPORA:
        there = runs.there(corpus)
        for frozen in (one for one in there if one != "nothing"):
            yield _needless(runs, corpus, frozen)
        if there:
            yield _alone(runs, corpus)
            yield _determines(runs, corpus)


def _learnt(runs: Sent, corpus: str) -> Any:
    return learnt(runs.accuracy(corpus), corpus)


def _needless(runs: Sent, corpus: str, frozen: str) -> Claim:
    whole, part = runs.accuracy(corpus), runs.accuracy(corpus, frozen)
    return with_and_without(
        part - whole,
        _learnt(runs, corpus),
        id=f"sent-{corpus}-{frozen}",
        text=f"{NAMES[corpus]}, L = 1: {TITLES[frozen]} need not be trained (accuracy lost without: less than "
        f"{BARELY}, by seed)",
        bound=Bound.above(-BARELY),
        published=None,
        note=f"{whole.mean():.3f} → {part.mean():.3f}",
    )


def _alone(runs: Sent, corpus: str) -> Claim:
    weighed, near = (runs.of(f"alone.{path}", corpus).mean() for path in ("weighed.agrees", "uniform.cosine"))
    return Claim(
        id=f"sent-{corpus}-alone",
        text=f"{NAMES[corpus]}, L = 1: the mean direction of the words, each read alone, has the class that the model "
        f"predicts (share of texts above {AGREES})",
        estimate=mean_of(runs.of("alone.uniform.agrees", corpus), ends=SHARE),
        bound=Bound.above(AGREES),
        ours=True,
        note=f"weighed by attention {weighed:.3f}; cosine of the plain mean with <cls> {near:.2f}",
    )


def _determines(runs: Sent, corpus: str) -> Claim:
    from reproductions.fosse2023.encoders.nearest_claims import DETERMINED, DETERMINES

    return Claim(
        id=f"sent-{corpus}-nearest",
        text=f"{NAMES[corpus]}, L = 1: the direction determines the class (nearest class direction is that of the "
        f"predicted class: share of texts above {DETERMINES})",
        estimate=mean_of(runs.of("nearest.as_predicted", corpus), ends=SHARE),
        bound=Bound.above(DETERMINES),
        published=DETERMINED,
        note=f"is that of the true class: {runs.of('nearest.right', corpus).mean():.3f}",
    )


def sent_tables(cells: Finished) -> Iterator[Table]:
    runs, rows = Sent(cells), []
    paths = {
        "single words agree": "alone.uniform.agrees",
        "weighed by attention": "alone.weighed.agrees",
        "nearest direction is the prediction": "nearest.as_predicted",
        "nearest direction is the class": "nearest.right",
    }
    for corpus in CORPORA:
        for frozen in runs.there(corpus):
            row: dict[str, Any] = {"corpus": NAMES[corpus], "not trained": TITLES.get(frozen, "–")}
            row["accuracy"] = str(mean_of(runs.accuracy(corpus, frozen)))
            rows.append(row | {name: str(mean_of(runs.of(path, corpus, frozen))) for name, path in paths.items()})
    if rows:
        note = (
            "One layer, GloVe vectors, no penalty; mean ± sd over seeds. *Single words agree*: share of texts in which "
            "the mean of what each word gives alone has the class that the model predicts. *Nearest direction*: among "
            "the mean directions of the classes on the test texts, the text itself left out."
        )
        yield Table("sent", "What sends embeddings in a direction", pd.DataFrame(rows), note)
