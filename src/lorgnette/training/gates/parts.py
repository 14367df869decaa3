"""Gates on heads, feed-forward units and whole layers at once, under one budget."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site
from lorgnette.models.families.layers import LAYER, layers_of
from lorgnette.models.tapping import tapped
from lorgnette.training.gates.gates import HeadGates
from lorgnette.training.gates.hard_concrete import probability_open
from lorgnette.training.pruning.parts import Removable
from lorgnette.types import Json, PreTrainedModel

Output = Tensor | tuple[Tensor, *tuple[object, ...]]
"""What a layer returns: its states, or a tuple that begins with them."""
START = 3.5
"""log α at the beginning, on average: the model in evaluation is unchanged, and gates can begin to close at once."""
SPREAD = 1.0
"""How far above and below that the most and the least important parts begin."""
RAMP = 0.6
"""The share of the steps over which the budget falls from everything to what is wanted."""
ASCENT = 50.0
"""How fast the pressure grows while the budget is exceeded, over a whole run."""


class PartGates(HeadGates):
    """Hard concrete gates on all parts of a model; `value` = μ max(0, E[cost] − budget), as a share of what can go.

    E[cost] = fixed + Σ_layer P(layer) (rest + Σ_part P(part) price), P(z ≠ 0) for every gate. A layer with gate z gives
    z · layer(x) + (1 − z) x, so that a closed one passes on its input. The budget falls from the whole model to `limit`
    over the first steps, and μ grows while it is exceeded (dual ascent), so that the limit is met whatever the loss.
    Heads that share keys and values have one gate.
    """

    noun = "heads, units and layers"

    def __init__(
        self,
        parts: Removable,
        limit: float,
        *,
        steps: int,
        temperature: float,
        importance: Float[Tensor, " part"] | None = None,
    ) -> None:
        super().__init__(parts.sites, weight=1.0, temperature=temperature, start=START)
        self.parts, self.limit = parts, limit
        self.ramp, self.growth = max(1, round(RAMP * steps)), ASCENT / max(steps, 1)
        self.pressure = 1.0
        self.given: Tensor | None = None  # gates for one measurement, of the batch or of each text
        self.place |= {copy: self.place[first] for copy, first in parts.copies.items()}
        self.least, self.whole = parts.least(empty=True), parts.whole
        if importance is not None:
            self.begin_with(importance)

    def begin_with(self, importance: Float[Tensor, " part"]) -> None:
        """Start in the order of importance; layers, which are not known by it, among the most important."""
        ranks = importance.argsort(stable=True).argsort(stable=True).to(self.log_alpha)
        ranks = 2 * ranks / max(1, len(ranks) - 1) - 1
        for site, place in self.place.items():
            if site.kind == LAYER:
                ranks[place] = 1.0
        with torch.no_grad():
            self.log_alpha.copy_(START + SPREAD * ranks)

    # The tap, and the hooks beside it.

    def open(self, stack: str) -> None:
        super().open(stack)
        if self.given is not None:
            self._drawn = self.given
        assert self._drawn is not None
        self._drawn = self._drawn[..., self.parts.together.to(self._drawn.device)]

    def context(
        self, call: Call, context: Float[Tensor, "batch head query dim"]
    ) -> Float[Tensor, "batch head query dim"]:
        if call.site not in self.place:
            return context
        return context * self._of(call.site, context)[..., None, None]

    @contextmanager
    def hooked(self, model: PreTrainedModel) -> Iterator[None]:
        """Apply the gates to every pass of a model: those on heads as a tap, the others as hooks."""
        with ExitStack() as undo:
            undo.enter_context(tapped(model, self))
            for layer in layers_of(model):
                if layer.units_site in self.place and layer.feed_forward is not None:
                    scale = _Scale(self, layer.units_site)
                    undo.callback(layer.feed_forward.contract.register_forward_pre_hook(scale).remove)
                if layer.site in self.place:
                    undo.callback(layer.module.register_forward_hook(_MixLayer(self, layer.site)).remove)
            yield

    def _of(self, site: Site, like: Tensor) -> Float[Tensor, "*batch part"]:
        assert self._drawn is not None
        return self._drawn[..., self.place[site]].to(like.dtype)

    # The penalty.

    def expected_open(self) -> Float[Tensor, ""]:
        over = self.excess()
        return self.pressure * over.relu()

    def excess(self) -> Float[Tensor, ""]:
        """How far the expected cost is above the budget of this step, as a share of what can be removed."""
        odds = probability_open(self.log_alpha, self.temperature, self.stretch)
        share = (self.parts.cost(odds[self.parts.together.to(odds.device)]) - self.least) / (self.whole - self.least)
        wanted = (self.limit - self.least) / (self.whole - self.least)
        done = min(1.0, self.steps / self.ramp) if self.training else 1.0
        return share - (1 + done * (wanted - 1))

    @torch.no_grad()
    def advance(self) -> None:
        self.pressure += self.growth * max(0.0, float(self.excess()))
        super().advance()

    # What the gates say.

    @property
    def open_heads(self) -> int:
        """How many parts of any kind ẑ leaves open."""
        return int((self.gates[self.parts.together.to(self.gates.device)] > 0).sum())

    def values(self) -> dict[Site, Float[Tensor, " part"]]:
        gates = self.gates.detach()[self.parts.together.to(self.log_alpha.device)]
        return {site: gates[self.place[site]] for site in self.heads}

    def _chosen(self, keep: Bool[Tensor, " gate"]) -> dict[Site, list[int]]:
        return self.parts.kept(keep.cpu()[self.parts.together])

    def record(self) -> Json:
        return super().record() | {"limit": self.limit, "ramp": self.ramp}

    def _state(self) -> dict[str, Tensor]:
        return super()._state() | {"pressure": torch.tensor(self.pressure)}

    def _take(self, tensors: Mapping[str, Tensor]) -> None:
        super()._take(tensors)
        self.pressure = float(tensors["pressure"])


class _Scale:
    """Units times their gates, on the way into the map that reads them."""

    def __init__(self, gates: PartGates, site: Site) -> None:
        self.gates, self.site = gates, site

    def __call__(self, module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        gate = self.gates._of(self.site, given[0])
        return (given[0] * (gate if gate.dim() == 1 else gate[:, None]), *given[1:])


class _MixLayer:
    """z · layer(x) + (1 − z) x."""

    def __init__(self, gates: PartGates, site: Site) -> None:
        self.gates, self.site = gates, site

    def __call__(self, module: nn.Module, given: tuple[object, ...], output: Output) -> Output:
        states = output[0] if isinstance(output, tuple) else output
        gate = self.gates._of(self.site, states)[..., None]  # [1 1] or [batch 1 1]
        before = given[0]
        assert isinstance(before, Tensor)
        mixed = before + gate * (states - before)
        return (mixed, *output[1:]) if isinstance(output, tuple) else mixed
