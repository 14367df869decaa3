"""Install relevance rules on the modules and calls of one model while a context is open.

Nothing is patched: modules get forward hooks, attention a tap, and operations that are written out in a forward
(`torch.tanh`, a gate's product) are met by a torch function mode, which only this thread sees. No rule changes a value.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from lorgnette.attending import Call, Site, Tap
from lorgnette.explaining import alpha_beta
from lorgnette.explaining.relevance import (
    constant_std,
    half_product,
    passed,
    product_by_size,
    scaled_gradient,
    weighted_by_size,
    without_bias,
)
from lorgnette.models.classifier.layers import PureNorm
from lorgnette.models.discovery.mixers import given_states, states_of
from lorgnette.models.linear import is_linear, is_quantised_map, linear_weights
from lorgnette.models.norms import NormForm, is_norm, norm_form, norm_rate
from lorgnette.models.offloading import parameter

ModuleRule = Callable[[Any, Tensor, Tensor], Tensor]
"""(module, its input, its output) → the output with another way back"""


class Heads(Tap):
    """Keeps the heads' output of every call, inside the graph; the plain gradient goes through attention."""

    def __init__(self) -> None:
        self.outputs: dict[Site, Tensor] = {}

    def context(self, call: Call, context: Tensor) -> Tensor:
        context = self.ruled(call, context)
        if not context.requires_grad:
            context = context.requires_grad_()
        self.outputs[call.site] = context
        return context

    def ruled(self, call: Call, context: Tensor) -> Tensor:
        """The heads' output with a modified gradient."""
        return context


class ConstantWeights(Heads):
    """y_i = Σ_j α_ij v_j with α constant: the AH-rule of Ali et al. 2022."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return weights.detach()


class HalfAndQuarter(Heads):
    """½ of a head's relevance to v and ½ to α, which the softmax's own gradient takes to the scores (AttnLRP, Prop. 3.1
    and 3.3); ½ of that to q and ½ to k."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return scaled_gradient(weights, 0.5)

    def ruled(self, call: Call, context: Tensor) -> Tensor:
        return scaled_gradient(context, 0.5)


class ValuesBySize(Heads):
    """α_ij v_jd gives v the share v / (α + v) (Voita et al. 2019)."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return weights.detach()

    def ruled(self, call: Call, context: Tensor) -> Tensor:
        return weighted_by_size(call.value, call.weights, context)


class ValuesBySign(Heads):
    """Half by the positive, half by the negative parts α_ij v_jd; α constant (Voita et al. 2021)."""

    def weights(self, call: Call, weights: Tensor) -> Tensor:
        return weights.detach()

    def ruled(self, call: Call, context: Tensor) -> Tensor:
        return alpha_beta.context_by_rule(call.value, call.weights, context)


@dataclass(frozen=True)
class Rules:
    """A method's rule for each kind of operation; None keeps the true gradient."""

    attention: Callable[[], Heads]
    norm: ModuleRule | None = None
    linear: ModuleRule | None = None
    activation: Callable[[Tensor, Tensor], Tensor] | None = None
    product: Callable[[Tensor, Tensor], Tensor] | None = None
    sum: Callable[[Tensor, Tensor], Tensor] | None = None
    one: bool = False
    """Start with a relevance of one for every prediction, not with its logit."""
    from_states: bool = False
    """End at the states that enter the first layer, not at word vectors; the biases take what these leave."""


def frozen_norm(module: Any, x: Tensor, value: Tensor) -> Tensor:
    """LayerNorm or RMSNorm with its standard deviation held fixed."""
    form = _form(module)
    return constant_std(x, value, form.gain(module, norm_rate(module, x)), form.centred)


def frozen_norm_without_bias(module: Any, x: Tensor, value: Tensor) -> Tensor:
    value = frozen_norm(module, x, value)
    bias = parameter(module, "bias")
    return value if bias is None else without_bias(value, bias)


def linear_without_bias(module: Any, x: Tensor, value: Tensor) -> Tensor:
    bias = parameter(module, "bias")
    return value if bias is None else without_bias(value, bias)


def _form(module: Any) -> NormForm:
    form = norm_form(module)
    assert form is not None
    return form


def norm_by_taylor(module: Any, x: Tensor, value: Tensor) -> Tensor:
    """The norm's Jacobian times its input, by the αβ-rule (Voita et al. 2021)."""
    form, rate = _form(module), norm_rate(module, x)
    normed = (x.detach() - x.detach().mean(-1, keepdim=True) if form.centred else x.detach()) * rate
    if isinstance(module, PureNorm):  # its variance is over N − 1
        normed = normed * (x.shape[-1] / (x.shape[-1] - 1)) ** 0.5
    gain = form.gain(module, rate)
    return alpha_beta.norm(x, value, gain, normed, parameter(module, "bias"), centred=form.centred)


def linear_by_sign(module: Any, x: Tensor, value: Tensor) -> Tensor:
    """A linear map by the αβ-rule."""
    with torch._C._EnableTorchFunction():  # a quantised weight unpacks itself by it
        weight, bias = linear_weights(module)
    return alpha_beta.linear(x, value, weight, bias)


RULES = {
    "gradient_x_input": Rules(Heads),
    "ah": Rules(ConstantWeights, norm=frozen_norm, activation=passed, product=half_product),
    "decompx": Rules(ConstantWeights, norm=frozen_norm, activation=passed, product=half_product, from_states=True),
    "attnlrp": Rules(HalfAndQuarter, norm=frozen_norm, activation=passed, product=half_product),
    "voita2019": Rules(
        ValuesBySize,
        norm=frozen_norm_without_bias,
        linear=linear_without_bias,
        activation=passed,
        product=product_by_size,
    ),
    "voita2021": Rules(
        ValuesBySign,
        norm=norm_by_taylor,
        linear=linear_by_sign,
        activation=passed,
        product=half_product,
        sum=alpha_beta.summed,
        one=True,
    ),
}


def unruled(model: nn.Module, mixers: Sequence[nn.Module] = ()) -> str | None:
    """The class of a norm whose form is not known, for which there is no rule; None if there is a rule for all.

    Inside `mixers` none is needed.
    """
    inner = _inside(mixers)
    for module in model.modules():
        if id(module) in inner:
            continue
        leaf = not any(True for _ in module.children())
        if leaf and "norm" in type(module).__name__.lower() and not is_norm(module):
            return type(module).__name__
    return None


def is_activation(module: nn.Module) -> bool:
    defined_in = type(module).__module__
    inside = defined_in.startswith(("torch.nn.modules.activation", "transformers.activations"))
    if type(module).__name__.lower().endswith("gelu"):  # BLOOM writes one of its own
        return True
    return inside and not isinstance(module, nn.MultiheadAttention | nn.Softmax | nn.ReLU)


def _inside(mixers: Sequence[nn.Module]) -> set[int]:
    return {id(module) for mixer in mixers for module in mixer.modules()}


@dataclass(frozen=True)
class Mixed:
    """The states that went into a mixer, cut off from everything else that reads them, and those that came out."""

    given: Tensor
    gave: Tensor


@contextmanager
def ruled(model: nn.Module, rules: Rules, mixers: Sequence[nn.Module] = ()) -> Iterator[list[Mixed]]:
    """Every norm, linear map, non-linearity and product of this model passes relevance by these rules.

    `mixers` mix tokens beside attention and pass relevance by their tangent, which is their true gradient: f(x) = J x +
    what is left, J the Jacobian where the text is, R_x = x ⊙ Jᵀ c, and what is left counts as a bias.
    """
    thread = threading.get_ident()  # hooks sit on the model, which another thread may be running
    written, inner, mixed = _Written(rules), _inside(mixers), list[Mixed]()
    with ExitStack() as undo:
        for module in model.modules():
            rule = None if id(module) in inner else _rule(module, rules)
            if rule is not None:
                undo.callback(module.register_forward_hook(_hook(rule, thread)).remove)
        for module in mixers:
            before, after = _tangent(written, mixed, thread)
            undo.callback(module.register_forward_pre_hook(before, with_kwargs=True).remove)
            undo.callback(module.register_forward_hook(after).remove)
        if rules.activation or rules.product or rules.sum:
            undo.enter_context(written)
        yield mixed


def _tangent(written: "_Written", mixed: list[Mixed], thread: int) -> tuple[Callable[..., Any], Callable[..., None]]:
    """Hooks that let a module's own gradient be, and keep what goes into it and comes out."""
    given: list[Tensor] = []

    def before(module: nn.Module, arguments: tuple[object, ...], keywords: dict[str, object]) -> Any:
        if threading.get_ident() != thread:
            return None
        written.outside += 1
        states = given_states(arguments, keywords)
        assert states is not None
        own = states.view_as(states)
        given.append(own)
        swapped = [own if each is states else each for each in arguments]
        return tuple(swapped), {name: own if each is states else each for name, each in keywords.items()}

    def after(module: nn.Module, arguments: object, output: object) -> None:
        if threading.get_ident() == thread:
            written.outside -= 1
            mixed.append(Mixed(given.pop(), states_of(output)))

    return before, after


def _rule(module: nn.Module, rules: Rules) -> ModuleRule | None:
    if is_norm(module):
        return rules.norm
    if is_linear(module) or is_quantised_map(module):
        return rules.linear
    if is_activation(module) and (pass_on := rules.activation) is not None:
        return lambda module, x, value: pass_on(x, value)
    return None


def _hook(rule: ModuleRule, thread: int) -> Callable[..., Tensor | None]:
    def after(module: nn.Module, arguments: tuple[Tensor, ...], value: Tensor) -> Tensor | None:
        x = arguments[0]
        if threading.get_ident() != thread or not (torch.is_grad_enabled() and x.requires_grad):
            return None
        with torch._C.DisableTorchFunction():
            return rule(module, x, value)

    return after


_POINTWISE = {torch.tanh, Tensor.tanh, F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.mish}
_POINTWISE |= {torch.relu, Tensor.relu, F.relu}
_PRODUCTS = {torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.multiply, Tensor.multiply}
_SUMS = {torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.__iadd__, Tensor.add_}


class _Written(TorchFunctionMode):
    """Intercepts operations that a forward writes out instead of calling a module."""

    def __init__(self, rules: Rules) -> None:
        super().__init__()
        self.rules, self.outside = rules, 0
        """`outside`: how many of the running modules the rules leave alone."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        rules = self.rules
        if self.outside:
            return function(*args, **kwargs)
        if function in _POINTWISE and rules.activation is not None and _alive(args[0]):
            return rules.activation(args[0], function(*args, **kwargs))
        if len(args) == 2 and not kwargs and _alive(args[0]) and _alive(args[1]) and args[0].shape == args[1].shape:
            if function in _PRODUCTS and rules.product is not None:
                return rules.product(args[0], args[1])
            if function in _SUMS and rules.sum is not None:
                return rules.sum(args[0], args[1])
        return function(*args, **kwargs)


def _alive(x: object) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and torch.is_grad_enabled()
