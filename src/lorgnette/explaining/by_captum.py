"""SHAP and LIME, which fit a linear model to the logit of texts without some of their tokens. Captum does the work."""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Tap
from lorgnette.errors import optional
from lorgnette.explaining.backward import run_options
from lorgnette.explaining.explanation import Explanation
from lorgnette.explaining.inputs import without_words, words_changed
from lorgnette.explaining.target import Next, Target, explained, fixed, named, positions
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch, Tokens

if TYPE_CHECKING:
    from captum.attr import KernelShap, Lime

CAPTUM = {
    "shap": "Kernel SHAP: Shapley values of the tokens, hidden by the mask token (Lundberg & Lee 2017; by Captum)",
    "lime": "LIME: linear model of the logit with tokens hidden at random (Ribeiro et al. 2016; by Captum)",
}
DRAWN = 512
"""Hidden sets of tokens that are drawn for a text, beside two for each token."""
COST = f"{DRAWN} passes for each text, and two more for each of its tokens; attnlrp takes one backward pass"
_WIDTH, _RIDGE = 0.25, 1.0
"""Those of the package of LIME's authors: weight exp(−d²/2w²) at cosine distance d, and the penalty of the fit."""
_TOGETHER = 2048
"""Tokens of copies that run together."""


def require_captum() -> None:
    """One line that says how to install it, where it is not there."""
    optional("captum", "captum")


def by_captum(subject: Subject, batch: Batch, method: str, target: Target = None) -> Explanation:
    """The weights of a linear model g that follows f, where z says which tokens of a text are there.

        f(x with the tokens z) ≈ g(z) = w_0 + Σ_t w_t z_t,    relevance of t: w_t

    SHAP draws z so that w_t is the Shapley value: w_0 is f without any token, and the sum is f(x). LIME draws every
    token with probability one half, counts z by its cosine with the whole text, and penalises w (ridge). Both draw
    `DRAWN` + 2 n sets of n tokens, the same for a text whatever the batch. Hidden tokens keep their places and get the
    vector of the mask token (or padding, or zero), as in occlusion; special tokens are always there and get nothing. In
    a translation, the source's tokens are hidden.
    """
    require_captum()
    with torch.no_grad(), evaluating(subject.model), subject.tapped(Tap()):
        outputs = subject.run(batch, **run_options(subject))
        target = fixed(subject, batch, outputs, target)
        start = explained(subject, batch, outputs, target)
        names = tuple(named(subject, batch, outputs.logits, target))
        tokens = start.new_zeros(batch.source.ids.shape)
        before = _read(subject, batch, target)
        for text in range(len(batch)):
            inner = batch.source.mask[text] & ~batch.source.special[text] & before[text]
            value = _Without(subject, batch, text, inner, target)
            key = f"{method}/{batch.source.ids[text, inner].tolist()}"
            tokens[text, inner] = _fitted(method, value, int(inner.sum()), key).to(tokens)
    others = None if batch.target is None else start.new_zeros(batch.target.ids.shape)
    return Explanation(method, start, tokens, others, explained=names)


def _read(subject: Subject, batch: Batch, target: Target) -> Bool[Tensor, "batch token"]:
    """The tokens that a prediction can depend on: before a place of a causal text, nothing behind it counts."""
    if not (isinstance(target, Next) and batch.target is None):
        return batch.source.mask
    reading = positions(subject, batch, target)
    return reading.flip(-1).cumsum(-1).flip(-1) > 0  # up to the last place that is explained


def _fitted(method: str, value: "_Without", tokens: int, key: str) -> Float[Tensor, " token"]:
    """The weights of the linear model. One token has nothing to share with: it gets the whole difference."""
    if tokens < 2:
        there = torch.eye(2)[:, :1][: 2 * tokens]
        return value(there).diff().neg() if tokens else torch.zeros(0)
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:4])
    with torch.random.fork_rng(devices=[]):  # Captum draws from torch's own generator
        torch.manual_seed(seed)
        weights = _explainer(method, value).attribute(
            torch.ones(1, tokens),
            baselines=torch.zeros(1, tokens),
            n_samples=DRAWN + 2 * tokens,
            perturbations_per_eval=value.together,
        )
    return weights[0]


def _explainer(method: str, value: "_Without") -> "KernelShap | Lime":
    from captum._utils.models.linear_model import SkLearnRidge
    from captum.attr import KernelShap, Lime
    from captum.attr._core.lime import get_exp_kernel_similarity_function

    if method == "shap":
        return KernelShap(value)
    return Lime(
        value,
        interpretable_model=SkLearnRidge(alpha=_RIDGE),
        similarity_func=get_exp_kernel_similarity_function("cosine", kernel_width=_WIDTH),
    )


class _Without:
    """The explained number of one text, as a function of which tokens it keeps."""

    def __init__(
        self, subject: Subject, batch: Batch, text: int, inner: Bool[Tensor, " token"], target: Target
    ) -> None:
        self.subject, self.batch, self.text, self.inner = subject, batch, text, inner
        self.target = target
        self.nothing = without_words(subject)
        self.together = max(1, _TOGETHER // batch.source.ids.shape[1])

    def __call__(self, there: Float[Tensor, "copy token"]) -> Float[Tensor, " copy"]:
        hidden = self.inner.new_zeros(len(there), len(self.inner))
        hidden[:, self.inner] = there.to(hidden.device) < 0.5
        looked_up = 0

        def change(vectors: Tensor) -> Tensor:
            nonlocal looked_up
            looked_up += 1
            return torch.where(hidden[..., None], self.nothing.to(vectors), vectors) if looked_up == 1 else vectors

        copies = _copies(self.batch, self.text, len(there))
        with words_changed(self.subject, change):
            outputs = self.subject.run(copies, **run_options(self.subject))
        target = _of_text(self.target, self.text, len(self.batch), len(there))
        return explained(self.subject, copies, outputs, target).double().cpu()


def _copies(batch: Batch, text: int, copies: int) -> Batch:
    def repeated(tensor: Tensor) -> Tensor:
        return tensor[text : text + 1].expand(copies, *tensor.shape[1:]).contiguous()

    def of(tokens: Tokens) -> Tokens:
        return tokens.changed(repeated)

    return replace(
        batch,
        inputs={name: repeated(tensor) for name, tensor in batch.inputs.items()},
        source=of(batch.source),
        target=None if batch.target is None else of(batch.target),
        examples=(batch.examples[text],) * copies,
    )


def _of_text(target: Target, text: int, texts: int, copies: int) -> Target:
    """The target of one of so many texts, for copies of it."""

    def own(choice: object) -> object:
        if not isinstance(choice, Tensor) or not choice.dim() or len(choice) != texts:
            return choice
        return choice[text] if choice.dim() == 1 else choice[text].expand(copies, -1)

    if isinstance(target, Next):
        return replace(target, piece=own(target.piece), instead_of=own(target.instead_of))  # type: ignore[arg-type]
    if isinstance(target, tuple):
        return tuple(own(choice) for choice in target)  # type: ignore[misc]
    return own(target)  # type: ignore[return-value]
