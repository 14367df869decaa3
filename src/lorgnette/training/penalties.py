"""Terms that a loss may add about attention, as taps: loss = task + Σ weight · penalty.value.

They work on any model that can be tapped. Each looks at the layers it is told (all by default) and asks only for the
rows it needs, so that fused attention does the rest.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call, Tap
from lorgnette.attending.entropy import swept_entropy
from lorgnette.errors import UserError, near
from lorgnette.statistics.entropy import entropy, normalised_entropy
from lorgnette.types import Json

row_entropy = entropy  # fosse2023 imports them under these names
__all__ = ["as_distribution", "kl_divergence", "mean_over", "normalised_entropy", "row_entropy", "soft_jaccard"]

SMALLEST = 1e-10
"""Stands in for a zero weight where a target has mass, so that a divergence is finite."""


def soft_jaccard(a: Float[Tensor, "*rest key"], b: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest"]:
    """Σ_j min(a_j, b_j) / Σ_j max(a_j, b_j) of two maps that are nowhere negative: 1 if they are equal, 0 if disjoint.

    Ruzicka's similarity; of two distributions it is (1 − t)/(1 + t), t their total variation distance. It does not see
    how far apart in the text two disjoint maps are. Two empty maps are equal.
    """
    union = torch.maximum(a, b).sum(-1)
    empty = union == 0
    ratio = torch.minimum(a, b).sum(-1) / union.masked_fill(empty, 1.0)
    return ratio.masked_fill(empty, 1.0)


def kl_divergence(target: Float[Tensor, "*rest key"], rows: Float[Tensor, "*rest key"]) -> Float[Tensor, "*rest"]:
    """KL(t ‖ a) = Σ_j t_j log(t_j / a_j) in nats; where t_j is 0 the term is 0, an a_j of 0 counts as 1e-10.

    Large where the row leaves out what the target has, small where it adds what the target does not have.
    """
    # xlogy: 0 log 0 = 0, also in the gradient.
    return (torch.special.xlogy(target, target) - target * rows.clamp(min=SMALLEST).log()).sum(-1)


def as_distribution(values: Float[Tensor, "batch key"]) -> tuple[Float[Tensor, "batch key"], Bool[Tensor, " batch"]]:
    """Each row divided by its sum, and which rows have one; the others stay zero."""
    total = values.sum(-1, keepdim=True)
    positive = total > 0
    return values / total.masked_fill(~positive, 1.0), positive[:, 0]


def mean_over(values: Float[Tensor, "*shape"], counted: Bool[Tensor, "*shape"]) -> Float[Tensor, ""]:
    """The mean of the counted values; 0 if there are none."""
    count = counted.sum()
    return values.masked_fill(~counted, 0.0).sum() / count.clamp(min=1)


ROWS: Final = ("cls", "all")
LOSSES: Final = ("jaccard", "kl")


class Penalty(Tap):
    """A tap whose `value` after a forward pass, times `weight`, is added to the loss.

    `layers` counts from 1; None is all. `needs` names what the batch must bring besides the model's inputs.
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    looks_at_cls = True
    """Whether the first row must be that of <cls>."""

    def __init__(self, weight: float, *, layers: Sequence[int] | None = None) -> None:
        if not 0 <= weight < float("inf"):
            raise UserError(f"the weight of a penalty is added to the loss, so it must be 0 or more; got {weight}.")
        if layers is not None and (not layers or min(layers) < 1):
            raise UserError(f"layers of a penalty are counted from 1; got {list(layers)}.")
        self.weight: float = float(weight)
        self.layers: tuple[int, ...] | None = None if layers is None else tuple(layers)
        self._terms: list[Tensor] = []
        self._mask: Tensor | None = None

    def record(self) -> Json:
        """The settings, as plain values."""
        layers = None if self.layers is None else list(self.layers)
        return {"penalty": self.name, "weight": self.weight, "layers": layers}

    def begin(self, mask: Bool[Tensor, "batch token"] | None, extra: Mapping[str, Tensor]) -> None:
        """Store the mask of a batch, and its maps, before the forward pass."""
        self._terms, self._mask = [], mask

    def see(self, call: Call) -> None:
        if self.layers is None or call.site.layer + 1 in self.layers:
            self._terms.append(self.term(call))

    def term(self, call: Call) -> Float[Tensor, ""]:
        """The penalty of one call: a mean over texts and heads."""
        raise NotImplementedError

    @property
    def value(self) -> Float[Tensor, ""]:
        """The mean over the layers seen since `begin`."""
        if not self._terms:
            raise UserError(
                f"the {self.name} penalty received no attention weights: the model has no layer {self.layers or ''}."
            )
        return torch.stack(self._terms).mean()


class EntropyPenalty(Penalty):
    """H = −Σ_j a_ij log a_ij / log n, the mean over heads and texts; n counts the tokens a row may see, <cls> too.

    rows "cls": the first row, or the one row of an attention pooler (Fosse et al. 2023; Nguyen et al. 2022);
    rows "all": the mean over the real tokens of a text. `normalise=False` leaves out log n.
    Low entropy makes a map easy to read; it does not make it faithful.
    """

    name = "entropy"

    def __init__(
        self, weight: float, rows: str = "cls", layers: Sequence[int] | None = None, normalise: bool = True
    ) -> None:
        super().__init__(weight, layers=layers)
        if rows not in ROWS:
            raise UserError(
                f"rows of the entropy penalty must be one of {', '.join(ROWS)}; got {rows!r}.{near(rows, ROWS)}"
            )
        self.rows, self.looks_at_cls = rows, rows == "cls"
        self.normalise = normalise

    def record(self) -> Json:
        return {**super().record(), "rows": self.rows, "normalise": self.normalise}

    def term(self, call: Call) -> Float[Tensor, ""]:
        if self.rows == "cls":
            nats, visible = _first_row(call), call.visible_keys[:, :, :1]  # [batch head 1]
        else:
            nats, visible = _all_rows(call), call.visible_keys  # [batch head query]
        if self.normalise:
            nats = normalised_entropy(nats, visible.expand_as(nats))
        per_row = nats.mean(dim=1)
        if self.rows == "cls" or self._mask is None or per_row.shape[1] == 1:
            return per_row.mean()
        share = self._mask.to(per_row.dtype)
        return ((per_row * share).sum(-1) / share.sum(-1)).mean()


def _all_rows(call: Call) -> Float[Tensor, "batch head query"]:
    """The entropy of every row, off the matrix only where it is there already or the scores have a cap or a sink."""
    if not call.has_weights and call.scores.softcap is None and call.scores.sink is None:
        return swept_entropy(call.scores)
    return call.entropy()


def _first_row(call: Call) -> Float[Tensor, "batch head 1"]:
    row = call.block(rows=[0])
    if call.scores.sink is not None:
        row = torch.cat([row, 1 - row.sum(-1, keepdim=True)], -1)
    return entropy(row)


class MapPenalty(Penalty):
    """How far the first row (of <cls>, or of an attention pooler), averaged over heads, is from a map t over tokens.

    loss "jaccard": 1 − Σ min(a, t) / Σ max(a, t); loss "kl": KL(t ‖ a). t is divided by its sum; texts without a map
    do not count.
    """

    def __init__(self, weight: float, loss: str, layers: Sequence[int] | None = None) -> None:
        super().__init__(weight, layers=layers)
        if loss not in LOSSES:
            raise UserError(f"the loss of a map must be one of {', '.join(LOSSES)}; got {loss!r}.{near(loss, LOSSES)}")
        self.loss = loss
        self._target: Tensor | None = None
        self._has_target: Tensor | None = None

    def record(self) -> Json:
        return {**super().record(), "loss": self.loss}

    def begin(self, mask: Bool[Tensor, "batch token"] | None, extra: Mapping[str, Tensor]) -> None:
        super().begin(mask, extra)
        if self.needs[0] not in extra:
            raise UserError(f"the {self.name} penalty needs a map for every text, which this corpus does not give.")
        self._target, self._has_target = as_distribution(extra[self.needs[0]])

    def term(self, call: Call) -> Float[Tensor, ""]:
        assert self._target is not None
        assert self._has_target is not None
        row = call.block(rows=[0])[:, :, 0].mean(dim=1)
        target = self._target.to(row.dtype)
        distance = 1 - soft_jaccard(row, target) if self.loss == "jaccard" else kl_divergence(target, row)
        return mean_over(distance, self._has_target)


class RationalePenalty(MapPenalty):
    """How far attention is from the human rationale: 1 − soft Jaccard, or KL.

    Nguyen et al. 2022 (Jaccard); Mathew et al. 2021, HateXplain (cross-entropy, which is KL but for a constant).
    """

    name = "rationale"
    needs = ("gold",)

    def __init__(self, weight: float, loss: str = "jaccard", layers: Sequence[int] | None = None) -> None:
        super().__init__(weight, loss, layers)


class HeuristicPenalty(MapPenalty):
    """KL(t ‖ a) to a map t made without annotators, see `lorgnette.training.heuristic` (Nguyen et al. 2022)."""

    name = "heuristic"
    needs = ("heuristic",)

    def __init__(self, weight: float, loss: str = "kl", layers: Sequence[int] | None = None) -> None:
        super().__init__(weight, loss, layers)
