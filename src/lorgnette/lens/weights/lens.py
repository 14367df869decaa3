"""The attention weights of each head: entropy, confidence, and the share on each category of token."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from lorgnette.attending import Call
from lorgnette.attending.sweep import Wanted
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import By
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.signals import Signal, opposite, variable
from lorgnette.lens.weights.means import WeightMeans
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES

_DESCRIPTIONS = {
    "entropy": "entropy of a row of attention weights, in nats, mean over queries",
    "entropy_normalised": "entropy divided by the log of the number of visible keys (rows with one key excluded)",
    "peak": "largest weight of a row, mean over queries",
    "confidence": "largest weight on a non-special key, not renormalised, mean over non-special queries",
    "mass": "share of the weight on a category of key, mean over queries",
    "sink": "share of the weight on the most attended key of a text",
    "special": "share of the weight on all special tokens (on the first token if a text has none), mean over queries",
}


class Weights(Lens):
    """Entropy, peak, confidence and mass of every head (Clark et al. 2019, §3; Voita et al. 2019, §4).

    Means are over the non-padding queries of a text, specials included, then over texts (`by="token"` pools them).
    `previous`, `self` and `next` are over the queries that have such a neighbour, and only in self-attention.

    What it does not tell you: how much a token contributes. A head may put all its weight on a token whose value vector
    is nearly zero (see the lens `norms`), and a confident head may not matter for the output.
    """

    name: ClassVar[str] = "weights"
    summary: ClassVar[str] = "entropy, confidence, and share of attention on each category of token"
    signals: ClassVar[Mapping[str, Signal]] = {
        "sharpness": Signal("1 − normalised entropy of the weights", opposite(variable("entropy_normalised"))),
        "confidence": Signal("largest weight on a word", variable("confidence")),
    }

    def __init__(self, by: By = "text", *, parts: Sequence[str] = ()) -> None:
        """`parts`: further categories of key, the named parts of the texts (speakers of a chat: user, assistant, …)."""
        super().__init__()
        self.by, self.kinds = by, (*CATEGORIES, *parts)

    def allocate(self, subject: Subject) -> None:
        self.means = WeightMeans(self, self.by, self.kinds)
        self.confidence_pairs: Pairs = Pairs(self.means.moments, "confidence")
        self.entropy_pairs: Pairs = Pairs(self.means.moments, "entropy_normalised")

    def wants(self, call: Call, batch: Batch) -> Sequence[Wanted]:
        return (self.means.wanted(call, batch),)

    def update(self, call: Call, batch: Batch) -> None:
        self.means.add(call, batch, *self.measured(call, batch))

    def compute(self) -> Result:
        """Entropy, peak, confidence, sink, and mass by category."""
        variables = self.means.moments.cells() | self.means.masses.cells()
        tested = self.confidence_pairs.q() | self.entropy_pairs.q(layers=True, largest=None)
        variables |= {name: array.variable for name, array in tested.items()}
        return self.result(variables, self.means.masses.labels(), _DESCRIPTIONS)
