"""What each head adds to every logit by the direct path: direct logit attribution over the whole vocabulary.

What a head writes reaches the output through the residual stream and through norms whose statistics are those of the
whole pass. That way is affine, so what heads, feed-forward parts, embeddings and biases add sums to the logits
(Elhage et al. 2021).

A gradient carries an output back to its parts. The gradient of that gradient carries a part forward: with y = Jᵀ w,
which is linear in w, J u = ∂⟨y, u⟩/∂w. So one graph of the direct path serves all heads, whatever the family.
"""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Site
from lorgnette.explaining.backward import biased_modules, run_options
from lorgnette.explaining.direct import DirectPath, output_bias, unknown_path
from lorgnette.explaining.output_head import OutputHead, Predictions
from lorgnette.explaining.rules import Heads, Rules, frozen_norm, ruled
from lorgnette.models.linear import TOLERANCE
from lorgnette.models.offloading import parameter
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

Change = tuple[Tensor, Tensor]
"""A tensor of a pass, and what it is taken to be by itself."""


class WrittenStates:
    """One pass along the direct path: what each head writes, as it arrives in the final state."""

    def __init__(self, head: OutputHead, batch: Batch) -> None:
        subject = head.subject
        self.head, self.batch, self.path = head, batch, DirectPath(subject)
        with (
            torch.enable_grad(),
            evaluating(subject.model),
            self.path.cut(),
            head.recorded() as states,
            subject.tapped(self.path.tap()),
        ):
            outputs = subject.run(batch, **run_options(subject))
        self.path.refuse_uncut()
        self.logits: Tensor = outputs.logits.detach()
        self.final: Tensor = head.complete(states, outputs).states[-1]
        feed_forward = [leaf for _, leaf in self.path.feed_forward]
        self.others: dict[str, list[Change]] = {
            "embeddings": [(leaf, leaf.detach()) for leaf in self.path.embeddings],
            "feed_forward": [(leaf, leaf.detach()) for leaf in feed_forward],
            "biases": self.path.biased,
        }
        heads = [(context, context.detach()) for context in self.path.heads.values()]
        everything = [*heads, *(change for some in self.others.values() for change in some)]
        self.carried: _Carried = _Carried(self.final, [tensor for tensor, _ in everything])
        _refuse_missing(subject, self.carried(everything), self.final.detach(), "final state")

    @property
    def sites(self) -> tuple[Site, ...]:
        """Those with a direct path to the output: the encoder of a translation model has none."""
        return tuple(site for site, context in self.path.heads.items() if self.carried.reaches(context))

    def of_heads(self, site: Site) -> Iterator[Float[Tensor, "text token model"]]:
        """The contribution of each head of a site to the final state."""
        context = self.path.heads[site]
        for head in range(context.shape[1]):
            alone = torch.zeros_like(context)
            alone[:, head] = context.detach()[:, head]
            yield self.carried([(context, alone)])


class HeadLogits:
    """The logits of every head at some positions of a batch; those of all heads and of `rest` sum to the model's.

        >>> written = WrittenStates(OutputHead(subject), batch)
        >>> found = HeadLogits(written, Predictions.at(batch.source.mask))
        >>> next(found.heads(subject.sites[0])).shape       # [text place vocabulary]

    A non-linearity of the output head (GELU of a masked language model, a cap of the logits) is replaced by its tangent
    at the final state; what the tangent misses is the remainder.
    """

    def __init__(self, written: WrittenStates, places: Predictions) -> None:
        self.written, self.places = written, places
        head, subject = written.head, written.head.subject
        self.state: Tensor = places.of(written.final.detach()).requires_grad_()
        self.bent: list[Tensor] = []
        biased: list[Change] = []

        def tangent(x: Tensor, value: Tensor) -> Tensor:
            slope = torch.autograd.grad(value.sum(), x, retain_graph=True)[0].detach()
            self.bent.append((value - x * slope).detach().requires_grad_())
            return x * slope + self.bent[-1]

        def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
            bias = parameter(module, "bias")
            if output.requires_grad and bias is not None:
                biased.append((output, bias.detach()))

        with torch.enable_grad(), ruled(subject.model, Rules(Heads, norm=frozen_norm, activation=tangent)):
            hooks = [module.register_forward_hook(keep) for module in biased_modules(subject.model)]
            try:
                logits = head.logits(written.batch, self.state)
            finally:
                for hook in hooks:
                    hook.remove()
        self.biased = biased
        self.carried: _Carried = _Carried(logits, [self.state, *self.bent, *(output for output, _ in biased)])
        self.constant: Tensor = output_bias(subject, logits.detach())
        whole = self._through(self.state.detach()) + self._biases() + self._remainder()
        _refuse_missing(subject, whole, places.of(written.logits), "logits")

    def heads(self, site: Site) -> Iterator[Float[Tensor, "text place vocabulary"]]:
        """The contribution of each head of a site to the logits, one head after the other."""
        for states in self.written.of_heads(site):
            yield self._through(self.places.of(states))

    def rest(self) -> dict[str, Float[Tensor, "text place vocabulary"]]:
        """What no head adds: embeddings, feed-forward parts, all biases, and the remainder of the tangent."""
        out = {
            name: self._through(self.places.of(self.written.carried(changes)))
            for name, changes in self.written.others.items()
        }
        return {**out, "biases": out["biases"] + self._biases(), "remainder": self._remainder()}

    def _through(self, states: Float[Tensor, "text place model"]) -> Float[Tensor, "text place vocabulary"]:
        return self.carried([(self.state, states)])

    def _biases(self) -> Float[Tensor, "text place vocabulary"]:
        return self.carried(self.biased) + self.constant

    def _remainder(self) -> Float[Tensor, "text place vocabulary"]:
        return self.carried([(bent, bent.detach()) for bent in self.bent])


class _Carried:
    """Carries tensors of a graph forward to its output: u ↦ J u, where the output is affine in them."""

    def __init__(self, output: Tensor, tensors: Sequence[Tensor]) -> None:
        with torch.enable_grad():
            self.start: Tensor = torch.zeros_like(output, requires_grad=True)
            back = torch.autograd.grad(output, list(tensors), self.start, create_graph=True, allow_unused=True)
        self.back: dict[int, Tensor | None] = dict(zip(map(id, tensors), back, strict=True))

    def reaches(self, tensor: Tensor) -> bool:
        return self.back[id(tensor)] is not None

    def __call__(self, changes: Sequence[Change]) -> Tensor:
        """The joint contribution of these tensors to the output."""
        pairs = [(back, change) for tensor, change in changes if (back := self.back[id(tensor)]) is not None]
        if not pairs:
            return torch.zeros_like(self.start).detach()
        along = [change.to(back.dtype).expand(back.shape) for back, change in pairs]
        (made,) = torch.autograd.grad([back for back, _ in pairs], self.start, along, retain_graph=True)
        return made


def _refuse_missing(subject: Subject, found: Tensor, expected: Tensor, name: str) -> None:
    """Refuse a model whose parts do not sum to what it computes."""
    size = expected.abs().amax(-1, keepdim=True).clamp(min=torch.finfo(expected.dtype).tiny)
    missed = float(((found - expected).abs() / size).max()) if expected.numel() else 0.0
    if not missed <= max(TOLERANCE[subject.dtype], TOLERANCE[torch.float32]):
        raise unknown_path(subject, f"the parts of its {name} miss it by {missed:.3g} of its size")
