"""What a model says before and after an intervention, such as taking out some of its heads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.display import Facts
from lorgnette.texts.readable import readable
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.subject.trace import Trace


@dataclass(frozen=True, repr=False)
class Effect(Facts):
    """Logits and loss before and after; `divergence` is KL(before ‖ after) in nats, mean over predictions.

    A model that predicts at every position has one prediction for each token; padding does not count.

        >>> off = lo.effect(model, inputs, without=["1.2"])
        >>> off.logits.shape, off.divergence > 0            # [batch label]
        (torch.Size([2, 2]), True)

    `trace.effect` is that of one text: its logits are [label] or [token piece], and None for a model without an output
    head. There, `without` names the heads that are off; `said` is what the logits come to before and after: the label,
    the translation, the next piece of a causal model, the pieces at the mask tokens of a masked one; and `shift` is
    1 − cos between the last hidden states, mean over tokens.
    """

    before: Float[Tensor, "*batch label"] | None
    after: Float[Tensor, "*batch label"] | None
    loss: tuple[float, float] | None = None
    mask: Bool[Tensor, "*batch"] | None = None
    """Where a model that predicts at every position has a token; None if there is no padding to leave out."""
    without: tuple[str, ...] = ()
    said: tuple[str, str] | None = None
    shift: float | None = None

    def facts(self) -> dict[str, object]:
        change = self.logits
        largest = None if change is None else float(change.abs().max()) if change.numel() else 0.0
        return {
            "without": ", ".join(self.without) or None,
            "output": None if self.said is None else " → ".join(self.said),
            "divergence KL(before ‖ after)": None if self.divergence is None else f"{self.divergence:.4g} nats",
            "largest change of a logit": None if largest is None else f"{largest:.4g}",
            "loss": None if self.loss is None else f"{self.loss[0]:.4g} → {self.loss[1]:.4g}",
            "shift of the last states (1 − cos)": None if self.shift is None else f"{self.shift:.4g}",
        }

    @property
    def logits(self) -> Float[Tensor, "*batch label"] | None:
        """The change of each logit; zero at padding."""
        if self.before is None or self.after is None:
            return None
        change = self.after - self.before
        return change if self.mask is None else change.masked_fill(~self.mask[..., None], 0.0)

    @property
    def loss_change(self) -> float | None:
        return None if self.loss is None else self.loss[1] - self.loss[0]

    @property
    def divergence(self) -> float | None:
        if self.before is None or self.after is None:
            return None
        rows = ... if self.mask is None else self.mask
        p, q = (logits[rows].double().log_softmax(-1) for logits in (self.before, self.after))
        return max(0.0, float((p.exp() * (p - q)).sum(-1).mean()))

    @staticmethod
    def between(
        intact: "Trace", without: "Trace", heads: tuple[str, ...], said: tuple[str, str] | None = None
    ) -> "Effect":
        """Of two traces of one text; `said` where it is not read off the logits (a translation)."""
        before, after = _logits(intact), _logits(without)
        if said is None and before is not None and after is not None:
            words = _said(intact, before), _said(without, after)
            said = words if words[0] else None
        moved = 1 - F.cosine_similarity(intact.hidden_states[-1].double(), without.hidden_states[-1].double(), dim=-1)
        return Effect(before, after, without=heads, said=said, shift=max(0.0, moved.mean().item()))

    def to_dict(self, labels: tuple[str, ...] | None = None) -> Json:
        """Plain numbers; the logits by label where they are classes."""
        logits = {}
        if labels is not None and self.before is not None and self.after is not None and self.before.dim() == 1:
            both = zip(labels, self.before.tolist(), self.after.tolist(), strict=True)
            logits = {label: {"before": before, "after": after} for label, before, after in both}
        return {
            "without": list(self.without),
            "said": None if self.said is None else {"before": self.said[0], "after": self.said[1]},
            "logits": logits,
            "divergence": self.divergence,
            "shift": self.shift,
        }


def _logits(trace: "Trace") -> Float[Tensor, "*token label"] | None:
    logits = getattr(trace.output, "logits", None)
    return None if logits is None else logits[0].float() if logits.dtype.itemsize < 4 else logits[0]


def _said(trace: "Trace", logits: Float[Tensor, "*token label"]) -> str:
    subject = trace.subject
    if logits.dim() == 1:
        return "" if subject.labels is None or len(subject.labels) == 1 else subject.labels[int(logits.argmax())]
    if subject.labels is not None:
        return " ".join(subject.labels[place] for place in logits.argmax(-1).tolist())
    if subject.anatomy.causal:
        places = torch.tensor([len(logits) - 1])
    else:
        places = (trace.batch.source.ids[0] == subject.tokenizer.mask_token_id).nonzero()[:, 0]
    said = str(subject.tokenizer.decode(logits.argmax(-1)[places.to(logits.device)]))
    return said.strip() or (readable(said) if said else "")
