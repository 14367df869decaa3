"""Numbers of single predictions: what some logits say of the final prediction, and of the correct token."""

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Predicted:
    """What is predicted at the places of some texts: by the model, and rightly."""

    final: Int[Tensor, "text other"]
    right: Int[Tensor, "text other"]
    known: Bool[Tensor, "text other"]
    """False where a text has no further prediction"""

    @property
    def count(self) -> Float[Tensor, " text"]:
        return self.known.sum(-1).double()

    def mean(self, each: Float[Tensor, "*row text other"]) -> Float[Tensor, "*row text"]:
        """The mean over the predictions of each text; 0 without any."""
        return each.double().where(self.known, 0.0).sum(-1) / self.count.clamp(min=1)

    def others(
        self, own: Float[Tensor, "text place"], each: Float[Tensor, "text place other"]
    ) -> Float[Tensor, "text place"]:
        """The mean over the other predictions of the text; 0 without any. `own` is the place's own number in `each`."""
        total = each.double().where(self.known[:, None], 0.0).sum(-1)
        return (total - own.double()) / (self.count[:, None] - 1).clamp(min=1)

    def chance(self, top: Int[Tensor, "text place"], same: Bool[Tensor, "text place"]) -> Float[Tensor, "text place"]:
        """How often a top token equals the final prediction at the other places of its text."""
        return self.others(same.double(), (top[:, :, None] == self.final[:, None]).double())


def midrank(
    logits: Float[Tensor, "text place vocabulary"], token: Int[Tensor, "text place"]
) -> Float[Tensor, "text place"]:
    """The rank of a token, 1 the largest logit; of equal logits, the mean of their ranks."""
    own = logits.gather(-1, token[..., None])
    larger, equal = (logits > own).sum(-1), (logits == own).sum(-1)
    return larger.double() + (equal.double() + 1) / 2


def divergence(
    final: Float[Tensor, "text place vocabulary"], other: Float[Tensor, "text place vocabulary"]
) -> Float[Tensor, "text place"]:
    """KL(final ‖ other) in nats, of log-probabilities."""
    p = final.exp()
    return (p * (final - other)).where(p > 0, 0.0).sum(-1).clamp(min=0)
