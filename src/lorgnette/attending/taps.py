"""Taps: what sees or edits the attention calls of a model, and the watches of this thread that hand calls to them."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending.call import Call, Site


class Tap:
    """Observes or edits every attention call of a tapped model. Override the methods that you need.

        >>> class Uniform(lo.Tap):
        ...     def weights(self, call, weights):
        ...         return weights.new_full(weights.shape, 1 / weights.shape[-1])
        >>> with lo.tapped(model, Uniform()):
        ...     logits = model(**inputs).logits

    Edits of `scores` and `weights` compute the matrix; edits of `context` do not. Several taps are applied in order.
    """

    wants_residual = False
    change: str | None = None
    """What the tap does to the model, in a phrase that tells it from any other edit; provenance says it."""

    def open(self, stack: str) -> None:
        """A stack's forward pass begins."""

    def close(self, stack: str) -> None:
        """A stack's forward pass ends; all its sites were called."""

    def scores(
        self, call: Call, scores: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """Edit the scores before the softmax (masked ones are -inf)."""
        return scores

    def weights(
        self, call: Call, weights: Float[Tensor, "batch head query key"]
    ) -> Float[Tensor, "batch head query key"]:
        """Edit the weights after the softmax."""
        return weights

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        """Edit the heads' output before the output projection."""
        return context

    def see(self, call: Call) -> None:
        """Observe the call, after all edits."""

    def edits(self, what: str) -> bool:
        """Whether this tap overrides `scores`, `weights` or `context`."""
        return getattr(type(self), what) is not getattr(Tap, what)


class Arrival(NamedTuple):
    """The site that a call belongs to, the residual state added to the heads' output, if it was kept, and the gate."""

    site: Site
    residual: Tensor | None = None
    gate: Callable[[Any], Tensor] | None = None
    """of the call, when it has been made"""


class Watch(Protocol):
    """Follows the passes of a tapped model and names the site of each call before it happens."""

    @property
    def taps(self) -> Sequence[Tap]: ...

    def contains(self, module: nn.Module) -> bool: ...

    def arrive(self, module: nn.Module) -> Arrival: ...


ACTIVE: ContextVar[tuple[Watch, ...]] = ContextVar("lorgnette_watches", default=())
"""The watches of this thread (or task): models tapped in other threads are not among them."""
