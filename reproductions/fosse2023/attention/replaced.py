"""Does the model need the weights that it learnt? Others in their place, in all layers at once, at test time.

All stay in the simplex: never negative, rows sum to 1, nothing on keys that a row may not see.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette.attending import Call, Tap
from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.subject import Subject
from reproductions.fosse2023.attention.geometry import Pass, passed
from reproductions.fosse2023.attention.texts import Text, Texts, batches

Seen = Bool[Tensor, "batch #head query key"]
KINDS = ("uniform", "permuted", "adversarial")
TEXTS = 2000
"""The first so many test texts."""


def uniform(seen: Seen) -> Float[Tensor, "batch #head query key"]:
    """1/n on each of the n keys that a row may see; zeros in a row that may see none."""
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


def permuted(
    weights: Float[Tensor, "batch head query key"], seen: Seen, generator: torch.Generator
) -> Float[Tensor, "batch head query key"]:
    """The weights of each row in another order over the keys that it may see, drawn anew for each row.

    As sharp as before, so it is the choice of keys that is taken away, not the sharpness. The draw is made on the
    generator's device and does not depend on the weights.
    """
    noise = torch.rand(weights.shape, generator=generator, device=generator.device).to(weights.device)
    # Keys that are seen first, in random order and in their own: the k-th of one goes to the place of the k-th other.
    drawn = noise.masked_fill(~seen, 2.0).argsort(-1)
    own = (~seen).to(torch.int8).expand_as(weights).argsort(dim=-1, stable=True)
    return torch.zeros_like(weights).scatter(-1, own, weights.gather(-1, drawn))


def all_on_least(values: Float[Tensor, "batch #head query key"], seen: Seen) -> Float[Tensor, "batch head query key"]:
    """All the weight of a row on the key whose value is least: argmin over the simplex of Σ_j a_j values_j."""
    least = values.masked_fill(~seen, torch.inf).argmin(-1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, least, 1.0) * seen


class Uniform(Tap):
    """Every row of every layer looks at all that it may see alike."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return uniform(call.scores.visible_keys()).to(weights.dtype)


class Permuted(Tap):
    """Every row of every layer has its weights in another order."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return permuted(weights, call.scores.visible_keys(), self.generator)


class Adversarial(Tap):
    """All the weight of a row on one key, the one that is worst for the class that was predicted.

    In the last layer, where only the row of <cls> counts: the key j for which norm(x + W_O v_j + b_O), read by the
    classifier, gives the least margin; every j is tried. Below it: the least ⟨∂margin/∂y_i, v_j⟩, the gradient taken in
    the model as it was, which is the worst choice to first order. Values are those of the replaced pass. Mixed weights
    could do worse still: this is a bound from one side.
    """

    wants_residual = True

    def __init__(
        self, model: SelfAttentionClassifier, slopes: Sequence[Tensor], predicted: Int[Tensor, " batch"]
    ) -> None:
        self.model, self.slopes, self.predicted = model, slopes, predicted

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        seen = call.scores.visible_keys()
        chosen = all_on_least(self.slopes[call.site.layer] @ call.value.mT, seen)
        if call.site.layer == len(self.slopes) - 1:
            block: Any = self.model.encoder.layers[-1]
            # [batch key width]: what <cls> becomes if it looks at one key only.
            states = block.norm(call.residual[:, :1] + block.attention.output(call.value[:, 0]))
            margins = margin(self.model.classifier(states), self.predicted[:, None].expand(states.shape[:2]))
            chosen[:, :, 0] = all_on_least(margins[:, None, None], seen[:, :, :1])[:, :, 0]
        return chosen.to(weights.dtype)


def margin(logits: Float[Tensor, "*batch label"], predicted: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """How far the logit of the predicted class lies above the highest of the others."""
    own = logits.gather(-1, predicted[..., None])
    others = logits.scatter(-1, predicted[..., None], -torch.inf)
    return own[..., 0] - others.amax(-1)


def slopes_of(subject: Subject, texts: Texts) -> tuple[Pass, list[Tensor]]:
    """The pass as it is, and for each layer ∂margin/∂y [batch head query dim]."""
    with torch.enable_grad():
        run = passed(subject, texts)
        contexts = [call.context for call in run.calls]
        total = margin(run.logits, run.logits.argmax(-1)).sum()
        slopes = torch.autograd.grad(total, contexts)
    return run, [slope.detach() for slope in slopes]


def replaced(subject: Subject, texts: Sequence[Text], seed: int) -> dict[str, Any]:
    """For each kind of weights: accuracy, share of changed predictions, cos(CLS before, after), lost probability."""
    chosen = texts[:TEXTS]
    labels = torch.tensor([text.example.label for text in chosen])
    right: dict[str, list[Tensor]] = {}
    dice = torch.Generator().manual_seed(seed)
    for batch in batches(chosen, subject.device):
        before, slopes = slopes_of(subject, batch)
        predicted = before.logits.argmax(-1)
        gold = labels[batch.numbers].to(predicted.device)
        right.setdefault("trained", []).append((predicted == gold).double()[None].cpu())
        taps = {
            "uniform": Uniform(),
            "permuted": Permuted(dice),
            "adversarial": Adversarial(subject.model, slopes, predicted),
        }
        for kind in KINDS:
            with torch.no_grad():
                after = passed(subject, batch, taps[kind])
            right.setdefault(kind, []).append(_compared(before, after, gold).cpu())
    whole = {kind: torch.cat(rows, dim=-1).mean(-1).tolist() for kind, rows in right.items()}
    names = ("accuracy", "flipped", "cosine", "lost")
    found = {kind: dict(zip(names, values, strict=kind != "trained")) for kind, values in whole.items()}
    return {"texts": len(chosen), **found}


def _compared(before: Pass, after: Pass, gold: Int[Tensor, " batch"]) -> Float[Tensor, "measure batch"]:
    first, second = before.logits.detach().argmax(-1), after.logits.argmax(-1)
    sure = before.logits.detach().double().softmax(-1) - after.logits.double().softmax(-1)
    return torch.stack(
        [
            (second == gold).double(),
            (second != first).double(),
            torch.cosine_similarity(before.cls.detach().double(), after.cls.double(), dim=-1),
            sure.gather(-1, first[:, None])[:, 0],
        ]
    )
