"""What each head does to the logit: directly, in all, and to first order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor
from transformers.utils import ModelOutput

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import Seed
from lorgnette.errors import UserError
from lorgnette.explaining.direct import POOLER, TERMS, DirectEffects, direct_effects
from lorgnette.explaining.rules import Heads
from lorgnette.lens.ablation.means import Ablation, HeadMeans, Means, means_in, replacements
from lorgnette.lens.ablation.rerun import Replacement, Rerun
from lorgnette.lens.base import Lens
from lorgnette.lens.effects.answers import Answers, OutputLayer
from lorgnette.lens.effects.goal import TARGETS, Goal, checked, goal_of
from lorgnette.lens.losses import masked, task_of
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.signals import Signal, variable
from lorgnette.results import Result
from lorgnette.statistics.rank_agreement import correlations, ranked
from lorgnette.statistics.spearman import spearman
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

CHEAP = ("by_gradient", "direct")
"""What ranks heads in one pass, beside the total effect, which takes one for each head."""
_DIGITS = 9
"""Effects that differ by less than this share of the largest one are equal: only rounding tells them apart."""
_DESCRIPTIONS = {
    "direct": "what the head adds to {logit} through the residual stream and norms alone",
    "total": "how far {logit} falls when the head is ablated, later layers included (exact)",
    "by_gradient": "total effect to first order: the change of the head's output under ablation times the gradient "
    "of the logit",
    "feed_forward": "what a layer's feed-forward part adds to {logit} by the direct path",
    "terms": "terms that sum to {logit}, by the direct path; what replaces the heads counts as a bias, and the "
    "remainder is what the tangent of the output head misses",
    "logit": "{logit}, mean over texts",
    "alike": "Spearman's ρ across all heads of one text between the total effect and a cheap one, mean over texts",
    "alike_means": "the same ρ of the means over texts",
}


class Effects(Lens):
    """Direct effect, total effect and its gradient estimate of every head, on one logit of each text.

        direct       ⟨z_h − z′_h, g_h⟩     g_h = ∂logit/∂z_h along residual stream and frozen norms
        total        logit(x) − logit(x; z_h → z′_h)                   later layers react (Vig et al. 2020)
        by_gradient  ⟨z_h − z′_h, ∂logit/∂z_h⟩                         attribution patching (Syed et al. 2023)

    z′ is the head's mean over the corpus, or zero with `ablation="zero"`, which also takes away a constant that could
    as well be part of the bias (docs/gauge.md). Embeddings, heads, feed-forward parts and biases, with which z′ counts,
    add up to the logit (`terms`). `target`: "predicted", "margin" (minus the second likeliest),
    a class, or two classes, whose difference it then is. A model that predicts at many positions has the mean
    over them. `total=False` leaves out the passes without a head each.

    What it does not tell you: that a head with no direct effect does nothing. It may be read by later heads; and later
    heads may stand in for one that is removed (self-repair), so that the total is smaller than the direct effect.
    """

    task: str
    name: ClassVar[str] = "effects"
    summary: ClassVar[str] = "what each head adds to the predicted logit: directly, in all, and by gradient"
    reads = frozenset({"cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "direct_effect": Signal("direct effect on the logit", variable("direct"), signed=True),
        "total_effect": Signal("total effect on the logit, by ablation", variable("total"), signed=True),
        "gradient_effect": Signal("total effect on the logit, by gradient", variable("by_gradient"), signed=True),
    }

    def __init__(
        self, target: str | Sequence[str] = "predicted", ablation: Ablation = "mean", total: bool = True, seed: Seed = 0
    ) -> None:
        super().__init__()
        self.target, self.ablation = checked(target), ablation
        self.total, self.seed = total, seed
        self.means: Means | None = None

    def needs(self) -> Sequence[Lens]:
        return (HeadMeans(),) if self.ablation == "mean" and self.means is None else ()

    def take(self, results: Mapping[str, Result]) -> None:
        self.means = means_in(results, self.subject)

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        if self.target[0] not in TARGETS and self.task != "classification":
            raise UserError(
                f"{subject.name!r} is not a classifier, so the 'target' of Effects must be {', '.join(TARGETS)}. "
                f"Got {'+'.join(self.target)!r} instead."
            )
        names = ("direct", "by_gradient", "total") if self.total else ("direct", "by_gradient")
        self.of_heads: Moments = Moments(self, names)
        self.pairs: list[Pairs] = [Pairs(self.of_heads, name) for name in names if name in ("direct", "total")]
        self.of_layers: Moments = Moments(self, "feed_forward", at="layer")
        self.of_terms: Moments = Moments(self, "terms", {axes.TERM: TERMS}, at="corpus")
        self.of_logit: Moments = Moments(self, "logit", at="corpus")
        if self.total:
            self.of_ranks: Moments = Moments(self, "alike", {axes.SIGNAL: CHEAP}, at="corpus")
            self.apart: Moments = Moments(self, "alike_difference", at="corpus")

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """One pass and its gradient, one along the direct path, then one per site with a copy for every head."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
        rerun, tap, layer = Rerun(self.subject, batch), Heads(), OutputLayer(self.subject)
        with torch.enable_grad(), self.subject.tapped(tap), rerun.recording(), layer.watched():
            outputs = self.subject.run(batch, **rerun.options)
            goal = goal_of(self.subject, self.task, batch, outputs.logits, self.target, labels)
            value = goal(outputs.logits)
            slopes = torch.autograd.grad(value.sum(), list(tap.outputs.values()), materialize_grads=True)
        intact = IntactPass(rerun, goal, layer.answers(outputs.logits, goal), value.detach())
        direct = direct_effects(self.subject, batch, goal)
        exists = goal.exists
        self.of_logit.add(logit=(value, exists))
        self.of_terms.add(terms=(self._terms(direct), exists[:, None]))
        for site, part in direct.feed_forward.items():
            self.of_layers.add(site, feed_forward=(part, exists))
        by_site = []
        with torch.no_grad():
            for (site, output), slope in zip(tap.outputs.items(), slopes, strict=True):
                if site not in self.sites:  # a tower of pictures
                    continue
                by_site.append(self._site(site, output, slope, direct, intact))
                self.of_heads.add(site, **{name: (each, exists[:, None]) for name, each in by_site[-1].items()})
        if self.total:
            self._add_ranks(by_site, exists)

    def _site(
        self, site: Site, output: Tensor, slope: Tensor, direct: DirectEffects, intact: "IntactPass"
    ) -> dict[str, Float[Tensor, "text head"]]:
        """The effects of one site's heads; the direct ones are zero where no direct path leads to the output."""
        change = output.detach() - self._replacement(site, output)
        straight = direct.slopes.get(site, torch.zeros_like(change))
        out = {"by_gradient": (change * slope).sum((-1, -2)), "direct": (change * straight).sum((-1, -2))}
        if self.total:
            means = replacements(self, self.ablation, self.means)
            replaced = [
                Replacement(head, None if means is None else means[site][head]) for head in range(output.shape[1])
            ]
            out["total"] = intact.lost(site, replaced)
        return out

    def _replacement(self, site: Site, output: Tensor) -> Tensor:
        means = replacements(self, self.ablation, self.means)
        return torch.zeros_like(output) if means is None else means[site][:, None, : output.shape[-1]].to(output)

    def _terms(self, direct: DirectEffects) -> Float[Tensor, "text term"]:
        """The terms of each text's logit; what replaces the heads is a constant, and counts with the biases."""
        terms = direct.terms()
        for site, slope in direct.slopes.items():
            if site.stack != POOLER:  # whose head is no term
                constant = (self._replacement(site, direct.outputs[site]) * slope).sum((1, 2, 3)).to(terms)
                terms[:, TERMS.index("heads")] -= constant
                terms[:, TERMS.index("biases")] += constant
        return terms

    def _add_ranks(self, effects: list[dict[str, Tensor]], exists: Tensor) -> None:
        """ρ of each text over all heads, between the total effect and a cheap one."""
        columns, known = [], []
        for name in CHEAP:
            pair = torch.stack(
                [torch.cat([own[key] for own in effects], 1).double().cpu() for key in (name, "total")], 1
            )
            size = pair.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(pair.dtype).tiny)
            rho = torch.from_numpy(correlations(ranked((pair / size).round(decimals=_DIGITS).numpy()))[:, 0, 1])
            columns.append(rho.nan_to_num(0.0))
            known.append(rho.isfinite())
        weight = torch.stack(known, -1).to(exists) * exists[:, None]
        self.of_ranks.add(alike=(torch.stack(columns, -1), weight))
        one, other = (CHEAP.index(name) for name in ("by_gradient", "direct"))
        self.apart.add(alike_difference=(columns[one] - columns[other], weight[:, one] * weight[:, other]))

    def compute(self) -> Result:
        """Effects of heads and feed-forward parts, the terms of the logit, and how well the cheap effects rank."""
        variables = self.of_heads.arrays() | self.of_layers.arrays() | self.of_terms.arrays() | self.of_logit.arrays()
        if self.total:
            variables |= self.of_ranks.arrays() | self.apart.arrays() | _ranks_of_means(variables)
        words = TARGETS.get(self.target[0], f"logit of {' minus '.join(self.target)}")
        for pairs in self.pairs:
            variables |= pairs.q(size=True)
        result = self.result(
            variables, descriptions={name: text.format(logit=words) for name, text in _DESCRIPTIONS.items()}
        )
        result.data.attrs |= {"task": self.task, "target": "+".join(self.target), "ablation": self.ablation}
        return result


@dataclass(frozen=True)
class IntactPass:
    """The intact pass of a batch: the goal, its value, and how to run it again without a head (`answers`: cheaply)."""

    rerun: Rerun
    goal: Goal
    answers: Answers | None
    value: Float[Tensor, " text"]

    def lost(self, site: Site, replaced: Sequence[Replacement]) -> Float[Tensor, "text head"]:
        """The value minus the same with each of these heads replaced."""
        if self.answers is None:
            return torch.stack([self.value - self.goal(logits) for logits in self.rerun.each(site, replaced)], -1)
        goal = self.answers.narrow
        with self.answers.only():
            return torch.stack([self.value - goal(logits) for logits in self.rerun.each(site, replaced)], -1)


def _ranks_of_means(variables: Mapping[str, xr.DataArray]) -> dict[str, xr.DataArray]:
    values = []
    for name in CHEAP:
        pair = np.stack([variables[each].values.flatten() for each in (name, "total")])
        pair = pair[:, np.isfinite(pair).all(0)]
        size = np.abs(pair).max(-1, keepdims=True, initial=np.finfo(float).tiny)
        rho = spearman(*(pair / size).round(_DIGITS))
        values.append(np.nan if rho is None else rho)
    array = xr.DataArray(np.array(values), dims=(axes.SIGNAL,), coords={axes.SIGNAL: list(CHEAP)})
    return {"alike_means": array, "alike_means_count": array.notnull().astype("int64")}
