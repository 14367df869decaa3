"""Values without the constant that could equally be part of the output bias: see docs/gauge.md."""

from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Call
from lorgnette.attending.sweep import Measured, Wanted
from lorgnette.contributions.head_weights import Projections
from lorgnette.errors import UserError

_ROUNDING = 8
"""A vector within this many units in the last place of the constant counts as the constant itself."""


def centred(vectors: Float[Tensor, "*rest dim"], constant: Float[Tensor, "*#rest dim"]) -> Float[Tensor, "*rest dim"]:
    """x − c, at least in float32; exactly zero where x is c but for rounding, which has no direction."""
    wide = torch.promote_types(vectors.dtype, torch.float32)
    vectors, constant = vectors.to(wide), constant.to(vectors.device, wide)
    out = vectors - constant
    size = vectors.norm(dim=-1, keepdim=True) + constant.norm(dim=-1, keepdim=True)
    return out.masked_fill(out.norm(dim=-1, keepdim=True) <= _ROUNDING * torch.finfo(wide).eps * size, 0.0)


def refuse_learnt_sink(call: Call) -> None:
    """A learnt sink takes a part of every row, so that a constant in the values is no constant in the output.

    Nor is it behind a gate, which multiplies it for each query.
    """
    if call.is_gated:
        raise UserError(
            f"The values of {call.site} cannot be centred: a gate of the query multiplies what the heads give, so that "
            "a constant in the values is no constant in the output. Look without centred=true."
        )
    if call.scores.sink is not None:
        raise UserError(
            f"The values of {call.site} cannot be centred: a learnt sink takes a part of every row, so that a "
            "constant in the values is no constant in the output. Look without centred=true."
        )


class CentredCall(Call):
    """A call with one constant c per head subtracted from its values; its context is y_i − c, as rows sum to 1.

    Weights, and what is measured of them, are those of the call itself. With a learnt sink the weights of the tokens
    do not sum to 1, so that the constant is not free: refused.
    """

    def __init__(self, call: Call, constant: Float[Tensor, "head dim"]) -> None:
        refuse_learnt_sink(call)
        value = call.grouped_value
        constant = constant[:, : value.shape[-1]]
        by_group = constant.unflatten(0, (value.shape[1], -1))[:, 0]  # heads of a group share their values
        super().__init__(
            call.site,
            call.scores,
            centred(value, by_group[:, None]),
            call.dropout,
            call.residual if call.has_residual else None,
        )
        self.call, self.constant = call, constant

    @property
    def has_context(self) -> bool:
        return self.call.has_context

    @property
    def has_weights(self) -> bool:
        return self.call.has_weights

    @property  # type: ignore[misc]  # edits are made to the call itself
    def weights(self) -> Float[Tensor, "batch head query key"]:
        return self.call.weights

    @property  # type: ignore[misc]
    def context(self) -> Float[Tensor, "batch head query value_dim"]:
        return centred(self.call.context, self.constant[:, None])

    def measure(self, wanted: Wanted) -> Measured:
        return self.call.measure(wanted)

    def kernels(self, wanted: Wanted) -> ModuleType | None:
        return None

    def output_bias(self, parts: Projections) -> Float[Tensor, " model"]:
        """b_O and what the constants add to every output, Σ_h c^h W_O^h."""
        moved = torch.einsum("hd,hdm->m", self.constant.to(parts.output), parts.output)
        return moved if parts.output_bias is None else parts.output_bias + moved
