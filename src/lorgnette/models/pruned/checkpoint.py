"""Models with fewer heads as ordinary Hugging Face checkpoints: subclasses whose shapes follow `config.kept_heads`.

A pruned BERT has the model type "lorgnette-pruned-bert" and the class PrunedBertForSequenceClassification: BERT's own,
sliced after it was made, so that weights of the smaller shapes load. transformers alone does not know the type and
says so, rather than opening a model with the wrong number of heads; importing `lorgnette.models` registers it.
"""

import copy
from collections.abc import Collection
from functools import cache
from typing import Any

import transformers
from transformers import AutoConfig

from lorgnette.attending import Site
from lorgnette.models.families import PRUNED, prunable_types
from lorgnette.models.families.layers import layers_of
from lorgnette.models.families.reading import HeadsKept
from lorgnette.models.private import known_models, record_as
from lorgnette.models.pruned.slicing import slice_heads
from lorgnette.models.pruned.units import Units, skip_layers, slice_units
from lorgnette.types import PretrainedConfig, PreTrainedModel

AUTO = (
    "AutoModel",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForMaskedLM",
    "AutoModelForQuestionAnswering",
    "AutoModelForMultipleChoice",
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForImageClassification",
)

TABLES = ("kept_heads", "kept_units", "kept_layers")
"""What the config of a pruned model says beside its family's fields."""


@cache
def pruned_config(base: Any) -> Any:
    """The config class of a family's pruned models: its own, and which heads are left."""

    def __post_init__(self: Any, **keywords: object) -> None:
        base.__post_init__(self, **keywords)
        own: Any = type(self)
        register_models(own, base)  # when the first such config is read: the model files are slow to import

    body = {
        "model_type": f"{PRUNED}{base.model_type}",
        "__annotations__": dict.fromkeys(TABLES, dict | None),
        **dict.fromkeys(TABLES),
        "__post_init__": __post_init__,
        "__module__": __name__,
        "__doc__": f"A {base.__name__} with `kept_heads`: stack → layer → the numbers of the heads that are left; "
        "`kept_units`: stack → layer → how many feed-forward units are left; and `kept_layers`: stack → the numbers "
        "of the layers that are left.",
    }
    made = type(f"Pruned{base.__name__}", (base,), body)
    globals()[made.__name__] = made
    return made


@cache
def pruned_class(base: Any) -> type[PreTrainedModel]:
    """The pruned subclass of a model class."""

    def __init__(self: Any, config: PretrainedConfig, *arguments: object, **keywords: object) -> None:
        base.__init__(self, config, *arguments, **keywords)
        slice_as(self, config)

    body = {
        "__init__": __init__,
        "config_class": pruned_config(base.config_class),
        "__module__": __name__,
        "__doc__": f"A {base.__name__} without what `config` says was removed.",
    }
    made = type(f"Pruned{base.__name__}", (base,), body)
    globals()[made.__name__] = made
    # A model that becomes one of this class was never made as one, which is when transformers notes what it can record.
    record_as(made, base)
    return made


@cache
def register_models(config: object, base: Any) -> None:
    """Register a family's pruned models with the Auto classes of transformers."""
    for name in AUTO:
        auto = getattr(transformers, name)
        known = known_models(auto, base)
        for each in known if isinstance(known, tuple) else (known,):
            auto.register(config, pruned_class(each), exist_ok=True)


def pruned_architecture(config: PretrainedConfig) -> type[PreTrainedModel] | None:
    """The class named by a pruned checkpoint's config, or None for other checkpoints."""
    names = config.architectures or []
    if not names or not config.model_type.startswith(PRUNED):
        return None
    plain = names[0].removeprefix("Pruned")
    base = getattr(transformers, plain, None)
    if base is None:
        from lorgnette.models.classifier import SelfAttentionClassifier

        base = SelfAttentionClassifier
    return pruned_class(base)


def slice_as(model: PreTrainedModel, config: PretrainedConfig) -> None:
    """Give a whole model the shapes that the config of a pruned one says, in place."""
    if config.kept_layers is not None:  # None: a checkpoint from when only heads could go
        numbers = config.kept_layers
        skip_layers(model, {x.site for x in layers_of(model) if x.site.layer not in numbers[x.site.stack]})
        parts = [each for each in layers_of(model) if each.feed_forward is not None]
        counts = {each.units_site: config.kept_units[each.site.stack][each.site.layer] for each in parts}
        slice_units(model, {site: range(count) for site, count in counts.items()})
    slice_heads(model, config.kept_heads or {})


def as_pruned(
    model: PreTrainedModel, kept: HeadsKept, units: Units | None = None, gone: Collection[Site] = ()
) -> PreTrainedModel:
    """A copy of a model with only these heads, of its family's pruned class; the model itself is left alone.

    `units`: the feed-forward units that some parts keep; `gone`: whole layers that go.
    """
    new = copy.deepcopy(model)
    before = getattr(model.config, "kept_heads", None)
    skip_layers(new, gone)
    slice_units(new, units or {})
    slice_heads(new, kept, before)
    counts, numbers = kept_units(new), kept_layers(new)
    base: Any = type(model)
    if not hasattr(model.config, "kept_heads"):
        new.__class__ = pruned_class(base)
        for config in {id(c): c for c in (getattr(m, "config", None) for m in new.modules()) if c is not None}.values():
            base_config: Any = type(config)
            own = pruned_config(base_config)
            register_models(own, base_config)
            config.__class__ = own
    for config in (getattr(module, "config", None) for module in new.modules()):
        if config is not None:
            config.kept_heads = {name: [list(heads) for heads in layers] for name, layers in kept.items()}
            config.kept_units, config.kept_layers = counts, numbers
    new.config.architectures = [type(new).__name__]
    return new


def kept_units(model: PreTrainedModel) -> dict[str, list[int]]:
    """stack → layer → feed-forward units, 0 for a layer that is gone; stacks without units are not named."""
    table: dict[str, list[int]] = {}
    for layer in layers_of(model):
        if layer.feed_forward is not None:
            counts = table.setdefault(layer.site.stack, [])
            counts.extend([0] * (layer.site.layer + 1 - len(counts)))
            counts[layer.site.layer] = layer.feed_forward.units
    return table


def kept_layers(model: PreTrainedModel) -> dict[str, list[int]]:
    """stack → the numbers of the layers that are there."""
    table: dict[str, list[int]] = {}
    for layer in layers_of(model):
        table.setdefault(layer.site.stack, []).append(layer.site.layer)
    return table


def _register_configs() -> None:
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    for kind in prunable_types():
        own = pruned_config(known[kind])
        AutoConfig.register(own.model_type, own, exist_ok=True)


_register_configs()
