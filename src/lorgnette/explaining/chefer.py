"""Chefer, Gur, Wolf 2021: attention weights times their gradients, carried through the layers."""

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call, Site
from lorgnette.errors import UserError
from lorgnette.explaining.backward import RelevancePass
from lorgnette.explaining.explanation import Explanation, masked
from lorgnette.explaining.mixing import predicting_rows
from lorgnette.explaining.rules import Heads, Rules
from lorgnette.explaining.target import Target, named
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

Relevance = Float[Tensor, "batch query key"]


def weights_by_gradient(subject: Subject, batch: Batch, target: Target = None) -> Explanation:
    """Attention weights times their gradients, positive parts only, carried from the first layer to the last.

        Ā = mean over heads of relu(∂f/∂α ⊙ α)
        self-attention     R_ss ← R_ss + Ā R_ss,  R_sq ← R_sq + Ā R_sq        R_ss begins as I, R_sq as 0
        cross-attention    R_sq ← R_sq + norm(R_ss)ᵀ Ā norm(R_qq)             norm(R) = (R − I) with rows of sum 1, + I

    The rows where the prediction is made are read: R_ss of the text itself, or R_sq where a decoder (or our own
    classifier's pooler) reads an encoder, with R_ss for the decoder's tokens. Never negative, but of one class. Chefer,
    Gur, Wolf 2021, "Generic Attention-Model Explainability for Interpreting Bi-Modal and Encoder-Decoder
    Transformers", ICCV.
    """
    subject.anatomy.require("mixing")
    kept = _KeptWeights()
    relevance_pass = RelevancePass(subject, batch, Rules(lambda: kept))
    outputs, start, whole = relevance_pass.forward(target, kept)
    if not kept.weights_of:
        raise UserError(f"{subject.name!r} has no attention over its text, which this method needs (chefer2021).")
    rates = torch.autograd.grad(whole, list(kept.weights_of.values()), torch.ones_like(whole), allow_unused=True)
    carried, read = _CarriedRelevance(), set(subject.text_sites)
    for (site, weights), rate in zip(kept.weights_of.items(), rates, strict=True):
        if site in read:  # no tower of pictures
            carried.through(site, _positive(weights, rate))
    rows = predicting_rows(subject, batch, outputs, target).to(start.dtype)
    tokens, targets = carried.read(rows, translates=batch.target is not None)
    return Explanation(
        "chefer2021",
        start.detach(),
        masked(tokens.to(start.dtype), batch.source),
        None if targets is None or batch.target is None else masked(targets.to(start.dtype), batch.target),
        explained=tuple(named(subject, batch, outputs.logits.detach(), target)),
    )


def _positive(weights: Tensor, rate: Tensor | None) -> Relevance:
    """Ā of one call; zero where nothing of the prediction depends on its weights."""
    if rate is None:
        return torch.zeros_like(weights[:, 0].detach())
    return (weights.detach() * rate).relu().mean(1)


class _KeptWeights(Heads):
    """Keeps the weights of every call inside the graph, in the order of the pass."""

    def __init__(self) -> None:
        super().__init__()
        self.weights_of: dict[Site, Tensor] = {}

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        if not weights.requires_grad:
            weights = weights.requires_grad_()
        self.weights_of[call.site] = weights
        return weights


class _CarriedRelevance:
    """R_ss of each stack, and R_sq of a stack that reads another one."""

    def __init__(self) -> None:
        self.own: dict[str, Relevance] = {}
        self.across: dict[str, Relevance] = {}

    def through(self, site: Site, mixing: Relevance) -> None:
        stack = site.stack
        if site.kind == "self":
            own = self._own(stack, mixing, -1)
            self.own[stack] = own + mixing @ own
            if stack in self.across:
                self.across[stack] = self.across[stack] + mixing @ self.across[stack]
            return
        source = next((name for name in self.own if name != stack), "source")
        of_queries, of_keys = self._own(stack, mixing, -2), self._own(source, mixing, -1)
        added = _normed(of_queries).mT @ mixing @ _normed(of_keys)
        self.across[stack] = added if stack not in self.across else self.across[stack] + added

    def _own(self, stack: str, mixing: Relevance, side: int) -> Float[Tensor, "batch token token"]:
        if stack not in self.own:
            self.own[stack] = torch.eye(mixing.shape[side]).to(mixing).expand(len(mixing), -1, -1)
        return self.own[stack]

    def read(self, rows: Float[Tensor, "batch row"], *, translates: bool) -> tuple[Tensor, Tensor | None]:
        """The relevance of the source's tokens, and of the target's, for the rows where the prediction is made."""
        if not self.across:
            (own,) = self.own.values()
            return _at(rows, own), None
        ((stack, across),) = self.across.items()
        rows = rows if translates else rows.new_ones(len(rows), 1)
        return _at(rows, across), _at(rows, self.own[stack]) if translates else None


def _normed(own: Relevance) -> Relevance:
    identity = torch.eye(own.shape[-1]).to(own)
    added = own - identity
    size = added.sum(-1, keepdim=True)
    return added / size.where(size > 0, 1.0) + identity


def _at(rows: Float[Tensor, "batch row"], relevance: Relevance) -> Float[Tensor, "batch token"]:
    return (rows[:, None].to(relevance.dtype) @ relevance)[:, 0]
