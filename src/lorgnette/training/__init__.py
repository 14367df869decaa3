"""Train classifiers, and fine-tune encoders, as ordinary Hugging Face checkpoints.

Every public name is loaded when it is first used: the command line reads the settings, for its help, without torch.
"""

from importlib import import_module

from lorgnette import public_names

_MODULES = public_names(__name__)
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
