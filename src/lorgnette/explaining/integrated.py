"""Integrated gradients, with the error of their integral."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.explaining.backward import _RelevancePass, run_options
from lorgnette.explaining.explanation import Explanation
from lorgnette.explaining.rules import RULES
from lorgnette.explaining.target import Target, explained, fixed, named
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

STEPS = (16, 64, 128)
"""Points that are tried one after the other, until the integral is exact enough."""
EXACT = 0.005
"""The largest gap of a text, as a share of f(x) − f(x⁰), at which no more points are tried."""


def integrated(subject: Subject, batch: Batch, target: Target = None, *, steps: int | None = None) -> Explanation:
    """(x − x⁰) ⊙ ∫₀¹ ∂f/∂x (x⁰ + t (x − x⁰)) dt: gradients on the way from a text without words to the text.

    x⁰ has the vector of the mask token (or padding, or zero where there is neither) for every word; special tokens and
    positions stay as they are, so that they get nothing. Not zero for all: a LayerNorm turns the way from zero into a
    jump. The integral is taken at Gauss–Legendre points (`steps`; None: 16, and more where they do not do) and adds up
    to f(x) − f(x⁰) but for `gap`. Heads get none.
    Sundararajan, Taly, Yan 2017, "Axiomatic Attribution for Deep Networks", ICML.
    """
    if steps is not None and steps < 1:
        raise UserError(f"Integrated gradients need at least one step. Got {steps} instead.")
    with torch.no_grad(), subject.tapped(Tap()):
        outputs = subject.run(batch, **run_options(subject))
        target = fixed(subject, batch, outputs, target)
        start = explained(subject, batch, outputs, target)
    names = tuple(named(subject, batch, outputs.logits, target))
    rise = start - _begun(subject, batch, target)
    made = None
    for points in STEPS if steps is None else (steps,):
        made = _summed(subject, batch, target, start, points)
        gap = (rise - made.total).abs() / rise.abs().clamp(min=torch.finfo(rise.dtype).tiny)
        made = replace(made, gap=gap, explained=names)
        if bool((gap <= EXACT).all()):
            break
    assert made is not None
    return made


def _begun(subject: Subject, batch: Batch, target: Target) -> Float[Tensor, " batch"]:
    """f(x⁰)."""
    begin = _RelevancePass(subject, batch, RULES["gradient_x_input"], way=0.0)
    return begin.forward(target, begin.rules.attention())[1].detach()


def _summed(subject: Subject, batch: Batch, target: Target, start: Tensor, steps: int) -> Explanation:
    points, weights = np.polynomial.legendre.leggauss(steps)
    tokens: Tensor | None = None
    others: Tensor | None = None
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        one = _RelevancePass(subject, batch, RULES["gradient_x_input"], way=float(point)).explanation("", target)
        tokens = float(weight) * one.tokens if tokens is None else tokens + float(weight) * one.tokens
        if one.target_tokens is not None:
            part = float(weight) * one.target_tokens
            others = part if others is None else others + part
    assert tokens is not None
    return Explanation("integrated_gradients", start, tokens, others)
