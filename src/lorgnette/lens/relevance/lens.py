"""How much of a prediction passes through each head and comes from each category of token."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette import axes
from lorgnette.attending import Call
from lorgnette.constraints import OneOf
from lorgnette.contributions.centred import refuse_learnt_sink
from lorgnette.errors import UserError
from lorgnette.explaining import Explanation, Target, explain
from lorgnette.explaining.backward import CENTRED, propagated
from lorgnette.explaining.rules import RULES
from lorgnette.explaining.target import require_head
from lorgnette.lens.centring import CentredLens
from lorgnette.lens.moments import Moments
from lorgnette.lens.pairs import Pairs
from lorgnette.lens.signals import Signal, variable
from lorgnette.results import Result
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.token_kinds import CATEGORIES
from lorgnette.types import ModelOutput

BESIDE = ("target", "positions")
"""What has relevance beside the tokens of the source."""

_DESCRIPTIONS = {
    "relevance": "relevance of a head for the prediction, as a share of the absolute relevance of its layer",
    "layer_share": "share of the layer in the absolute relevance of all heads of the stack",
    "token_share": "relevance of the tokens of a kind, over that of all tokens of source and target and of what is "
    "added to their vectors, regardless of sign",
}


class Relevance(CentredLens):
    """Relevance of heads, layers and categories of token for the prediction (`lorgnette.explaining`).

        relevance   R_h / Σ_h′ |R_h′| within the layer, R_h summed over the head's output
        layer       Σ_h |R_h| of the layer's attention / the same over all layers of the stack
        token       Σ R_t over the tokens of a category / Σ_t |R_t| over all tokens and what is added to their vectors

    The largest logit of each text is explained, or `target` (see `explain`); for a translation, the sum over all tokens
    of the reference, before normalisation. Means are over texts. Costs one forward and one backward pass of its own.

    `centred` takes from each head the relevance of the constant part of its values, their mean over the corpus, which
    is read once before: that constant could as well be a bias (docs/gauge.md).

    What it does not tell you: what the model would predict without the head (see `importance`). A head whose positive
    and negative relevance cancel has little, however much passes through it.
    """

    name: ClassVar[str] = "relevance"
    summary: ClassVar[str] = "how much of the prediction passes through each head (layer-wise relevance propagation)"
    reads = frozenset({"cpu"})
    signals: ClassVar[Mapping[str, Signal]] = {
        "relevance": Signal(
            "share of its layer's relevance that goes through the head, with its sign",
            variable("relevance"),
            signed=True,
        ),
    }

    def __init__(
        self,
        method: Annotated[str, OneOf(RULES)] = "attnlrp",
        target: Target = None,
        *,
        centred: bool = False,
        parts: Sequence[str] = (),
    ) -> None:
        """`parts`: further categories, the named parts of the texts (image, text, special; user, assistant, …)."""
        super().__init__(centred)
        self.kinds: tuple[str, ...] = (*CATEGORIES, *parts)
        if centred and method not in CENTRED:
            raise UserError(
                f"relevance with centred=true is for the methods {', '.join(CENTRED)}: those of Voita et al. share by "
                f"the size or sign of every term, and a constant changes them all. Got {method!r} instead."
            )
        self.method, self.target = method, target

    def allocate(self, subject: Subject) -> None:
        require_head(subject)
        self.of_heads: Moments = Moments(self, "relevance")
        self.of_layers: Moments = Moments(self, "layer_share", at="layer")
        self.pairs: tuple[Pairs, ...] = (Pairs(self.of_heads, "relevance"), Pairs(self.of_layers, "layer_share"))
        self.of_tokens: Moments = Moments(self, "token_share", {axes.CATEGORY: (*self.kinds, *BESIDE)}, at="corpus")

    def update(self, call: Call, batch: Batch) -> None:
        if self.centred:
            refuse_learnt_sink(call)

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        explanation = self._explained(batch)
        stacks: dict[str, Tensor] = {}
        for site, heads in explanation.heads.items():
            size = heads.abs().sum(-1)
            stacks[site.name] = stacks.get(site.name, 0.0) + size
            share = heads / size.where(size > 0, 1.0)[:, None]
            self.of_heads.add(site, relevance=(share, (size > 0)[:, None]))
        for site, heads in explanation.heads.items():
            whole = stacks[site.name]
            share = heads.abs().sum(-1) / whole.where(whole > 0, 1.0)
            self.of_layers.add(site, layer_share=(share, whole > 0))
        self.of_tokens.add(token_share=_by_kind(explanation, batch, self.kinds))

    def _explained(self, batch: Batch) -> Explanation:
        if not self.centred:
            return explain(self.subject, batch, self.method, self.target)
        constants = {site: self.centring.mean("value", site) for site in self.sites}
        return propagated(self.subject, batch, self.method, self.target, constants=constants)

    def compute(self) -> Result:
        """Shares of heads, layers and kinds of token."""
        variables = self.of_heads.arrays() | self.of_layers.arrays() | self.of_tokens.arrays()
        for pairs in self.pairs:
            variables |= pairs.q()
        result = self.result(variables, descriptions=_DESCRIPTIONS)
        result.data.attrs |= {"method": self.method, "target": str(self.target)}
        return self.centring.mark(result)


def _by_kind(
    explanation: Explanation, batch: Batch, names: Sequence[str]
) -> tuple[Float[Tensor, "text kind"], Float[Tensor, "text kind"]]:
    """Shares of each kind of token, and 1 for those that a text has."""
    tokens, kinds = batch.source, []
    present = []
    for name, kind in zip(names, tokens.kinds(names).unbind(-1), strict=True):
        kinds.append((explanation.tokens * kind).sum(-1))
        present.append(
            torch.ones_like(kind[:, 0]) if name in ("punctuation", "period_comma", "other") else kind.any(-1)
        )
    size = explanation.tokens.abs().sum(-1)
    more = {"target": explanation.target_tokens, "positions": explanation.positions}
    for part in more.values():
        kinds.append(torch.zeros_like(size) if part is None else part.sum(-1))
        present.append(torch.full_like(present[0], part is not None))
    for part in (*more.values(), explanation.target_positions):
        size = size if part is None else size + part.abs().sum(-1)
    weights = torch.stack(present, -1) & (size > 0)[:, None]
    return torch.stack(kinds, -1) / size.where(size > 0, 1.0)[:, None], weights.to(size.dtype)
