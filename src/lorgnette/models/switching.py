"""Temporary changes to a model while it is analysed, and how they are undone.

Every change is counted for the object that it was made on (a config, a module): two models may share one, and whoever
is done last puts it back, in whatever order the users come and go.
"""

import copy
import inspect
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from torch import nn

from lorgnette.models.anatomy import Anatomy
from lorgnette.models.interface import NAME, PACKED
from lorgnette.models.private import attention_name, name_attention, names_attention
from lorgnette.types import PretrainedConfig

_LOCK = threading.RLock()


@dataclass
class _Override:
    """A change with the number of its users; it holds the changed object, so that its id stays unique."""

    holder: object
    undo: Callable[[], None]
    users: int = 0


_OVERRIDES: dict[tuple[str, int], _Override] = {}


@contextmanager
def _overridden(kind: str, holders: Iterable[object], change: Callable[[Any], Callable[[], None]]) -> Iterator[None]:
    """Change each holder for its first user, and restore it after its last."""
    keys: list[tuple[str, int]] = []
    try:
        with _LOCK:
            for holder in holders:
                key = (kind, id(holder))
                if key not in _OVERRIDES:
                    _OVERRIDES[key] = _Override(holder, change(holder))
                _OVERRIDES[key].users += 1
                keys.append(key)
        yield
    finally:
        with _LOCK:
            for key in reversed(keys):
                _OVERRIDES[key].users -= 1
                if _OVERRIDES[key].users == 0:
                    _OVERRIDES.pop(key).undo()


@contextmanager
def switched(modules: Iterable[nn.Module], anatomy: Anatomy) -> Iterator[None]:
    """Route a model with these modules through `attend`."""
    modules = list(modules)
    packed = {
        id(module.config) for module in modules if hasattr(module, "config") and _takes_packed(type(module).forward)
    }
    shims = {id(site.module): (site.module, anatomy.shim) for site in anatomy.sites if anatomy.shim is not None}
    shims |= {
        id(module): (module, anatomy.stand_ins[type(module).__name__])
        for module in modules
        if type(module).__name__ in anatomy.stand_ins
    }
    with (
        _overridden("attention", _configs(modules), lambda config: _named(_name(config, packed))(config)),
        _overridden("forward", [module for module, _ in shims.values()], lambda m: _shimmed(shims[id(m)][1])(m)),
    ):
        yield


@contextmanager
def eager(model: nn.Module) -> Iterator[None]:
    """The model computes its attention weights itself, as a matrix: `attn_implementation="eager"`."""
    with _overridden("attention", _configs(model.modules()), _named("eager")):
        yield


def _name(config: PretrainedConfig, packed: Container[int]) -> str:
    return PACKED if id(config) in packed else NAME


@cache
def _takes_packed(forward: Callable[..., object]) -> bool:
    """Whether a module must be told where one picture ends and the next begins in a row of patches."""
    boundaries = inspect.signature(forward).parameters.get("cu_seqlens")
    return boundaries is not None and boundaries.default is inspect.Parameter.empty


def _configs(modules: Iterable[nn.Module]) -> list[PretrainedConfig]:
    """The configs, of a model with these modules, that name an attention function."""
    configs = {id(c): c for c in (getattr(m, "config", None) for m in modules) if c is not None}
    return [config for config in configs.values() if names_attention(config)]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch off dropout: modules in training mode are in evaluation mode while the context is open."""
    with _LOCK:
        training = [m for m in model.modules() if m.training or ("training", id(m)) in _OVERRIDES]
    with _overridden("training", training, _evaluated):
        yield


def run_as(layer: nn.Module, function: Callable[..., Any]) -> Callable[[], None]:
    """Replace the forward of a module by this function; the returned function restores it."""
    before = vars(layer).get("forward")
    layer.forward = function

    def undo() -> None:
        del layer.forward
        if before is not None:
            layer.forward = before

    return undo


class _Meanwhile(str):
    """Set a name in a config; a copy of the config has the value from before."""

    before: object

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        return copy.deepcopy(self.before, memo)


def _named(name: str) -> Callable[[PretrainedConfig], Callable[[], None]]:
    def put(config: PretrainedConfig) -> Callable[[], None]:
        meanwhile = _Meanwhile(name)
        meanwhile.before = attention_name(config)
        name_attention(config, meanwhile)

        def restore() -> None:
            name_attention(config, meanwhile.before)

        return restore

    return put


def _evaluated(module: nn.Module) -> Callable[[], None]:
    module.training = False

    def restore() -> None:
        module.training = True

    return restore


class _Forward:
    """A shim in place of a module's forward; a copy of the module gets its class's forward back."""

    def __init__(self, shim: Callable[..., object], module: nn.Module, own: object) -> None:
        self.shim, self.module, self.own = shim, module, own

    def __call__(self, *arguments: object, **keywords: object) -> object:
        return self.shim(self.module, *arguments, **keywords)

    def __deepcopy__(self, memo: dict[int, object]) -> object:
        if self.own is not None:
            return copy.deepcopy(self.own, memo)
        return type(self.module).forward.__get__(copy.deepcopy(self.module, memo))


def _shimmed(shim: Callable[..., object]) -> Callable[[nn.Module], Callable[[], None]]:
    def put_on(module: nn.Module) -> Callable[[], None]:
        own = module.__dict__.get("forward")
        module.forward = _Forward(shim, module, own)

        def take_off() -> None:
            if own is None:
                del module.__dict__["forward"]
            else:
                module.forward = own

        return take_off

    return put_on
