"""Integrated gradients, with the error of their integral."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.explaining.backward import RelevancePass, run_options
from lorgnette.explaining.explanation import WIDE, Explanation
from lorgnette.explaining.rules import RULES
from lorgnette.explaining.target import Target, explained, fixed, named
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

FEWEST, PER_HALF, MOST = 16, 8, 1024
"""Gradients on the whole path, on each half of a part that is divided, and in all before the integral is given up."""
EXACT = 0.01
"""The gap, as a share of |f(x) − f(x⁰)|, below which the path is not divided further."""
COST = f"{FEWEST} to {MOST:,} gradients a text, as many as its integral needs; attnlrp takes one"


def integrated(subject: Subject, batch: Batch, target: Target = None, *, steps: int | None = None) -> Explanation:
    """(x − x⁰) ⊙ ∫₀¹ ∂f/∂x (x⁰ + t (x − x⁰)) dt: gradients on the way from a text without words to the text.

    x⁰ has the vector of the mask token (or padding, or zero where there is neither) for every word; special tokens and
    positions stay as they are, so that they get nothing. Not zero for all: a LayerNorm turns the way from zero into a
    jump. The integral is taken at Gauss–Legendre points and adds up to f(x) − f(x⁰) but for `gap`. Heads get none.

    Over every part [a, b] of the path, relevance must add up to f(x_b) − f(x_a), which two passes tell. So the part
    that misses it most is divided in two until all together miss at most `EXACT`. Where `MOST` gradients leave more
    than 5 %, the integral is refused. `steps` takes that many points on the whole path instead, whatever gap
    they leave. Sundararajan, Taly, Yan 2017, "Axiomatic Attribution for Deep Networks", ICML.
    """
    if steps is not None and steps < 1:
        raise UserError(f"Integrated gradients need at least one step. Got {steps} instead.")
    with torch.no_grad(), subject.tapped(Tap()):
        outputs = subject.run(batch, **run_options(subject))
        target = fixed(subject, batch, outputs, target)
        start = explained(subject, batch, outputs, target)
    names = tuple(named(subject, batch, outputs.logits, target))
    path = _Path(subject, batch, target)
    begin, end = path.value(0.0), start
    parts = [path.part(0.0, 1.0, begin, end, FEWEST if steps is None else steps)]
    rise = (end - begin).abs().clamp(min=torch.finfo(start.dtype).tiny)
    while steps is None and float((_missed(parts) / rise).max()) > EXACT and path.gradients + 2 * PER_HALF <= MOST:
        worst = max(parts, key=lambda part: float((part.missed / rise).max()))
        parts.remove(worst)
        parts += path.halves(worst)
    made = Explanation("integrated_gradients", start, *_summed(parts), explained=names, gap=_missed(parts) / rise)
    if steps is None:
        _refuse_wide(made)
    return made


@dataclass(frozen=True, eq=False)
class _Part:
    """The integral from x_a to x_b, and what f rises by in between."""

    a: float
    b: float
    low: Float[Tensor, " batch"]
    high: Float[Tensor, " batch"]
    tokens: Float[Tensor, "batch token"]
    target_tokens: Float[Tensor, "batch target"] | None

    @property
    def missed(self) -> Float[Tensor, " batch"]:
        """|f(x_b) − f(x_a) − Σ relevance|."""
        total = self.tokens.sum(-1)
        if self.target_tokens is not None:
            total = total + self.target_tokens.sum(-1)
        return (self.high - self.low - total).abs()


class _Path:
    """The straight path from x⁰ to x."""

    def __init__(self, subject: Subject, batch: Batch, target: Target) -> None:
        self.subject, self.batch, self.target = subject, batch, target
        self.gradients = 0

    def value(self, t: float) -> Float[Tensor, " batch"]:
        """f(x⁰ + t (x − x⁰))."""
        at = self._pass(t)
        return at.forward(self.target, at.rules.attention())[1].detach()

    def halves(self, part: _Part) -> list[_Part]:
        middle = (part.a + part.b) / 2
        value = self.value(middle)
        return [
            self.part(part.a, middle, part.low, value, PER_HALF),
            self.part(middle, part.b, value, part.high, PER_HALF),
        ]

    def part(self, a: float, b: float, low: Tensor, high: Tensor, points: int) -> _Part:
        nodes, weights = np.polynomial.legendre.leggauss(points)
        tokens: Tensor | None = None
        others: Tensor | None = None
        for node, weight in zip(a + (b - a) * (nodes + 1) / 2, (b - a) * weights / 2, strict=True):
            one = self._pass(float(node)).explanation("", self.target)
            tokens = float(weight) * one.tokens if tokens is None else tokens + float(weight) * one.tokens
            if one.target_tokens is not None:
                share = float(weight) * one.target_tokens
                others = share if others is None else others + share
        assert tokens is not None
        self.gradients += points
        return _Part(a, b, low, high, tokens, others)

    def _pass(self, t: float) -> RelevancePass:
        return RelevancePass(self.subject, self.batch, RULES["gradient_x_input"], way=t)


def _missed(parts: list[_Part]) -> Float[Tensor, " batch"]:
    """The summed gaps of all parts; gaps of opposite sign do not cancel."""
    return torch.stack([part.missed for part in parts]).sum(0)


def _summed(parts: list[_Part]) -> tuple[Float[Tensor, "batch token"], Float[Tensor, "batch target"] | None]:
    others = [part.target_tokens for part in parts if part.target_tokens is not None]
    return torch.stack([part.tokens for part in parts]).sum(0), torch.stack(others).sum(0) if others else None


def _refuse_wide(made: Explanation) -> None:
    assert made.gap is not None
    worst = int(made.gap.argmax())
    if float(made.gap[worst]) > WIDE:
        which = f" of text {worst + 1}" if len(made.gap) > 1 else ""
        raise UserError(
            f"The integrated gradients{which} miss f(x) − f(x⁰) by {made.gap[worst].item():.0%} after {MOST:,} "
            f"gradients (at most {WIDE:.0%} is returned): the logit is too rough on the way from the baseline. "
            "Use attnlrp or gradient_x_input, which take one gradient, or set steps to get the sums with their gap."
        )
