"""Which heads can go together? The loss without the heads that a signal calls least important, signal by signal."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, ClassVar, NamedTuple

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import Interval, NotEmpty, Seed, Share
from lorgnette.errors import UserError
from lorgnette.lens.ablation.copies import ScaledCopies, copies_together
from lorgnette.lens.ablation.means import Ablation, HeadMeans, Means, means_in, replacements
from lorgnette.lens.base import Lens
from lorgnette.lens.losses import TASKS, masked, task_of, text_metrics
from lorgnette.lens.moments import Moments
from lorgnette.lens.signals import SIGNALS_OF, HeadValues, in_stack, signals_in, signals_of, table
from lorgnette.results import Result, Results
from lorgnette.statistics.estimate import Estimate, false_discovery
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

RANDOM = "random"
SAME = "the same texts"
_DESCRIPTIONS = {
    "loss": "loss of the intact model, mean over texts",
    "accuracy": "accuracy of the intact model",
    "{}_change": "{} without the heads minus {} with them",
    "{}_difference": "{} without the heads by one signal minus that by the other, over the same texts",
    "{}_difference_p": "p of that difference (paired t test over texts), corrected over pairs and shares of a stack",
    "{}_draw": "{} without one random set of heads minus {} with them",
    "{}_chance_p": "p that a random set does as well, by rank among the draws; corrected over signals",
}


class RemovalTask(NamedTuple):
    """One set of heads that goes: where it is counted, and which random draw it is."""

    stack: int
    signal: int
    share: int
    draw: int | None = None


class Removal(Lens):
    """The change of the loss when a share of the heads of a stack goes at once, the least important first.

        loss_change      L(x; heads lowest by a signal at their mean) − L(x), mean over texts
        loss_difference  that of one signal minus that of another on the same texts, with a paired t test
        loss_chance_p    (1 + random sets of heads that do at least as well as the signal's) / (1 + random sets)

    A signal with a sign (relevance, the change of the loss) ranks by its size. `random` is the mean of `controls` sets
    of as many heads. Nothing is trained in between. Heads are ranked in a first pass over the same texts, or by
    `ranking`, a folder of results of `look` on other texts: signals that come from the loss, such as ablation, know
    the texts that they were measured on, and only the second is a fair test of them. A head that goes gives its mean
    over the corpus, or zero with `ablation="zero"`, as if it were cut out of the model (`prune` does that).

    What it does not tell you: the best set of heads. Every order here is made once; `prune` measures again as it goes.
    """

    name: ClassVar[str] = "removal"
    summary: ClassVar[str] = "what is lost without a quarter, half or more of the heads, chosen by each signal"
    reads = frozenset({"labels", "cpu"})

    def __init__(
        self,
        shares: Annotated[Sequence[Share], NotEmpty()] = (0.25, 0.5, 0.75),
        controls: Annotated[int, Interval(1)] = 20,
        seed: Seed = 0,
        ranking: Path | None = None,
        ablation: Ablation = "mean",
    ) -> None:
        super().__init__()
        self.shares, self.controls, self.seed = tuple(shares), controls, seed
        self.ablation = ablation
        self.means: Means | None = None
        self.ranking = None if ranking is None else Path(ranking)
        self.ranked_on: str = "" if ranking is None else str(ranking)  # as text it is part of `described`
        self.descriptions: dict[str, str] = {}
        self.jobs: list[RemovalTask] = []
        self.gone: dict[Site, Bool[Tensor, "job head"]] = {}

    def needs(self) -> Sequence[Lens | str]:
        means = (HeadMeans(),) if self.ablation == "mean" else ()
        if self.ranking is not None:
            return means
        # One pass ranks the heads: ablation by means would need another one before it.
        return (*(f"{name}:ablations=zero" if name == "importance" else name for name in SIGNALS_OF), *means)

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        self.stacks: list[str] = list(dict.fromkeys(site.name for site in self.sites if site.stack != "pooler"))
        given = None if self.ranking is None else Results.load(self.ranking)
        if any(result.provenance.weights_hash != subject.weights_hash for result in (given or {}).values()):
            raise UserError(f"The ranking {self.ranked_on} is of another model: its weights differ.")
        self.names: list[str] = [*self._known(given), RANDOM]
        self.metrics = ("loss", "accuracy") if self.task == "classification" else ("loss",)
        one: dict[str, Sequence[str | float]] = {
            axes.STACK: self.stacks,
            axes.SIGNAL: self.names,
            axes.SHARE: self.shares,
        }
        two = {**one, axes.SIGNAL_B: self.names}
        by_draw: dict[str, Sequence[str | float]] = {
            axes.STACK: self.stacks,
            axes.SHARE: self.shares,
            axes.DRAW: range(1, self.controls + 1),
        }
        self.intact: Moments = Moments(self, self.metrics, at="corpus")
        self.changes: Moments = Moments(self, [f"{name}_change" for name in self.metrics], one, at="corpus")
        self.differences: Moments = Moments(self, [f"{name}_difference" for name in self.metrics], two, at="corpus")
        self.draws: Moments = Moments(self, [f"{name}_draw" for name in self.metrics], by_draw, at="corpus")
        self._plan({} if given is None else given)

    def _known(self, given: Mapping[str, Result] | None) -> list[str]:
        """Names of the signals that there can be, before the first pass has said which there are."""
        if given is not None:
            names = list(signals_in(given))
            if not names:
                raise UserError(
                    f"The results in {self.ranking} have no signal to rank heads by: look with 'importance'."
                )
            return names
        return [name for lens in SIGNALS_OF for name in signals_of(lens)]

    def take(self, results: Mapping[str, Result]) -> None:
        if self.ablation == "mean":
            self.means = means_in(results, self.subject)
        if self.ranking is None:
            self._plan(results)

    def _plan(self, results: Mapping[str, Result]) -> None:
        """Which heads each job removes."""
        signals = signals_in(results)
        self.descriptions = {name: one.signal.description for name, one in signals.items()}
        self.jobs, sets = [], []
        for number, stack in enumerate(self.stacks):
            heads = [(site, head) for site in self.sites if site.name == stack for head in self.numbers[site]]
            orders = self._orders(signals, stack)
            for place, share in enumerate(self.shares):
                size = round(share * len(heads))
                for name, order in orders.items():
                    self.jobs.append(RemovalTask(number, self.names.index(name), place))
                    sets.append(order[:size])
                for control in range(self.controls):
                    self.jobs.append(RemovalTask(number, self.names.index(RANDOM), place, control))
                    sets.append(random.Random(f"{self.seed} {stack} {share} {control}").sample(heads, size))
        self.gone = {site: torch.zeros(len(sets), len(self.numbers[site]), dtype=torch.bool) for site in self.sites}
        for job, gone in enumerate(sets):
            for site, head in gone:
                self.gone[site][job, self.numbers[site].index(head)] = True

    def _orders(self, signals: Mapping[str, HeadValues], stack: str) -> dict[str, list[tuple[Site, int]]]:
        """The heads of a stack by every signal, the least important first; of equal ones the first in the model."""
        if not signals:
            return {}
        mine = in_stack(signals, stack)
        values, places, _ = table(mine, stack, size=True) if mine else (np.empty(0), np.empty((2, 0), dtype=int), None)
        sites = {site.layer: site for site in self.sites if site.name == stack}
        heads = [(sites.get(layer), head) for layer, head in places.T.tolist()]
        here = [(site, head) for site, head in heads if site is not None and head in self.numbers[site]]
        if not mine or len(here) < len(heads):
            raise UserError(f"The ranking {self.ranked_on or 'given'} is of another model: its heads differ.")
        return {
            name: [here[at] for at in np.argsort(row, kind="stable")]
            for name, row in zip(mine, values, strict=True)
            if len(np.unique(row)) > 1  # what is the same for all heads ranks none
        }

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """The pass as it is, then copies of the batch, each without other heads."""
        labels = None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch, seed=self.seed)
            outputs = self.subject.run(batch, return_dict=True)
        intact, exists = text_metrics(self.subject, self.task, batch, outputs.logits, labels)
        self.intact.add(**{name: (value, exists) for name, value in zip(self.metrics, intact, strict=True)})
        sizes = (len(self.stacks), len(self.names), len(self.shares))
        total = intact.new_zeros(len(self.metrics), len(batch), *sizes)
        drawn = intact.new_zeros(len(self.metrics), len(batch), len(self.stacks), len(self.shares), self.controls)
        count = intact.new_zeros(sizes)
        together = copies_together(batch)
        for start in range(0, len(self.jobs), together):
            jobs = range(start, min(start + together, len(self.jobs)))
            for job, logits in zip(jobs, self._logits(batch, jobs), strict=True):
                stack, signal, place, draw = self.jobs[job]
                value = text_metrics(self.subject, self.task, batch, logits, labels)[0]
                total[:, :, stack, signal, place] += value
                count[stack, signal, place] += 1
                if draw is not None:
                    drawn[:, :, stack, place, draw] = value
        self._add(total / count.clamp(min=1), intact, exists, count > 0)
        for name, each, before in zip(self.metrics, drawn, intact, strict=True):
            change = each - before[:, None, None, None]
            self.draws.add(**{f"{name}_draw": (change, exists[:, None, None, None].expand_as(change))})

    def _add(
        self,
        values: Float[Tensor, "metric text stack signal share"],
        intact: Float[Tensor, "metric text"],
        exists: Float[Tensor, " text"],
        measured: Bool[Tensor, "stack signal share"],
    ) -> None:
        weight = exists[:, None, None, None] * measured
        both = exists[:, None, None, None, None] * (measured[..., None] & measured.mT[:, None])
        for name, value, before in zip(self.metrics, values, intact, strict=True):
            difference = value[..., None] - value.mT[:, :, None]  # [text stack signal share signal_b]
            self.changes.add(**{f"{name}_change": (value - before[:, None, None, None], weight)})
            self.differences.add(**{f"{name}_difference": (difference, both)})

    @torch.no_grad()
    def _logits(self, batch: Batch, jobs: range) -> Float[Tensor, "copy text *rest"]:
        remaining = {site: 1.0 - each[jobs.start : jobs.stop].float() for site, each in self.gone.items()}
        copies = len(jobs)
        inputs = {name: each.repeat(copies, *(1,) * (each.dim() - 1)) for name, each in batch.inputs.items()}
        with self.subject.tapped(ScaledCopies(remaining, replacements(self, self.ablation, self.means))):
            return self.subject.run(replace(batch, inputs=inputs), return_dict=True).logits.unflatten(0, (copies, -1))

    def compute(self) -> Result:
        """Changes by signal and share of heads, and the differences between signals."""
        variables = self.intact.arrays() | self.changes.arrays() | self.differences.arrays() | self.draws.arrays()
        for name in self.metrics:
            tested = {
                f"{name}_difference_p": p_of_pairs(Estimate.of(xr.Dataset(variables), f"{name}_difference")),
                f"{name}_chance_p": p_against_random(
                    variables[f"{name}_change"], variables[f"{name}_draw"], 1 if name == "accuracy" else -1
                ),
            }
            variables |= tested | {f"{key}_count": p.notnull().astype("int64") for key, p in tested.items()}
        data = xr.Dataset(variables)
        measured = data["loss_change"].notnull().any([axes.STACK, axes.SHARE]).values
        names = [name for name, known in zip(self.names, measured, strict=True) if known]
        data = data.sel({axes.SIGNAL: names, axes.SIGNAL_B: names})
        for pattern, text in _DESCRIPTIONS.items():
            for metric in self.metrics:
                if (name := pattern.format(metric)) in data:
                    data[name].attrs["description"] = text.format(metric, metric)
        data.attrs |= {"task": self.task, "loss": TASKS[self.task], "seed": self.seed, "controls": self.controls}
        data.attrs["signals"] = self.descriptions
        data.attrs |= {"ranked_on": self.ranked_on or SAME, "ablation": self.ablation}
        return Result(self.name, data, self.provenance)


def p_against_random(change: xr.DataArray, drawn: xr.DataArray, better: int) -> xr.DataArray:
    """p of every signal, corrected over the signals of a stack at each share.

    A signal that says nothing chooses a random set, so its rank among the random sets is uniform. The mean of the
    sets would be no match for it: one set is better or worse than their mean however little it means.
    """
    signals = change.where(change[axes.SIGNAL] != RANDOM)
    as_good = ((drawn - signals) * better >= 0).sum(axes.DRAW)
    p = ((1 + as_good) / (1 + drawn.sizes[axes.DRAW])).where(signals.notnull() & drawn.notnull().all(axes.DRAW))
    p = p.transpose(axes.STACK, axes.SHARE, axes.SIGNAL)
    return p.copy(data=np.stack([[false_discovery(row) for row in stack] for stack in p.values]))


def p_of_pairs(difference: Estimate) -> xr.DataArray:
    """p of every pair of signals once, corrected over the pairs and shares of a stack."""
    names = difference.value[axes.SIGNAL].values
    upper = np.triu(np.ones((len(names), len(names)), dtype=bool), 1) & (names != RANDOM) & (names != RANDOM)[:, None]
    dims = (axes.STACK, axes.SHARE, axes.SIGNAL, axes.SIGNAL_B)
    p = difference.p.transpose(*dims).values
    p = np.stack([false_discovery(np.where(upper, each, np.nan)) for each in p])
    both = np.where(upper, p, np.swapaxes(p, -1, -2))
    return xr.DataArray(both, dims=dims, coords={dim: difference.value[dim] for dim in dims})
