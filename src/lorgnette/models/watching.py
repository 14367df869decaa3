"""Watching the passes of a model whose anatomy is known: which stack is running, which site must call next."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lorgnette.attending import ACTIVE, Arrival, Call, Tap
from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import Anatomy, AttentionSite, Gate, LayerStack, NormGate
from lorgnette.models.families.table import drift
from lorgnette.models.switching import switched


@contextmanager
def watched(model: nn.Module, anatomy: Anatomy, *taps: Tap) -> Iterator[None]:
    """Pass every attention call of a model to these taps; on exit, the model is restored."""
    modules = list(model.modules())
    refuse_compiled(model, modules)
    watch = _Watch(model, modules, anatomy, taps)
    with ExitStack() as undo:
        undo.enter_context(switched(modules, anatomy))
        for stack in anatomy.stacks:
            watch.hook(stack, undo)
        ACTIVE.set((*ACTIVE.get(), watch))
        undo.callback(watch.end)
        yield
        watch.refuse_unseen()


class _Watch:
    """Follows the passes of one tapped model: which stack is running, which site must call next."""

    def __init__(self, model: nn.Module, modules: Sequence[nn.Module], anatomy: Anatomy, taps: tuple[Tap, ...]) -> None:
        self.model, self.anatomy, self.taps = model, anatomy, taps
        self.modules = {id(module) for module in modules}
        self.running: _StackPass | None = None
        self.passes = self.elsewhere = 0
        self.residual: Tensor | None = None
        self.gates: dict[int, Tensor] = {}
        """The inputs of gates, by the module at which they were kept, until the call that needs them."""
        self.wants_residual = any(tap.wants_residual for tap in taps)

    def contains(self, module: nn.Module) -> bool:
        return id(module) in self.modules

    def here(self) -> bool:
        """True in the thread that taps: hooks sit on the model, which another thread may be running."""
        return any(watch is self for watch in ACTIVE.get())

    def end(self) -> None:
        """Remove this watch and no other; a watch that ends in another context than it began in sees nothing more."""
        ACTIVE.set(tuple(watch for watch in ACTIVE.get() if watch is not self))
        self.modules = set()

    def refuse_unseen(self) -> None:
        if self.elsewhere and not self.passes:
            raise CaptureError(
                f"{type(self.model).__name__} ran only in another thread than the one that taps it, so nothing was "
                "seen. Open the tap in the thread that runs the model, or start that thread with "
                "contextvars.copy_context().run."
            )

    def hook(self, stack: LayerStack, undo: ExitStack) -> None:
        def before(module: nn.Module, arguments: object) -> None:
            if not self.here():
                self.elsewhere += not any(watch.contains(module) for watch in ACTIVE.get())
                return
            _refuse_checkpointing(self.model, stack)
            self.passes += 1
            # An aborted pass is dropped: stacks never nest.
            self.running = _StackPass(stack, beside=bool(self.anatomy.sees))
            for tap in self.taps:
                tap.open(stack.name)

        def after(module: nn.Module, arguments: object, output: object) -> None:
            if self.here():
                self.close(stack)

        undo.callback(stack.module.register_forward_pre_hook(_Hook(before)).remove)
        undo.callback(stack.module.register_forward_hook(_Hook(after)).remove)
        for site in stack.sites:
            if not isinstance(site.gate, Gate):
                continue
            if site.gate.first:
                undo.callback(site.gate.module.register_forward_hook(_Hook(self.keep_output)).remove)
            else:
                keep = _Hook(self.keep_input)
                undo.callback(site.module.register_forward_pre_hook(keep, with_kwargs=True).remove)
        if self.wants_residual:
            sites = [site for site in stack.sites if "order" not in site.unknown]
            for holder in {id(h): h for h in map(_residual_holder, sites)}.values():
                keep = _Hook(self.keep_residual)
                undo.callback(holder.register_forward_pre_hook(keep, with_kwargs=True).remove)

    def keep_residual(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.here():
            self.residual = arguments[0] if arguments else keywords["hidden_states"]

    def keep_output(self, module: nn.Module, arguments: object, output: Tensor) -> None:
        if self.here():
            self.gates[id(module)] = output

    def keep_input(self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        if self.here():
            self.gates[id(module)] = arguments[0] if arguments else keywords["hidden_states"]

    def arrive(self, module: nn.Module) -> Arrival:
        """Name the site of a call; an unexpected call is refused, because then the model does not run as recorded."""
        if self.running is None and not self.anatomy.sees and sees_beside(self.model):
            raise CaptureError(
                f"{type(module).__name__} of {type(self.model).__name__} sees pictures or sounds, and only its texts "
                "were known. Show it an example first: lo.Subject(model, inputs=processor(…)), or lo.attention(model, "
                "**inputs)."
            )
        if self.running is None:
            raise drift(
                self.model,
                f"{type(module).__name__} called attention outside its stack's forward pass. Either gradient "
                "checkpointing computes it again (switch it off while tapping), or a hook ran the model inside its own "
                "pass (run it afterwards, or in a tap)",
            )
        residual, self.residual = self.residual, None
        attention = self.running.next(module, self.model)
        gate = None
        if isinstance(attention.gate, NormGate):
            gate = partial(_norm_gate, attention.gate)
        elif attention.gate is not None:
            kept = attention.gate.module if attention.gate.first else module
            gate = partial(_gate, attention, self.gates.pop(id(kept)))
        return Arrival(attention.site, residual, gate)

    def close(self, stack: LayerStack) -> None:
        finished, self.running = self.running, None
        if finished is not None:
            finished.finish(self.model)
        for tap in self.taps:
            tap.close(stack.name)


def sees_beside(model: nn.Module) -> bool:
    """Whether the model takes more than texts."""
    return getattr(model, "input_modalities", "text") not in ("text", ("text",), ["text"])


def refuse_compiled(model: nn.Module, modules: Sequence[nn.Module] | None = None) -> None:
    """Refuse compiled models: their graphs bypass our attention function, or keep it afterwards."""
    parts = model.modules() if modules is None else modules
    compiled = [part for part in parts if hasattr(part, "_orig_mod") or part._compiled_call_impl is not None]
    if compiled or torch.compiler.is_compiling():
        raise CaptureError(
            f"{type(model).__name__} is compiled (torch.compile), so its attention cannot be captured. Use the "
            "model that it was made from (model._orig_mod), or compile afterwards."
        )


def _refuse_checkpointing(model: nn.Module, stack: LayerStack) -> None:
    if not (stack.module.training and torch.is_grad_enabled()):
        return  # nothing is computed again
    if any(getattr(part, "gradient_checkpointing", False) for part in stack.module.modules()):
        raise CaptureError(
            f"{type(model).__name__} has gradient checkpointing on: its attention runs again in the backward pass, "
            "where it cannot be captured. Call model.gradient_checkpointing_disable(), or model.eval()."
        )


class _Hook:
    """A hook that copies of the model do not inherit."""

    def __init__(self, hook: Callable[..., None]) -> None:
        self.hook = hook

    def __call__(self, *arguments: object) -> None:
        self.hook(*arguments)

    def __deepcopy__(self, memo: dict[int, object]) -> "_Hook":
        return _Hook(_nothing)


def _nothing(*_: object) -> None:
    pass


def _norm_gate(gate: NormGate, call: Call) -> Tensor:
    return gate.of(call.context)


def _gate(attention: AttentionSite, kept: Tensor, call: Call) -> Tensor:
    """The gate of one call, from the output of its map, or from the input that the map has not yet been given."""
    gate = attention.gate
    assert isinstance(gate, Gate)
    output = kept if gate.first else gate.module.forward(kept)
    return gate.of(output, len(kept), attention.heads)


def _residual_holder(site: AttentionSite) -> nn.Module:
    """The module whose input is what is added to the heads' output: the norm where it comes first."""
    return site.norm if site.order in ("pre", "sandwich") and site.norm is not None else site.module


class _StackPass:
    def __init__(self, stack: LayerStack, *, beside: bool = False) -> None:
        self.stack, self.position, self.skipped, self.beside = stack, 0, 0, beside

    def next(self, module: nn.Module, model: nn.Module) -> AttentionSite:
        sites = self.stack.sites
        position = self.position
        # Layer dropout leaves sites out, in training only; and no layer attends to a picture where there is none.
        while position < len(sites) and sites[position].module is not module and self.may_skip(sites[position]):
            position += 1
            self.skipped += 1
        if position >= len(sites) or sites[position].module is not module:
            expected = sites[position].site if position < len(sites) else "the end of the pass"
            raise drift(
                model,
                f"{type(module).__name__} called attention where {expected} was due (call {position + 1} of the "
                f"{self.stack.name}'s {len(sites)})",
            )
        self.position = position + 1
        return sites[position]

    def may_skip(self, site: AttentionSite) -> bool:
        """Either all layers that attend to a picture run, or none."""
        none_yet = not any(before.site.kind == "cross" for before in self.stack.sites[: self.position])
        beside = self.beside and site.site.kind == "cross"
        return self.stack.module.training or (beside and (none_yet or self.skipped > 0))

    def finish(self, model: nn.Module) -> None:
        while self.position < len(self.stack.sites) and self.may_skip(self.stack.sites[self.position]):
            self.position += 1
        if self.position != len(self.stack.sites):
            raise drift(
                model,
                f"{self.position} of the {len(self.stack.sites)} attention calls of its {self.stack.name} were seen: "
                "it does not go through the attention interface",
            )
