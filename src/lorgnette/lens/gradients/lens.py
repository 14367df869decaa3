"""How sensitive the loss is to each attention weight: |∂loss/∂α|."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site, Tap
from lorgnette.constraints import Seed
from lorgnette.contributions.centred import refuse_learnt_sink
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.losses import TASKS, masked, task_of, text_losses
from lorgnette.lens.moments import By, Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.signals import Signal, variable
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import ModelOutput


@dataclass(frozen=True)
class InGraph:
    """The weights of one call, as the rest of the pass used them, and which keys a row may see."""

    weights: Float[Tensor, "batch head query key"]
    visible: Bool[Tensor, "batch heads query key"]


class Graph(Tap):
    """Builds weights and context of every call with gradients on, before other taps see them, and keeps the weights.

    Give it to a pass from the `taps` of a lens that reads "gradients", or to `subject.tapped` under
    `torch.enable_grad`.
    A model whose parameters are frozen works too: the weights themselves are where the graph then begins. `constant`
    names a part of the values that counts as a bias: gradients are then those of the values without it.
    """

    def __init__(self, constant: Callable[[Site], Float[Tensor, "head dim"]] | None = None) -> None:
        self.calls: dict[Site, InGraph] = {}
        self.contexts: dict[Site, Tensor] = {}
        self.constant = constant

    def weights(
        self, call: Call, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        if not torch.is_grad_enabled():
            raise RuntimeError("Graph needs a pass with gradients: a lens that reads 'gradients', or enable_grad()")
        if not weights.requires_grad:
            weights.requires_grad_()
        self.calls[call.site] = InGraph(weights, call.scores.visible_keys())
        return weights

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        # Asked for here so that it is in the graph: a lens that asks first, without gradients, would cut the graph.
        if self.constant is not None:
            refuse_learnt_sink(call)
            self.contexts[call.site] = context
        return context

    def gradients(self, loss: Float[Tensor, ""]) -> dict[Site, Float[Tensor, "batch head query key"]]:
        """∂loss/∂α of every call, from one backward pass; parameters get no gradient. The graph is freed.

        With y_i = Σ_j α_ij v_j it is ⟨∂loss/∂y_i, v_j⟩, so a constant c in the values adds ⟨∂loss/∂y_i, c⟩ to each.
        """
        leaves = [call.weights for call in self.calls.values()] + list(self.contexts.values())
        found = torch.autograd.grad(loss, leaves, materialize_grads=True)
        of_weights = dict(zip(self.calls, found[: len(self.calls)], strict=True))
        for site, of_context in zip(self.contexts, found[len(self.calls) :], strict=True):
            assert self.constant is not None
            constant = self.constant(site)[:, : of_context.shape[-1]].to(of_context)
            of_weights[site] = of_weights[site] - torch.einsum("bhqd,hd->bhq", of_context, constant)[..., None]
        return of_weights


COLUMNS = (*CATEGORIES, "all")
SPECIAL = ("cls", "sep", "all")
"""Special tokens, and all weights, with which they are compared."""


class Gradients(CentredLens):
    """Mean |∂L/∂α_ij| by category of key j, for every head (Clark et al. 2019, §3.3).

    L is the training loss of the subject: cross-entropy of the label, of the reference translation, of the next token,
    or of 15 % masked tokens. The mean is over pairs of a non-padding query and a visible key of that category, then
    over texts (`by="token"` weights a text by its pairs).

    `centred` takes from the values of each head their mean over the corpus, which is read once before: a constant that
    could as well be a bias moves all gradients of a row alike (docs/gauge.md).

    What it does not tell you: the effect of a large change. The gradient is local, a saturated softmax may have large
    gradients, and the weights of a row sum to one, so one cannot grow alone.
    """

    name: ClassVar[str] = "gradients"
    summary: ClassVar[str] = "how sensitive the loss is to the attention weights: |∂loss/∂α| by category of token"
    reads = frozenset({"labels", "gradients", "cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "slope": Signal("|∂L/∂α| over all pairs", variable("gradient", {axes.CATEGORY: "all"})),
    }

    def __init__(self, by: By = "text", seed: Seed = 0, *, centred: bool = False) -> None:
        super().__init__(centred)
        self.by, self.seed = by, seed
        self.graph: Graph | None = None

    def allocate(self, subject: Subject) -> None:
        self.task: str = task_of(subject)
        self.moments: Moments = Moments(self, "gradient", {axes.CATEGORY: COLUMNS})
        self.pairs: Pairs = Pairs(self.moments, "gradient", {axes.CATEGORY: "all"})
        self.special: Pairs = Pairs(self.moments, "gradient", {axes.CATEGORY: SPECIAL}, name="over_all")

    def taps(self, batch: Batch) -> tuple[Tap, ...]:
        if self.task == "masked":
            return ()  # other lenses look at the text as it is: the masked one has a pass of its own
        self.graph = self._graph()
        return (self.graph,)

    def _graph(self) -> Graph:
        return Graph((lambda site: self.centring.mean("value", site)) if self.centred else None)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One backward pass."""
        graph, labels = self.graph, None
        with torch.enable_grad():
            if self.task == "masked":
                hidden, labels = masked(self.subject, batch, seed=self.seed)
                graph = self._graph()
                with self.subject.tapped(graph):
                    outputs = self.subject.run(hidden, return_dict=True)
            assert graph is not None
            losses, weight = text_losses(self.subject, self.task, batch, outputs, labels)
            gradients = graph.gradients((losses * weight).sum())
        for site, gradient in gradients.items():
            if site not in self.position:  # a tower of pictures
                continue
            self._add(site, gradient, graph.calls[site].visible, batch, weight)
        self.graph = None

    def _add(
        self,
        site: Site,
        gradient: Float[Tensor, "text head query key"],
        visible: Bool[Tensor, "text heads query key"],
        batch: Batch,
        weight: Float[Tensor, " text"],
    ) -> None:
        queries, keys = batch.queries(site), batch.keys(site)
        pairs = visible & queries.mask[:, None, :, None] & keys.mask[:, None, None, :]
        kinds = torch.stack([*(keys.categories[name] for name in CATEGORIES), keys.mask], -1).to(gradient.dtype)
        total = (gradient.abs() * pairs).sum(2) @ kinds
        counts = pairs.sum(2).to(gradient.dtype) @ kinds
        weights = counts if self.by == "token" else (counts > 0).to(counts.dtype)
        weights = weights * weight[:, None, None].to(weights.dtype)
        self.moments.add(site, gradient=(total / counts.clamp(min=1), weights))

    def compute(self) -> Result:
        """The mean size of the gradient, by kind of key."""
        variables = self.moments.arrays() | self.pairs.q() | self._over_all()
        descriptions = {
            "gradient": f"gradient magnitude |∂loss/∂α|, mean over pairs; loss: {TASKS[self.task]}",
            "over_all": "gradient on this category minus that on all weights, mean over heads",
        }
        result = self.result(variables, descriptions=descriptions)
        result.data.attrs |= {"task": self.task, "loss": TASKS[self.task], "by": self.by, "seed": self.seed}
        return self.centring.mark(result)

    def _over_all(self) -> dict[str, xr.DataArray]:
        """The mean over heads on weights of a special token minus that on all weights, paired over texts."""
        if not self.special.few:
            return {}
        means, stacks = self.special.means(), self.by_head.stacks  # [site head label]
        names, shape = ("over_all", "over_all_se", "over_all_count"), (len(stacks), len(COLUMNS))
        found = {name: np.full(shape, start) for name, start in zip(names, (np.nan, np.nan, 0.0), strict=True)}
        for (number, stack), (at, kind) in product(enumerate(stacks), enumerate(SPECIAL[:-1])):
            own = np.array([site.name == stack for site in self.sites])[:, None]
            known = own & ~np.isnan(means[..., at])
            row = np.zeros(means.shape)
            row[..., at] = known / max(known.sum(), 1)
            row[..., -1] -= row[..., at]
            apart, _ = self.special.contrasts(row[None])
            for name, part in zip(names, (apart.value, apart.se, apart.count), strict=True):
                found[name][number, COLUMNS.index(kind)] = part[0]
        labels = {axes.STACK: stacks, axes.CATEGORY: list(COLUMNS)}
        out = {name: xr.DataArray(cells, labels, (axes.STACK, axes.CATEGORY)) for name, cells in found.items()}
        return out | {"over_all_count": out["over_all_count"].astype("int64")}
