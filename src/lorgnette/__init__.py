"""Analyse self-attention: what each head attends to, how much each token contributes, and which heads can be pruned.

Importing this module is fast: every public name is loaded when it is first used. Hence our own classifier registers
itself with transformers' Auto classes when `lorgnette.models` is imported, which `load` does, not here.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lorgnette import lens
    from lorgnette.attending import Call, Site, Tap, attend
    from lorgnette.bare.attention import Attention, attention
    from lorgnette.bare.batch import batch
    from lorgnette.bare.callback import LensCallback
    from lorgnette.bare.effects import Effect, effect, gradient_effects
    from lorgnette.bare.interventions import patched, scaled, without
    from lorgnette.bare.watching import watch
    from lorgnette.errors import CaptureError, UserError
    from lorgnette.explaining import Explanation, explain, explanations
    from lorgnette.figures.plot import Plot
    from lorgnette.lens import lenses
    from lorgnette.looking.look import look
    from lorgnette.looking.merging import merge
    from lorgnette.looking.shards import Shard
    from lorgnette.models.families.verified import families
    from lorgnette.models.tapping import tapped
    from lorgnette.reporting import Comparison, Report
    from lorgnette.reporting.functions import compare, report
    from lorgnette.reporting.views.bare import Views, views
    from lorgnette.results import Result, Results
    from lorgnette.subject import Subject, load
    from lorgnette.subject.generation import Generation
    from lorgnette.subject.trace import Trace
    from lorgnette.texts import Corpus, corpora, corpus
    from lorgnette.texts.batch import Batch
    from lorgnette.texts.example import Example
    from lorgnette.texts.parts import chat, prompt
    from lorgnette.training.functions import Runs, prune, train
    from lorgnette.training.pruning.prune import Pruned
    from lorgnette.training.run import Trained

__version__ = "0.2.0"

__all__ = [
    "Attention",
    "Batch",
    "Call",
    "CaptureError",
    "Comparison",
    "Corpus",
    "Effect",
    "Example",
    "Explanation",
    "Generation",
    "LensCallback",
    "Plot",
    "Pruned",
    "Report",
    "Result",
    "Results",
    "Runs",
    "Shard",
    "Site",
    "Subject",
    "Tap",
    "Trace",
    "Trained",
    "UserError",
    "Views",
    "__version__",
    "attend",
    "attention",
    "batch",
    "chat",
    "compare",
    "corpora",
    "corpus",
    "effect",
    "explain",
    "explanations",
    "families",
    "gradient_effects",
    "lens",
    "lenses",
    "load",
    "look",
    "merge",
    "patched",
    "prompt",
    "prune",
    "report",
    "scaled",
    "tapped",
    "train",
    "views",
    "watch",
    "without",
]

_HOME = {
    "Attention": "lorgnette.bare.attention",
    "Batch": "lorgnette.texts.batch",
    "Call": "lorgnette.attending",
    "CaptureError": "lorgnette.errors",
    "Comparison": "lorgnette.reporting",
    "Corpus": "lorgnette.texts",
    "Effect": "lorgnette.bare.effects",
    "Example": "lorgnette.texts.example",
    "Explanation": "lorgnette.explaining",
    "Generation": "lorgnette.subject.generation",
    "LensCallback": "lorgnette.bare.callback",
    "Plot": "lorgnette.figures.plot",
    "Pruned": "lorgnette.training.pruning.prune",
    "Report": "lorgnette.reporting",
    "Result": "lorgnette.results",
    "Results": "lorgnette.results",
    "Runs": "lorgnette.training.functions",
    "Shard": "lorgnette.looking.shards",
    "Site": "lorgnette.attending",
    "Subject": "lorgnette.subject",
    "Tap": "lorgnette.attending",
    "Trace": "lorgnette.subject.trace",
    "Trained": "lorgnette.training.run",
    "UserError": "lorgnette.errors",
    "Views": "lorgnette.reporting.views.bare",
    "attend": "lorgnette.attending",
    "attention": "lorgnette.bare.attention",
    "batch": "lorgnette.bare.batch",
    "compare": "lorgnette.reporting.functions",
    "corpora": "lorgnette.texts",
    "chat": "lorgnette.texts.parts",
    "corpus": "lorgnette.texts",
    "effect": "lorgnette.bare.effects",
    "explain": "lorgnette.explaining",
    "explanations": "lorgnette.explaining",
    "families": "lorgnette.models.families.verified",
    "gradient_effects": "lorgnette.bare.effects",
    "lenses": "lorgnette.lens",
    "load": "lorgnette.subject",
    "look": "lorgnette.looking.look",
    "merge": "lorgnette.looking.merging",
    "patched": "lorgnette.bare.interventions",
    "prune": "lorgnette.training.functions",
    "report": "lorgnette.reporting.functions",
    "prompt": "lorgnette.texts.parts",
    "scaled": "lorgnette.bare.interventions",
    "tapped": "lorgnette.models.tapping",
    "train": "lorgnette.training.functions",
    "views": "lorgnette.reporting.views.bare",
    "watch": "lorgnette.bare.watching",
    "without": "lorgnette.bare.interventions",
}


_RENAMED = {"corpus_names": "corpora"}
"""Old names, each with the new one: they work for one more minor version, and say so (CONTRIBUTING.md)."""


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        import warnings

        warnings.warn(f"lo.{name} is now lo.{_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name == "lens":
        return import_module("lorgnette.lens")
    if name not in _HOME:
        raise AttributeError(f"module 'lorgnette' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
