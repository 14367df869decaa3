"""Make a Hugging Face model call `attend`, and restore it afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from torch import nn

from lorgnette.attending import Tap
from lorgnette.models.anatomy import Anatomy
from lorgnette.models.families import anatomy_of
from lorgnette.models.watching import refuse_compiled, watched


@runtime_checkable
class HasAnatomy(Protocol):
    """A subject: a model, and where its attention is."""

    model: nn.Module
    anatomy: Anatomy


@contextmanager
def tapped(subject: nn.Module | HasAnatomy, *taps: Tap) -> Iterator[None]:
    """Pass every attention call of a subject (or plain model) to these taps; on exit, the model is restored.

        >>> class Sites(lo.Tap):
        ...     def see(self, call):
        ...         print(call.site)
        >>> with lo.tapped(model, Sites()):
        ...     output = model(**inputs)
        encoder layer 1
        encoder layer 2
        encoder layer 3

    Contexts can be nested and closed in any order. Threads can tap different models, or the same one, without seeing
    each other's calls. A thread started inside the context is not tapped, unless it runs in
    `contextvars.copy_context().run`.
    """
    model = subject if isinstance(subject, nn.Module) else subject.model
    refuse_compiled(model)
    anatomy = anatomy_of(model) if isinstance(subject, nn.Module) else subject.anatomy
    with watched(model, anatomy, *taps):
        yield
