"""One attention call and what can be read from it; the n×n weights are computed only on demand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import ModuleType
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending.scores import (
    EVERY,
    Rows,
    Scores,
    context_of,
    dense,
    fused,
    per_query_head,
    row_positions,
    softmax,
)
from lorgnette.attending.sweep import Measured, Wanted, from_matrix, swept
from lorgnette.attending.union import Union, grouped
from lorgnette.errors import UserError
from lorgnette.kernels import kernels

T = TypeVar("T")
TEXT_STACKS = ("encoder", "decoder", "pooler")
"""Stacks whose queries are the tokens of a batch. Others, such as "vision", see a picture's patches beside a text."""


@dataclass(frozen=True, order=True)
class Site:
    """An attention module of a model: its stack, self or cross, and layer (from 0).

    >>> subject.sites[0]
    Site(stack='encoder', kind='self', layer=0)
    """

    stack: str
    kind: str
    layer: int

    @property
    def name(self) -> str:
        """The stack's name in results: encoder, decoder, vision …, or cross for a decoder's attention to other states,
        encoder-cross for an encoder's.
        """
        if self.kind != "cross":
            return self.stack
        return f"{self.stack}-cross" if self.stack == "encoder" or not self.of_texts else "cross"

    @property
    def of_texts(self) -> bool:
        """Whether its queries are tokens of the texts."""
        return self.stack in TEXT_STACKS

    def __str__(self) -> str:
        return f"{self.name} layer {self.layer + 1}"


class Call:
    """One attention call of one forward pass: α = softmax(scale · q kᵀ + bias) over the visible keys, y = α v.

        >>> call = next(iter(subject.trace("the cat sat")))
        >>> torch.allclose(call.weights @ call.value, call.context)
        True

    Query, key and value are [batch head token dim], after rotary positions, with grouped keys and values repeated for
    their query heads; `scores.key` and `grouped_value` are as the model gave them. Every statistic is exact. It is
    computed from the matrix if that exists (`weights` was used, or gradients are required), and otherwise in a sweep
    over blocks of rows.
    """

    site: Site
    scores: Scores
    dropout: float

    def __init__(
        self,
        site: Site,
        scores: Scores,
        value: Float[Tensor, "batch group key value_dim"] | None,
        dropout: float = 0.0,
        residual: Tensor | None = None,
        gate: "Callable[[Call], Float[Tensor, 'batch head query dim']] | None" = None,
    ) -> None:
        self.site, self.scores, self._value, self.dropout = site, scores, value, dropout
        self._residual, self._gate = residual, gate
        self._weights: Tensor | None = None
        self._context: Tensor | None = None
        self._answers: dict[int, list[Measured]] = {}
        self._shared: dict[str, Any] = {}
        self.paths: set[str] = set()
        """How the statistics of its rows were computed: by "kernels", "the sweep" or "the matrix"."""

    @property
    def query(self) -> Float[Tensor, "batch head query dim"]:
        return self.scores.query

    @cached_property
    def key(self) -> Float[Tensor, "batch head key dim"]:
        return per_query_head(self.scores.key, self.query.shape[1])

    @property
    def has_values(self) -> bool:
        """False only for queries and keys that were captured without values (`lo.calls`)."""
        return self._value is not None

    @property
    def grouped_value(self) -> Float[Tensor, "batch group key value_dim"]:
        """The values as the model gave them, one for each group of heads."""
        if self._value is None:
            raise UserError(f"The values of {self.site} were not captured: pass value=… to lo.calls.")
        return self._value

    @cached_property
    def value(self) -> Float[Tensor, "batch head key value_dim"]:
        return per_query_head(self.grouped_value, self.query.shape[1])

    @property
    def residual(self) -> Float[Tensor, "batch query model"]:
        """The state that is added to the heads' output; stored only if a tap sets `wants_residual`."""
        if self._residual is None:
            raise RuntimeError("call.residual was not kept: set wants_residual = True on the tap or lens")
        return self._residual

    @property
    def has_residual(self) -> bool:
        """Whether the state that is added to the heads' output was stored."""
        return self._residual is not None

    @property
    def is_gated(self) -> bool:
        """Whether the model multiplies the contexts by a gate of the query."""
        return self._gate is not None

    @cached_property
    def gate(self) -> Float[Tensor, "batch head query dim"] | None:
        """What the model multiplies each context by before W_O, of dim 1 if by one number; None where there is none.

        It is computed on first use, and stays as it was when taps edit the context.
        """
        if self._gate is None:
            return None
        with torch.no_grad():
            return self._gate(self)

    @property
    def differentiable(self) -> bool:
        return torch.is_grad_enabled() and self._trained

    @property
    def _trained(self) -> bool:
        tensors = (self.query, self.scores.key, self._value, self.scores.bias, self.scores.sink)
        return any(t is not None and t.requires_grad for t in tensors)

    @property
    def has_context(self) -> bool:
        """Whether the context has been computed or edited."""
        return self._context is not None

    @property
    def has_weights(self) -> bool:
        """Whether the matrix of weights has been computed or edited."""
        return self._weights is not None

    @property
    def weights(self) -> Float[Tensor, "batch head query key"]:
        """α, computed on first use; rows without visible keys (padded queries) are zero. Assigning is an edit."""
        if self._weights is None:
            self._weights = softmax(dense(self.scores), self.scores.sink)
        return self._weights

    @weights.setter
    def weights(self, weights: Float[Tensor, "batch head query key"]) -> None:
        self._weights = weights

    @property
    def context(self) -> Float[Tensor, "batch head query value_dim"]:
        """Σ_j α_ij v_j per head, before the output projection. Assigning is an edit."""
        if self._context is None:
            if self._weights is None and self.scores.softcap is None and self.scores.sink is None:
                self._context = fused(self.scores, self.grouped_value, self.dropout)
            else:
                self._context = context_of(self.weights, self.value, self.dropout)
        return self._context

    @context.setter
    def context(self, context: Float[Tensor, "batch head query value_dim"]) -> None:
        self._context = context

    def block(
        self, texts: slice = EVERY, rows: Rows = EVERY, heads: slice = EVERY, columns: slice = EVERY
    ) -> Float[Tensor, "text heads row key"]:
        """α of some query rows, texts and heads, with edits, differentiable, without computing the others.

        `columns` are keys outside which these rows see nothing: a text without its padding. Negative rows count from
        the end.
        """
        if self._weights is not None:
            return self._weights[texts, heads][:, :, row_positions(rows, self.query.shape[2])][..., columns]
        scores = self.scores.block(texts, rows, heads, columns)
        return softmax(dense(scores), scores.sink, hides=scores.hides)

    def of_text(self, text: int) -> "Call":
        """The call of one text of the batch."""
        some = slice(text, text + 1)
        one = Call(self.site, self.scores.block(some), None if self._value is None else self._value[some])
        one._weights = None if self._weights is None else self._weights[some]
        one._context = None if self._context is None else self._context[some]
        return one

    @property
    def sink(self) -> Float[Tensor, "batch head query"]:
        """1 − Σ_j α_ij, the weight of a learnt sink; zero without one, and in rows without visible keys."""
        if self.scores.sink is None:
            return self.query.new_zeros(self.query.shape[:3])
        return self.measure(Wanted(sink=True))["sink"]

    @cached_property
    def visible_keys(self) -> Int[Tensor, "batch 1 query"]:
        """The number of visible keys of each row, including a learnt sink."""
        return self.scores.visible()

    def measure(self, wanted: Wanted) -> Measured:
        """Several statistics of all rows from one sweep, which also computes the context if needed."""
        if self._weights is not None or self.differentiable:
            self.paths.add("the matrix")
            return from_matrix(self.weights, wanted, None if self.scores.sink is None else self.visible_keys > 0)
        module = self.kernels(wanted)
        if module is None:
            return self._measured(wanted, None)
        try:
            return self._measured(wanted, module)
        except module.TooLarge:  # the block does not fit on this GPU's chip
            return self._measured(wanted, None)

    def _measured(self, wanted: Wanted, module: ModuleType | None) -> Measured:
        """The statistics, by the kernels or by the sweep."""
        # The sweep works in float32: a context of lower precision is left to sdpa, whose output the model expects.
        precise = module is not None or self.query.dtype in (torch.float32, torch.float64)
        along = self._context is None and self.dropout == 0.0 and precise and not self._trained and self.has_values
        if along and not wanted.context:
            wanted = replace(wanted, context=True)
        # Without values no context is computed, and the kernels get a tensor that they do not read.
        value = self.grouped_value if self.has_values or wanted.context else self.scores.key
        measured = (swept if module is None else module.measured)(self.scores, value, wanted)
        self.paths.add("the sweep" if module is None else "kernels")
        if along:
            self._context = measured.context
        return measured

    def kernels(self, wanted: Wanted) -> ModuleType | None:
        """The fused kernels, if they support these statistics; None for the sweep, or where the matrix exists."""
        if not self.query.is_cuda or self._weights is not None or self.differentiable:
            return None
        module = kernels("attention")
        if module is None:
            return None
        value = self.scores.key if self._value is None else self._value
        return module if module.refusal(self.scores, value, wanted) is None else None

    def ask(self, wishes: Mapping[int, Sequence[Wanted]]) -> None:
        """Compute the statistics that several objects want in one sweep over the rows."""
        parts: dict[int, Measured] = {}
        for group in self._groups([wish for some in wishes.values() for wish in some]):
            union = Union(group)
            measured = self.measure(union.wanted)
            parts |= {id(wish): union.part(wish, measured) for wish in group}
        self._answers |= {who: [parts[id(wish)] for wish in some] for who, some in wishes.items()}

    def has_answers(self, who: int) -> bool:
        """Whether the statistics of this object have been computed."""
        return who in self._answers

    def answers(self, who: int) -> list[Measured]:
        """The statistics of this object, in the order in which it requested them."""
        return self._answers[who]

    def _groups(self, wishes: list[Wanted]) -> list[list[Wanted]]:
        """On a GPU, split what the kernels can compute from what only the sweep can."""
        taken = [wish for wish in wishes if self.kernels(wish) is not None]
        if not taken:
            return grouped(wishes)
        rest = [wish for wish in wishes if not any(wish is each for each in taken)]
        return [*grouped(taken), *grouped(rest)]

    def once(self, name: str, make: Callable[[], T]) -> T:
        """A quantity that several lenses share: computed by the first, cached for the others."""
        if name not in self._shared:
            self._shared[name] = make()
        return self._shared[name]

    def forget(self) -> None:
        """Drop the statistics: they refer to this call, and would otherwise live as long as it does."""
        self._answers.clear()
        self._shared.clear()

    def average(
        self, features: Float[Tensor, "batch key feature"] | Float[Tensor, "batch head key feature"]
    ) -> Float[Tensor, "batch head query feature"]:
        """Σ_j α_ij φ_j for any per-key features φ: mass on a category, mean attended position, …"""
        return self.measure(Wanted(features=features))["average"]

    def entropy(self) -> Float[Tensor, "batch head query"]:
        """−Σ_j α_ij log α_ij in nats; the weight of a learnt sink is one of the terms."""
        return self.measure(Wanted(entropy=True))["entropy"]

    def at(self, offset: int) -> Float[Tensor, "batch head query"]:
        """α_{i,i+offset}: mass on self (0), previous (−1), next (+1); zero outside and where that key is masked."""
        return self.measure(Wanted(offsets=(offset,)))["at"][..., 0]

    def peak(self, among: Bool[Tensor, "batch key"] | None = None) -> Float[Tensor, "batch head query"]:
        """max_j α_ij, over all keys or among some (not renormalised)."""
        if among is None:
            return self.measure(Wanted(peak=True))["peak"]
        return self.measure(Wanted(among=among))["peak_among"]

    def received(self, queries: Float[Tensor, "batch query"]) -> Float[Tensor, "batch head key"]:
        """Σ_i w_i α_ij: the attention that each key receives, with a weight w_i for each query."""
        return self.measure(Wanted(received=queries))["received"]
