"""A bounded sample of (α_ij, ‖f(x_j)‖) by kind of token, for rank correlations over corpora of any size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.attending.scores import Scores
from lorgnette.statistics.hash_sample import Column, HashSample
from lorgnette.statistics.hashing import UNIT, bar, drawn, text_key
from lorgnette.texts.batch import Batch


@dataclass
class Pairs:
    """Sampled pairs of one call: which they are, their random numbers, and their weights once they are known."""

    text: Int[Tensor, " pair"]
    head: Int[Tensor, " pair"]
    query: Int[Tensor, " pair"]
    key: Int[Tensor, " pair"]
    kind: Int[Tensor, " pair"]
    number: Float[Tensor, " pair"]
    weight: Float[Tensor, " pair"]

    def look(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        """Read the weights of those pairs that lie in this block."""
        here = (self.text >= texts.start) & (self.text < texts.stop)
        here &= (self.query >= rows.start) & (self.query < rows.stop)
        if bool(here.any()):
            where = (self.text[here] - texts.start, self.head[here], self.query[here] - rows.start, self.key[here])
            self.weight[here] = weights[where].double()


class PairSample:
    """A `HashSample` of pairs for each site, by kind of token: `size` of each, with α and ‖f‖.

    A pair's number depends on the text's id, site, head, query, key and kind alone. A site has a sample of its own, so
    that taking in a call touches no other's.
    """

    lens: Any
    kinds: tuple[str, ...]
    size: int
    state: str

    def __init__(self, lens: Any, kinds: Sequence[str], size: int, state: str = "pairs") -> None:
        self.lens, self.kinds, self.size, self.state = lens, tuple(kinds), size, state
        columns = {"weight": Column(), "norm": Column()}
        self.samples: list[HashSample] = [
            HashSample(lens, f"{state}_{number}", columns, size=size, strata=len(self.kinds))
            for number in range(len(lens.sites))
        ]
        lens.sums(f"{state}_seen", len(lens.sites), len(self.kinds))

    def draw(self, call: Call, batch: Batch, site: Site) -> Pairs:
        """The pairs of this call that may belong to the sample; also counts all pairs."""
        asking, read = batch.queries(site), batch.keys(site)
        kinds = torch.stack([read.categories[name] & read.mask for name in self.kinds], 1).cpu()  # [text kind key]
        seen = visible_pairs(call.scores, asking.mask, kinds.to(call.query.device))
        state = getattr(self.lens, f"{self.state}_seen")
        state[self.lens.position[site]] += seen.to(state) * call.query.shape[1]
        groups = _Groups(call.scores, asking.mask.cpu(), kinds)
        ids = [example.id for example in batch.examples]
        keys = np.array([[text_key(i, site, kind) for kind in self.kinds] for i in ids], dtype=np.uint64).ravel()
        full = self.samples[self.lens.position[site]].limits().numpy()
        sizes = groups.sizes.reshape(len(ids), -1).sum(0)
        below = np.minimum(full, [bar(int(size), self.size) for size in sizes])
        while True:
            group, index, number = drawn(keys, groups.sizes, np.tile(below, len(ids)))
            pairs = groups.pairs(group, index, number)
            found = np.bincount(pairs.kind.cpu().numpy(), minlength=len(self.kinds))
            short = (found < self.size) & (below < full)
            if not short.any():
                return pairs
            raised = np.where(below * UNIT > 1, np.inf, below * 4)
            below = np.where(short, np.minimum(full, raised), below)

    def add(self, site: Site, pairs: Pairs, norms: Float[Tensor, "text head key"]) -> None:
        """Take the pairs of one call into the sample."""
        norm = norms[pairs.text, pairs.head, pairs.key]
        self.samples[self.lens.position[site]].add(
            pairs.number.cpu().long(), stratum=pairs.kind.cpu(), weight=pairs.weight, norm=norm
        )

    def sample(self, sites: Sequence[int], kind: int) -> tuple[Float[Tensor, " pair"], Float[Tensor, " pair"]]:
        """α and ‖f‖ of the sampled pairs of these sites together."""
        rows = [self.samples[site].rows(kind) for site in sites]
        order = torch.cat([some.numbers for some in rows]).sort(stable=True).indices[: self.size]
        weight, norm = (torch.cat([some[name] for some in rows])[order] for name in ("weight", "norm"))
        return weight, norm


class _Groups:
    """The pairs of each text and kind, numbered from 0 without regard to padding: head, query, key in turn."""

    def __init__(self, scores: Scores, asked: Bool[Tensor, "text query"], kinds: Bool[Tensor, "text kind key"]) -> None:
        self.scores, self.heads, self.kinds = scores, scores.shape[1], kinds.shape[1]
        # Positions of the tokens that count, first.
        self.queries = np.argsort(~asked.numpy(), axis=-1, kind="stable")
        self.keys = np.argsort(~kinds.flatten(0, 1).numpy(), axis=-1, kind="stable")
        self.asked = np.repeat(asked.sum(-1).numpy(), self.kinds)
        self.read = kinds.flatten(0, 1).sum(-1).numpy()
        self.sizes = self.heads * self.asked * self.read

    def pairs(self, group: np.ndarray, index: np.ndarray, number: np.ndarray) -> Pairs:
        """Decode; pairs that the mask forbids are not there."""
        text = group // self.kinds
        rest, nth_key = np.divmod(index, np.maximum(self.read[group], 1))
        head, nth_query = np.divmod(rest, np.maximum(self.asked[group], 1))
        arrays = (text, head, self.queries[text, nth_query], self.keys[group, nth_key], group % self.kinds)
        device = self.scores.query.device
        indices = [torch.from_numpy(np.ascontiguousarray(a)).to(device) for a in arrays]
        drawn = torch.from_numpy(number).to(device)
        seen = visible(self.scores, *indices[:4])
        of_text, of_head, query, key, kind = (a[seen] for a in indices)
        return Pairs(of_text, of_head, query, key, kind, drawn[seen], torch.zeros_like(drawn[seen]))


def visible(scores: Scores, text: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Bool[Tensor, " pair"]:
    """Whether each query may see its key."""
    out = torch.ones_like(text, dtype=torch.bool)
    if scores.allowed is not None:
        out &= scores.allowed.expand(scores.shape)[text, head, query, key]
    if scores.causal:
        out &= key <= query + (scores.shape[3] - scores.shape[2])
    return out


def visible_pairs(
    scores: Scores, asked: Bool[Tensor, "text query"], kinds: Bool[Tensor, "text kind key"]
) -> Float[Tensor, " kind"]:
    """Number of pairs of a query and a key that it may see, for each kind of key, of one head."""
    batch, _, queries, keys = scores.shape
    if not scores.causal and (scores.allowed is None or scores.allowed.shape[2] == 1):
        return (asked.sum(-1)[:, None] * kinds.sum(-1)).sum(0).double()
    allowed = (
        torch.ones(1, 1, device=asked.device, dtype=torch.bool) if scores.allowed is None else scores.allowed[:, 0]
    )
    if scores.causal:
        last = torch.arange(queries, device=asked.device)[:, None] + (keys - queries)
        allowed = allowed & (torch.arange(keys, device=asked.device) <= last)
    per_key = (allowed.expand(batch, queries, keys) & asked[..., None]).sum(1)
    return (per_key[:, None] * kinds).sum((0, 2)).double()
