"""Which heads help, which hurt, and which do not matter: gates under pressure to keep, and to remove, every head."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Site
from lorgnette.constraints import Interval, NotEmpty, Seed
from lorgnette.errors import UserError
from lorgnette.lens.ablation.means import HeadMeans, Means, means_in, replacements
from lorgnette.lens.base import Lens
from lorgnette.lens.gating.fit import START, GatedLoss, drawn_rows, fitted
from lorgnette.lens.losses import TASKS, task_of, text_losses
from lorgnette.lens.signals import Signal, opposite, variable
from lorgnette.results import Result
from lorgnette.results.result import CENTRED
from lorgnette.statistics.hash_sample import NAME, HashSample
from lorgnette.statistics.hashing import text_key
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.types import ModelOutput

HELD_OUT = 0.3
PRESSURES = ("none", "free", "keep", "remove")
_DESCRIPTIONS = {
    "facilitation": "gate of the head under pressure to remove it: 1 if the task needs it",
    "interference": "1 − gate of the head under pressure to keep it: 1 if the task is better without it",
    "irrelevance": "gate under pressure to keep · (1 − gate under pressure to remove): 1 if the pressure alone decides",
    "loss": "loss on texts that no gate was fitted on; none: the model as it is, free: gates without pressure",
}


class Gating(Lens):
    """Causal head gating: one soft gate per head of the frozen model, fitted to the task under two pressures.

        g± = σ(θ±),   θ± = argmin  mean_x L(x; g) ∓ λ Σ_h θ_h,   both begun from the fit with λ = 0
        facilitation  g⁻            stays open though pressed to close: the task needs the head
        interference  1 − g⁺        closes though pressed to stay open: the task is better without it
        irrelevance   g⁺ (1 − g⁻)   goes wherever it is pressed

    Nam et al. 2025, "Causal Head Gating", NeurIPS. λ is `pressure`, in units of the loss of a text: if the loss without
    a head is ΔL higher, its gate settles at g (1 − g) = λ/ΔL, and closes where ΔL < 4 λ. Of at most `texts` texts (by
    hash) 70 % are fitted on, in `steps` steps of `batch` texts for each fit; each of `seeds` has a bootstrap sample of
    them, so that the spread over seeds (`_se`) is the standard error; `_low` and `_high` are the extremes of the seeds.
    `loss` is measured on the other texts. All gates of a fit are fitted together.

    A gate multiplies a head's output, constant part and all. With `centred`, it closes towards the head's mean over the
    corpus instead, g z + (1 − g) z̄, which a constant that could as well be a bias leaves alone (docs/gauge.md).

    What it does not tell you: a head that helps may be closed because others do the same, and which of them stays open
    can differ between seeds. Gates are fitted to these texts; see the held-out loss.
    """

    name: ClassVar[str] = "gating"
    summary: ClassVar[str] = (
        "heads that help, hurt or make no difference: gates fitted under pressure to keep and to remove"
    )
    reads = frozenset({"labels", "cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "facilitation": Signal("gate under pressure to remove every head", variable("facilitation")),
        "gating_relevance": Signal("1 − irrelevance of fitted gates", opposite(variable("irrelevance"))),
    }

    def __init__(
        self,
        pressure: Annotated[float, Interval(0, closed="right")] = 0.002,
        *,
        steps: Annotated[int, Interval(1)] = 60,
        seeds: Annotated[Sequence[Seed], NotEmpty()] = (0, 1, 2),
        texts: Annotated[int, Interval(2)] = 256,
        batch: Annotated[int, Interval(1)] = 8,
        rate: Annotated[float, Interval(0, closed="right")] = 0.5,
        centred: bool = False,
    ) -> None:
        super().__init__()
        self.pressure, self.steps, self.seeds = pressure, steps, tuple(seeds)
        self.texts, self.batch, self.rate = texts, batch, rate
        self.centred = centred
        self.means: Means | None = None

    def needs(self) -> Sequence[Lens]:
        return (HeadMeans(),) if self.centred and self.means is None else ()

    def take(self, results: Mapping[str, Result]) -> None:
        self.means = means_in(results, self.subject)

    def allocate(self, subject: Subject) -> None:
        self.task = task_of(subject)
        # The one query of an attention pooler has one head, without which there is no model.
        gated = [site for site in self.sites if site.stack != "pooler"]
        if not gated:
            raise UserError(f"{subject.name!r} has no head that could be gated: it has no self-attention layer.")
        ends = np.cumsum([len(self.numbers[site]) for site in gated]).tolist()
        self.place: dict[Site, slice] = {
            site: slice(end - len(self.numbers[site]), end) for site, end in zip(gated, ends, strict=True)
        }
        self.sample: HashSample = HashSample(self, "examples", {"text": NAME}, size=self.texts)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        """Keep the texts; `compute` fits the gates, once it has all texts."""
        if self.task != "masked":
            text_losses(self.subject, self.task, batch, outputs)  # refuses a text without label or translation
        keys = torch.tensor([text_key("gating", example.id) >> 11 for example in batch.examples])
        self.sample.add(keys, text=[torch.frombuffer(_written(each), dtype=torch.uint8) for each in batch.examples])

    def compute(self) -> Result:
        """Scores of every head, mean over seeds, and the loss on held-out texts under each pressure."""
        encoded = [self.subject.tokenize(_read(text), truncate=True) for text in self.sample.rows().names("text")]
        if len(encoded) < 2:
            raise UserError(f"Gating needs at least two texts: one to fit gates on, one to test. Got {len(encoded)}.")
        fit_on = len(encoded) - max(1, round(HELD_OUT * len(encoded)))
        means = replacements(self, "mean", self.means) if self.centred else None
        loss = GatedLoss(self.subject, self.task, encoded, self.place, means)
        free, keep, remove = self._fits(loss, fit_on)
        scores = {"facilitation": remove, "interference": 1 - keep, "irrelevance": keep * (1 - remove)}
        variables = {name: value for key, each in scores.items() for name, value in self._of_heads(key, each).items()}
        variables |= self._losses(loss, torch.arange(fit_on, len(encoded)), (free, keep, remove))
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"task": self.task, "loss": TASKS[self.task], "pressure": self.pressure}
        result.data.attrs |= {CENTRED: True} if self.centred else {}
        result.data.attrs |= {"seeds": list(self.seeds), "steps": self.steps, "texts": [fit_on, len(encoded) - fit_on]}
        return result

    def _fits(self, loss: GatedLoss, texts: int) -> tuple[Float[Tensor, "seed gate"], ...]:
        """Gates of every seed without pressure, and from there under both pressures."""
        rows = [drawn_rows(texts, self.steps, min(self.batch, texts), seed) for seed in self.seeds]
        each = torch.stack(rows, 1)  # [step seed text]
        precision = torch.promote_types(self.subject.dtype, torch.float32)
        count, gates = len(self.seeds), max(place.stop for place in self.place.values())
        start = torch.full((count, gates), START, dtype=precision, device=self.subject.device)
        free = fitted(loss, start, start.new_zeros(count), each, self.rate)
        pressure = torch.tensor([self.pressure, -self.pressure]).to(start).repeat_interleave(count)
        both = fitted(loss, free.repeat(2, 1), pressure, torch.cat([each, each], 1), self.rate)
        return tuple(torch.sigmoid(logits.cpu().double()) for logits in (free, *both.split(count)))

    def _of_heads(self, name: str, score: Float[Tensor, "seed gate"]) -> dict[str, xr.DataArray]:
        """Mean, spread and extremes over seeds, at the place of each head."""
        spread = score.std(0) if len(score) > 1 else torch.full_like(score[0], torch.nan)
        parts = {"": score.mean(0), "_se": spread, "_low": score.amin(0), "_high": score.amax(0)}
        out = {f"{name}{part}": self._grid(values) for part, values in parts.items()}
        known = self._grid(torch.full_like(spread, float(len(score))))
        return out | {f"{name}_count": known.fillna(0.0).astype("int64")}

    def _grid(self, gates: Float[Tensor, " gate"]) -> xr.DataArray:
        cells = torch.full((len(self.sites), self.heads), torch.nan, dtype=torch.float64)
        for site, place in self.place.items():
            cells[self.position[site], : place.stop - place.start] = gates[place]
        return self.grid(cells)

    @torch.no_grad()
    def _losses(
        self, loss: GatedLoss, rows: Tensor, fits: Sequence[Float[Tensor, "seed gate"]]
    ) -> dict[str, xr.DataArray]:
        """Loss of held-out texts, `batch` at a time."""
        logits = torch.cat([torch.logit(gates) for gates in fits]).to(self.subject.device)
        total = torch.zeros(1 + len(logits), dtype=torch.float64)
        for part in rows.split(self.batch):
            values = torch.cat([loss(None, part[None]), loss(logits, part.expand(len(logits), -1))])
            total += values.cpu().double() * len(part)
        mean = total / len(rows)
        each = mean[1:].view(len(fits), -1)
        spread = each.std(1) if each.shape[1] > 1 else torch.full_like(each[:, 0], torch.nan)
        columns = {
            "loss": torch.cat([mean[:1], each.mean(1)]),
            "loss_se": torch.cat([torch.zeros_like(mean[:1]), spread]),
            "loss_count": torch.full((len(PRESSURES),), each.shape[1]),
        }
        labels = {axes.PRESSURE: list(PRESSURES)}
        return {name: xr.DataArray(row.numpy(), labels, [axes.PRESSURE]) for name, row in columns.items()}


def _written(example: Example) -> bytearray:
    """The parts of an example that determine its tokens and its loss, as text."""
    start = example.extra.get("pair_start")
    fields = {"pair": example.pair, "words": example.words, "label": example.label, "target": example.target}
    return bytearray(json.dumps([example.id, example.text, fields, start]).encode())


def _read(text: str) -> Example:
    name, words, fields, start = json.loads(text)
    fields["words"] = None if fields["words"] is None else tuple(fields["words"])
    return Example(name, words, **fields, extra={} if start is None else {"pair_start": start})
