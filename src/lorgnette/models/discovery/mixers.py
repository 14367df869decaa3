"""What mixes tokens beside attention (recurrences, convolutions, linear attention), found by running modules again."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from lorgnette.models.linear import TOLERANCE


@dataclass(frozen=True)
class ModuleCall:
    """The arguments of a module that was given a vector for each token, and which of them that is."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    states: Tensor

    def again(self, module: nn.Module, states: Tensor) -> Tensor:
        """What the module gives for other vectors."""
        arguments = [states if each is self.states else each for each in self.arguments]
        keywords = {name: states if each is self.states else each for name, each in self.keywords.items()}
        return states_of(module(*arguments, **keywords))


def states_of(output: Any) -> Tensor:
    """The vectors of the tokens in what a module gave: its output, or the first part of it."""
    while not isinstance(output, Tensor):
        output = output[0]
    return output


def given_states(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Tensor | None:
    """The vectors of the tokens among a module's arguments: the first tensor of numbers with three axes."""
    return next((x for x in (*arguments, *keywords.values()) if is_states(x)), None)


def is_states(x: object) -> bool:
    return isinstance(x, Tensor) and x.dim() == 3 and x.is_floating_point()


@contextmanager
def kept_calls(model: nn.Module, real: Bool[Tensor, "batch token"]) -> Iterator[dict[int, ModuleCall]]:
    """The first call of each module, of those that are given a vector for each token."""
    calls: dict[int, ModuleCall] = {}

    def keep(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        states = given_states(arguments, keywords)
        if states is not None and states.shape[:2] == real.shape:
            calls.setdefault(id(module), ModuleCall(arguments, keywords, states))

    with ExitStack() as undo:
        for module in model.modules():
            undo.callback(module.register_forward_pre_hook(keep, with_kwargs=True).remove)
        yield calls


def mixers_of(
    module: nn.Module, calls: Mapping[int, ModuleCall], attending: set[int], real: Bool[Tensor, "batch token"]
) -> list[nn.Module]:
    """The parts of layers in which the first token changes later ones, and which hold no attention.

    A layer is an element of a list of modules; it is never a mixer itself, because its norms and feed-forward part mix
    nothing.
    """
    out: dict[int, nn.Module] = {}
    for child in module.children():
        if id(child) in attending:
            continue
        call = calls.get(id(child))
        holds = any(id(inner) in attending for inner in child.modules())
        if isinstance(module, nn.ModuleList) or holds or call is None:
            out |= {id(each): each for each in mixers_of(child, calls, attending, real)}
        elif _mixes(child, call, real):
            out[id(child)] = child
    return list(out.values())


def _mixes(module: nn.Module, call: ModuleCall, real: Bool[Tensor, "batch token"]) -> bool:
    """Whether another first token changes what the module gives for later ones."""
    changed = call.states.clone()
    changed[:, 0] = changed[:, 0].flip(-1) + 1
    later = real[:, 1:]
    one, other = (call.again(module, states) for states in (call.states.clone(), changed))
    if one.shape[:2] != real.shape:
        return False
    one, other = one[:, 1:][later], other[:, 1:][later]
    scale = float(one.abs().max()) or 1.0
    return not float((one - other).abs().max()) <= TOLERANCE.get(one.dtype, 1e-4) * scale


@contextmanager
def giving_nothing(modules: Sequence[nn.Module]) -> Iterator[None]:
    """These modules give zeros."""

    def nothing(module: nn.Module, arguments: object, output: Any) -> Any:
        zero = torch.zeros_like(states_of(output))
        return zero if isinstance(output, Tensor) else (zero, *output[1:])

    with ExitStack() as undo:
        for module in modules:
            undo.callback(module.register_forward_hook(nothing).remove)
        yield
