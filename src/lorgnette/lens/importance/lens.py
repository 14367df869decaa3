"""How important each head is: the change of the loss when it is ablated, and the gradient of a gate on it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site, Tap
from lorgnette.constraints import OneOf, Seed
from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans, Means, means_in
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.base import Lens
from lorgnette.lens.losses import TASKS, masked, task_of, text_metrics
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.signals import Signal, variable
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

ABLATIONS = ("zero", "mean")


class Gates(Tap):
    """A gate ξ = 1 on every head of every text, for ∂L/∂ξ."""

    def __init__(self) -> None:
        self.gates: dict[Site, Float[Tensor, "text head 1 1"]] = {}

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        gate = torch.ones(*context.shape[:2], 1, 1, dtype=context.dtype, device=context.device, requires_grad=True)
        self.gates[call.site] = gate
        return context * gate

    def gradients(self, loss: Float[Tensor, ""]) -> dict[Site, Float[Tensor, "text head"]]:
        """∂loss/∂ξ of every head and text, from one backward pass."""
        sites = list(self.gates)
        gradients = torch.autograd.grad(loss, [self.gates[site] for site in sites], materialize_grads=True)
        return {site: gradient[..., 0, 0] for site, gradient in zip(sites, gradients, strict=True)}


class Importance(Lens):
    """Leave-one-head-out ablation and Michel's gradient sensitivity, with the training loss of the subject.

        loss_change   L(x; head h replaced) − L(x)         by 0 (`zero`), or by the head's mean over the corpus (`mean`)
        sensitivity   |∂L(x)/∂ξ_h|, ξ_h = 1 a gate on the head's output       (Michel, Levy & Neubig 2019, eq. 2)

    Means are over texts. A head's output is its context before the output projection; the mean is over all tokens of
    the corpus, which `look` reads once before. For classifiers, accuracy is measured too. Every head costs a
    forward pass; `stacks` ("encoder", "decoder", "cross") restricts ablation to some stacks.

    What it does not tell you: whether several heads can go together. Heads compensate for each other, so two heads that
    can each be removed alone may not be removable together, and a few training steps can shift importance.
    """

    taken: tuple[Site, ...]

    name: ClassVar[str] = "importance"
    summary: ClassVar[str] = "change of the loss when each head is ablated, and sensitivity |∂loss/∂gate|"
    reads = frozenset({"labels", "cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "gradient": Signal("|∂L/∂ξ| of a gate on the head", variable("sensitivity")),
        **{
            f"ablation_{how}": Signal(
                f"change of the loss with the head's output at {words}",
                variable("loss_change", {axes.ABLATION: how}),
                signed=True,
            )
            for how, words in (("zero", "zero"), ("mean", "its mean"))
        },
    }

    def __init__(
        self,
        ablations: Sequence[Annotated[str, OneOf(ABLATIONS)]] = ABLATIONS,
        seed: Seed = 0,
        stacks: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        self.ablations, self.seed, self.stacks = tuple(ablations), seed, stacks
        self.means: Means | None = None

    def needs(self) -> Sequence[Lens]:
        return (HeadMeans(),) if "mean" in self.ablations and self.means is None else ()

    def take(self, results: Mapping[str, Result]) -> None:
        self.means = means_in(results, self.subject)

    def allocate(self, subject: Subject) -> None:
        self.task: str = task_of(subject)
        stacks = {site.name for site in self.sites}
        if self.stacks is not None and not set(self.stacks) <= stacks:
            raise UserError(
                f"The 'stacks' parameter of Importance must hold stacks of the model ({', '.join(sorted(stacks))}). "
                f"Got {self.stacks!r}."
            )
        self.taken = tuple(site for site in self.sites if self.stacks is None or site.name in self.stacks)
        self.metrics = ("loss", "accuracy") if self.task == "classification" else ("loss",)
        self.sensitivity: Moments = Moments(self, "sensitivity")
        changes = [f"{metric}_change" for metric in self.metrics]
        self.changes: Moments = Moments(self, changes, {axes.ABLATION: self.ablations})
        self.pairs: Pairs | None = Pairs(self.changes, "loss_change") if self.ablations else None
        self.intact: Moments = Moments(self, self.metrics, at="corpus")

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass forwards and backwards, then one per site with a copy of the batch for every head."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
        rerun, gates = Rerun(self.subject, batch), Gates()
        with torch.enable_grad(), self.subject.tapped(gates), rerun.recording():
            outputs = self.subject.run(batch, **rerun.options)
            values, weight = text_metrics(self.subject, self.task, batch, outputs.logits, labels)
            slopes = gates.gradients((values[0] * weight).sum())
        values = values.detach()
        self.intact.add(**{name: (value, weight) for name, value in zip(self.metrics, values, strict=True)})
        with torch.no_grad():
            for site in self.taken:
                self.sensitivity.add(site, sensitivity=(slopes[site].abs(), weight[:, None]))
                if self.ablations:
                    changes = self._changes(site, rerun, values, labels).unbind(2)
                    weights = weight[:, None, None] * self._known()
                    self.changes.add(
                        site,
                        **{f"{name}_change": (each, weights) for name, each in zip(self.metrics, changes, strict=True)},
                    )

    def _known(self) -> Float[Tensor, " ablation"]:
        """Whether each change is known: 0 for changes that need a mean that was not given."""
        possible = [ablation == "zero" or self.means is not None for ablation in self.ablations]
        return torch.tensor(possible, dtype=torch.float32, device=self.subject.device)

    def _changes(
        self, site: Site, rerun: Rerun, intact: Float[Tensor, "metric text"], labels: Tensor | None
    ) -> Float[Tensor, "text head metric ablation"]:
        batch, heads = rerun.batch, self.subject.anatomy[site].heads
        means = None if self.means is None else self.means[site]
        out = intact.new_zeros(len(batch), heads, len(self.metrics), len(self.ablations))
        jobs = [(head, a) for a, ablation in enumerate(self.ablations) for head in range(heads)
                if ablation == "zero" or means is not None]  # fmt: skip
        replaced = [Replacement(head, None if self.ablations[a] == "zero" or means is None else means[head])
                    for head, a in jobs]  # fmt: skip
        for (head, a), logits in zip(jobs, rerun.each(site, replaced), strict=True):
            out[:, head, :, a] = (text_metrics(self.subject, self.task, batch, logits, labels)[0] - intact).T
        return out

    def compute(self) -> Result:
        """Sensitivity, and the change of the loss (and of accuracy) by ablation; `loss` is that of the whole model."""
        variables = self.sensitivity.arrays() | (self.changes.arrays() if self.ablations else {}) | self.intact.arrays()
        for metric in self.metrics:
            variables[metric].attrs["description"] = f"{metric} of the whole model, mean over texts"
            if self.ablations:
                text = f"{metric} without the head minus {metric} with it; loss: {TASKS[self.task]}"
                variables[f"{metric}_change"].attrs["description"] = text
        variables["sensitivity"].attrs["description"] = f"|∂loss/∂ξ| of a gate on the head; loss: {TASKS[self.task]}"
        if self.pairs is not None:
            variables |= self.pairs.q()
        result = self.result(variables)
        result.data.attrs |= {"task": self.task, "loss": TASKS[self.task], "seed": self.seed}
        return result


def need(result: Result) -> xr.DataArray:
    """How much the loss depends on each head: the mean over texts of |∂L/∂ξ| (Michel et al. 2019, eq. 2).

    Not the change of the loss with its sign: taking out together the heads without which the loss falls was worse than
    taking out random ones (docs/pruning.md has the table). `prune` takes the lowest first and measures the rest again.
    It does not tell which heads stand in for each other.
    """
    return result.data["sensitivity"]
