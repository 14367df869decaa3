"""Which paths the prediction takes: the attribution of every edge, and the strongest edges patched exactly."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.constraints import Interval, Seed
from lorgnette.explaining.edges import WAYS, EdgeStream, StreamReader
from lorgnette.explaining.stream import Writer
from lorgnette.lens.ablation.means import Ablation
from lorgnette.lens.base import Lens
from lorgnette.lens.edges.attribution import EdgeAttribution, edge_name
from lorgnette.lens.edges.exact import Edge, patched
from lorgnette.lens.moments import Moments
from lorgnette.results import Result
from lorgnette.statistics.estimate import tested_together
from lorgnette.statistics.hashing import text_key
from lorgnette.statistics.rank_agreement import bounds_of, correlations, ranked
from lorgnette.statistics.spearman import spearman
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

Labelled = TypeVar("Labelled", xr.DataArray, xr.Dataset)

DRAWS = 400
"""Draws of texts for the interval of `alike`."""
CHOSEN = ("strongest", "drawn")
"""How the edges that are patched were chosen: the largest attributions, and some of the others at random."""

_DESCRIPTIONS = {
    "exact": "what is explained, minus the same without this edge (exactly)",
    "estimated": "the attribution of the same edge, mean over texts",
    "alike": "Spearman's ρ over edges between their attribution and their exact effect",
}


class Edges(EdgeAttribution):
    """What each part does to a logit through each part that reads it: all edges to first order, the strongest exactly.

        attribution(a → r)   ⟨w_a − w′_a, Jᵀ g_r⟩      w_a what a writes, w′_a its mean over the corpus, or zero
        exact(a → r)         logit(x) − logit(x; r reads w′_a in place of w_a, and nothing else does)

    Writers: vectors of tokens and positions, heads, feed-forward parts. Readers: queries, keys and values of heads,
    feed-forward parts, the output. g_r is the gradient of the logit at the reader, J the stream between the two with
    its norms (edge attribution patching: Nanda 2023, Syed et al. 2023), so that the edges of a head sum to its effect
    by gradient. `strongest` edges between heads, feed-forward parts and the output are patched exactly (Wang et al.
    2022), and `drawn` of the others at random: `alike` says how well the attribution ranks either (Spearman), with an
    interval from a bootstrap over texts. The strongest are chosen by their attribution on the same texts.
    `among="heads"` patches edges from heads alone.

    What it does not tell you: a strong edge is not a circuit: others may stand in for it, and two weak ones may matter
    together. The attribution is wrong where the logit bends: at saturated softmaxes above all.
    """

    name: ClassVar[str] = "edges"
    summary: ClassVar[str] = "paths through the model: what each part does to the logit through each part that reads it"

    resampled: Tensor

    def __init__(
        self,
        target: str | Sequence[str] = "predicted",
        ablation: Ablation = "mean",
        strongest: Annotated[int, Interval(0)] = 16,
        drawn: Annotated[int, Interval(0)] = 16,
        among: Literal["all", "heads"] = "all",
        seed: Seed = 0,
    ) -> None:
        super().__init__(target, ablation, seed)
        self.strongest, self.drawn, self.among = strongest, drawn, among
        self.attributed: Result | None = None
        self.chosen: list[tuple[Edge, str, float]] = []

    @property
    def exact(self) -> bool:
        return self.strongest + self.drawn > 0

    def needs(self) -> Sequence[Lens]:
        """The means, and where edges are patched, the attributions, which say which are the strongest."""
        if not self.exact:
            return super().needs()
        own = EdgeAttribution(self.target, self.ablation, self.seed)
        return (*super().needs(), own) if self.attributed is None else ()

    def take(self, results: Mapping[str, Result]) -> None:
        super().take(results)
        if EdgeAttribution.name in results:
            self.attributed = results[EdgeAttribution.name]
            self.chosen = self._choose(self.attributed.data)

    def cost(self) -> str:
        edges = self.strongest + self.drawn
        if not edges:
            return "for each batch a forward pass and a backward sweep over all edges"
        return (
            "for each batch two forward passes, each with a backward sweep over all edges, and up to "
            f"{edges} passes and {edges} partial ones for the patched edges"
        )

    def _declare(self) -> None:
        if not self.exact:
            super()._declare()
            return
        self.of_edges: Moments = Moments(
            self, "exact", {axes.EDGE: list(range(self.strongest + self.drawn))}, at="corpus"
        )
        self.sums("resampled", 2, DRAWS, self.strongest + self.drawn)
        if self.per_text is not None:
            self.per_text.named = self._of_chosen

    def _of_chosen(self, texts: xr.Dataset) -> xr.Dataset:
        return texts if self.attributed is None else _only_named(texts, self._chosen_names())

    def _chosen_names(self) -> list[str]:
        return [self._named(edge) for edge, _, _ in self.chosen]

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """For the edges that were chosen: a pass for every writer, and the layers from the reader on for every edge."""
        if not self.exact:
            super().finish(batch, outputs)
            return
        values, exists = [], []
        for part in self.parts(batch):
            stream = self.stream(part)
            goal = part.choose.goal
            assert goal is not None
            values.append(patched(stream, part.batch, goal, [edge for edge, _, _ in self.chosen]))
            exists.append(goal.exists)
            self._resample(stream, part.batch, values[-1], goal.exists)
        found, weight = torch.cat(values), torch.cat(exists)[:, None].expand(-1, len(self.chosen))
        missing = self.strongest + self.drawn - len(self.chosen)  # a model may have fewer edges
        found, weight = (torch.nn.functional.pad(each, (0, missing)) for each in (found, weight))
        self.of_edges.add(exact=(found, weight))

    def _resample(
        self, stream: EdgeStream, batch: Batch, exact: Float[Tensor, "text edge"], exists: Float[Tensor, " text"]
    ) -> None:
        """Add attributions and exact effects to the sums of every draw of texts (Bayesian bootstrap, Rubin 1981).

        A text weighs as much in a draw as its id says, whatever the batch: the weights of all texts of a draw are
        exponential. Their sum is the same for all edges, so ranks need no mean.
        """
        found = dict(stream.edges())
        columns = [found[edge.reader][:, stream.place[edge.writer]].to(exact) for edge, _, _ in self.chosen]
        if not columns:
            return
        both = torch.stack([torch.stack(columns, -1), exact]).double().cpu() * exists.double().cpu()[:, None]
        keys = [text_key("edges", self.seed, example.id) for example in batch.examples]
        weights = torch.tensor(np.stack([np.random.default_rng(key).exponential(size=DRAWS) for key in keys]))
        drawn = torch.einsum("td,kte->kde", weights, both)
        self.resampled[..., : len(columns)] += drawn.to(self.resampled)

    def compute(self) -> Result:
        if not self.exact or self.attributed is None:
            return super().compute()
        variables: dict[str, xr.DataArray] = {str(n): array for n, array in self.attributed.data.data_vars.items()}
        names = self._chosen_names()
        for name, array in self.of_edges.arrays().items():
            variables[name] = _only_named(array, names)
        variables["estimated"] = _along(axes.EDGE, names, [value for _, _, value in self.chosen])
        variables["chosen"] = _along(axes.EDGE, names, [how for _, how, _ in self.chosen])
        variables |= self._alike(variables)
        variables |= tested_together(xr.Dataset(variables), ["exact"])
        return self.described(variables, _DESCRIPTIONS)

    def _alike(self, variables: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
        """ρ over the edges of either choice between the attribution and the exact effect, of the means over texts.

        The interval holds the middle 95 % of what it is over draws of texts.
        """
        values, counts, bounds = [], [], []
        texts = int(variables["exact_count"].max()) if len(self.chosen) else 0
        draws = self.resampled[..., : len(self.chosen)].movedim(1, 0).cpu().numpy()  # [draw kind edge]
        for how in CHOSEN:
            own = variables["chosen"].values == how
            pair = [variables[name].values[own] for name in ("estimated", "exact")]
            rho = spearman(*pair) if own.sum() > 2 else None
            values.append(np.nan if rho is None else rho)
            counts.append(int(own.sum()) if rho is not None else 0)
            known = rho is not None and texts > 1
            bounds.append(bounds_of(correlations(ranked(draws[..., own]))[:, 0, 1]) if known else [np.nan] * 2)
        alike = _along(axes.CHOICE, CHOSEN, values)
        out = {"alike": alike, "alike_count": _along(axes.CHOICE, CHOSEN, counts)}
        for end, side in zip(("low", "high"), zip(*bounds, strict=True), strict=True):
            out[f"alike_{end}"] = _along(axes.CHOICE, CHOSEN, [float(bound) for bound in side])
            out[f"alike_{end}_count"] = out[f"alike_{end}"].notnull().astype("int64") * texts
        return out

    def _choose(self, data: xr.Dataset) -> list[tuple[Edge, str, float]]:
        """The largest attributions of edges from heads and feed-forward parts, and others at random."""
        kinds = ("heads",) if self.among == "heads" else ("heads", "feed_forward")
        edges = [pair for pair in self._edges(data) if pair[1] == pair[1] and pair[1] != 0]
        edges = [pair for pair in edges if pair[0].writer.kind in kinds]
        edges.sort(key=lambda pair: (-abs(pair[1]), self._named(pair[0])))
        first, rest = edges[: self.strongest], edges[self.strongest :]
        generator = np.random.default_rng(self.seed)
        picked = sorted(generator.choice(len(rest), min(self.drawn, len(rest)), replace=False).tolist())
        chosen = [(pair, CHOSEN[0]) for pair in first] + [(rest[n], CHOSEN[1]) for n in picked]
        return [(edge, how, value) for (edge, value), how in chosen]

    def _edges(self, data: xr.Dataset) -> list[tuple[Edge, float]]:
        """All edges from heads and feed-forward parts, with their attributions."""
        names = {str(writer): writer for writer in self.writers if writer.kind in ("heads", "feed_forward")}
        out: list[tuple[Edge, float]] = []

        def add(array: xr.DataArray, axis: str, readers: Sequence[StreamReader], dims: Sequence[str]) -> None:
            """`array` has the readers along `dims`, in their order, and the writers along `axis`."""
            flat = array.transpose(*dims, axis).values.reshape(len(readers), -1)
            for reader, row in zip(readers, flat, strict=True):
                known = zip(array[axis].values.tolist(), row.tolist(), strict=True)
                out.extend((Edge(names[name], reader), value) for name, value in known if name in names)

        for site in self.sites:
            if site.stack == "pooler":
                continue
            place = {axes.STACK: site.name, axes.LAYER: site.layer + 1}
            heads = [StreamReader(way, site, head) for head in range(len(self.numbers[site])) for way in WAYS]
            labels = {axes.HEAD: [number + 1 for number in self.numbers[site]]}
            for name, axis in (("attribution", axes.HEAD_A), ("from_parts", axes.WRITER)):
                add(data[name].sel(place | labels), axis, heads, (axes.HEAD, axes.WAY))
            if site.kind == "self":
                for name, axis in (("to_feed_forward", axes.HEAD_A), ("to_feed_forward_from_parts", axes.WRITER)):
                    add(data[name].sel(place), axis, [StreamReader("feed_forward", site)], ())
            own = data["to_logits"].sel(place | labels).values.tolist()
            for number, value in zip(self.numbers[site], own, strict=True):
                out.append((Edge(Writer("heads", site.name, site.layer, number), StreamReader("logits")), value))
        add(data["to_logits_from_parts"], axes.WRITER, [StreamReader("logits")], ())
        return out

    def _named(self, edge: Edge) -> str:
        site, head = edge.reader.site, edge.reader.head
        number = None if head is None or site is None else self.numbers[site][head]
        return edge_name(str(edge.writer), site, number, edge.reader.way)


def _along(axis: str, labels: Sequence[str], values: Sequence[float | int | str]) -> xr.DataArray:
    return xr.DataArray(list(values), dims=(axis,), coords={axis: list(labels)})


def _only_named(found: Labelled, names: Sequence[str]) -> Labelled:
    """The edges that were patched, by name; room is made for as many as were asked for, and a model may have fewer."""
    return found.isel({axes.EDGE: slice(0, len(names))}).assign_coords({axes.EDGE: list(names)})
