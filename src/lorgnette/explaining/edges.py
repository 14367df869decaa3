"""Edge attribution: what each writer does to the output through each reader, to first order, all edges in one sweep.

An edge runs from what a part writes to the residual stream to a part that reads it there: the queries, keys or values
of a later head, a later feed-forward part, or the output. With Δ_a what is taken away from writer a, g_r the gradient
of the output at what reader r reads by, and J the way along the stream between them,

    attribution(a → r) = ⟨Δ_a, Jᵀ g_r⟩

(edge attribution patching: Nanda 2023; Syed et al. 2023). The gradient is the model's own, norms included, so that the
edges of a writer sum to its effect by gradient. One pass forward, cut at every writer, and one sweep backward in which
the gradient of every head's queries, keys and values is carried along the stream by itself.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site
from lorgnette.attending.scores import Scores, context_of, dense, per_query_head, softmax
from lorgnette.explaining.direct import Goal, unknown_path
from lorgnette.explaining.stream import Amount, ResidualStream, Slopes, Writer
from lorgnette.models.anatomy import Gate
from lorgnette.models.linear import is_linear
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import ModelOutput

WAYS = ("query", "key", "value")
Means = Mapping[Writer, Float[Tensor, " model"]]
"""What a writer gives in the mean over a corpus."""


@dataclass(frozen=True)
class StreamReader:
    """A part that reads the residual stream: a head by one of three ways, a feed-forward part, or the output."""

    way: str
    """query, key, value, feed_forward or logits"""
    site: Site | None = None
    """of a feed-forward part, stack and layer"""
    head: int | None = None
    """its index among those that are there"""


class EdgeStream(ResidualStream):
    """One pass, cut where parts write, that can be swept backwards.

    `choose` takes the logits and returns what is explained, one number of each text. With `means`, writers are
    measured against them, else against zero.
    """

    frozen: ClassVar[bool] = False

    def __init__(
        self,
        subject: Subject,
        batch: Batch,
        choose: Callable[[Tensor], Goal] | None = None,
        means: Means | None = None,
    ) -> None:
        gated = next((site.site for site in subject.text_attention if isinstance(site.gate, Gate)), None)
        if gated is not None:
            raise unknown_path(
                subject, f"the gate behind the heads of {gated} reads the stream too, and is no query, key or value"
            )
        self.choose = choose
        self.value: Tensor | None = None
        self.inner: list[tuple[Site, Tensor]] = []
        self.read: dict[Site, tuple[Tensor, Tensor]] = {}
        self.events: list[StreamReader] = []
        self.last_module: dict[Site, nn.Module] = {}
        super().__init__(subject, batch)
        self.biased.clear()  # biases are constants: nothing is taken away from them
        self.pieces = [self._against(piece, means) for piece in self.pieces]

    def finish(self, outputs: ModelOutput) -> None:
        if self.choose is not None:
            self.value = self.choose(outputs.logits)(outputs.logits)

    def _feed_forward(self, value: Tensor) -> Tensor:
        """The graph goes on to the output map of the part."""
        if not self.attending:
            self.inner.append((Site(self.last.stack, "self", self.last.layer), value))
        return value

    def _wrote_heads(self, module: nn.Module, arguments: object, output: Tensor) -> Tensor:
        self.events.append(StreamReader("heads", self.last))
        return super()._wrote_heads(module, arguments, output)

    def _wrote_feed_forward(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
        if self.attending or not (arguments and self.inner and arguments[0] is self.inner[-1][1]):
            return None
        site = self.inner[-1][0]
        self.feed_forward.append(self.inner[-1])
        written = super()._wrote_feed_forward(module, arguments, output)
        self.read[site] = output, self.feed_forward[-1][1]
        self.last_module[site] = module
        self.events.append(StreamReader("feed_forward", site))
        return written

    def refuse_uncut(self) -> None:
        """Every layer with linear maps beside its attention must have a feed-forward part with a known output map."""
        for site in self.sites:
            attention = {id(part) for other in self.sites if other.layer is site.layer
                         for part in (*other.module.modules(), other.output)}  # fmt: skip
            others = any(is_linear(part) and id(part) not in attention for part in site.layer.modules())
            own = Site(site.site.stack, "self", site.site.layer)
            bent = any(inner == own for inner, _ in self.inner)  # experts may keep their maps in tensors
            if (others or bent) and sum(event == StreamReader("feed_forward", own) for event in self.events) != 1:
                raise unknown_path(self.subject, f"the feed-forward part of {site.site} has no output map of its own")
            if site.site not in self.given:
                raise unknown_path(self.subject, f"{site.site} has no output map")

    def _against(self, piece: Amount, means: Means | None) -> Amount:
        if means is None:
            return piece
        mean = torch.stack([means[writer] for writer in piece.writers]).to(piece.amount)
        return replace(piece, amount=piece.amount - mean.reshape(len(mean), *(1,) * (piece.amount.dim() - 2), -1))

    def edges(self) -> Iterator[tuple[StreamReader, Float[Tensor, "text writer"]]]:
        """Every reader with what each writer does through it, from the output to the first layer."""
        assert self.value is not None
        slopes = self.slopes(self.value, torch.ones_like(self.value))
        yield StreamReader("logits"), self.parts_along(slopes, self.value).detach()
        gathered: list[Tensor | None] = list(slopes)
        place = {id(piece.leaf): number for number, piece in enumerate(self.pieces)}
        for event in reversed(self.events):
            assert event.site is not None
            if event.way == "feed_forward":
                output, leaf = self.read[event.site]
                rate = gathered[place[id(leaf)]]
                if rate is not None:
                    found = self.slopes(output, rate)
                    yield event, self.parts_along(found, output).detach()
                    _gather(gathered, found)
                continue
            rate = gathered[place[id(self.given[event.site])]]
            if rate is None:
                continue
            (inner,) = torch.autograd.grad(self.outputs[event.site], self.heads[event.site], rate, retain_graph=True)
            yield from self._through_heads(event.site, inner, gathered)

    def _through_heads(
        self, site: Site, rate: Float[Tensor, "_ _ _ _"], gathered: list[Tensor | None]
    ) -> Iterator[tuple[StreamReader, Float[Tensor, "text writer"]]]:
        """Through the heads of one site, at whose outputs the rate is [batch head query dim].

        Names of axes would be those of all sites: a generator is checked while the function runs that reads it.
        """
        call = self.calls[site]
        tensors = call.query, call.scores.key, call.grouped_value
        rates = attention_gradient(call, rate)
        for way, tensor, own in zip(WAYS, tensors, rates, strict=True):
            for head in range(own.shape[1]):
                alone = torch.zeros_like(tensor)
                alone[:, head * tensor.shape[1] // own.shape[1]] = own[:, head]
                found = self.slopes(tensor, alone)
                yield StreamReader(way, site, head), self.parts_along(found, tensor).detach()
                _gather(gathered, found)


def attention_gradient(call: Call, rate: Float[Tensor, "batch head query dim"]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient at the queries, keys and values of every head of one at the heads' outputs; grouped ones apart."""
    heads = call.query.shape[1]
    key, value = (per_query_head(each.detach(), heads) for each in (call.scores.key, call.grouped_value))
    leaves = [each.detach().clone().requires_grad_() for each in (call.query, key, value)]
    with torch.enable_grad():
        output = head_outputs(call.scores, *leaves)
    found = torch.autograd.grad(output, leaves, rate)
    return found[0], found[1], found[2]


def head_outputs(scores: Scores, query: Tensor, key: Tensor, value: Tensor) -> Float[Tensor, "batch head query dim"]:
    """Σ_j α_ij v_j of every head, with these queries, keys and values and all else as it was."""
    bias, sink = (one if one is None else one.detach() for one in (scores.bias, scores.sink))
    own = replace(scores, query=query, key=key, bias=bias, sink=sink)
    return context_of(softmax(dense(own), own.sink), value)


def _gather(gathered: list[Tensor | None], found: Slopes) -> None:
    for number, slope in enumerate(found):
        if slope is not None:
            before = gathered[number]
            gathered[number] = slope if before is None else before + slope
