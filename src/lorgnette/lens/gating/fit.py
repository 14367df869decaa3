"""Soft gates on the heads of a frozen model, fitted to its loss; several fits run side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.attending import Site, Tap
from lorgnette.lens.ablation.copies import ScaledCopies
from lorgnette.lens.ablation.means import Means
from lorgnette.lens.losses import masked, text_losses
from lorgnette.subject import Subject
from lorgnette.texts.sides import Encoded

LIMIT = 5.0
"""Logits of gates stay within ±this, as the paper clips them: gates between .007 and .993."""
START = 2.0
"""Logit of every gate before the first fit: .88, near the model as it is, where gradients still arrive."""


@dataclass(frozen=True)
class GatedLoss:
    """The loss of some texts with gates on the heads."""

    subject: Subject
    task: str
    texts: Sequence[Encoded]
    place: Mapping[Site, slice]
    means: Means | None = None
    """what gates close towards; None: zero"""

    def __call__(
        self, logits: Float[Tensor, "copy gate"] | None, rows: Int[Tensor, "copy text"]
    ) -> Float[Tensor, " copy"]:
        """The mean over the texts of each copy, in the graph; without logits that of the model as it is."""
        batch, labels = self.subject.collate([self.texts[row] for row in rows.flatten().tolist()]), None
        if self.task == "masked":
            batch, labels = masked(self.subject, batch)
        gates = None if logits is None else torch.sigmoid(logits)
        taps: tuple[Tap, ...] = ()
        if gates is not None:
            taps = (ScaledCopies({site: gates[:, at] for site, at in self.place.items()}, self.means),)
        options = {"use_cache": False} if hasattr(self.subject.model.config, "use_cache") else {}
        with self.subject.tapped(*taps):
            outputs = self.subject.run(batch, return_dict=True, **options)
        losses, exists = text_losses(self.subject, self.task, batch, outputs, labels)
        losses, exists = losses.unflatten(0, rows.shape), exists.unflatten(0, rows.shape)
        return (losses * exists).sum(-1) / exists.sum(-1).clamp(min=1)


def fitted(
    loss: Callable[[Float[Tensor, "copy gate"], Int[Tensor, "copy text"]], Float[Tensor, " copy"]],
    start: Float[Tensor, "copy gate"],
    pressure: Float[Tensor, " copy"],
    rows: Int[Tensor, "step copy text"],
    rate: float,
) -> Float[Tensor, "copy gate"]:
    """The logits θ that make L(x; σ(θ)) − λ Σ θ small, by Adam with a rate that falls to zero; λ is the pressure.

    Every copy is a fit of its own: its texts, its gates and its pressure.
    """
    logits = start.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=rate)
    for number, step in enumerate(rows):
        optimizer.param_groups[0]["lr"] = rate * (1 - number / len(rows))
        with torch.enable_grad():
            objective = loss(logits, step).sum() - (pressure[:, None] * logits).sum()
        (logits.grad,) = torch.autograd.grad(objective, [logits])
        optimizer.step()
        with torch.no_grad():
            logits.clamp_(-LIMIT, LIMIT)
    return logits.detach()


def drawn_rows(texts: int, steps: int, batch: int, seed: int) -> Int[Tensor, "step text"]:
    """The texts of every step: one bootstrap sample of all texts, in a new random order each time it is used up."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randint(texts, (texts,), generator=generator)
    rounds = -(-steps * batch // texts)
    order = torch.cat([sample[torch.randperm(texts, generator=generator)] for _ in range(rounds)])
    return order[: steps * batch].view(steps, batch)
