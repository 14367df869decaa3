"""Explanations: how much of a prediction comes from each token, and through which heads.

Ours are in `METHODS`; installed packages register theirs under the entry point group `lorgnette.explanations`.
"""

from collections.abc import Sequence, Set
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec

import torch

from lorgnette.errors import UserError, flag, near, outside, shown
from lorgnette.explaining.backward import edge_relevance, propagated
from lorgnette.explaining.by_captum import CAPTUM, by_captum
from lorgnette.explaining.by_captum import COST as DRAWS
from lorgnette.explaining.chefer import weights_by_gradient
from lorgnette.explaining.explanation import Explanation
from lorgnette.explaining.integrated import COST as GRADIENTS
from lorgnette.explaining.integrated import integrated
from lorgnette.explaining.mixing import MEASURES, mixing_explanation
from lorgnette.explaining.occlusion import COST as PASSES
from lorgnette.explaining.occlusion import occluded
from lorgnette.explaining.target import Next, Target, class_number, require_head
from lorgnette.subject import Subject, refuse_no_subject
from lorgnette.subject.trace import translated
from lorgnette.texts import as_examples, texts_of
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example

__all__ = ["Explanation", "Next", "Target", "class_number", "edge_relevance", "explain", "explanations"]

GROUP = "lorgnette.explanations"
METHODS = {
    "attnlrp": "relevance propagation with rules for softmax and products (Achtibat et al. 2024)",
    "ah": "relevance propagation with attention weights and LayerNorm scales held constant (Ali et al. 2022)",
    "decompx": "DecompX: each token's part of the logit through all layers, biases apart (Modarressi et al. 2023)",
    "voita2019": "relevance propagation by ratios, as in the paper (Voita et al. 2019)",
    "voita2021": "relevance propagation by positive and negative parts, as in the released code (Voita et al. 2021)",
    "gradient_x_input": "gradient times word embedding",
    "integrated_gradients": "16 to 1,024 gradients on the way from mask tokens to the text (Sundararajan et al. 2017)",
    "occlusion": "how far the logit falls when the token is replaced by the mask token (Li et al. 2016)",
    "chefer2021": "positive parts of weights times gradients, carried through all layers (Chefer et al. 2021)",
    "attention": "attention weights of the last layer, mean over heads, from the predicting position",
    "rollout": "attention rollout: products over layers of ½ weights + ½ identity (Abnar & Zuidema 2020)",
    "attention_flow": "maximum flow through ½ weights + ½ identity of the layers (Abnar & Zuidema 2020)",
    "norm_rollout": "rollout of norms, with residual and LayerNorm (Kobayashi et al. 2021)",
    "globenc": "GlobEnc: rollout of norms, with both LayerNorms of a layer (Modarressi et al. 2022)",
    "alti": "ALTI: rollout of how close each token's contribution is to the output (Ferrando et al. 2022)",
    "value_zeroing": "rollout of how much the output changes without a token's value (Mohebbi et al. 2023)",
}

NAMES = {
    "attnlrp": "AttnLRP", "ah": "AH", "decompx": "DecompX", "voita2019": "Voita 2019", "voita2021": "Voita 2021",
    "gradient_x_input": "gradient × input", "integrated_gradients": "integrated gradients", "chefer2021": "Chefer 2021",
    "attention_flow": "attention flow", "norm_rollout": "norm rollout", "globenc": "GlobEnc", "alti": "ALTI",
    "value_zeroing": "value zeroing", "shap": "SHAP", "lime": "LIME",
}  # fmt: skip
"""How the pages write the methods whose names are not words."""

COSTS = {"integrated_gradients": GRADIENTS, "occlusion": PASSES, **dict.fromkeys(CAPTUM, DRAWS)}
"""What takes much longer than one pass, to be said before it starts."""


def explanations() -> dict[str, str]:
    """Every explanation method, ours or from an installed package, with a one-line description.

    `shap` and `lime` are among them where Captum is installed (`pip install 'lorgnette[captum]'`).

    >>> import lorgnette as lo
    >>> lo.explanations()["gradient_x_input"]
    'gradient times word embedding'
    """
    by_others = CAPTUM if find_spec("captum") is not None else {}
    return METHODS | by_others | {name: _summary(entry) for name, entry in _installed().items()}


def _installed() -> dict[str, EntryPoint]:
    """Methods of installed packages: functions (subject, batch, target) → `Explanation`. Ours keep their names."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found if entry.name not in METHODS | CAPTUM}


def _summary(entry: EntryPoint) -> str:
    """The first line of the function's docstring."""
    return next(iter((entry.load().__doc__ or "").strip().splitlines()), f"from {entry.module}, without a description")


def explain(
    subject: Subject,
    batch: Batch | str | Example | Sequence[str | Example],
    method: str = "attnlrp",
    target: Target | str = None,
    *,
    steps: int | None = None,
    biases: bool = False,
) -> Explanation:
    """The relevance of each token and each head for a logit: the command `lorgnette trace … --explain`.

        >>> explanation = lo.explain(subject, texts, "attnlrp", "LABEL_1")
        >>> explanation.tokens.shape                        # [batch token]; zero at padding
        torch.Size([2, 11])

    `batch` is a text, several texts, or a `Batch`. Without a given translation, a translation model's own is explained.
    `target` selects the logit: None is the largest of each text, a class (its name or number) applies to all texts,
    a tensor has a class for each text, and (a, b) is the difference of two; `explained` of the result names it. If a
    model predicts at every token, the predictions of a text are summed (translation: all tokens of the target; masked
    LM: the masked tokens). For a language model, `Next` explains any token of the text, or one candidate against
    another. `steps` is for integrated gradients: None takes 16 to 1,024 gradients, until their sum misses f(x) − f(x⁰)
    by at most 1 %, and refuses what still misses it by more than 5 %; a number is taken as it is; `gap` says what
    they miss. `biases` also computes the relevance of the biases, for propagation methods (`decompx` always has it).

    What it does not tell you: what the model would predict without the token. Methods disagree; compare them.
    """
    installed = _installed()
    known = (*METHODS, *CAPTUM, *installed)
    if not isinstance(method, str) or method not in known:
        raise UserError(
            f"There is no explanation method {shown(method)}.{near(str(method), known)} There are: {', '.join(known)}."
        )
    refuse_no_subject(subject, "explain")
    if subject.anatomy.sees and method in ("occlusion", "integrated_gradients", *CAPTUM):
        raise UserError(
            f"{method} changes word vectors, and a picture has none. Take attnlrp, or hide patches "
            "(lorgnette.explaining.patches)."
        )
    flag(biases, "biases")
    require_head(subject)
    if not isinstance(batch, Batch):
        batch = _encoded(subject, batch)
    if isinstance(target, str):
        target = class_number(subject, target)
    if method in installed:
        return replace(_by_package(installed[method], subject, batch, target), source=batch.source)
    with outside(f"{subject.name!r} cannot run on these inputs ({', '.join(batch.inputs)})", "Check them."):
        made = _made(subject, batch, method, target, steps, biases)
    return replace(made, source=batch.source)


def _made(subject: Subject, batch: Batch, method: str, target: Target, steps: int | None, biases: bool) -> Explanation:
    if method in MEASURES:
        return mixing_explanation(subject, batch, method, target)
    if method == "integrated_gradients":
        return integrated(subject, batch, target, steps=steps)
    if method == "occlusion":
        return occluded(subject, batch, target)
    if method in CAPTUM:
        return by_captum(subject, batch, method, target)
    if method == "chefer2021":
        return weights_by_gradient(subject, batch, target)
    return propagated(subject, batch, method, target, biases=biases)


def _by_package(entry: EntryPoint, subject: Subject, batch: Batch, target: Target) -> Explanation:
    """What a registered function returns, if it is an explanation of these tokens."""
    made = entry.load()(subject, batch, target)
    expected = f"The explanation {entry.name!r} ({entry.value}) must return an `Explanation`"
    if not isinstance(made, Explanation):
        raise UserError(f"{expected}. Got {type(made).__name__} instead.")
    shape = tuple(batch.source.ids.shape)
    if tuple(made.tokens.shape) != shape:
        raise UserError(f"{expected} with `tokens` of shape {shape}. Got {tuple(made.tokens.shape)} instead.")
    if not bool(torch.isfinite(made.tokens).all()):
        raise UserError(f"{expected} with finite `tokens`. Got NaN or infinity instead.")
    return made


def _encoded(subject: Subject, texts: str | Example | Sequence[str | Example]) -> Batch:
    if isinstance(texts, Set):
        raise UserError(f"The texts to explain must be a list: a set has no order. Got {shown(texts)} instead.")
    several = [texts] if isinstance(texts, str | Example) else list(texts_of(texts))
    return subject.encode([translated(subject, example) for example in as_examples(several)])
