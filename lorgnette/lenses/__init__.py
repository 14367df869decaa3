"""Lenses by name: ours, and those that installed packages register under the entry point group `lorgnette.lenses`."""

from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from lorgnette.errors import UserError, near

if TYPE_CHECKING:
    from lorgnette.lenses.base import Lens

OURS = {
    "weights": ("lorgnette.lenses.weights.lens", "Weights"),
    "norms": ("lorgnette.lenses.norms.lens", "Norms"),
    "distances": ("lorgnette.lenses.distances.lens", "Distances"),
    "gradients": ("lorgnette.lenses.gradients.lens", "Gradients"),
    "importance": ("lorgnette.lenses.importance.lens", "Importance"),
    "roles": ("lorgnette.lenses.roles.lens", "Roles"),
    "agreement": ("lorgnette.lenses.agreement.lens", "Agreement"),
    "rationales": ("lorgnette.lenses.rationales.lens", "Rationales"),
    "relevance": ("lorgnette.lenses.relevance.lens", "Relevance"),
    "rollout": ("lorgnette.lenses.rollout.lens", "Rollout"),
    "frequency": ("lorgnette.lenses.frequency.lens", "Frequency"),
    "alignment": ("lorgnette.lenses.alignment.lens", "Alignment"),
    "trees": ("lorgnette.lenses.trees.lens", "Trees"),
    "coreference": ("lorgnette.lenses.coreference.lens", "Coreference"),
    "attention-probe": ("lorgnette.lenses.attention_probe.lens", "AttentionProbe"),
    "relations": ("lorgnette.lenses.relations.lens", "Relations"),
    "probes": ("lorgnette.lenses.probes.lens", "Probes"),
    "geometry": ("lorgnette.lenses.geometry.lens", "Geometry"),
    "cones": ("lorgnette.lenses.cones.lens", "Cones"),
    "convexity": ("lorgnette.lenses.convexity.lens", "Convexity"),
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
