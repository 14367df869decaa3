"""The calls of one pass, kept until it is over: for lenses that need all layers of a text at once."""

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attention import Call, Site
from lorgnette.attention.rows import cut, visible_keys
from lorgnette.attention.scores import Scores, dense, softmax
from lorgnette.corpora.batch import Batch


@dataclass(frozen=True)
class KeptCall:
    """What is needed to give any rows of a call again: queries and keys, or the matrix where a tap has edited it.

    Queries and keys grow with the length of a text, the matrix with its square.
    """

    site: Site
    scores: Scores
    weights: Float[Tensor, "batch head query key"] | None

    @classmethod
    def of(cls, call: Call) -> "KeptCall":
        assert call.site is not None
        return cls(call.site, call.scores, call._weights)

    def rows(
        self, text: int, rows: slice, keys: int
    ) -> tuple[Float[Tensor, "head query key"], Bool[Tensor, "heads query key"]]:
        """The weights of some rows of one text on its first `keys` keys (the rest is padding), and which it may see."""
        one = cut(self.scores, slice(text, text + 1), rows)
        visible = visible_keys(one)[0, :, :, :keys]
        weights = softmax(dense(one)) if self.weights is None else self.weights[text : text + 1, :, rows]
        return weights[0, :, :, :keys], visible


class KeptPass:
    """The calls of one batch, stack by stack, layers in order; a new batch takes the place of the old."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.calls: dict[str, list[KeptCall]] = {}

    def add(self, call: Call, batch: Batch) -> None:
        # A batch that did not fit into memory never finished: what was kept of it must not get into the next.
        if batch is not self.batch:
            self.batch, self.calls = batch, {}
        kept = KeptCall.of(call)
        self.calls.setdefault(kept.site.name, []).append(kept)

    def clear(self) -> None:
        self.batch, self.calls = None, {}
