"""Which parts of a model go within a budget, and what is left of the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.files import write_whole
from lorgnette.models.families.layers import LAYER
from lorgnette.training.distilling import Teacher
from lorgnette.training.folder import RunFolder, read_record
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.gates.parts import PartGates
from lorgnette.training.gates.run import fit_part_gates, steps_of
from lorgnette.training.pruning.budget import Budget, equal_sizes
from lorgnette.training.pruning.parts import Kept
from lorgnette.training.pruning.removal import plain_copy, remove_parts
from lorgnette.training.pruning.scores import TEXTS, by_importance, by_kind, importance
from lorgnette.training.pruning.settings import PruningSettings
from lorgnette.training.pruning.speed import SECONDS, speed_up
from lorgnette.training.pruning.work import Work
from lorgnette.types import Json, PreTrainedModel

KEPT = "parts.json"
TRIES = 4
"""How often the limit may be tightened to reach the wanted speed."""


@dataclass(frozen=True)
class Choice:
    """The model that is left, what it was chosen by, and the free choice beside one of equal sizes."""

    model: PreTrainedModel
    gates: HeadGates | None
    curve: list[Json]
    kept: Kept
    free: Kept | None = None


def chosen(work: Work, whole: PreTrainedModel, budget: Budget, batch: Mapping[str, Tensor]) -> Choice:
    """Train gates on all parts under the budget (or rank the parts), and remove the parts beyond the limit."""
    settings, ready, root, parts = work.settings, work.ready, work.root, budget.parts
    gates = PartGates(
        parts, budget.limit, steps=steps_of(settings.training, ready), temperature=settings.temperature
    ).to(whole.device)
    texts = min(TEXTS, settings.limit or TEXTS)
    curve: list[Json] = []
    model, scores = whole, gates.log_alpha.detach()
    if settings.method == "gates":
        model = plain_copy(whole)
        with _precision(work, whole):
            ranks = by_kind(parts, importance(model, gates, ready, texts=texts))
        gates.begin_with(ranks)
        run = RunFolder(root / "gates")
        run.begin(settings.record(), ready.fingerprint)
        _, curve = fit_part_gates(settings, ready, run, model, gates, teacher_of(settings, whole))
        scores = gates.log_alpha.detach().cpu()
        work.notes += _doubts(gates)
    file = root / KEPT
    if file.is_file():
        kept, free = (_from_plain(each) for each in read_record(file)["kept"])
    else:
        if settings.method == "importance":
            with _precision(work, whole):
                scores = by_importance(model, gates, ready, empty=settings.allow_empty, texts=texts)
        kept, free = _measured(work, scores, model, whole, budget, batch)
        if budget.free is not None:  # over heads too, which have no score yet
            both = PartGates(budget.free, budget.limit, steps=1, temperature=settings.temperature).to(whole.device)
            with _precision(work, whole):
                scores = by_importance(whole, both, ready, empty=settings.allow_empty, texts=texts)
            free = budget.free.best(scores, budget.limit, empty=settings.allow_empty)
        write_whole(file, json.dumps({"kept": [_plain(each) for each in (kept, free)]}))
    own = gates if settings.method == "gates" else None
    small = remove_parts(model, kept, None if own is None else _factors(own, kept))
    return Choice(small, own, curve, kept, free if settings.uniform else None)


def _precision(work: Work, whole: PreTrainedModel) -> torch.autocast:
    """Measure the ranking in the precision of the training."""
    return torch.autocast(whole.device.type, torch.bfloat16, enabled=work.settings.bf16)


def teacher_of(settings: PruningSettings, whole: PreTrainedModel) -> Teacher | None:
    """The original model, if the pruned one is to learn from it."""
    return Teacher(plain_copy(whole), settings.distil) if settings.distil > 0 and settings.train != "none" else None


def _measured(
    work: Work,
    scores: Tensor,
    model: PreTrainedModel,
    whole: PreTrainedModel,
    budget: Budget,
    batch: Mapping[str, Tensor],
) -> tuple[Kept, Kept]:
    """The choice, with a limit that is tightened until the model is as fast as was asked; and the free choice."""
    settings, limit, parts = work.settings, budget.limit, budget.parts
    for _ in range(TRIES):
        free = parts.best(scores, limit, empty=settings.allow_empty)
        kept = equal_sizes(parts, scores, limit) if settings.uniform else free
        if settings.speed is None:
            break
        found = speed_up(whole, remove_parts(model, kept), batch, seconds=SECONDS / 2).measured
        if found >= settings.speed:
            break
        limit = max(parts.least(empty=settings.allow_empty), limit - (1 / found - 1 / settings.speed))
    else:
        work.notes.append(
            f"the speed was not reached: × {found:.2f} measured, × {settings.speed:g} asked for. Times vary "
            "where other work runs; ask for more (--speed), or for a share of the parameters (--keep)."
        )
    return kept, free


def _doubts(gates: PartGates) -> list[str]:
    """A note if the gates have left more open than the budget allows."""
    excess = float(gates.excess().detach())
    if excess <= 0.01:
        return []
    return [
        f"the gates left {excess:.1%} more open than the budget allows; what went to meet it was chosen "
        "by log α all the same. Train longer (--epochs), or with a larger --gates-learning-rate."
    ]


def _factors(gates: PartGates, kept: Kept) -> dict[Site, Tensor]:
    """ẑ goes into the weights; a part that stays although its gate is closed gets 1, and so does a layer."""
    factors = {}
    for site, values in gates.values().items():
        if site.kind == LAYER:
            continue
        stays = set(kept[site])
        dead = [n in stays and float(value) == 0 for n, value in zip(gates.heads[site], values, strict=True)]
        factors[site] = values.masked_fill(values.new_tensor(dead).bool(), 1.0)
    return factors


def _plain(kept: Kept) -> list[list[object]]:
    return [[site.stack, site.kind, site.layer, list(numbers)] for site, numbers in kept.items()]


def _from_plain(rows: list[list[object]]) -> Kept:
    return {Site(*place): numbers for *place, numbers in rows}  # type: ignore[arg-type, misc]
