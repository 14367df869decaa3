"""The strongest paths from the embeddings to one prediction: a chain of edges between parts, drawn."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Literal

from jaxtyping import Float
from torch import Tensor

from lorgnette.constraints import Interval, check
from lorgnette.display import Facts
from lorgnette.errors import UserError
from lorgnette.explaining.direct import Goal
from lorgnette.explaining.edges import EdgeStream, StreamReader
from lorgnette.explaining.stream import Writer
from lorgnette.explaining.target import Target, explained, named
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.trace import translated
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.types import Json

if TYPE_CHECKING:
    import pandas as pd

    from lorgnette.figures.plot import Plot

Among = Literal["all", "heads"]
"""Whose edges are followed."""
_COLOURS = {"raises it": "#0072b2", "lowers it": "#d55e00"}
_DASHES = {"query": [6, 3], "key": [2, 3], "value": [1, 0], "feed_forward": [1, 0], "logits": [1, 0]}
_ASIDE = {"query": -0.008, "key": 0.008}
"""Two edges between the same parts are drawn side by side."""
_GOLDEN = 0.618


@dataclass(frozen=True)
class PathEdge:
    """One edge: from a part that writes, into a part that reads by one way, and its attribution."""

    writer: Writer
    reader: Writer | None
    """the part that reads, as what it writes in turn; None for the output"""
    way: str
    attribution: float


@dataclass(frozen=True, repr=False)
class Paths(Facts):
    """The strongest paths to one prediction: edges that lead to the output, each with its attribution.

        >>> found = lo.paths(language_model, "the cat sat on the mat .", count=5)
        >>> found.edges[0].way
        'logits'
        >>> list(found.to_dataframe().columns)
        ['writer', 'reader', 'way', 'attribution']

    `plot()` draws them, the output on top.
    """

    explained: str
    value: float
    edges: tuple[PathEdge, ...]

    def facts(self) -> dict[str, object]:
        """The explained number and the largest edges."""
        out: dict[str, object] = {"explained": f"{self.explained} (logit {self.value:.3g})"}
        for edge in sorted(self.edges, key=lambda edge: -abs(edge.attribution))[:6]:
            out[f"{edge.writer} → {_reader(edge)}"] = f"{edge.attribution:+.3g}"
        return out

    def __repr__(self) -> str:
        return f"Paths({self.explained}: {len(self.edges)} edges)"

    def to_dataframe(self) -> "pd.DataFrame":
        """A row per edge, in the order in which they were found: from the output downwards."""
        import pandas as pd

        rows = [
            (str(edge.writer), "logits" if edge.reader is None else str(edge.reader), edge.way, edge.attribution)
            for edge in self.edges
        ]
        return pd.DataFrame(rows, columns=["writer", "reader", "way", "attribution"])

    def plot(self) -> "Plot":
        """Parts by layer, the output on top; edges into queries are dashed, those into keys dotted."""
        import altair as alt

        from lorgnette.figures.plot import Plot

        nodes, lines = self.drawn()
        most = max((abs(line["attribution"]) for line in lines), default=1.0) or 1.0
        for line in lines:
            line["size"] = abs(line["attribution"]) / most
            line["effect"] = "raises it" if line["attribution"] > 0 else "lowers it"
        x = alt.X(field="x", type="quantitative", axis=None, scale=alt.Scale(padding=30))
        y = alt.Y(field="y", type="quantitative", axis=None, scale=alt.Scale(padding=14))
        base = alt.Chart(alt.Data(values=lines), width=520, height=440).mark_rule(opacity=0.75)
        rules = [
            base.transform_filter(f"datum.way == '{way}'").mark_rule(opacity=0.75, strokeDash=dash).encode(
                x=x, y=y, x2=alt.X2(field="x2"), y2=alt.Y2(field="y2"),
                color=alt.Color(
                    field="effect", type="nominal", legend=alt.Legend(title="the logit", orient="top"),
                    scale=alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values())),
                ),
                strokeWidth=alt.StrokeWidth(field="size", type="quantitative", legend=None,
                                            scale=alt.Scale(domain=[0, 1], range=[0.6, 5])),
                tooltip=alt.Tooltip(field="label", type="nominal"),
            )
            for way, dash in _DASHES.items() if any(line["way"] == way for line in lines)
        ]  # fmt: skip
        points = alt.Chart(alt.Data(values=nodes)).encode(x=x, y=y)
        dots = points.mark_point(filled=True, size=340, color="white", opacity=1.0)
        names = points.mark_text(fontSize=10).encode(text=alt.Text(field="name", type="nominal"))
        return Plot(alt.layer(*rules, dots, names), f"The strongest paths to {self.explained}")

    def drawn(self) -> tuple[list[Json], list[Json]]:
        """Parts and edges as they are drawn: x from 0 to 1, y upwards by one for each level."""
        places = self._places()
        lines: list[Json] = []
        for edge in self.edges:
            (x, y), (x2, y2) = places[edge.writer], places[edge.reader]
            aside = _ASIDE.get(edge.way, 0.0)
            lines.append({
                "x": x + aside, "y": y, "x2": x2 + aside, "y2": y2, "way": edge.way, "attribution": edge.attribution,
                "label": f"{edge.writer} → {_reader(edge)}: {edge.attribution:+.3g}",
            })  # fmt: skip
        nodes: list[Json] = [
            {"x": x, "y": y, "name": f"{self.explained}" if part is None else _short(part)}
            for part, (x, y) in places.items()
        ]
        return nodes, lines

    def _places(self) -> dict[Writer | None, tuple[float, float]]:
        """Where each part is drawn: layers upwards, the parts of one level side by side."""
        parts = dict.fromkeys(part for edge in self.edges for part in (edge.reader, edge.writer))
        levels: dict[float, list[Writer | None]] = {}
        for part in parts:
            levels.setdefault(float("inf") if part is None else _level(part), []).append(part)
        out: dict[Writer | None, tuple[float, float]] = {}
        for row, level in enumerate(sorted(levels)):
            some = sorted(levels[level], key=str)
            for number, part in enumerate(some):
                spread = (number + 0.5) / len(some) + _GOLDEN * row  # so that lines do not run through other parts
                out[part] = (spread % 1.0, float(row))
        return out


def paths(
    subject: Subject,
    text: str | Example,
    *,
    target: Target = None,
    against: str | None = None,
    count: int = 24,
    among: Among = "all",
) -> Paths:
    """The strongest paths to what a model predicts for one text, by edge attribution.

        >>> lo.paths(language_model, "the cat sat on the mat .", count=3).explained != ""
        True

    From the output downwards, the strongest edge into any part that already has a way to the output is added, until
    there are `count`. What a part writes is measured against what it writes for the text `against`, of as many tokens,
    or without one against its mean over the tokens of this text. `target` is that of `lo.explain`. `among="heads"`
    follows heads alone. Over a corpus, with exact patching: the lens `edges`.

    What it does not tell you: what taking an edge away would do, where a softmax is saturated. It is first order.
    """
    refuse_no_subject(subject, "paths")
    example = text if isinstance(text, Example) else subject.example(text)
    batch = subject.encode([translated(subject, example)])
    return strongest_paths(subject, batch, target=target, against=against, count=count, among=among)


def strongest_paths(
    subject: Subject, batch: Batch, *, target: Target = None, against: str | None = None, count: int = 24,
    among: Among = "all",
) -> Paths:  # fmt: skip
    """The same for a text that is tokenised already: the only one of the batch."""
    check(against, str | None, "against, the text to compare with,")
    if against is not None and not against.strip():
        raise UserError("against, the text to compare with, is empty.")
    check(count, Annotated[int, Interval(1, 100_000)], "count")
    check(among, Among, "among")
    names: list[str] = []

    def choose(logits: Tensor) -> Goal:
        names.extend(named(subject, batch, logits, target))
        return lambda given: explained(subject, batch, SimpleNamespace(logits=given), target)

    if not bool(batch.source.mask.any()):
        raise UserError("The text has no token at which a path could begin. Pass a text with at least one word.")
    stream = EdgeStream(subject, batch, choose)
    _measure(stream, subject, against)
    assert stream.value is not None
    found: list[tuple[StreamReader, Float[Tensor, " writer"]]] = [(reader, part[0]) for reader, part in stream.edges()]
    candidates = [
        PathEdge(stream.writers[number], _part(stream, reader), reader.way, value)
        for reader, part in found
        for number, value in enumerate(part.tolist())
        if value != 0 and (among == "all" or stream.writers[number].kind == "heads")
    ]
    return Paths(names[0], float(stream.value[0].detach()), _connected(candidates, count))


def _measure(stream: EdgeStream, subject: Subject, against: str | None) -> None:
    """Measure what parts write against another text, or against the mean over the tokens of this one."""
    if against is None:
        stream.pieces = [
            replace(piece, amount=piece.amount - piece.amount.mean(-2, keepdim=True)) for piece in stream.pieces
        ]
        return
    other = EdgeStream(subject, subject.encode([translated(subject, subject.example(against))]))
    for piece, opposite in zip(stream.pieces, other.pieces, strict=True):
        if piece.amount.shape != opposite.amount.shape:
            raise UserError(
                f"The text to compare with must have as many tokens as the text, {piece.amount.shape[-2]}. "
                f"{against!r} has {opposite.amount.shape[-2]}."
            )
    stream.pieces = [
        replace(piece, amount=piece.amount - opposite.amount)
        for piece, opposite in zip(stream.pieces, other.pieces, strict=True)
    ]


def _connected(candidates: list[PathEdge], count: int) -> tuple[PathEdge, ...]:
    """The strongest edge into what already leads to the output, again and again."""
    into: dict[Writer | None, list[PathEdge]] = {}
    for edge in sorted(candidates, key=lambda edge: -abs(edge.attribution)):
        into.setdefault(edge.reader, []).append(edge)
    reached: dict[Writer | None, int] = {None: 0}
    chosen: list[PathEdge] = []
    while len(chosen) < count:
        open_ = [into[part][at] for part, at in reached.items() if at < len(into.get(part, ()))]
        if not open_:
            break
        best = max(open_, key=lambda edge: abs(edge.attribution))
        reached[best.reader] += 1
        reached.setdefault(best.writer, 0)
        chosen.append(best)
    return tuple(chosen)


def _part(stream: EdgeStream, reader: StreamReader) -> Writer | None:
    """A reader as the part that writes in turn."""
    if reader.site is None:
        return None
    if reader.head is None:
        return Writer("feed_forward", reader.site.stack, reader.site.layer)
    return Writer("heads", reader.site.name, reader.site.layer, stream.attention[reader.site].numbers[reader.head])


def _reader(edge: PathEdge) -> str:
    if edge.reader is None:
        return "logits"
    return str(edge.reader) if edge.way == "feed_forward" else f"{edge.reader} {edge.way}"


def _level(part: Writer) -> float:
    """Embeddings, then the heads of each layer and its feed-forward part; an encoder lies below its decoder."""
    if part.layer is None:
        return -1.0 if part.stack == "encoder" else -0.5
    base = 0.0 if part.stack == "encoder" else 1000.0
    return base + 3 * part.layer + {"cross": 1.0}.get(part.stack, 0.0) + (2.0 if part.head is None else 0.0)


def _short(part: Writer) -> str:
    if part.layer is None:
        return part.name
    stack = "cross " if part.stack == "cross" else ""
    return f"FF {part.layer + 1}" if part.head is None else f"{stack}{part.layer + 1}.{part.head + 1}"
