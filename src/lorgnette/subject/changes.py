"""What is done to a model while it runs: taps that edit its attention (`lo.without` …), and hooks of others."""

import functools
from collections.abc import Iterator, Sequence

from torch import nn

from lorgnette.attending import ACTIVE, Tap
from lorgnette.errors import UserError
from lorgnette.models.anatomy import Anatomy

_LIBRARIES = ("accelerate", "bitsandbytes", "gptqmodel", "lorgnette", "peft", "torch", "torchao", "transformers")
"""Their hooks are part of how a model runs."""


def changes(model: nn.Module, anatomy: Anatomy) -> list[str]:
    """What edits the passes of this model now, a phrase each."""
    edits = [tap.change or f"edited by the tap {type(tap).__qualname__}" for tap in _editing(anatomy)]
    return [*edits, *(f"with a hook of others: {name}" for name in _foreign_hooks(model))]


def refuse_unnamed(anatomy: Anatomy) -> None:
    """Refuse to write results that cannot be told from those of another edit of the same kind."""
    if unnamed := [tap for tap in _editing(anatomy) if tap.change is None]:
        kind = type(unnamed[0]).__qualname__
        raise UserError(
            f"The tap {kind} edits the model, and results in a folder must say how: set its attribute `change` to a "
            "phrase that tells this edit from others, or leave out `out`."
        )


def _editing(anatomy: Anatomy) -> Iterator[Tap]:
    for watch in ACTIVE.get():
        if any(watch.contains(site.module) for site in anatomy.sites):
            yield from (tap for tap in watch.taps if any(map(tap.edits, ("scores", "weights", "context"))))


def _foreign_hooks(model: nn.Module) -> Sequence[str]:
    found = []
    for name, module in model.named_modules():
        for hook in (*module._forward_pre_hooks.values(), *module._forward_hooks.values()):
            while isinstance(hook, functools.partial):
                hook = hook.func
            home = getattr(hook, "__module__", None) or ""
            if home.partition(".")[0] not in _LIBRARIES:
                found.append(f"{getattr(hook, '__qualname__', type(hook).__qualname__)} at {name or 'the model'}")
    return found
