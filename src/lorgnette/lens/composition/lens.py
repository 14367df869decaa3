"""What the scores of each head are composed of: which parts of the residual stream make it look where it looks."""

from typing import ClassVar, Literal

import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site
from lorgnette.explaining.stream import ResidualStream, Writer, streams, writers
from lorgnette.lens.base import Lens
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.estimate import tested_together
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

SIDES = ("query", "key")
_DESCRIPTIONS = {
    "advantage": "score of the keys that the head attends to, minus the mean score of all keys that a query may see",
    "composition": "part of the advantage that an earlier head writes, into the queries or into the keys",
    "composition_q": "p that the part is zero (t test over texts), corrected over all pairs of heads and both sides",
    "parts_q": "p that the part is zero (t test over texts), corrected over all heads, writers and both sides",
    "parts": "part of the advantage by what writes it, into the queries or into the keys; all heads together",
}


class Composition(Lens):
    """Which parts of the residual stream decide where a head attends: its scores, split exactly by query and by key.

        advantage    Σ_j (α_ij − 1/n_i) s_ij,  s_ij = scale ⟨q_i, k_j⟩         n_i keys that query i may see
        query        Σ_j (α_ij − 1/n_i) scale ⟨q_i^a, k_j⟩                     q_i = Σ_a q_i^a
        key          Σ_j (α_ij − 1/n_i) scale ⟨q_i, k_j^b⟩                     k_j = Σ_b k_j^b

    A softmax does not see what all keys of a row have in common, so that a head looks somewhere because of what the
    score there has beyond the mean of the row: its advantage. Queries and keys are sums of what tokens, positions,
    earlier heads, earlier feed-forward parts and biases write to the residual stream, with norms that keep the
    statistics of the pass (Elhage et al. 2021, Q- and K-composition, on text). On either side the parts sum to the
    advantage, which is checked on every text. A part that is the same at all keys adds nothing to the key's side.
    Mean over the queries of a text that may see at least two keys, then over texts.

    `keys="words"` leaves out special tokens, or the first token of a text without any: many heads attend there whatever
    the text says. α is then renormalised over the others.

    What it does not tell you: what would change if the writer were removed; a norm would rescale, and other writers may
    stand in. Parts may cancel: one of +5 beside one of −5 explains nothing. What is added to the scores themselves
    (relative positions, ALiBi) has no writer and is left out, and soft-caps too.
    """

    name: ClassVar[str] = "composition"
    summary: ClassVar[str] = "what writes the queries and keys of each head: its scores, split over earlier parts"
    reads = frozenset({"cpu"})

    def __init__(self, keys: Literal["all", "words"] = "all") -> None:
        super().__init__()
        self.keys = keys

    def allocate(self, subject: Subject) -> None:
        self.writers: tuple[Writer, ...] = writers(subject)
        heads = [writer for writer in self.writers if writer.kind == "heads"]
        others = [writer for writer in self.writers if writer.kind != "heads"]
        self.head_columns: list[int] = [self.writers.index(writer) for writer in heads]
        self.other_columns: list[int] = [self.writers.index(writer) for writer in others]
        self.of_heads: Moments = Moments(self, "advantage")
        labels = {axes.WAY: SIDES, axes.HEAD_A: [str(writer) for writer in heads]}
        self.of_pairs: Moments = Moments(self, "composition", labels)
        self.of_parts: Moments = Moments(
            self, "parts", {axes.WAY: SIDES, axes.WRITER: [*(str(writer) for writer in others), "heads"]}
        )
        if subject.has_tokenizer:
            ResidualStream(subject, subject.encode(["a"]))  # refuses what is not known before the first batch

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass, cut where parts write; then, for every head and either side, a gradient along the stream."""
        found: dict[Site, list[tuple[Tensor, Tensor, Tensor]]] = {}
        for rows, stream in streams(self.subject, batch):
            for site, call in stream.calls.items():
                found.setdefault(site, []).append(self._of_site(stream, site, call, batch, rows))
            del stream
        for site, several in found.items():
            advantage, parts, exists = (torch.cat(each) for each in zip(*several, strict=True))
            weight = exists.to(parts.dtype)[:, None]
            self.of_heads.add(site, advantage=(advantage, weight))
            heads, others = parts[..., self.head_columns], parts[..., self.other_columns]
            together = torch.cat([others, heads.sum(-1, keepdim=True)], -1)
            self.of_pairs.add(site, composition=(heads, weight[..., None, None]))
            self.of_parts.add(site, parts=(together, weight[..., None, None]))

    def _of_site(
        self, stream: ResidualStream, site: Site, call: Call, batch: Batch, rows: slice
    ) -> tuple[Float[Tensor, "text head"], Float[Tensor, "text head side writer"], Bool[Tensor, " text"]]:
        """The advantage of every head of a site, its parts, and whether the text has a query that counts."""
        query, key = call.query.detach(), call.key.detach()
        beyond, exists = self._weights(call, batch, site, rows)
        beyond = beyond * call.scores.scale
        rates = {"query": beyond.to(key.dtype) @ key, "key": beyond.to(query.dtype).mT @ query}
        advantage = (rates["query"] * query).sum((-1, -2))
        size = ((rates["query"] * query).abs()).sum((-1, -2)), ((rates["key"] * key).abs()).sum((-1, -2))
        groups = call.scores.key.shape[1]
        out = []
        for head in range(query.shape[1]):
            both = []
            for number, side in enumerate(SIDES):
                tensor = call.query if side == "query" else call.scores.key
                rate = torch.zeros_like(tensor)
                rate[:, head if side == "query" else head * groups // query.shape[1]] = rates[side][:, head].to(rate)
                both.append(stream.parts(tensor, rate))
                stream.refuse_missing(
                    both[-1].sum(-1), advantage[:, head].to(both[-1]), size[number][:, head].to(both[-1]),
                    f"the scores of {site}",
                )  # fmt: skip
            out.append(torch.stack(both, 1))
        return advantage, torch.stack(out, 1), exists

    def _weights(
        self, call: Call, batch: Batch, site: Site, rows: slice
    ) -> tuple[Float[Tensor, "text head query key"], Bool[Tensor, " text"]]:
        """α_ij − 1/n_i over the number of queries that count, and whether a text has any."""
        queries, keys = batch.queries(site), batch.keys(site)
        counted = keys.mask[rows]
        if self.keys == "words":
            counted = counted & ~keys.special[rows] & ~keys.sinks[rows]
        seen = call.scores.visible_keys() & counted[:, None, None, :]
        weights = call.weights.detach() * seen
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
        count = seen.sum(-1)
        counts = (count > 1) & queries.mask[rows][:, None, :]  # [text head or 1, query]
        even = seen.to(weights) / count.clamp(min=1)[..., None]
        of_text = counts.sum(-1, keepdim=True)
        beyond = (weights - even) * counts[..., None] / of_text.clamp(min=1)[..., None]
        return beyond, (of_text[..., 0] > 0).all(1)

    def compute(self) -> Result:
        variables = self.of_heads.arrays() | self.of_pairs.arrays() | self.of_parts.arrays()
        for name in ("composition", "parts"):
            variables |= tested_together(xr.Dataset(variables), [name])
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs["keys"] = self.keys
        return result
