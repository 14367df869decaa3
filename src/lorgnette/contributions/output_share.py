"""How much of the output's length each token gives, with its sign: α ‖f(x)‖ cos(f(x), y)."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor


class OutputShares:
    """Watches the rows of a call: what each token adds to the length of the outputs, per head and for all heads.

        per head     c^h_ij = α^h_ij f^h(x_j) · y^h_i / ‖y^h_i‖        y^h_i = Σ_j α^h_ij f^h(x_j)
        all heads    c_ij = Σ_h α^h_ij f^h(x_j) · y_i / ‖y_i‖          y_i = Σ_h y^h_i

    Σ_j c_ij = ‖y_i‖: the parts of the projection on the output add up to its length, and a part that points against it
    is negative (arXiv 2606.07604). y has no b_O, which comes from no token. With u_i = W_O y_i / ‖y_i‖ the sum over
    queries is Σ_i c_ij = v_j · Σ_i α_ij u_i: one product of the size of the context's, and no pair is ever kept.
    """

    def __init__(
        self,
        value: Float[Tensor, "text head key dim"],
        products: Float[Tensor, "head dim head_dim"],
        query: Float[Tensor, "text query"],
        context_of: Callable[[Tensor, slice, slice], Float[Tensor, "text head row dim"]],
    ) -> None:
        self.value, self.products, self.query = value, products.flatten(0, 1), query
        self.context_of = context_of
        blocks = products.unflatten(-1, products.shape[:2])
        self.own = blocks.diagonal(dim1=0, dim2=2).permute(2, 0, 1)  # M_hh: [head dim dim]
        self.of_heads = value.new_zeros(value.shape[:3])
        self.of_all = value.new_zeros(value.shape[0], value.shape[2])

    def __call__(self, weights: Float[Tensor, "text head row key"], texts: slice, rows: slice) -> None:
        value, query = self.value[texts], self.query[texts, rows]
        weights = weights.to(value.dtype)
        context = self.context_of(weights, texts, rows)
        alone = _directed(context @ self.own, context, (-1,), query[:, None])
        flat = context.transpose(1, 2).flatten(2) @ self.products
        together = flat.unflatten(-1, (context.shape[1], -1)).transpose(1, 2)
        together = _directed(together, context, (1, -1), query[:, None])
        given = weights.mT @ torch.cat([alone, together], -1)
        of_heads, of_all = (given.unflatten(-1, (2, -1)) * value[..., None, :]).sum(-1).unbind(-1)
        self.of_heads[texts] += of_heads
        self.of_all[texts] += of_all.sum(1)


def _directed(
    projected: Float[Tensor, "text head row dim"],
    context: Float[Tensor, "text head row dim"],
    axes: tuple[int, ...],
    query: Float[Tensor, "text 1 row"],
) -> Float[Tensor, "text head row dim"]:
    """W_O y / ‖y‖ for the queries that count; ‖y‖² is its product with the context. 0 where the output is zero."""
    square = (projected * context).sum(axes, keepdim=True)
    inverse = torch.where(square > 0, square, torch.inf).rsqrt()
    return projected * (inverse * query[..., None])
