"""Look at self-attention: what each head reads, how much of it arrives, and which heads could go.

Importing this module is fast: every public name is loaded when it is first used. Hence our own classifier registers
itself with transformers' Auto classes when `lorgnette.models` is imported, which `load` does, not here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorgnette import lens
    from lorgnette.attending import Call, Site, Tap, attend
    from lorgnette.bare.batch import batch
    from lorgnette.bare.callback import LensCallback
    from lorgnette.bare.effects import effect, gradient_effects
    from lorgnette.bare.interventions import patched, scaled, without
    from lorgnette.bare.watching import watch
    from lorgnette.errors import CaptureError, UserError
    from lorgnette.looking.look import look
    from lorgnette.models.tapping import tapped
    from lorgnette.reporting import Report
    from lorgnette.results import Result, Results
    from lorgnette.subject import Subject, load
    from lorgnette.subject.trace import Trace
    from lorgnette.texts import corpus, corpus_names
    from lorgnette.texts.batch import Batch

__version__ = "0.2.0"

__all__ = [
    "Batch",
    "Call",
    "CaptureError",
    "LensCallback",
    "Report",
    "Result",
    "Results",
    "Site",
    "Subject",
    "Tap",
    "Trace",
    "UserError",
    "__version__",
    "attend",
    "batch",
    "corpus",
    "corpus_names",
    "effect",
    "gradient_effects",
    "lens",
    "load",
    "look",
    "patched",
    "scaled",
    "tapped",
    "watch",
    "without",
]

_HOME = {
    "Batch": "lorgnette.texts.batch",
    "Call": "lorgnette.attending",
    "CaptureError": "lorgnette.errors",
    "LensCallback": "lorgnette.bare.callback",
    "Report": "lorgnette.reporting",
    "Result": "lorgnette.results",
    "Results": "lorgnette.results",
    "Site": "lorgnette.attending",
    "Subject": "lorgnette.subject",
    "Tap": "lorgnette.attending",
    "Trace": "lorgnette.subject.trace",
    "UserError": "lorgnette.errors",
    "attend": "lorgnette.attending",
    "batch": "lorgnette.bare.batch",
    "corpus": "lorgnette.texts",
    "corpus_names": "lorgnette.texts",
    "effect": "lorgnette.bare.effects",
    "gradient_effects": "lorgnette.bare.effects",
    "load": "lorgnette.subject",
    "look": "lorgnette.looking.look",
    "patched": "lorgnette.bare.interventions",
    "scaled": "lorgnette.bare.interventions",
    "tapped": "lorgnette.models.tapping",
    "watch": "lorgnette.bare.watching",
    "without": "lorgnette.bare.interventions",
}


def __getattr__(name: str) -> Any:
    if name == "lens":
        return import_module("lorgnette.lens")
    if name not in _HOME:
        raise AttributeError(f"module 'lorgnette' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
