"""What a model says with some of its heads and without them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from lorgnette.display import Facts
from lorgnette.texts.readable import readable
from lorgnette.types import Json

if TYPE_CHECKING:
    from lorgnette.subject.trace import Trace


@dataclass(frozen=True)
class KnockoutEffect(Facts):
    """The output of one text before and after some heads were taken out.

    `before` and `after` are logits: [label] of a classifier, [token piece] of a language or translation model; None for
    a model without an output head. `said` is what they come to: the label, the translation, the next piece of a causal
    model, the pieces at the mask tokens of a masked one. `divergence` is KL(before ‖ after) in nats, mean over tokens.
    `shift` is 1 − cos between the last hidden states, mean over tokens.
    """

    without: tuple[str, ...]
    before: Float[Tensor, "*token label"] | None
    after: Float[Tensor, "*token label"] | None
    said: tuple[str, str] | None
    divergence: float | None
    shift: float

    def facts(self) -> dict[str, object]:
        return {
            "without": ", ".join(self.without),
            "output": None if self.said is None else " → ".join(self.said),
            "divergence KL(before ‖ after)": None if self.divergence is None else f"{self.divergence:.4g} nats",
            "shift of the last states (1 − cos)": f"{self.shift:.4g}",
        }

    @staticmethod
    def between(
        intact: "Trace", without: "Trace", heads: tuple[str, ...], said: tuple[str, str] | None
    ) -> "KnockoutEffect":
        """Of two traces of one text; `said` where it is not read off the logits (a translation)."""
        before, after = _logits(intact), _logits(without)
        if said is None and before is not None and after is not None:
            words = _said(intact, before), _said(without, after)
            said = words if words[0] else None
        divergence = None
        if before is not None and after is not None:
            divergence = max(0.0, _divergence(before, after))
        moved = 1 - F.cosine_similarity(intact.hidden_states[-1].double(), without.hidden_states[-1].double(), dim=-1)
        return KnockoutEffect(heads, before, after, said, divergence, max(0.0, moved.mean().item()))

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


def _divergence(before: Float[Tensor, "*token label"], after: Float[Tensor, "*token label"]) -> float:
    p, q = before.double().log_softmax(-1), after.double().log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).mean().item()


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
