"""Lenses by name: ours, and those that installed packages register under the entry point group `lorgnette.lenses`."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError, near

if TYPE_CHECKING:
    from lorgnette.lenses.base import Lens

OURS = {
    "weights": ("lorgnette.lenses.weights", "Weights"),
    "norms": ("lorgnette.lenses.norms", "Norms"),
    "distances": ("lorgnette.lenses.distances", "Distances"),
    "gradients": ("lorgnette.lenses.gradients", "Gradients"),
    "importance": ("lorgnette.lenses.importance", "Importance"),
    "roles": ("lorgnette.lenses.roles", "Roles"),
    "agreement": ("lorgnette.lenses.agreement", "Agreement"),
    "rationales": ("lorgnette.lenses.rationales", "Rationales"),
    "relevance": ("lorgnette.lenses.relevance", "Relevance"),
    "rollout": ("lorgnette.lenses.rollout", "Rollout"),
    "frequency": ("lorgnette.lenses.frequency", "Frequency"),
    "alignment": ("lorgnette.lenses.alignment", "Alignment"),
    "trees": ("lorgnette.lenses.trees", "Trees"),
    "coreference": ("lorgnette.lenses.coreference", "Coreference"),
    "attention-probe": ("lorgnette.lenses.attention_probe", "AttentionProbe"),
    "relations": ("lorgnette.lenses.relations", "Relations"),
    "probes": ("lorgnette.lenses.probes", "Probes"),
    "geometry": ("lorgnette.lenses.geometry", "Geometry"),
    "cones": ("lorgnette.lenses.cones", "Cones"),
    "convexity": ("lorgnette.lenses.convexity", "Convexity"),
}
"""name → (module, class); loaded when first used."""

_CLASSES = {cls: module for module, cls in OURS.values()}


def names() -> tuple[str, ...]:
    """Every lens that can be asked for."""
    return tuple(sorted({*OURS, *(entry.name for entry in entry_points(group="lorgnette.lenses"))}))


def find(name: str) -> "type[Lens]":
    """The class of a lens."""
    if name in OURS:
        module, cls = OURS[name]
        return getattr(import_module(module), cls)
    for entry in entry_points(group="lorgnette.lenses", name=name):
        return entry.load()
    raise UserError(f"There is no lens {name!r}.{near(name, names())} There are: {', '.join(names())}.")


def get(name: str, **options: Any) -> "Lens":
    """A new lens by its name."""
    return find(name)(**options)


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        return getattr(import_module(_CLASSES[name]), name)
    raise AttributeError(f"module 'lorgnette.lenses' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_CLASSES})
