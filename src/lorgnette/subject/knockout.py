"""Heads switched off in a pass: their names, and the tap that does it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import UserError, listed, near, shown
from lorgnette.results import Result

if TYPE_CHECKING:
    from lorgnette.subject import Subject

Head = str | Sequence[str | int]
"""A head as results name it: ("encoder", 3, 7), "encoder.3.7", or "3.7" where there is one stack; both from 1."""


class Knockout(Tap):
    """Replaces the output of some heads by zero, or by its mean, before the output projection.

    `means` is a result of the `head_means` lens; without it a head gives zero (Michel et al. 2019). The attention
    weights stay as they are, and so does the bias of the output projection.
    """

    def __init__(self, heads: Mapping[Site, Sequence[int]], means: Mapping[Site, Tensor] | None = None) -> None:
        self.heads, self.means = heads, means

    @classmethod
    def of(cls, subject: "Subject", heads: Iterable[Head], means: Result | None = None) -> "Knockout":
        """By the names that results give the heads; one that the subject does not have is a `UserError`."""
        heads_by_site = heads_at(subject, heads)
        return cls(
            heads_by_site,
            None if means is None else {site: mean_outputs(means, subject, site) for site in heads_by_site},
        )

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        heads = self.heads.get(call.site, ())
        if not heads:
            return context
        context = context.clone()
        for head in heads:
            context[:, head] = 0.0 if self.means is None else self.means[call.site][head].to(context)
        return context


def heads_at(subject: "Subject", heads: Iterable[Head]) -> dict[Site, tuple[int, ...]]:
    """Named heads (counted from 1, as before any was removed) as site → indices among those that are there."""
    heads_by_site: dict[Site, list[int]] = {}
    if listed(heads) is None:
        raise UserError(f"Heads are a list of names such as ['1.2']. Got {shown(heads)} instead.")
    for name in [heads] if isinstance(heads, str) else heads:
        site, head = _placed(subject, name)
        heads_by_site.setdefault(site, [])
        if head not in heads_by_site[site]:
            heads_by_site[site].append(head)
    return {site: tuple(indices) for site, indices in heads_by_site.items()}


def head_names(subject: "Subject", heads: Mapping[Site, Sequence[int]]) -> tuple[str, ...]:
    """The same heads by name: "encoder.3.7"."""
    return tuple(
        f"{site.name}.{site.layer + 1}.{subject.anatomy[site].numbers[head] + 1}"
        for site, indices in heads.items()
        for head in indices
    )


def mean_outputs(means: Result, subject: "Subject", site: Site) -> Float[Tensor, "head dim"]:
    """The mean output of the heads of one site, from a result of the `head_means` lens."""
    if means.lens != "head_means":
        raise UserError(f"Mean ablation needs a result of the lens 'head_means'. Got one of {means.lens!r} instead.")
    if site.name not in means.data[axes.STACK].values or site.layer >= means.data.sizes[axes.LAYER]:
        raise UserError(f"These means are from another model: they have no {site}.")
    mean = torch.tensor(means.data["context"].sel({axes.STACK: site.name, axes.LAYER: site.layer + 1}).values)
    return mean[list(subject.anatomy[site].numbers)]


def _placed(subject: "Subject", name: Head) -> tuple[Site, int]:
    named = isinstance(name, Sequence)
    parts = name.split(".") if isinstance(name, str) else [str(part) for part in name] if named else []
    stacks = subject.layers
    if len(parts) == 2 and len(stacks) == 1:
        parts = [next(iter(stacks)), *parts]
    if len(parts) != 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        form = "LAYER.HEAD" if len(stacks) == 1 else f"STACK.LAYER.HEAD ({', '.join(stacks)})"
        raise UserError(f"{_written(name)} is not a head of {subject.name!r}: expected {form}, both counted from 1.")
    stack, layer, head = parts[0], int(parts[1]), int(parts[2])
    if stack not in stacks:
        raise UserError(f"{subject.name!r} has no stack {stack!r}.{near(stack, stacks)} It has: {', '.join(stacks)}.")
    site = next((site for site in stacks[stack] if site.layer == layer - 1), None)
    attention = subject.anatomy[site or stacks[stack][0]]
    if site is None or not 1 <= head <= attention.total:
        raise UserError(
            f"There is no head {_written(name)}: the {stack} of {subject.name!r} has {len(stacks[stack])} layers of "
            f"{attention.total} heads."
        )
    if head - 1 not in attention.numbers:
        raise UserError(f"The head {_written(name)} of {subject.name!r} was removed: it cannot be ablated.")
    return site, attention.numbers.index(head - 1)


def _written(name: Head) -> str:
    return name if isinstance(name, str) else ".".join(map(str, name)) if isinstance(name, Sequence) else shown(name)
