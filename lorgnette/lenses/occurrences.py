"""A bounded sample of word occurrences with their vectors, for how alike the occurrences of one word are."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.corpora.batch import Tokens
from lorgnette.statistics.hashing import text_key

CHUNK = 2.0**24
"""A random number has 48 bits, kept as two halves that single precision holds exactly."""
GROUP, ITEM, VECTOR = 0, 2, 4
"""Columns: the group's number and the occurrence's number (two halves each), then the vectors of all states."""


class Occurrences:
    """Whole groups of occurrences, chosen by hash: of each group at most `each`, of all at most `rows`.

    Every group (a word, say) has a random number, and so has every occurrence. Kept are, of each group, the `each`
    occurrences with the smallest numbers, and of the groups those with the smallest numbers, as many as fit. A group
    that did not fit once is left out for good (the last row holds the first number left out), so that a group that is
    there is there with all its occurrences: order, batches and shards change nothing.
    """

    def __init__(self, lens: Any, stacks: int, width: int, state: str, *, rows: int, each: int) -> None:
        self.lens, self.state, self.each = lens, state, each
        empty = torch.zeros(stacks, rows + 1, VECTOR + width, dtype=lens.precision)
        empty[..., GROUP] = torch.inf
        lens.add_state(state, empty, dist_reduce_fx=partial(merged, each=each))

    def add(
        self,
        stack: int,
        groups: Int[Tensor, " item"],
        items: Int[Tensor, " item"],
        vectors: Callable[[Bool[Tensor, " item"]], Float[Tensor, "kept width"]],
    ) -> None:
        """Offer occurrences by their numbers; vectors are made only of those that are kept for now."""
        state = getattr(self.lens, self.state)
        bar = _number(state[stack, -1:, GROUP:ITEM])[0]
        wanted = groups.double() < bar
        group = torch.cat([_number(state[stack, :-1, GROUP:ITEM]), groups[wanted].double()])
        item = torch.cat([_number(state[stack, :-1, ITEM:VECTOR]), items[wanted].double()])
        order, limit = _chosen(group, item, len(state[stack]) - 1, self.each)
        old = len(state[stack]) - 1
        wanted[wanted.clone()] = torch.isin(torch.arange(old, len(group)), order)
        fresh = torch.cat([_halves(groups[wanted]), _halves(items[wanted])], -1).to(state)
        fresh = torch.cat([fresh, vectors(wanted).to(state)], -1)
        rows = torch.cat([state[stack, :-1][order[order < old]], fresh])
        state[stack, :-1] = 0.0
        state[stack, :-1, GROUP] = torch.inf
        state[stack, : len(rows)] = rows
        if limit is not None:
            state[stack, -1, GROUP:ITEM] = _halves(limit[None].long())[0].to(state)

    def kept(self, stack: int) -> list[Float[Tensor, "item width"]]:
        """The vectors of each group."""
        state = getattr(self.lens, self.state)[stack, :-1].cpu()
        state = state[torch.isfinite(state[:, GROUP])]
        number = _number(state[:, GROUP:ITEM])
        order = torch.argsort(number * 1.0, stable=True)
        sizes = torch.unique_consecutive(number[order], return_counts=True)[1]
        return list(state[order][:, VECTOR:].split(sizes.tolist()))


def merged(samples: Float[Tensor, "sample stack row column"], each: int) -> Float[Tensor, "stack row column"]:
    """The sample of the union."""
    out = torch.zeros_like(samples[0])
    out[..., GROUP] = torch.inf
    for stack in range(samples.shape[1]):
        bar = _number(samples[:, stack, -1, GROUP:ITEM]).min()
        rows = samples[:, stack, :-1].flatten(0, 1)
        rows = rows[_number(rows[:, GROUP:ITEM]) < bar]
        number = _number(rows[:, GROUP:ITEM])
        order, limit = _chosen(number, _number(rows[:, ITEM:VECTOR]), samples.shape[2] - 1, each)
        out[stack, : len(order)] = rows[order]
        bar = bar if limit is None else limit
        if torch.isfinite(bar):
            out[stack, -1, GROUP:ITEM] = _halves(bar[None].long())[0].to(out)
    return out


def _chosen(
    group: Float[Tensor, " item"], item: Float[Tensor, " item"], rows: int, each: int
) -> tuple[Int[Tensor, " kept"], Float[Tensor, ""] | None]:
    """Which rows are kept, and the number of the first group that did not fit (None if all did)."""
    order = torch.argsort(item, stable=True)
    order = order[torch.argsort(group[order], stable=True)]
    order = order[torch.isfinite(group[order])]
    if not len(order):
        return order, None
    names, which, sizes = torch.unique_consecutive(group[order], return_inverse=True, return_counts=True)
    place = torch.arange(len(order), device=order.device) - (sizes.cumsum(0) - sizes)[which]
    fits = sizes.clamp(max=each).cumsum(0) <= rows
    kept = order[(place < each) & fits[which]]
    left_out = (~fits).nonzero()
    return kept, None if not len(left_out) else names[left_out[0, 0]]


def _halves(number: Int[Tensor, " item"]) -> Float[Tensor, "item 2"]:
    return torch.stack([number >> 24, number & (2**24 - 1)], -1).double()


def _number(halves: Float[Tensor, "item 2"]) -> Float[Tensor, " item"]:
    return halves[:, 0].double() * CHUNK + halves[:, 1].double()


@lru_cache(maxsize=2**16)
def word_number(word: str) -> int:
    """48 random bits that depend on the word alone, whatever its case."""
    return text_key("word", word.lower()) >> 16


def occurrences(
    tokens: Tokens, ids: Sequence[str], stack: str
) -> tuple[Int[Tensor, "item 2"], list[str], Int[Tensor, " item"]]:
    """Every word in the batch that is not punctuation: (text, word), its form, and its random number."""
    where, forms, numbers = [], [], []
    for text, row in enumerate(tokens.word.cpu().tolist()):
        for word in dict.fromkeys(number for number in row if number >= 0):
            form = tokens.words[text][word]
            if re.search(r"\w", form):
                where.append((text, word))
                forms.append(form)
                numbers.append(text_key(ids[text], stack, word) >> 16)
    return torch.tensor(where, dtype=torch.long).reshape(-1, 2), forms, torch.tensor(numbers, dtype=torch.long)


def word_vectors(
    tokens: Tokens, where: Int[Tensor, "item 2"], states: Sequence[Float[Tensor, "batch token width"]]
) -> Float[Tensor, "item all_states"]:
    """The mean over the pieces of each word, of every state in turn."""
    word = tokens.word
    place = torch.full(word.shape, -1, dtype=torch.long, device=word.device)
    where = where.to(word.device)
    if len(where):
        # A table from (text, word) to row, read at every token.
        table = torch.full((len(word), int(word.max()) + 2), -1, dtype=torch.long, device=word.device)
        table[where[:, 0], where[:, 1]] = torch.arange(len(where), device=word.device)
        place = torch.gather(table, 1, word.clamp(min=-1) % table.shape[1])
    here = place >= 0
    pieces = torch.bincount(place[here], minlength=len(where)).clamp(min=1)[:, None]
    out = []
    for state in states:
        vectors = state[here].to(torch.promote_types(state.dtype, torch.float32))
        summed = vectors.new_zeros(len(where), state.shape[-1]).index_add_(0, place[here], vectors)
        out.append(summed / pieces)
    return torch.cat(out, -1).cpu()
