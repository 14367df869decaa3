"""Train classifiers, and fine-tune encoders, as ordinary Hugging Face checkpoints.

Every public name is loaded when it is first used: the command line reads the settings, for its help, without torch.
"""

from importlib import import_module

from lorgnette import homes

_HOME = homes(__name__)
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
