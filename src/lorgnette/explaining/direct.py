"""What reaches the output by the direct path: the residual stream and norms with frozen statistics, nothing else.

Heads' outputs and what feed-forward parts give begin the graph anew, so that no gradient goes through later attention
or feed-forward parts. What is left is affine, and the logit is the sum of its parts:

    logit = ⟨embeddings, g⟩ + Σ_h ⟨z_h, g_h⟩ + Σ_l ⟨feed-forward l, g_l⟩ + Σ biases + remainder

with g the gradient of the logit along that path. The sum is checked on every batch. The direct effect of a head is
⟨z_h, g_h⟩ = ⟨W_O^h z_h, ∂logit/∂(residual)⟩ (Elhage et al. 2021; Wang et al. 2022).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lorgnette.attending import Call, Site, Tap
from lorgnette.errors import CaptureError
from lorgnette.explaining.backward import biased_modules, run_options
from lorgnette.explaining.rules import Heads, Rules, frozen_norm, ruled, unruled
from lorgnette.models.anatomy import AttentionSite
from lorgnette.models.linear import TOLERANCE, is_linear
from lorgnette.models.offloading import parameter
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch

POOLER = "pooler"
TERMS = ("embeddings", "heads", "feed_forward", "biases", "remainder")
Goal = Callable[[Tensor], Float[Tensor, " batch"]]
"""The number of each text's logits that is explained, linear in them."""
_Arguments = tuple[tuple[object, ...], dict[str, object]]
"""The positional and keyword arguments of a call."""


@dataclass(frozen=True)
class DirectEffects:
    """The terms of each text's logit; `remainder` is what the output head's own non-linearity adds to its tangent.

    Sites without a direct path (the encoder of a translation model) are not there; a pooler's head is, but no term: it
    passes on what the others wrote.
    """

    value: Float[Tensor, " batch"]
    outputs: Mapping[Site, Float[Tensor, "batch head query dim"]]
    slopes: Mapping[Site, Float[Tensor, "batch head query dim"]]
    feed_forward: Mapping[Site, Float[Tensor, " batch"]]
    embeddings: Float[Tensor, " batch"]
    biases: Float[Tensor, " batch"]
    remainder: Float[Tensor, " batch"]

    def heads(self, site: Site) -> Float[Tensor, "batch head"]:
        return (self.outputs[site] * self.slopes[site]).sum((-1, -2))

    def terms(self) -> Float[Tensor, "batch term"]:
        """In the order of `TERMS`; they sum to the logit."""
        none = torch.zeros_like(self.value)
        heads = sum((self.heads(site).sum(-1).to(none) for site in self.slopes if site.stack != POOLER), none)
        return torch.stack(
            [self.embeddings, heads, sum(self.feed_forward.values(), none), self.biases, self.remainder], -1
        )


def direct_effects(subject: Subject, batch: Batch, goal: Goal) -> DirectEffects:
    """One pass forward and one backward along the direct path; refused, by name, where the terms miss the logit.

    A pooler's non-linearity (tanh) is replaced by its tangent, f(x) ≈ f'(x) x + remainder. Attention that pools the
    tokens of a classifier has constant weights. What it does not tell you: what later layers make of a head's output.
    """
    path = DirectPath(subject)
    with torch.enable_grad(), evaluating(subject.model), path.cut():
        with subject.tapped(path.tap()):
            outputs = subject.run(batch, **run_options(subject))
        value = goal(outputs.logits)
        made = path.terms(value, goal(output_bias(subject, outputs.logits)))
    missed = (made.terms().sum(-1) - made.value).abs()
    size = made.terms().abs().sum(-1).clamp(min=torch.finfo(value.dtype).tiny)
    tolerance = max(
        TOLERANCE[subject.dtype], TOLERANCE[torch.float32]
    )  # RMSNorms compute in float32 whatever the model
    if bool((missed > tolerance * size).any()):
        worst = int((missed / size).argmax())
        numbers = f"{float(made.terms()[worst].sum()):.6g} and not {float(made.value[worst]):.6g}"
        rounded = torch.get_float32_matmul_precision() != "highest"
        why = " (torch.set_float32_matmul_precision is not 'highest', which rounds products)" if rounded else ""
        raise unknown_path(subject, f"the terms of its logit sum to {numbers}{why}")
    return made


def unknown_path(subject: Subject, why: str) -> CaptureError:
    return CaptureError(
        f"The direct path of {subject.name!r} ({type(subject.model).__name__}) is not known: {why}. Use the lens "
        "importance, which needs no path."
    )


def output_bias(subject: Subject, logits: Tensor) -> Tensor:
    """A bias that is added to the logits themselves (Marian has one)."""
    bias = getattr(subject.model, "final_logits_bias", None)
    return torch.zeros_like(logits) if bias is None else bias.detach().to(logits).expand(logits.shape)


class DirectPath:
    """The leaves of one pass: where each part of the logit begins."""

    frozen: ClassVar[bool] = True
    """Whether norms keep their statistics, which makes the path affine."""

    def __init__(self, subject: Subject) -> None:
        strange = unruled(subject.model)
        if strange is not None and unruled(subject.model, subject.anatomy.mixers) is None:
            mixers = " and ".join(dict.fromkeys(type(mixer).__name__ for mixer in subject.anatomy.mixers))
            raise unknown_path(subject, f"{mixers} mixes tokens beside attention, and no path through it is affine")
        if strange is not None:
            raise unknown_path(subject, f"it has a norm of unknown form ({strange})")
        if all(site.stack == POOLER for site in subject.sites):
            raise unknown_path(subject, "it has no layer of self-attention")
        self.subject = subject
        norm = frozen_norm if self.frozen else None
        self.rules: Rules = Rules(Heads, norm=norm, activation=self.activation, product=self.product)
        self.sites: list[AttentionSite] = [s for s in subject.text_attention if s.site.stack != POOLER]
        self.stacks: tuple[str, ...] = tuple(dict.fromkeys(site.site.stack for site in self.sites))
        self.heads: dict[Site, Tensor] = {}
        self.embeddings: list[Tensor] = []
        self.feed_forward: list[tuple[Site, Tensor]] = []
        self.bent: list[Tensor] = []
        self.biased: list[tuple[Tensor, Tensor]] = []
        self.layer: list[nn.Module] = []  # the running modules, outermost first
        self.attending: int = 0
        self.last: Site = self.sites[0].site  # whose layer runs

    def tap(self) -> Tap:
        pools = any(site.site.stack == POOLER for site in self.subject.anatomy.sites)
        return (_GraphStartAndPooler if pools else GraphStart)(self)

    def activation(self, x: Tensor, value: Tensor) -> Tensor:
        """Inside a layer the path ends here; in the output head it goes on along the tangent."""
        if self.layer:
            return self._feed_forward(value)
        if not x.requires_grad:  # a tower of pictures, before the path begins
            return value
        slope = torch.autograd.grad(value.sum(), x, retain_graph=True)[0].detach()
        self.bent.append((value - x * slope).detach().requires_grad_())
        return x * slope + self.bent[-1]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        """A gate in a layer ends the path; one on the heads' output would need a rule, and the sum shows its lack."""
        return self._feed_forward(a * b) if self.layer and not self.attending else a * b

    def _feed_forward(self, value: Tensor) -> Tensor:
        if self.attending:
            return value
        leaf = value.detach().requires_grad_()
        self.feed_forward.append((Site(self.last.stack, "self", self.last.layer), leaf))
        return leaf

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Install hooks that track the running layer, start the graph, and keep outputs with a bias."""
        model = self.subject.model
        first = {id(next(site.layer for site in self.sites if site.site.stack == name)) for name in self.stacks}
        begun: set[int] = set()

        def enter(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> _Arguments | None:
            self.layer.append(module)
            if id(module) not in first or id(module) in begun:
                return None
            begun.add(id(module))
            states = arguments[0] if arguments else keywords["hidden_states"]
            assert isinstance(states, Tensor)
            states = self.begin(states)
            if arguments:
                return (states, *arguments[1:]), keywords
            return arguments, {**keywords, "hidden_states": states}

        def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
            bias = parameter(module, "bias")
            if output.requires_grad and bias is not None:
                self.biased.append((output, bias.detach()))

        with ExitStack() as undo:
            for layer in {id(site.layer): site.layer for site in self.sites}.values():
                undo.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
                undo.callback(layer.register_forward_hook(lambda *_: self._leave()).remove)
            for module in {id(site.module): site.module for site in self.sites}.values():
                undo.callback(module.register_forward_pre_hook(lambda *_: self._attend(1)).remove)
                undo.callback(module.register_forward_hook(lambda *_: self._attend(-1)).remove)
            undo.enter_context(ruled(model, self.rules))
            self.cut_writes(undo)
            for module in biased_modules(model):  # after the rules: hooks run in the order of registration
                undo.callback(module.register_forward_hook(keep).remove)
            yield

    def begin(self, states: Tensor) -> Tensor:
        """The states that enter the first layer of a stack begin the graph."""
        self.embeddings.append(states.detach().requires_grad_())
        return self.embeddings[-1]

    def cut_writes(self, undo: ExitStack) -> None:
        """Hooks that cut the path in further places."""

    def _leave(self) -> None:
        self.layer.pop()

    def _attend(self, by: int) -> None:
        self.attending += by

    def terms(self, value: Float[Tensor, " batch"], bias: Float[Tensor, " batch"]) -> DirectEffects:
        """Σ leaf ⊙ gradient of every leaf, from one pass backwards."""
        self.refuse_uncut()
        gated = [leaf for _, leaf in self.feed_forward]
        leaves = [*self.heads.values(), *self.embeddings, *gated, *self.bent, *(out for out, _ in self.biased)]
        rates = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
        slope = dict(zip(map(id, leaves), rates, strict=True))
        texts = len(value)

        def share(leaf: Tensor, factor: Tensor) -> Float[Tensor, " batch"]:
            rate = slope[id(leaf)]
            if rate is None:
                return torch.zeros_like(value.detach())
            return (rate * factor).reshape(texts, -1).sum(-1).to(value)  # OPT puts its texts in a row

        def total(parts: list[tuple[Tensor, Tensor]]) -> Float[Tensor, " batch"]:
            return sum((share(leaf, factor) for leaf, factor in parts), torch.zeros_like(value.detach()))

        reached = {site: leaf for site, leaf in self.heads.items() if slope[id(leaf)] is not None}
        parts: dict[Site, list[tuple[Tensor, Tensor]]] = {}
        for site, leaf in self.feed_forward:
            if slope[id(leaf)] is not None:
                parts.setdefault(site, []).append((leaf, leaf))
        return DirectEffects(
            value.detach(),
            {site: leaf.detach() for site, leaf in reached.items()},
            {site: slope[id(leaf)] for site, leaf in reached.items()},
            {site: total(own).detach() for site, own in parts.items()},
            total([(leaf, leaf) for leaf in self.embeddings]).detach(),
            total(self.biased) + bias.detach(),
            total([(leaf, leaf) for leaf in self.bent]).detach(),
        )

    def refuse_uncut(self) -> None:
        """A layer with linear maps beside its attention must have had its path cut there."""
        cut = {(site.stack, site.layer) for site, _ in self.feed_forward}
        layers: dict[int, list[AttentionSite]] = {}
        for site in self.sites:
            layers.setdefault(id(site.layer), []).append(site)
        for sites in layers.values():
            if any("output" in site.unknown for site in sites) or cut & {
                (site.site.stack, site.site.layer) for site in sites
            }:
                continue
            attention = {id(part) for site in sites for part in (*site.module.modules(), site.output)}
            if any(is_linear(part) and id(part) not in attention for part in sites[0].layer.modules()):
                raise unknown_path(self.subject, f"the feed-forward part of {sites[0].site} has no known non-linearity")


class GraphStart(Tap):
    """The heads' output begins the graph."""

    def __init__(self, path: DirectPath) -> None:
        self.path = path

    def context(self, call: Call, context: Tensor) -> Tensor:
        if call.site.stack not in (POOLER, *self.path.stacks):  # a tower of pictures
            return context
        if call.site.stack != POOLER:
            context = context.detach().requires_grad_()
            self.path.last = call.site
        self.path.heads[call.site] = context
        return context


class _GraphStartAndPooler(GraphStart):
    """Attention that pools the tokens of a classifier is a mean with constant weights."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return weights.detach()
