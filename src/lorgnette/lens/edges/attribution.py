"""Edge attribution over a corpus: what each writer does to the logit through each reader, to first order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import Seed
from lorgnette.errors import UserError
from lorgnette.explaining.edges import WAYS, EdgeStream, Means, StreamReader
from lorgnette.explaining.stream import Writer, in_memory, writers
from lorgnette.lens.ablation.means import Ablation
from lorgnette.lens.base import Lens
from lorgnette.lens.edges.means import WriterMeans, means_in
from lorgnette.lens.effects.goal import TARGETS, Goal, checked, goal_of
from lorgnette.lens.losses import masked, task_of
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.estimate import tested_together
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

MOST = 2**22
"""Edges of a model whose means fit into memory and into a file."""
DESCRIPTIONS = {
    "attribution": "effect on {logit}, to first order, of what an earlier head writes into the queries, keys or values",
    "from_parts": "the same of vectors of tokens and positions, the rest of the embeddings, and feed-forward parts",
    "to_feed_forward": "effect on {logit}, to first order, of what a head writes and this feed-forward part reads",
    "to_feed_forward_from_parts": "the same of what embeddings and feed-forward parts write",
    "to_logits": "effect on {logit}, to first order, of what a head writes and nothing but the output reads",
    "to_logits_from_parts": "the same of what embeddings and feed-forward parts write",
}


@dataclass(frozen=True)
class BatchPart:
    """A batch, or some texts of it, as edges are asked for: what is hidden is hidden, and the number is chosen."""

    batch: Batch
    choose: "_Choice"


@dataclass
class _Choice:
    """Fixes what is explained when the logits are first seen."""

    subject: Subject
    task: str
    target: Sequence[str]
    batch: Batch
    labels: Tensor | None
    goal: Goal | None = None

    def __call__(self, logits: Tensor) -> Goal:
        if self.goal is None:
            self.goal = goal_of(self.subject, self.task, self.batch, logits, self.target, self.labels)
        return self.goal


class EdgeAttribution(Lens):
    """The attribution of every edge; `edges` has it, and patches the strongest exactly. No finding by itself."""

    task: str
    name: ClassVar[str] = "edge_attribution"
    reads = frozenset({"cpu"})

    def __init__(self, target: str | Sequence[str] = "predicted", ablation: Ablation = "mean", seed: Seed = 0) -> None:
        super().__init__()
        self.target, self.ablation, self.seed = checked(target), ablation, seed
        self.means: Means | None = None

    def needs(self) -> Sequence[Lens]:
        return (WriterMeans(),) if self.ablation == "mean" and self.means is None else ()

    def take(self, results: Mapping[str, Result]) -> None:
        if WriterMeans.name in results:
            self.means = means_in(results, self.subject)

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        if self.target[0] not in TARGETS and self.task != "classification":
            raise UserError(
                f"{subject.name!r} is not a classifier, so the 'target' of Edges must be {', '.join(TARGETS)}. "
                f"Got {'+'.join(self.target)!r} instead."
            )
        self.writers: tuple[Writer, ...] = writers(subject)
        count = len(self.writers) * (3 * len(self.sites) * self.heads + 1)
        if count > MOST:
            raise UserError(
                f"{subject.name!r} has {count:,} edges between its parts, which is more than the lens 'edges' can hold "
                f"({MOST:,}). Use a smaller model, or the lens 'effects', which measures each head as a whole."
            )
        heads = [number for number, writer in enumerate(self.writers) if writer.kind == "heads"]
        parts = [n for n, writer in enumerate(self.writers) if writer.kind not in ("heads", "biases")]
        self.columns: dict[str, list[int]] = {axes.HEAD_A: heads, axes.WRITER: parts}
        self._declare()

    def _declare(self) -> None:
        names = {axis: [str(self.writers[n]) for n in columns] for axis, columns in self.columns.items()}
        early, parts = {axes.HEAD_A: names[axes.HEAD_A]}, {axes.WRITER: names[axes.WRITER]}
        self.to_heads: dict[str, Moments] = {
            axes.HEAD_A: Moments(self, "attribution", {axes.WAY: WAYS, **early}),
            axes.WRITER: Moments(self, "from_parts", {axes.WAY: WAYS, **parts}),
        }
        self.to_layers: dict[str, Moments] = {
            axes.HEAD_A: Moments(self, "to_feed_forward", early, at="layer"),
            axes.WRITER: Moments(self, "to_feed_forward_from_parts", parts, at="layer"),
        }
        self.of_heads: Moments = Moments(self, "to_logits")
        self.of_parts: Moments = Moments(self, "to_logits_from_parts", parts, at="corpus")

    def parts(self, batch: Batch) -> "list[BatchPart]":
        """The batch in parts that fit into memory."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
        return [
            BatchPart(
                some, _Choice(self.subject, self.task, self.target, some, None if labels is None else labels[rows])
            )
            for rows, some in in_memory(self.subject, batch)
        ]

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass, cut at every writer, and one sweep backwards; the gradient of each reader by itself."""
        found: dict[StreamReader, list[Tensor]] = {}
        exists: list[Tensor] = []
        for part in self.parts(batch):
            stream = self.stream(part)
            for reader, values in stream.edges():
                found.setdefault(reader, []).append(values)
            assert part.choose.goal is not None
            exists.append(part.choose.goal.exists)
            del stream
        self._add({reader: torch.cat(values) for reader, values in found.items()}, torch.cat(exists))

    def stream(self, part: BatchPart) -> EdgeStream:
        if self.ablation == "mean" and self.means is None:
            raise UserError(
                f"The lens {self.name!r} replaces what is written by its mean over the corpus, which has not been "
                "measured: use lo.look, which measures it first, or ablation='zero'."
            )
        return EdgeStream(self.subject, part.batch, part.choose, self.means)

    def _add(self, found: Mapping[StreamReader, Float[Tensor, "text writer"]], exists: Float[Tensor, " text"]) -> None:
        none = torch.zeros_like(next(iter(found.values())))
        for site in self.sites:
            if site.stack == "pooler":
                continue
            heads = range(len(self.numbers[site]))
            whole = torch.stack(
                [torch.stack([found.get(StreamReader(way, site, head), none) for way in WAYS], 1) for head in heads], 1
            )
            for axis, moments in self.to_heads.items():
                values = whole[..., self.columns[axis]], exists[:, None, None, None]
                moments.add(site, **{moments.variables[0]: values})
            if site.kind == "self":
                layer = found.get(StreamReader("feed_forward", site), none)
                for axis, moments in self.to_layers.items():
                    moments.add(site, **{moments.variables[0]: (layer[:, self.columns[axis]], exists[:, None])})
        logits = found[StreamReader("logits")]
        self.of_parts.add(to_logits_from_parts=(logits[:, self.columns[axes.WRITER]], exists[:, None]))
        place = {writer: number for number, writer in enumerate(self.writers)}
        for site in self.sites:
            if site.stack != "pooler":
                own = [place[Writer("heads", site.name, site.layer, number)] for number in self.numbers[site]]
                self.of_heads.add(site, to_logits=(logits[:, own], exists[:, None]))

    def compute(self) -> Result:
        variables: dict[str, xr.DataArray] = {}
        for moments in (*self.to_heads.values(), *self.to_layers.values(), self.of_heads, self.of_parts):
            variables |= moments.arrays()
        return self.described(variables)

    def described(self, variables: Mapping[str, xr.DataArray], more: Mapping[str, str] | None = None) -> Result:
        words = TARGETS.get(self.target[0], f"logit of {' minus '.join(self.target)}")
        variables = {**variables, **tested_together(xr.Dataset(variables), list(DESCRIPTIONS))}
        about = {name: text.format(logit=words) for name, text in DESCRIPTIONS.items()}
        result = self.result(variables, descriptions=about | dict(more or {}))
        result.data.attrs |= {"task": self.task, "target": "+".join(self.target), "ablation": self.ablation}
        return result


def edge_name(writer: str, site: Site | None, number: int | None, way: str) -> str:
    """An edge as results name it: "decoder 1-1 → decoder 2-1 key"."""
    if site is None:
        return f"{writer} → logits"
    place = f"{site.name} {site.layer + 1}"
    return f"{writer} → {place} feed-forward" if number is None else f"{writer} → {place}-{number + 1} {way}"
