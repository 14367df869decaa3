"""Gates on heads, which learn which heads can go: L0 of Louizos et al. 2018, as in Voita et al. 2019."""

import json
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from jaxtyping import Bool, Float
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from lorgnette.attending import Call, Site
from lorgnette.errors import UserError, near
from lorgnette.files import written_whole
from lorgnette.models.anatomy import Anatomy
from lorgnette.models.families import anatomy_of
from lorgnette.training.gates.hard_concrete import deterministic, even_odds, probability_open, sampled
from lorgnette.training.penalties import Penalty
from lorgnette.training.pruning.settings import RULES, TRAINS, VOITA
from lorgnette.types import Json, PreTrainedModel

LOUIZOS: Final = 2 / 3
STRETCH: Final = (-0.1, 1.1)
LIMIT: Final = math.log(100)
"""log α stays within ±this (Louizos' code), so that no gate drifts so far that it could not come back."""
STARTS: Final = {"trained": LIMIT, "scratch": 0.0}
FILE: Final = "gates.safetensors"


class HeadGates(nn.Module, Penalty):
    """MultiHead = Concat_h(g_h · H_h) W_O with hard concrete g_h; `value` = Σ_h P(g_h ≠ 0), times `weight` in the loss.

    In training (`gates.train()`) gates are drawn anew for every pass of a stack, one number per head for the whole
    batch; in evaluation they are the deterministic ẑ. Sites and heads are named by their original numbers (from 0),
    also in a model that was pruned before.

    weight       λ of the objective; it grows from 0 over the first `warmup` steps (of the optimizer)
    over         "mean": Σ over the heads of a site, then the mean over sites (Voita's code); "sum": over all heads.
                 With S sites, λ under "sum" is λ/S of "mean".
    temperature  .33 (Voita) or 2/3 (Louizos)
    start        log α at the beginning: "trained" (ln 100), "scratch" (0: half open), or a number. The model with
                 deterministic gates is unchanged from ln 11 = 2.398 on. Drawn gates are noisy there: at ln 11 only
                 83 % of draws are exactly 1 (β = .33), at ln 100 98 %. So a trained model starts at ln 100: step 0
                 is the model exactly in evaluation, and nearly so in training.
    keep         how many heads are wanted open: the penalty is then max(0, Σ P − keep), which presses no further

    A closed gate says that the model could be trained to do without the head, not that the head did nothing.
    """

    name = "gates"
    noun = "heads"
    """what the gates are on"""
    layers = None
    looks_at_cls = False

    def __init__(
        self,
        heads: Mapping[Site, Sequence[int]],
        *,
        weight: float = 0.1,
        warmup: int = 0,
        over: str = "mean",
        temperature: float = VOITA,
        stretch: tuple[float, float] = STRETCH,
        start: str | float = "trained",
        keep: int | None = None,
    ) -> None:
        super().__init__()
        check_options(weight, warmup, over, temperature, stretch)
        self.heads = {site: tuple(numbers) for site, numbers in heads.items() if len(numbers) > 0}
        if not self.heads:
            raise UserError("there is no head to gate: none is left in the requested stacks.")
        self.target, self.warmup, self.over = float(weight), int(warmup), over
        self.temperature, self.stretch = float(temperature), (float(stretch[0]), float(stretch[1]))
        self.start, self.keep = _initial_log_alpha(start), keep
        self.limits: tuple[float, float] = (min(-LIMIT, self.start), max(LIMIT, self.start))
        sizes = [len(numbers) for numbers in self.heads.values()]
        ends = torch.tensor(sizes).cumsum(0).tolist()
        self.place = {site: slice(end - size, end) for site, size, end in zip(self.heads, sizes, ends, strict=True)}
        self.log_alpha: nn.Parameter = nn.Parameter(torch.full((sum(sizes),), self.start))
        self.steps: int = 0
        self._drawn: Tensor | None = None

    @classmethod
    def of(cls, model: PreTrainedModel, stacks: Sequence[str] | None = None, **options: Any) -> "HeadGates":
        """Gates on the heads of a subject or model: of all its stacks, or some of encoder, decoder, cross."""
        gates = cls(heads_of(model, stacks), **options)
        return gates.to(next(getattr(model, "model", model).parameters()).device)

    # The tap.

    def open(self, stack: str) -> None:
        self._drawn = self._draw() if self.training else self.gates

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if call.site not in self.place:
            return context
        assert self._drawn is not None
        gate = self._drawn[self.place[call.site]]
        if len(gate) != context.shape[1]:
            raise UserError(
                f"{call.site} has {context.shape[1]} heads and {len(gate)} gates: make gates for this model."
            )
        return context * gate.to(context.dtype)[:, None, None]

    def see(self, call: Call) -> None:
        """Do nothing: the penalty depends on the gates alone."""

    def _draw(self) -> Float[Tensor, " gate"]:
        return sampled(self.log_alpha, torch.rand_like(self.log_alpha), self.temperature, self.stretch)

    # The penalty.

    @property
    def weight(self) -> float:  # type: ignore[override]
        """λ now. In evaluation the whole of it, so that validation losses can be compared over time."""
        if not self.training or self.warmup == 0:
            return self.target
        return self.target * min(1.0, self.steps / self.warmup)

    def begin(self, mask: Bool[Tensor, "batch token"] | None, extra: Mapping[str, Tensor]) -> None:
        """Do nothing: the penalty does not depend on the batch."""

    @property
    def value(self) -> Float[Tensor, ""]:
        return self.expected_open()

    def expected_open(self) -> Float[Tensor, ""]:
        """Σ_h P(g_h ≠ 0) over the heads of a site, its mean (or sum) over sites; with `keep`, what is beyond it."""
        total = probability_open(self.log_alpha, self.temperature, self.stretch).sum()
        if self.keep is not None:
            total = (total - self.keep).relu()
        return total / len(self.heads) if self.over == "mean" else total

    @torch.no_grad()
    def advance(self) -> None:
        """After a step of the optimizer: count it, and keep log α within its limits."""
        self.steps += 1
        self.log_alpha.clamp_(*self.limits)

    # What the gates say.

    @property
    def gates(self) -> Float[Tensor, " gate"]:
        """ẑ of every gate, in the order of `heads`."""
        return deterministic(self.log_alpha, self.stretch)

    def values(self) -> dict[Site, Float[Tensor, " head"]]:
        """ẑ by site, beside the original numbers in `heads`."""
        gates = self.gates.detach()
        return {site: gates[place] for site, place in self.place.items()}

    @property
    def open_heads(self) -> int:
        """How many heads ẑ leaves open."""
        return int((self.gates > 0).sum())

    def remaining_heads(self, rule: str = "code") -> dict[Site, list[int]]:
        """The heads to keep, by their original numbers; warns if the other rule would keep others.

        "code": removed iff ẑ = 0 (log α ≤ −ln 11), which changes no output of the evaluated model. "paper": removed
        iff P(g = 0) > P(g = 1) (log α < 0). They agree once every |log α| ≥ ln 11 (Voita et al. 2019).
        """
        check_rule(rule)
        by_code = self.gates > 0
        by_paper = self.log_alpha.detach() >= even_odds(self.temperature, self.stretch)
        differ = int((by_code != by_paper).sum())
        if differ:
            warnings.warn(
                f"{differ} of {len(by_code)} gates are neither open nor closed yet: by the rule of the paper "
                f"{int(by_paper.sum())} heads stay, by that of its code {int(by_code.sum())}. Train longer, or with a "
                "larger weight, for a clear answer.",
                stacklevel=2,
            )
        return self._chosen(by_code if rule == "code" else by_paper)

    def tied(self, count: int) -> int:
        """How many gates are as strong as both the last that `strongest` keeps and the first that it does not."""
        if not 0 < count < len(self.log_alpha):
            return 0
        ordered = self.log_alpha.detach().sort(descending=True).values
        return int((ordered == ordered[count]).sum()) if ordered[count - 1] == ordered[count] else 0

    def strongest(self, count: int, *, empty: bool = True) -> dict[Site, list[int]]:
        """The `count` heads with the largest log α over all sites; ties go to the first.

        Unless sites may be `empty`, the strongest head of each stays, whatever the others have.
        """
        if not 0 <= count <= len(self.log_alpha):
            raise UserError(f"there are {len(self.log_alpha)} heads with gates; {count} cannot be kept.")
        keep = self._strongest_of_each() if not empty else torch.zeros_like(self.log_alpha, dtype=torch.bool)
        order = self.log_alpha.detach().masked_fill(keep, math.inf).argsort(descending=True, stable=True)
        keep[order[:count]] = True
        return self._chosen(keep)

    def with_one_each(self, heads: Mapping[Site, Sequence[int]]) -> dict[Site, list[int]]:
        """These heads, and the strongest of every site that has none of them."""
        firsts = self._chosen(self._strongest_of_each())
        return {site: list(heads[site]) or firsts[site] for site in self.heads}

    def _strongest_of_each(self) -> Bool[Tensor, " gate"]:
        keep = torch.zeros_like(self.log_alpha, dtype=torch.bool)
        for place in self.place.values():
            keep[place.start + int(self.log_alpha.detach()[place].argmax())] = True
        return keep

    def _chosen(self, keep: Bool[Tensor, " gate"]) -> dict[Site, list[int]]:
        picked = keep.tolist()
        return {
            site: [number for number, open_gate in zip(numbers, picked[self.place[site]], strict=True) if open_gate]
            for site, numbers in self.heads.items()
        }

    # On disk.

    def record(self) -> Json:
        """The settings, as plain values."""
        heads = [[site.stack, site.kind, site.layer, list(numbers)] for site, numbers in self.heads.items()]
        return {
            "penalty": self.name,
            "weight": self.target,
            "warmup": self.warmup,
            "over": self.over,
            "temperature": self.temperature,
            "stretch": list(self.stretch),
            "start": self.start,
            "keep": self.keep,
            "heads": heads,
        }

    def save(self, folder: Path | str) -> None:
        """Writes gates.safetensors: log α and the steps taken, with the settings beside them."""
        with written_whole(Path(folder) / FILE) as partial:
            save_file(self._state(), partial, metadata={"gates": json.dumps(self.record())})

    def _state(self) -> dict[str, Tensor]:
        return {"log_alpha": self.log_alpha.detach().cpu(), "steps": torch.tensor(self.steps)}

    def restore(self, folder: Path | str) -> None:
        """Takes log α and the steps from a folder that gates of the same settings were saved in."""
        record, tensors = _read(Path(folder) / FILE)
        own = self.record()
        wrong = sorted(key for key in record.keys() | own.keys() if record.get(key) != own.get(key))
        if wrong:
            raise UserError(f"the gates in {folder} do not match: they differ in {', '.join(wrong)}.")
        self._take(tensors)

    @classmethod
    def load(cls, folder: Path | str) -> "HeadGates":
        """The gates that were saved in a folder."""
        record, tensors = _read(Path(folder) / FILE)
        heads = {Site(stack, kind, layer): numbers for stack, kind, layer, numbers in record["heads"]}
        options = {key: record[key] for key in ("weight", "warmup", "over", "temperature", "start", "keep")}
        gates = cls(heads, stretch=tuple(record["stretch"]), **options)
        gates._take(tensors)
        return gates

    @torch.no_grad()
    def _take(self, tensors: Mapping[str, Tensor]) -> None:
        self.log_alpha.copy_(tensors["log_alpha"])
        self.steps = int(tensors["steps"])


def heads_of(model: PreTrainedModel, stacks: Sequence[str] | None = None) -> dict[Site, tuple[int, ...]]:
    """The heads of a subject or model that could go, by their original numbers: of all its stacks, or of some."""
    anatomy: Anatomy = model.anatomy if hasattr(model, "anatomy") else anatomy_of(model)
    # The one query of an attention pooler has one head, without which there is no model.
    sites = [each for each in anatomy.sites if each.site.stack != "pooler"]
    names = dict.fromkeys(each.site.name for each in sites)
    for name in stacks or ():
        if name not in names:
            raise UserError(
                f"gates on {name!r}: expected some of {', '.join(names)}, which this model has."
                f"{near(name, tuple(names))}"
            )
    return {each.site: tuple(each.numbers) for each in sites if stacks is None or each.site.name in stacks}


def freeze(model: nn.Module, gates: HeadGates, train: str = "all") -> None:
    """Which weights learn beside the gates: "all", only those of the stacks that have gates ("gated"), or "none".

    "gated" is Voita's pruning of the encoder alone: its layers go on learning, the decoder is frozen, and so is what
    both have a part in (Marian's embeddings). In an encoder whose embeddings lie outside its stack (BERT) these are
    frozen too.
    """
    freeze_but(model, {site.stack for site in gates.heads}, train)


def freeze_but(model: nn.Module, stacks: Collection[str], train: str) -> None:
    """The same for stacks by name ("encoder", "decoder"); what did not learn before does not begin to."""
    if train not in TRAINS:
        raise UserError(f"train must be one of {', '.join(TRAINS)}; got {train!r}.{near(train, TRAINS)}")
    if train == "all":
        return
    learning = [each.module for each in anatomy_of(model).stacks if train == "gated" and each.name in stacks]
    for module in _outside(model, {id(module) for module in learning}):
        for parameter in module.parameters(recurse=False):
            parameter.requires_grad_(False)


def _outside(module: nn.Module, skipped: Collection[int]) -> Iterator[nn.Module]:
    """A module and all that is reached from it without going through the skipped ones."""
    yield module
    for child in module.children():
        if id(child) not in skipped:
            yield from _outside(child, skipped)


def check_options(
    weight: float, warmup: int, over: str, temperature: float, stretch: tuple[float, float] = STRETCH
) -> None:
    """UserError for what gates cannot be made with."""
    if not 0 <= weight < float("inf"):
        raise UserError(f"the weight of the gates (λ) is added to the loss, so it must be 0 or more; got {weight}.")
    if warmup < 0:
        raise UserError(f"the warm-up of λ is a number of steps; got {warmup}.")
    if over not in ("mean", "sum"):
        raise UserError(f"over must be mean or sum (over layers); got {over!r}.{near(over, ('mean', 'sum'))}")
    if not 0 < temperature <= 1:
        raise UserError(f"the temperature must be above 0 and at most 1; got {temperature}.")
    if not (stretch[0] < 0 and stretch[1] > 1):
        raise UserError(f"the stretch must begin below 0 and end above 1, such as (-0.1, 1.1); got {stretch}.")


def check_rule(rule: str) -> None:
    if rule not in RULES:
        raise UserError(f"the rule must be one of {', '.join(RULES)}; got {rule!r}.{near(rule, RULES)}")


def _initial_log_alpha(start: str | float) -> float:
    if isinstance(start, str):
        if start not in STARTS:
            raise UserError(f"start must be {' or '.join(STARTS)}, or a number; got {start!r}.{near(start, STARTS)}")
        return STARTS[start]
    if not math.isfinite(start):
        raise UserError(f"start is a log α and must be finite; got {start}.")
    return float(start)


def _read(path: Path) -> tuple[Json, dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as stream:
            record = json.loads((stream.metadata() or {})["gates"])
            return record, {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
    except (OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{path} cannot be read as gates ({error}): expected a file that HeadGates.save wrote."
        ) from error
