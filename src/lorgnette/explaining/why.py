"""Why a head looks at a key: their score, split into what wrote the query and what wrote the key."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.display import Facts
from lorgnette.errors import UserError, whole_number
from lorgnette.explaining.stream import ResidualStream, Writer
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.knockout import Head, head_names, heads_at
from lorgnette.subject.trace import translated
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.texts.readable import readable_piece
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

SHOWN = 8
"""Writers of either side that a chart names; the others are one row and one column."""


@dataclass(frozen=True, repr=False)
class Why(Facts):
    """The score of one query and one key as a table: what wrote the query in rows, what wrote the key in columns.

        score = scale · ⟨q_i, k_j⟩ = Σ_a Σ_b scale · ⟨q_i^a, k_j^b⟩

        >>> why = lo.why(subject, "the cat sat", "2.1", query=2, key=1)
        >>> abs(float(why.parts.sum()) - why.score) < 1e-4
        True
        >>> list(why.to_dataframe().columns)
        ['writer', 'query', 'key', 'query_beyond', 'key_beyond']

    A softmax does not see what all keys of a row have in common: `beyond` is the table minus its mean over the keys
    that the query may see, and says why the head looks here and not elsewhere. `plot()` draws it.
    """

    head: str
    query: str
    key: str
    writers: tuple[Writer, ...]
    score: float
    """scale · ⟨q_i, k_j⟩, before a soft-cap and before what is added to the scores (relative positions)"""
    weight: float
    """α_ij"""
    parts: Float[Tensor, "writer writer"]
    mean: Float[Tensor, "writer writer"]
    """the same table, mean over the keys that the query may see"""

    @property
    def beyond(self) -> Float[Tensor, "writer writer"]:
        return self.parts - self.mean

    def facts(self) -> dict[str, object]:
        """The score, how far it is above the mean of the row, and the largest parts of either side."""
        beyond = float(self.beyond.sum())
        out: dict[str, object] = {
            "score": f"{self.score:.3g}, {beyond:.3g} beyond the mean of the keys it may see",
            "weight": f"{self.weight:.3g}",
        }
        for side, sums in (("query", self.beyond.sum(1)), ("key", self.beyond.sum(0))):
            order: list[int] = sums.abs().argsort(descending=True)[:3].tolist()
            out[f"from the {side}"] = ", ".join(f"{self.writers[n]} {float(sums[n]):+.3g}" for n in order)
        return out

    def __repr__(self) -> str:
        return f"Why({self.head}: {self.query} → {self.key}, score {self.score:.3g})"

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per writer: what its share of the query, and its share of the key, adds to the score.

        Both columns sum to the score; `query_beyond` and `key_beyond`, to the score minus its mean over the row.
        """
        import pandas as pd

        columns = {"query": self.parts.sum(1), "key": self.parts.sum(0)}
        columns |= {"query_beyond": self.beyond.sum(1), "key_beyond": self.beyond.sum(0)}
        return pd.DataFrame(
            {"writer": [str(one) for one in self.writers], **{name: each.tolist() for name, each in columns.items()}}
        )

    def plot(self) -> "Plot":
        """The largest parts beyond the mean of the row, writers of the query in rows, of the key in columns."""
        import altair as alt

        from lorgnette.figures.plot import Plot

        names, (rows, columns) = [str(one) for one in self.writers], self._largest()
        others = "all others"
        values: list[Json] = []
        for row in (*rows, None):
            for column in (*columns, None):
                part = self.beyond[_chosen(row, rows, len(names))][:, _chosen(column, columns, len(names))].sum()
                values.append({
                    "query": others if row is None else names[row],
                    "key": others if column is None else names[column],
                    "part": float(part), "text": f"{float(part):.2f}",
                })  # fmt: skip
        most = max((abs(each["part"]) for each in values), default=1.0) or 1.0
        base = alt.Chart(alt.Data(values=values), width=alt.Step(52), height=alt.Step(24)).encode(
            x=alt.X(field="key", type="nominal", sort=None, title="what wrote the key", axis=alt.Axis(labelAngle=-40)),
            y=alt.Y(field="query", type="nominal", sort=None, title="what wrote the query"),
        )
        scale = alt.Scale(scheme="redblue", domain=[-most, most], reverse=False)
        cells = base.mark_rect().encode(
            color=alt.Color(field="part", type="quantitative", scale=scale, legend=alt.Legend(title="part of score"))
        )
        dark = alt.condition(f"abs(datum.part) > {0.6 * most}", alt.value("white"), alt.value("black"))
        words = base.mark_text(fontSize=10).encode(text=alt.Text(field="text", type="nominal"), color=dark)
        return Plot(cells + words, f"Why head {self.head} attends from {self.query} to {self.key}")

    def _largest(self) -> tuple[list[int], list[int]]:
        """The writers with the largest sums of sizes, in the order of the stream."""
        sizes = self.beyond.abs()
        rows, columns = (
            sorted(sums.argsort(descending=True)[:SHOWN].tolist()) for sums in (sizes.sum(1), sizes.sum(0))
        )
        return rows, columns


def _chosen(one: int | None, named: Sequence[int], count: int) -> list[int]:
    return [number for number in range(count) if number not in named] if one is None else [one]


def why(
    subject: Subject,
    text: str | Example,
    head: Head,
    query: int,
    key: int | None = None,
    *,
    pair: str | None = None,
    target: str | None = None,
) -> Why:
    """Split the score of one query and one key of one head into the parts of the residual stream at both ends.

        >>> lo.why(subject, "the cat sat", "2.1", query=2, key=1).head
        'encoder.2.1'

    What writes to the stream are the vectors of tokens and of positions, every earlier head, every earlier feed-forward
    part, and biases; norms keep the statistics of the pass. Rotary positions turn all parts of a query alike. `query`
    and `key` are positions of tokens, counted from 0, or from the end with −1; without a key, the one that the head
    attends to most. One pass of the model, and two or three products with the head's projections for each of its
    dimensions. Over a corpus: the lens `composition`.
    """
    refuse_no_subject(subject, "why")
    example = text if isinstance(text, Example) else subject.example(text, pair, target=target)
    return split_score(subject, subject.encode([translated(subject, example)]), head, query, key)


def split_score(subject: Subject, batch: Batch, head: Head, query: int, key: int | None = None) -> Why:
    """The same for a text that is tokenised already: the only one of the batch."""
    if not bool(batch.source.mask.any()):
        raise UserError("The text has no token to attend from. Pass a text with at least one word.")
    ((site, (index,)),) = heads_at(subject, [head]).items()
    stream = ResidualStream(subject, batch)
    call = stream.calls[site]
    weights = call.block(heads=slice(index, index + 1)).detach()[0, 0]
    row = _place(query, len(weights), "query")
    column = int(weights[row].argmax()) if key is None else _place(key, weights.shape[1], "key")
    visible = call.scores.visible_keys()
    seen = visible[0, index if visible.shape[1] > 1 else 0, row]
    if not bool(seen[column]):
        raise UserError(f"The query {row} may not see the key {column}, so they have no score.")
    scale, group = call.scores.scale, index * call.scores.key.shape[1] // call.query.shape[1]
    at_query, at_key, everywhere = (
        _vectors(stream, call, side, number, rows)
        for side, number, rows in (
            ("query", index, _one(row, len(weights), weights)),
            ("key", group, _one(column, weights.shape[1], weights)),
            ("key", group, seen.to(weights) / seen.sum()),
        )
    )
    score = float(scale * call.query[0, index, row].detach() @ call.scores.key[0, group, column].detach())
    parts, mean = (scale * at_query @ keys.mT for keys in (at_key, everywhere))
    stream.refuse_missing(parts.sum(), torch.tensor(score), parts.abs().sum(), f"a score of {site}")
    some = ((parts != 0) | (mean != 0)).cpu()
    wrote = (some.any(0) | some.any(1)).nonzero()[:, 0]  # later parts of the model write nothing that the head reads
    queries, keys = (side.shown() for side in (batch.queries(site), batch.keys(site)))
    return Why(
        head_names(subject, {site: (index,)})[0],
        readable_piece(queries[row]),
        readable_piece(keys[column]),
        tuple(stream.writers[number] for number in wrote.tolist()),
        score,
        float(weights[row, column]),
        parts.cpu()[wrote][:, wrote],
        mean.cpu()[wrote][:, wrote],
    )


def _place(number: int, count: int, side: str) -> int:
    number = whole_number(number, f"The {side}, the position of a token,")
    if not -count <= number < count:
        raise UserError(f"There is no {side} {number}: the text has {count} tokens, counted from 0 (or −1, the last).")
    return number % count


def _one(place: int, count: int, like: Tensor) -> Float[Tensor, " token"]:
    return torch.nn.functional.one_hot(torch.tensor(place, device=like.device), count).to(like)


def _vectors(
    stream: ResidualStream, call: Call, side: str, head: int, tokens: Float[Tensor, " token"]
) -> Float[Tensor, "writer dim"]:
    """The contribution of each writer to a head's query or key, summed over tokens with these weights."""
    tensor = call.query if side == "query" else call.scores.key
    columns = []
    for dim in range(tensor.shape[-1]):
        rate = torch.zeros_like(tensor)
        rate[0, head, :, dim] = tokens.to(rate)
        columns.append(stream.parts(tensor, rate)[0])
    return torch.stack(columns, -1)
