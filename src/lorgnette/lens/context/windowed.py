"""Attention that sees only the first tokens of a text and those just before the query, as a streaming cache keeps them.

Xiao et al. 2024, "Efficient Streaming Language Models with Attention Sinks" (arXiv 2309.17453).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site, Tap
from lorgnette.attending.scores import context_of, dense, softmax
from lorgnette.texts.batch import Tokens

_BLOCK = 2**24
"""Weights that are in memory at a time."""


@dataclass(frozen=True)
class Stream:
    """What a streaming head keeps: the first `sinks` tokens of a text, and the last `window` ones, the query's own too.

    query i sees key j ≤ i    ⇔    j < sinks  or  i − j < window
    """

    sinks: int
    window: int

    @property
    def size(self) -> int:
        """Keys that it keeps at most."""
        return self.sinks + self.window

    def keys(self, places: Int[Tensor, "text token"], rows: slice) -> Bool[Tensor, "text 1 row token"]:
        """Which keys these rows see, later ones included; places are those of `places_of`."""
        here, there = places[:, rows, None], places[:, None]
        return ((there < self.sinks) | (here - there < self.window))[:, None]

    def far(self, tokens: Tokens) -> Bool[Tensor, "text token"]:
        """The queries from which it hides something in a model that sees the whole text before them."""
        return tokens.mask & (places_of(tokens) >= self.size)


def places_of(tokens: Tokens) -> Int[Tensor, "text token"]:
    """The place of every token in its text, from 0, on whichever side it is padded; that of padding means nothing."""
    return tokens.mask.long().cumsum(-1) - 1


def windowed(
    call: Call, places: Int[Tensor, "text token"], stream: Stream
) -> Float[Tensor, "text head token value_dim"]:
    """The context of every head if it saw only what the stream keeps: the softmax over these keys, times their values.

    The mask enters before the softmax. Dividing the weights by what is left of them would lose heads whose weight lies
    so far away that the rest is rounded to zero.
    """
    texts, heads, queries, keys = call.scores.shape
    rows_at_once = max(1, _BLOCK // max(1, texts * heads * keys))
    value, parts = call.value, []
    for start in range(0, queries, rows_at_once):
        rows = slice(start, min(start + rows_at_once, queries))
        scores = call.scores.block(rows=rows)
        seen = stream.keys(places, rows)
        scores = replace(scores, allowed=seen if scores.allowed is None else scores.allowed & seen)
        parts.append(context_of(softmax(dense(scores), scores.sink), value))
    return torch.cat(parts, 2) if parts else torch.zeros_like(call.context)


class WindowedContexts(Tap):
    """What every head of a pass would give if it alone saw only what the stream keeps, by site.

    The pass itself is not changed: what reaches a head does not depend on the heads of its own layer.
    """

    contexts: dict[Site, Float[Tensor, "text head token value_dim"]]

    def __init__(self, places: Int[Tensor, "text token"], stream: Stream, sites: Collection[Site]) -> None:
        self.places, self.stream, self.sites, self.contexts = places, stream, set(sites), {}
        self.groups: dict[Site, int] = {}

    def see(self, call: Call) -> None:
        if call.site not in self.sites:  # a tower of pictures
            return
        self.contexts[call.site] = windowed(call, self.places, self.stream)
        self.groups[call.site] = call.scores.key.shape[1]
