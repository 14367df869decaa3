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
    """A gate ξ = 1 on every head of every text, for ∂L/∂ξ; and one on what it takes from each part of the text."""

    def __init__(self, batch: Batch, sites: Sequence[Site], parts: Sequence[str] = ()) -> None:
        self.batch, self.sites, self.parts = batch, sites if parts else (), tuple(parts)
        self.gates: dict[Site, Float[Tensor, "text head 1 1"]] = {}
        self.of_parts: dict[Site, Float[Tensor, "text head part 1 1"]] = {}
        self.contexts: dict[Site, Float[Tensor, "text head query dim"]] = {}
        self.taken: dict[Site, Float[Tensor, "text head part query dim"]] = {}
        """Σ_j α_ij v_j over the keys of a part, which are what a head takes from it."""

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if not call.site.of_texts:  # of a tower, in which pictures or tiles may be more or fewer than texts
            return context
        ones = context.new_ones(*context.shape[:2], 1, 1)
        gate = self.gates[call.site] = ones.requires_grad_()
        if call.site not in self.sites:
            return context * gate
        keys = self.batch.keys(call.site).kinds(self.parts)
        with torch.no_grad():
            each = [call.average(call.value * part[:, None, :, None]) for part in keys.unbind(-1)]
        taken = self.taken[call.site] = torch.stack(each, 2).to(context.dtype)
        self.contexts[call.site] = context.detach()
        of_parts = self.of_parts[call.site] = context.new_ones(*taken.shape[:3], 1, 1).requires_grad_()
        return context * gate + ((of_parts - 1) * taken).sum(2)

    def gradients(
        self, loss: Float[Tensor, ""]
    ) -> tuple[dict[Site, Float[Tensor, "text head"]], dict[Site, Float[Tensor, "text head part"]]]:
        """∂loss/∂ξ of every head and text, and of every part, from one backward pass."""
        named = [(gates, site) for gates in (self.gates, self.of_parts) for site in gates]
        found = torch.autograd.grad(loss, [gates[site] for gates, site in named], materialize_grads=True)
        heads, parts = (
            {site: slope[..., 0, 0] for (own, site), slope in zip(named, found, strict=True) if own is gates}
            for gates in (self.gates, self.of_parts)
        )
        return heads, parts


class Importance(Lens):
    """Leave-one-head-out ablation and Michel's gradient sensitivity, with the training loss of the subject.

        loss_change   L(x; head h replaced) − L(x)         by 0 (`zero`), or by the head's mean over the corpus (`mean`)
        sensitivity   |∂L(x)/∂ξ_h|, ξ_h = 1 a gate on the head's output       (Michel, Levy & Neubig 2019, eq. 2)

    Means are over texts. A head's output is its context before the output projection; the mean is over all tokens of
    the corpus, which `look` reads once before. For classifiers, accuracy is measured too. Every head costs a
    forward pass; `stacks` ("encoder", "decoder", "cross") restricts ablation to some stacks. With `parts`, named parts
    of the texts (image, text, special; user, assistant, …), `part_sensitivity` has a gate on what the head takes from
    the tokens of a part, Σ_{j in part} α_ij v_j, and `part_loss_change` is the change without that.

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
        parts: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.ablations, self.seed, self.stacks, self.parts = tuple(ablations), seed, stacks, tuple(parts)
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
        if self.parts:
            by_part = {axes.CATEGORY: self.parts}
            self.part_sensitivity: Moments = Moments(self, "part_sensitivity", by_part)
            self.part_changes: Moments = Moments(self, "part_loss_change", by_part)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass forwards and backwards, then one per site with a copy of the batch for every head."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
        rerun, gates = Rerun(self.subject, batch), Gates(batch, self.taken, self.parts)
        with torch.enable_grad(), self.subject.tapped(gates), rerun.recording():
            outputs = self.subject.run(batch, **rerun.options)
            values, weight = text_metrics(self.subject, self.task, batch, outputs.logits, labels)
            slopes, of_parts = gates.gradients((values[0] * weight).sum())
        values = values.detach()
        self.intact.add(**{name: (value, weight) for name, value in zip(self.metrics, values, strict=True)})
        with torch.no_grad():
            for site in self.taken:
                self.sensitivity.add(site, sensitivity=(slopes[site].abs(), weight[:, None]))
                if self.parts:
                    has = batch.keys(site).kinds(self.parts).any(1).to(weight)[:, None] * weight[:, None, None]
                    self.part_sensitivity.add(site, part_sensitivity=(of_parts[site].abs(), has))
                    if self.ablations:
                        without = self._without_parts(site, rerun, gates, values[0], labels)
                        self.part_changes.add(site, part_loss_change=(without, has))
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

    def _without_parts(
        self, site: Site, rerun: Rerun, gates: Gates, intact: Float[Tensor, " text"], labels: Tensor | None
    ) -> Float[Tensor, "text head part"]:
        """The change of the loss when a head gives all but what it takes from the tokens of a part."""
        context, taken = gates.contexts[site], gates.taken[site]
        jobs = [(head, part) for head in range(taken.shape[1]) for part in range(taken.shape[2])]
        replaced = [Replacement(head, context[:, head] - taken[:, head, part]) for head, part in jobs]
        out = intact.new_zeros(len(intact), *taken.shape[1:3])
        for (head, part), logits in zip(jobs, rerun.each(site, replaced), strict=True):
            out[:, head, part] = text_metrics(self.subject, self.task, rerun.batch, logits, labels)[0][0] - intact
        return out

    def compute(self) -> Result:
        """Sensitivity, and the change of the loss (and of accuracy) by ablation; `loss` is that of the whole model."""
        variables = self.sensitivity.arrays() | (self.changes.arrays() if self.ablations else {}) | self.intact.arrays()
        if self.parts:
            variables |= self.part_sensitivity.arrays() | (self.part_changes.arrays() if self.ablations else {})
        if self.pairs is not None:
            variables |= self.pairs.q()
        result = self.result(variables, descriptions=self._descriptions())
        result.data.attrs |= {"task": self.task, "loss": TASKS[self.task], "seed": self.seed}
        return result

    def _descriptions(self) -> dict[str, str]:
        taken = "what the head takes from the tokens of a part"
        out = {
            "sensitivity": f"gradient magnitude of the loss by a gate on the head; loss: {TASKS[self.task]}",
            "part_sensitivity": f"gradient magnitude of the loss by a gate on {taken}",
            "part_loss_change": f"loss without {taken} minus loss with it",
        }
        for metric in self.metrics:
            out[metric] = f"{metric} of the whole model, mean over texts"
            out[f"{metric}_change"] = f"{metric} without the head minus {metric} with it; loss: {TASKS[self.task]}"
        return out


def need(result: Result) -> xr.DataArray:
    """How much the loss depends on each head: the mean over texts of |∂L/∂ξ| (Michel et al. 2019, eq. 2).

    Not the change of the loss with its sign: taking out together the heads without which the loss falls was worse than
    taking out random ones (docs/pruning.md has the table). `prune` takes the lowest first and measures the rest again.
    It does not tell which heads stand in for each other.
    """
    return result.data["sensitivity"]
