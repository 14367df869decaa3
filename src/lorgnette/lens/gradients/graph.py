"""A pass that can be gone through backwards: the weights of every call, kept inside the graph."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lorgnette.attending import Call, Site, Tap


@dataclass(frozen=True)
class InGraph:
    """The weights of one call, as the rest of the pass used them, and which keys a row may see."""

    weights: Float[Tensor, "batch head query key"]
    visible: Bool[Tensor, "batch heads query key"]


class Graph(Tap):
    """Builds every call's weights and context with gradients on, before anybody looks, and keeps the weights.

    Give it to a pass from the `taps` of a lens that reads "gradients", or to `subject.tapped` under
    `torch.enable_grad`.
    A model whose parameters are frozen works too: the weights themselves are where the graph then begins.
    """

    def __init__(self) -> None:
        self.calls: dict[Site, InGraph] = {}

    def weights(
        self, call: Call, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        if not torch.is_grad_enabled():
            raise RuntimeError("Graph needs a pass with gradients: a lens that reads 'gradients', or enable_grad()")
        if not weights.requires_grad:
            weights.requires_grad_()
        self.calls[call.site] = InGraph(weights, call.scores.visible_keys())
        return weights

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        # Asked for here so that it is in the graph: a lens that asks first, without gradients, would cut the graph.
        return context

    def gradients(self, loss: Float[Tensor, ""]) -> dict[Site, Float[Tensor, "batch head query key"]]:
        """∂loss/∂α of every call, from one backward pass; parameters get no gradient. The graph is freed."""
        sites = list(self.calls)
        gradients = torch.autograd.grad(loss, [self.calls[site].weights for site in sites], materialize_grads=True)
        return dict(zip(sites, gradients, strict=True))
