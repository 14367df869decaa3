"""One pass forward and one backward: relevance of every token and of every head of every layer at once."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lorgnette.attending import Recorder, Site, Tap
from lorgnette.contributions.centred import centred
from lorgnette.errors import UserError
from lorgnette.explaining.explanation import Explanation, masked
from lorgnette.explaining.inputs import own_words, states_begun, without_words, word_tables, words_changed
from lorgnette.explaining.rules import RULES, Heads, Mixed, Rules, ruled, unruled
from lorgnette.explaining.target import Target, explained, fixed, named
from lorgnette.models.classifier.embeddings import WordEmbeddings
from lorgnette.models.classifier.positions import LearntPositions, SinusoidalPositions
from lorgnette.models.linear import is_linear, is_quantised_map
from lorgnette.models.norms import is_norm
from lorgnette.models.offloading import parameter
from lorgnette.models.switching import evaluating
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.types import Json, ModelOutput


def propagated(
    subject: Subject,
    batch: Batch,
    method: str,
    target: Target = None,
    *,
    biases: bool = False,
    constants: Mapping[Site, Float[Tensor, "head dim"]] | None = None,
) -> Explanation:
    """Relevance by the rules of a method: R = x ⊙ c, where c is the gradient that the rules make of the true one.

    "decompx" (Modarressi et al. 2023, "DecompX", ACL) carries n×n vectors forward: x_i = Σ_k x_{i←k} + what biases add,

        heads      Σ_j α_ij W_V x_{j←k} with α constant        LayerNorm  γ ⊙ (x_{←k} − mean) / s with s constant
        f (GELU)   f(z)/z ⊙ z_{←k}, z = Σ_k z_{←k}             logit_c = Σ_k logit_{c←k} + bias

    All of this is linear in x_{·←k}, which begins as the state of token k below the first layer. So logit_{c←k} is that
    state times the gradient of the logit with α, s and f(z)/z held constant: one way back, and no n×n vectors. Biases
    are a token of their own (`biases`), so that the sum is exact; the paper's default shares every bias out among the
    tokens by |⟨b, x_{←k}⟩|, which is not linear, its other options by norm, evenly or to [CLS]. The paper has no gated
    feed-forward parts: each factor of a product takes half here. In contrast to "ah", position and type count as part
    of their token.

    `constants` are parts of the heads' outputs that count as biases: a head has the relevance of what is left of its
    output, (y − constant) ⊙ c. It is for rules that split y evenly over its terms; those of Voita et al. give shares by
    size or sign, which a constant changes for all that lies below.
    """
    return RelevancePass(subject, batch, RULES[method], biases=biases, constants=constants).explanation(method, target)


def edge_relevance(
    subject: Subject, batch: Batch, method: str = "ah", target: Target = None
) -> dict[Site, Float[Tensor, "batch head query key"]]:
    """How much of a head's relevance each query takes from each key.

        R_ij = α_ij ⟨v_j, c_i⟩,    Σ_ij R_ij = Σ_i ⟨y_i, c_i⟩ = relevance of the head

    with y_i = Σ_j α_ij v_j and c_i what the rules make of ∂start/∂y_i. For rules that split y evenly over its terms
    ("ah", "attnlrp", "gradient_x_input"); those of Voita et al. give shares by size or sign instead.
    """
    if method not in EVEN:
        raise UserError(f"Relevance of edges is for {', '.join(EVEN)}. Got {method!r} instead.")
    return RelevancePass(subject, batch, RULES[method]).edges(target)


EVEN = ("ah", "attnlrp", "gradient_x_input")
CENTRED = (*EVEN, "decompx")
"""Methods whose relevance of a head is its output times a rate that a constant in the values does not change."""


def relevance_by_part(
    subject: Subject, batch: Batch, parts: Bool[Tensor, "batch part token"], method: str, target: Target
) -> tuple[Float[Tensor, "batch part"], dict[Site, Float[Tensor, "batch head part"]]]:
    """The relevance of each part of a text, and how much of every head's comes from the part, in one pass.

    Of a part: the sum over its tokens. Of a part at a head: R_ij of `edge_relevance`, summed over all queries i and the
    part's keys j.
    """
    if method not in EVEN:
        raise UserError(f"Relevance by part is for {', '.join(EVEN)}. Got {method!r} instead.")
    return RelevancePass(subject, batch, RULES[method]).by_part(target, parts)


class RelevancePass:
    """One pass over one batch with the rules in place, and the leaves of its graph."""

    def __init__(
        self,
        subject: Subject,
        batch: Batch,
        rules: Rules,
        *,
        way: float | None = None,
        biases: bool = False,
        constants: Mapping[Site, Float[Tensor, "head dim"]] | None = None,
    ) -> None:
        _refuse_unruled(subject, rules)
        self.subject, self.batch, self.rules, self.way = subject, batch, rules, way
        self.constants = constants
        self.mixers = () if rules.norm is None else subject.anatomy.mixers
        self.mixed: list[Mixed] = []
        self.words: list[Tensor] = []
        self.steps: list[Tensor] = []  # what the gradient is multiplied by: the vectors, or how far they have come
        self.nothing = None if way is None else without_words(subject)
        self.added: list[Tensor] = []
        self.biased: list[_Biased] | None = [] if biases else None
        self.shared = _without_texts(subject, batch) if biases else set()

    def explanation(self, method: str, target: Target) -> Explanation:
        heads = self.rules.attention()
        outputs, start, whole = self.forward(target, heads)
        leaked = self._output_bias(outputs, target)
        made = self.backward(method, start.detach(), whole, heads.outputs, leaked)
        if self.rules.from_states and made.biases is None:
            made = replace(made, biases=made.start - made.total)
        return replace(made, explained=tuple(named(self.subject, self.batch, outputs.logits.detach(), target)))

    def forward(self, target: Target, heads: Heads, *more: Tap) -> tuple[ModelOutput, Tensor, Tensor]:
        """The outputs, what is explained of them, and the start of the backward pass."""
        with torch.enable_grad(), ExitStack() as undo:
            undo.enter_context(evaluating(self.subject.model))
            # Hooks run in the order in which they are put on: those that keep an output must see it after its rule.
            undo.enter_context(self.begun())
            self.mixed = undo.enter_context(ruled(self.subject.model, self.rules, self.mixers))
            if self.biased is not None:
                undo.enter_context(self.kept_biases(self.biased))
            with self.subject.tapped(heads, *more):
                outputs = self.subject.run(self.batch, **run_options(self.subject))
            start = explained(self.subject, self.batch, outputs, target)
            whole = explained(self.subject, self.batch, outputs, target, one=True) if self.rules.one else start
        return outputs, start, whole

    def edges(self, target: Target) -> dict[Site, Float[Tensor, "batch head query key"]]:
        heads, recorder = self.rules.attention(), Recorder.of("weights", "value")
        _, _, whole = self.forward(target, heads, recorder)
        rates = torch.autograd.grad(whole, list(heads.outputs.values()), torch.ones_like(whole), allow_unused=True)
        out = {}
        for site, rate in zip(heads.outputs, rates, strict=True):
            weights, value = recorder[site]["weights"], recorder[site]["value"]
            out[site] = weights * 0.0 if rate is None else weights * (rate @ value.mT)
        return out

    def by_part(
        self, target: Target, parts: Bool[Tensor, "batch part token"]
    ) -> tuple[Float[Tensor, "batch part"], dict[Site, Float[Tensor, "batch head part"]]]:
        heads, recorder = self.rules.attention(), Recorder.of("weights", "value")
        _, _, whole = self.forward(target, heads, recorder)
        leaves = [self.words[0], *heads.outputs.values()]
        words, *rates = torch.autograd.grad(whole, leaves, torch.ones_like(whole), allow_unused=True)
        members = parts.to(whole.dtype)
        tokens = torch.einsum("bt,bpt->bp", masked(_sum(self.steps[0], words, last=1), self.batch.source), members)
        out = {}
        for site, rate in zip(heads.outputs, rates, strict=True):
            weights, value = (recorder[site][name].detach() for name in ("weights", "value"))
            taken = torch.zeros_like(value) if rate is None else weights.to(rate).mT @ rate  # Σ_i α_ij c_i of each key
            out[site] = torch.einsum("bhkd,bhkd,bpk->bhp", taken, value.to(taken), members.to(taken))
        return tokens.detach(), out

    def backward(
        self, method: str, start: Tensor, whole: Tensor, heads: dict[Site, Tensor], leaked: Tensor | None
    ) -> Explanation:
        biased = [one for one in self.biased or [] if not one.shared]
        shared = [one for one in self.biased or [] if one.shared]
        mixed = self.mixed if leaked is not None else []
        through = [states for each in mixed for states in (each.given, each.gave)]
        leaves = [*self.words, *self.added, *heads.values(), *through, *(one.output for one in biased)]
        if leaked is not None:
            leaked = leaked + _of_shared(whole, shared)
        grads = torch.autograd.grad(whole, leaves, torch.ones_like(whole), allow_unused=True)
        gradients = iter(zip(leaves, grads, strict=True))
        words = [_sum(step, next(gradients)[1], last=1) for step in self.steps]
        added = [_sum(*next(gradients), last=1) for _ in self.added]
        by_head = {}
        for site in heads:
            output, gradient = next(gradients)
            if self.constants is not None:
                output = centred(output.detach(), self.constants[site][:, None, : output.shape[-1]])
            by_head[site] = _sum(output, gradient, last=2)
        for _ in mixed:  # what a mixer's tangent leaves of its output
            into, out = (_sum(*next(gradients), last=2) for _ in range(2))
            assert leaked is not None
            leaked = leaked + out - into
        for (_, gradient), one in zip(gradients, biased, strict=True):
            if gradient is not None and leaked is not None:
                leaked = leaked + (gradient * one.bias).reshape(len(leaked), -1).sum(-1)  # OPT puts its texts in a row
        if not all(bool(torch.isfinite(part).all()) for part in (*words, *added, *by_head.values())):
            raise UserError(
                f"The relevance by {method!r} is not finite: shares of sums near zero overflow "
                f"{str(start.dtype).removeprefix('torch.')}. Use --dtype float64, or another method."
            )
        return self._sorted_out(method, start, words, added, by_head, leaked)

    def _sorted_out(
        self,
        method: str,
        start: Tensor,
        words: list[Tensor],
        added: list[Tensor],
        heads: dict[Site, Tensor],
        leaked: Any,
    ) -> Explanation:
        """The first word vectors that were looked up are the source's, the second the target's."""
        source, target = self.batch.source, self.batch.target
        position: list[Tensor | None] = [None, None]
        for part, side in zip(added, self.side, strict=True):
            before = position[side]
            position[side] = part if before is None else before + part
        return Explanation(
            method,
            start,
            masked(words[0], source),
            None if target is None else masked(words[1], target),
            None if position[0] is None else masked(position[0], source),
            None if target is None or position[1] is None else masked(position[1], target),
            {site: heads[site] for site in self.subject.text_sites if site in heads},
            leaked,
        )

    def _output_bias(self, outputs: ModelOutput, target: Target) -> Float[Tensor, " batch"] | None:
        """The share of the start taken by a bias on the logits themselves (Marian has one)."""
        if self.biased is None:
            return None
        bias = getattr(self.subject.model, "final_logits_bias", None)
        if bias is None:
            return torch.zeros(len(self.batch), dtype=outputs.logits.dtype, device=outputs.logits.device)
        target = fixed(self.subject, self.batch, outputs, target)
        added = SimpleNamespace(logits=bias.detach().expand(outputs.logits.shape))
        return explained(self.subject, self.batch, added, target)

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Word vectors, and what is added to them, begin the graph."""
        self.side: list[int] = []
        model = self.subject.model
        words = {id(module) for module in word_tables(self.subject)}
        # Patches come into the language model beside its words.
        if self.rules.from_states or self.subject.anatomy.sees:
            with states_begun(self.subject, self.words):
                self.steps = self.words
                yield
            return

        def begin(x: Tensor) -> Tensor:
            return x.detach().clone().requires_grad_()

        def word(x: Tensor) -> Tensor:
            x = step = x.detach()
            if self.way is not None and self.nothing is not None:
                side = self.batch.source if not self.words or self.batch.target is None else self.batch.target
                step = (x - self.nothing).masked_fill(side.special[..., None], 0.0)
                x = x - (1 - self.way) * step
            self.words.append(x.clone().requires_grad_())
            self.steps.append(step)
            return self.words[-1]

        def more(x: Tensor) -> Tensor:
            x = begin(x.expand(len(self.batch), *x.shape[-2:]))
            self.added.append(x)
            self.side.append(max(0, len(self.words) - 1))
            return x

        with ExitStack() as undo:
            undo.enter_context(words_changed(self.subject, word))
            for name, module in model.named_modules():
                if isinstance(module, LearntPositions | SinusoidalPositions):
                    hook = module.register_forward_hook(lambda m, args, out: args[0] + more(out - args[0]))
                elif id(module) in words or isinstance(module, WordEmbeddings):
                    continue
                elif isinstance(module, nn.Embedding) and "relative" not in name and not own_words(model):
                    hook = module.register_forward_hook(lambda m, args, out: more(out))
                else:
                    continue
                undo.callback(hook.remove)
            yield

    @contextmanager
    def kept_biases(self, into: "list[_Biased]") -> Iterator[None]:
        """Keep the output of everything that has a bias, whose relevance is bias ⊙ c."""

        def keep(module: nn.Module, arguments: object, output: Tensor) -> None:
            bias = parameter(module, "bias")
            if output.requires_grad and bias is not None:
                into.append(_Biased(output, bias.detach(), id(module) in self.shared))

        with ExitStack() as undo:
            inner = {id(part) for mixer in self.mixers for part in mixer.modules()}
            for module in biased_modules(self.subject.model):
                if id(module) not in inner:
                    undo.callback(module.register_forward_hook(keep).remove)
            yield


@dataclass(frozen=True)
class _Biased:
    """The output of a module with a bias; `shared` if it has no axis for texts (DeBERTa's projected offsets)."""

    output: Tensor
    bias: Tensor
    shared: bool


def _of_shared(whole: Float[Tensor, " batch"], biased: list[_Biased]) -> Float[Tensor, " batch"]:
    """Σ bias ⊙ c of outputs that all texts share: one backward pass per text, as a joint one would sum over texts."""
    out = torch.zeros_like(whole.detach())
    if not biased:
        return out
    for text in range(len(whole)):
        rates = torch.autograd.grad(whole[text], [one.output for one in biased], retain_graph=True, allow_unused=True)
        for rate, one in zip(rates, biased, strict=True):
            out[text] += 0.0 if rate is None else (rate * one.bias).sum()
    return out


def _without_texts(subject: Subject, batch: Batch) -> set[int]:
    """Ids of modules with a bias whose output does not grow with the number of texts.

    A size alone would not tell: as many offsets as there are texts look like texts. So one text is run once, and twice.
    """
    sizes: list[dict[int, int]] = [{}, {}]

    def note(module: nn.Module, arguments: object, output: Tensor) -> None:
        sizes[copies - 1][id(module)] = len(output)

    with torch.no_grad(), evaluating(subject.model), ExitStack() as undo:
        for module in biased_modules(subject.model):
            undo.callback(module.register_forward_hook(note).remove)
        for copies in (1, 2):
            first = {name: torch.cat([tensor[:1]] * copies) for name, tensor in batch.inputs.items()}
            subject.model(**first, **run_options(subject))
    return {number for number, size in sizes[0].items() if sizes[1].get(number) == size}


def biased_modules(model: nn.Module) -> list[nn.Module]:
    maps = (m for m in model.modules() if is_linear(m) or is_quantised_map(m) or is_norm(m))
    return [module for module in maps if getattr(module, "bias", None) is not None]


def _refuse_unruled(subject: Subject, rules: Rules) -> None:
    """Refuse models that mix tokens by other means than attention, where no rule is known for these."""
    if rules.norm is None:
        return
    subject.anatomy.require("mixers")
    if subject.anatomy.mixers and rules not in (RULES[name] for name in EVEN):
        raise UserError(
            f"{subject.name!r} mixes tokens beside attention ({type(subject.anatomy.mixers[0]).__name__}), for which "
            f"this method has no rule. Use {', '.join(EVEN)} or integrated_gradients."
        )
    recurrent = next((type(m).__name__ for m in subject.model.modules() if isinstance(m, nn.RNNBase)), None)
    if rules.from_states and recurrent is not None:
        raise UserError(
            f"{subject.name!r} has a recurrent part ({recurrent}), which decompx cannot decompose. "
            "Use gradient_x_input or integrated_gradients."
        )
    strange = unruled(subject.model, subject.anatomy.mixers)
    if strange is not None:
        raise UserError(
            f"{subject.name!r} has a norm of unknown form ({strange}), for which there is no rule of "
            "relevance. Use gradient_x_input or integrated_gradients."
        )


def run_options(subject: Subject) -> Json:
    return {"return_dict": True} | ({"use_cache": False} if hasattr(subject.model.config, "use_cache") else {})


def _sum(x: Tensor, gradient: Tensor | None, *, last: int) -> Tensor:
    """Σ x ⊙ c over the last dimensions; zero where nothing of the start comes from x."""
    axes = tuple(range(-last, 0))
    if gradient is None:
        return x.detach().sum(axes) * 0.0
    return (x.detach() * gradient).sum(axes)
