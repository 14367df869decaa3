"""Exact path patching: one edge is taken away, all other parts read what they read, and later parts react.

What the writer gives is replaced on the way to this reader alone: between the two only the residual stream and its
norms, whose statistics are those of the changed stream. The reader's output with the changed query, key or value (or
with the changed input of the feed-forward part) is then put into a whole pass (Wang et al. 2022; Goldowsky-Dill et al.
2023).
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Recorder, Site
from lorgnette.attending.scores import per_query_head
from lorgnette.explaining.direct import Goal
from lorgnette.explaining.edges import EdgeStream, StreamReader, head_outputs
from lorgnette.explaining.stream import Writer
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.models.switching import evaluating
from lorgnette.texts.batch import Batch


@dataclass(frozen=True)
class Edge:
    """A link from the output of a head or feed-forward part to what reads it."""

    writer: Writer
    reader: StreamReader


def patched(stream: EdgeStream, batch: Batch, goal: Goal, edges: Sequence[Edge]) -> Float[Tensor, "text edge"]:
    """What is explained, minus the same with each edge taken away: a pass for every writer, and one for every edge."""
    subject = stream.subject
    assert stream.value is not None
    whole, out = stream.value.detach(), torch.zeros(len(batch), len(edges), dtype=stream.value.dtype)
    out = out.to(whole.device)
    rerun = Rerun(subject, batch)
    with torch.no_grad(), evaluating(subject.model):
        with rerun.recording():
            subject.run(batch, **rerun.options)
        for writer in dict.fromkeys(edge.writer for edge in edges):
            seen = _HeldWrites(stream).without(batch, writer)
            for number, edge in enumerate(edges):
                if edge.writer == writer:
                    out[:, number] = whole - _after(stream, batch, goal, edge.reader, seen, rerun).to(whole)
    return out


@dataclass
class _WhatIsRead:
    """What the parts read when one writer is changed and all others write what they wrote."""

    calls: dict[Site, Call]
    feed_forward: dict[Site, Tensor]
    logits: Tensor


class _HeldWrites:
    """Runs the model with every writer held at what it wrote."""

    def __init__(self, stream: EdgeStream) -> None:
        self.stream = stream
        self.values: list[Tensor] = []
        self.modules: list[nn.Module] = []
        for event in stream.events:
            assert event.site is not None
            if event.way == "feed_forward":
                self.modules.append(stream.last_module[event.site])
                self.values.append(stream.read[event.site][1].detach())
            else:
                module = stream.attention[event.site].output
                assert module is not None
                self.modules.append(module)
                self.values.append(stream.given[event.site].detach())

    def without(self, batch: Batch, writer: Writer) -> _WhatIsRead:
        """What is read in a pass in which one writer is replaced, by its mean or by zero."""
        subject, changed = self.stream.subject, self._changed(writer)
        at, outputs = 0, dict[Site, Tensor]()

        def hold(module: nn.Module, arguments: object, output: Tensor) -> Tensor:
            nonlocal at
            event, value = self.stream.events[at], self.values[at]
            assert self.modules[at] is module
            if event.way == "feed_forward" and event.site is not None:
                outputs[event.site] = output
            held = value - changed[1] if changed[0] == at else value.clone()
            at += 1
            return held

        recorder: Recorder[Call] = Recorder(lambda call: call)
        with ExitStack() as undo:
            for module in {id(module): module for module in self.modules}.values():
                undo.callback(module.register_forward_hook(hold).remove)
            with subject.tapped(recorder):
                logits = subject.run(batch, **Rerun(subject, batch).options).logits
        return _WhatIsRead(recorder.records, outputs, logits)

    def _changed(self, writer: Writer) -> tuple[int, Tensor]:
        """Where the writer writes, and its output minus the replacement."""
        piece = next(piece for piece in self.stream.pieces if writer in piece.writers)
        way = "feed_forward" if writer.kind == "feed_forward" else "heads"
        at = next(
            number
            for number, event in enumerate(self.stream.events)
            if event.way == way
            and event.site is not None
            and (event.site.layer, event.site.stack if way == "feed_forward" else event.site.name)
            == (writer.layer, writer.stack)
        )
        return at, piece.amount[piece.writers.index(writer)]


def _after(
    stream: EdgeStream, batch: Batch, goal: Goal, reader: StreamReader, seen: _WhatIsRead, rerun: Rerun
) -> Float[Tensor, " text"]:
    """What is explained, after one reader has read something else."""
    if reader.site is None:
        return goal(seen.logits)
    if reader.way == "feed_forward":
        return goal(_with_output(stream, batch, reader.site, seen.feed_forward[reader.site]))
    assert reader.head is not None
    vector = _read(stream.calls[reader.site], seen.calls[reader.site], reader.way, reader.head)
    (logits,) = rerun.each(reader.site, [Replacement(reader.head, vector)])
    return goal(logits)


def _read(before: Call, after: Call, way: str, head: int) -> Float[Tensor, "batch query dim"]:
    """The output of a head whose query, key or value is that of another call."""
    heads = before.query.shape[1]
    names = ("query", "key", "value")
    old, new = (
        [call.query.detach(), *(per_query_head(each.detach(), heads) for each in (call.scores.key, call.grouped_value))]
        for call in (before, after)
    )
    at = names.index(way)
    old[at] = old[at].clone()
    old[at][:, head] = new[at][:, head]
    return head_outputs(before.scores, *old)[:, head]


def _with_output(stream: EdgeStream, batch: Batch, site: Site, output: Tensor) -> Tensor:
    """The logits of a pass in which a feed-forward part has this output."""
    module = stream.last_module[site]
    before = [event.site for event in stream.events if event.way == "feed_forward"]
    calls: Iterator[Site] = iter([other for other in before if other and stream.last_module[other] is module])

    def give(module: nn.Module, arguments: object, given: Tensor) -> Tensor:
        return output.clone() if next(calls) == site else given

    hook = module.register_forward_hook(give)
    try:
        return stream.subject.run(batch, **Rerun(stream.subject, batch).options).logits
    finally:
        hook.remove()
