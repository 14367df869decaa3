"""How a Hugging Face model comes to call `attend`, and goes back to what it did before."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import bidirectional_mask_function, prepare_padding_mask, sdpa_mask

from lorgnette.attention import ACTIVE, Call, Tap, attend
from lorgnette.models.anatomy import Anatomy, AttentionSite, Stack
from lorgnette.models.families import anatomy_of, drift
from lorgnette.models.shims import put_on

# Not a name with "flash" in it: transformers would take it for a kernel to download.
NAME = "lorgnette"


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = bidirectional_mask_function,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """The mask for `attend`: [batch 1 1 key] where every row may see the same keys, n×n only for causal and windows."""
    if mask_function is not bidirectional_mask_function:
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, mask_function, attention_mask, **kwargs)
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is None:
        return None
    padding = padding[:, kv_offset : kv_offset + kv_length].bool()
    return None if bool(padding.all()) else padding[:, None, None, :]


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, attention_mask)


@contextmanager
def tapped(subject: Any, *taps: Tap) -> Iterator[None]:
    """Hand every attention call of a subject (or bare model) to these taps; everything is as before on exit.

    Tappings nest, and two threads may tap two models, or one, without seeing each other's calls.
    """
    model: nn.Module = subject.model if hasattr(subject, "anatomy") else subject
    anatomy: Anatomy = subject.anatomy if hasattr(subject, "anatomy") else anatomy_of(model)
    watch = _Watch(model, anatomy, taps)
    with ExitStack() as undo:
        undo.enter_context(switched(model, anatomy))
        for stack in anatomy.stacks:
            watch.hook(stack, undo)
        token = ACTIVE.set((*ACTIVE.get(), watch))
        undo.callback(ACTIVE.reset, token)
        yield


_LOCK = threading.RLock()
_USERS: Counter[int] = Counter()
_UNDO: dict[int, list[Callable[[], None]]] = {}


@contextmanager
def switched(model: nn.Module, anatomy: Anatomy) -> Iterator[None]:
    """Route the model through `attend`; the last of several users switches it back."""
    with _LOCK:
        if _USERS[id(model)] == 0:
            _UNDO[id(model)] = _switch(model, anatomy)
        _USERS[id(model)] += 1
    try:
        yield
    finally:
        with _LOCK:
            _USERS[id(model)] -= 1
            if _USERS[id(model)] == 0:
                del _USERS[id(model)]
                for undo in _UNDO.pop(id(model)):
                    undo()


def _switch(model: nn.Module, anatomy: Anatomy) -> list[Callable[[], None]]:
    undo: list[Callable[[], None]] = []
    configs = {id(c): c for c in (getattr(m, "config", None) for m in model.modules()) if c is not None}
    for config in configs.values():
        if not hasattr(config, "_attn_implementation_internal"):
            continue
        before = config._attn_implementation_internal
        config._attn_implementation_internal = NAME

        def restore(config: Any = config, before: Any = before) -> None:
            config._attn_implementation_internal = before

        undo.append(restore)
    if anatomy.shim is not None:
        undo += [put_on(module, anatomy.shim) for module in {id(s.module): s.module for s in anatomy.sites}.values()]
    return undo


class _Watch:
    """Follows the passes of one tapped model: which stack is running, which site must call next."""

    def __init__(self, model: nn.Module, anatomy: Anatomy, taps: tuple[Tap, ...]) -> None:
        self.model, self.anatomy, self.taps = model, anatomy, taps
        self.modules = {id(module) for module in model.modules()}
        self.running: _Pass | None = None
        self.residual: Tensor | None = None
        self.wants_residual = any(tap.wants_residual for tap in taps)

    def contains(self, module: nn.Module) -> bool:
        return id(module) in self.modules

    def here(self) -> bool:
        """True in the thread that taps: hooks sit on the model, which another thread may be running."""
        return any(watch is self for watch in ACTIVE.get())

    def hook(self, stack: Stack, undo: ExitStack) -> None:
        def before(module: nn.Module, arguments: Any) -> None:
            if self.here():
                self.running = _Pass(stack)  # a pass that broke off is forgotten: stacks never nest
                for tap in self.taps:
                    tap.open(stack.name)

        def after(module: nn.Module, arguments: Any, output: Any) -> None:
            if self.here():
                self.close(stack)

        undo.callback(stack.module.register_forward_pre_hook(before).remove)
        undo.callback(stack.module.register_forward_hook(after).remove)
        if self.wants_residual:
            for holder in {id(h): h for h in map(_residual_holder, stack.sites)}.values():
                undo.callback(holder.register_forward_pre_hook(self.keep_residual, with_kwargs=True).remove)

    def keep_residual(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.here():
            self.residual = arguments[0] if arguments else keywords["hidden_states"]

    def arrive(self, module: nn.Module, call: Call) -> None:
        """Name the site of a call, or refuse: an unexpected call means that the layout is not what runs."""
        if self.running is None:
            raise drift(
                self.model,
                f"{type(module).__name__} called attention outside its stack's forward pass "
                "(gradient checkpointing does this: switch it off while tapping)",
            )
        call.site = self.running.next(module, self.model)
        call.residual_state, self.residual = self.residual, None

    def close(self, stack: Stack) -> None:
        finished, self.running = self.running, None
        if finished is not None:
            finished.finish(self.model)
        for tap in self.taps:
            tap.close(stack.name)


def _residual_holder(site: AttentionSite) -> nn.Module:
    """The module whose input is what is added to the heads' output: the norm where it comes first."""
    return site.norm if site.order in ("pre", "sandwich") and site.norm is not None else site.module


class _Pass:
    def __init__(self, stack: Stack) -> None:
        self.stack, self.position = stack, 0

    def next(self, module: nn.Module, model: nn.Module) -> Any:
        sites = self.stack.sites
        position = self.position
        # Layer dropout leaves sites out, in training only.
        while position < len(sites) and sites[position].module is not module and self.stack.module.training:
            position += 1
        if position >= len(sites) or sites[position].module is not module:
            expected = sites[position].site if position < len(sites) else "the end of the pass"
            raise drift(
                model,
                f"{type(module).__name__} called attention where {expected} was due (call {position + 1} of the "
                f"{self.stack.name}'s {len(sites)})",
            )
        self.position = position + 1
        return sites[position].site

    def finish(self, model: nn.Module) -> None:
        if self.position != len(self.stack.sites) and not self.stack.module.training:
            raise drift(
                model,
                f"{self.position} of the {len(self.stack.sites)} attention calls of its {self.stack.name} were seen: "
                "it does not go through the attention interface",
            )


__all__ = ["NAME", "tapped"]
