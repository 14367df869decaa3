"""Lenses by name: ours, and those that installed packages register under the entry point group `lorgnette.lenses`.

A lens is one room: its folder holds `lens.py` (what it measures) and `report.py` (what the pages show of it).
"""

from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError, near, shown

if TYPE_CHECKING:
    from lorgnette.attending.sweep import Wanted as Wanted
    from lorgnette.figures.lens_report import LensReport
    from lorgnette.lens.base import Lens as Lens
    from lorgnette.lens.moments import Moments as Moments
    from lorgnette.lens.places import Places as Places

GROUP = "lorgnette.lenses"
OURS = {
    "weights": "lorgnette.lens.weights.lens:Weights",
    "norms": "lorgnette.lens.norms.lens:Norms",
    "sinks": "lorgnette.lens.sinks.lens:Sinks",
    "frequency": "lorgnette.lens.frequency.lens:Frequency",
    "distances": "lorgnette.lens.distances.lens:Distances",
    "rollout": "lorgnette.lens.rollout.lens:Rollout",
    "roles": "lorgnette.lens.roles.lens:Roles",
    "relations": "lorgnette.lens.relations.lens:Relations",
    "trees": "lorgnette.lens.trees.lens:Trees",
    "attention-probe": "lorgnette.lens.attention_probe.lens:AttentionProbe",
    "coreference": "lorgnette.lens.coreference.lens:Coreference",
    "alignment": "lorgnette.lens.alignment.lens:Alignment",
    "synthetic": "lorgnette.lens.synthetic.lens:Synthetic",
    "context": "lorgnette.lens.context.lens:Context",
    "composition": "lorgnette.lens.composition.lens:Composition",
    "circuits": "lorgnette.lens.circuits.lens:Circuits",
    "geometry": "lorgnette.lens.geometry.lens:Geometry",
    "cones": "lorgnette.lens.cones.lens:Cones",
    "convexity": "lorgnette.lens.convexity.lens:Convexity",
    "probes": "lorgnette.lens.probes.lens:Probes",
    "rationales": "lorgnette.lens.rationales.lens:Rationales",
    "relevance": "lorgnette.lens.relevance.lens:Relevance",
    "gradients": "lorgnette.lens.gradients.lens:Gradients",
    "effects": "lorgnette.lens.effects.lens:Effects",
    "edges": "lorgnette.lens.edges.lens:Edges",
    "logitlens": "lorgnette.lens.logitlens.lens:LogitLens",
    "patching": "lorgnette.lens.patching.lens:Patching",
    "sources": "lorgnette.lens.sources.lens:SourceSignals",
    "agreement": "lorgnette.lens.agreement.lens:Agreement",
    "importance": "lorgnette.lens.importance.lens:Importance",
    "gating": "lorgnette.lens.gating.lens:Gating",
    "removal": "lorgnette.lens.removal.lens:Removal",
}
"""Name → "module:class", as in an entry point, in the order of the report. A lens is imported when it is first used."""

_TO_BUILD_ON = {
    "Lens": "lorgnette.lens.base",
    "Moments": "lorgnette.lens.moments",
    "Places": "lorgnette.lens.places",
    "Wanted": "lorgnette.attending.sweep",
}
"""The names that authors of lenses import from here, and the modules that define them."""
ALL = "all"
"""The name that stands for all lenses which apply to a model and a corpus."""
DEFAULT = ("weights", "norms")
"""The default lenses, which apply to every model and to all texts, and need one pass."""
_CLASSES = {value.partition(":")[2]: name for name, value in OURS.items()}


def names() -> tuple[str, ...]:
    """The names of all lenses."""
    return tuple(sorted(registered()))


def lenses() -> dict[str, str]:
    """Every available lens, built-in or from an installed package, with what it measures.

    >>> import lorgnette as lo
    >>> "weights" in lo.lenses()
    True
    """
    return {name: find(name).summary for name in names()}


def find(name: str) -> "type[Lens]":
    """The class of a lens."""
    entry = _entry(name)
    if entry is None:
        raise UserError(f"There is no lens {name!r}.{near(name, names())} There are: {', '.join(names())}.")
    return entry.load()


def get(name: str, **options: Any) -> "Lens":
    """A new lens by its name, with options as keywords or, as on the command line, behind a colon.

    >>> import lorgnette as lo
    >>> lo.lens.get("norms:sample=0,by=token").made_with["sample"]
    0
    """
    from lorgnette.lens.options import parse

    if not isinstance(name, str):
        raise UserError(f"A lens is named by a string, such as 'weights'. Got {shown(name)} instead.")
    name, _, text = name.partition(":")
    kind = find(name.strip())
    return kind(**{**parse(kind, text), **options})


def report_of(name: str) -> "LensReport":
    """What the pages need of a lens: `REPORT` of the module `report` in the folder of the lens, or of its own module.

    A lens without one, or one that is not installed here, gets what a lens of any kind can have.
    """
    from lorgnette.figures.lens_report import LensReport

    entry = _entry(name)
    module = None if entry is None else _report_module(entry.module)
    return getattr(module, "REPORT", None) or LensReport(title=name)


def registered() -> dict[str, EntryPoint]:
    """All lenses in the order of the report: ours, then those of installed packages."""
    ours = {name: EntryPoint(name, value, GROUP) for name, value in OURS.items()}
    installed = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return {**ours, **{entry.name: entry for entry in installed if entry.name not in ours}}


def _entry(name: str) -> EntryPoint | None:
    if name in OURS:
        return EntryPoint(name, OURS[name], GROUP)
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _report_module(module: str) -> Any:
    """The module of the report, which imports charts but not the lens; a lens without one has its report beside it."""
    folder = module.rpartition(".")[0]
    has_report = folder and find_spec(f"{folder}.report") is not None
    return import_module(f"{folder}.report" if has_report else module)


def __getattr__(name: str) -> Any:
    if name in _TO_BUILD_ON:
        return getattr(import_module(_TO_BUILD_ON[name]), name)
    if name in _CLASSES:
        return find(_CLASSES[name])
    raise AttributeError(f"module 'lorgnette.lens' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLASSES, *_TO_BUILD_ON})
