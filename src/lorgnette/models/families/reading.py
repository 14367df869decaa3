"""From a family's record to the anatomy of one loaded model."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from lorgnette.attending import Site
from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import Anatomy, AttentionSite, LayerStack, Projection
from lorgnette.models.discovery import discovered
from lorgnette.models.families import record
from lorgnette.models.families.record import Family, LinearPart
from lorgnette.models.families.table import REFUSED, drift, family_of, record_of
from lorgnette.models.grouping import alternating, groups_left
from lorgnette.types import PretrainedConfig, PreTrainedModel

HeadsKept = Mapping[str, Sequence[Sequence[int]]]
"""stack's name in results → layer → the original numbers (from 0) of the heads that are left, in order."""


class SkippedLayer(nn.Module):
    """Stands where a layer was: gives back the states that it is given."""


def anatomy_of(model: nn.Module, inputs: Mapping[str, object] | None = None) -> Anatomy:
    """Find every attention site of a loaded model; a site that has lost all its heads is none.

    By its family's record, or by running it if there is none: on `inputs`, where a model sees pictures beside a text.
    """
    model = without_adapter(model)
    _refuse_tensor_parallel(model)
    config = getattr(model, "config", None)
    if config is not None and config.model_type not in REFUSED:
        family = record_of(config)
        if family is None or not family.stacks:
            return discovered(model, inputs)
    return whole_anatomy(model, getattr(config, "kept_heads", None))


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """The model itself where PEFT has put one of its own around it; the adapter's parts are inside the model."""
    if not hasattr(model, "get_base_model"):
        return model
    if getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False):
        raise drift(model, "its adapter puts tokens of its own before the text, whose attention is nobody's")
    return model.get_base_model()


def _refuse_tensor_parallel(model: nn.Module) -> None:
    processes = getattr(model, "tp_size", None) or 1
    if processes > 1:
        raise CaptureError(
            f"{type(model).__name__} is tensor-parallel (tp_plan): each of {processes} processes computes only its "
            "share of the heads of every layer. Load it on one device, or spread whole layers with device_map."
        )


def whole_anatomy(model: PreTrainedModel, kept: HeadsKept | None = None) -> Anatomy:
    """The sites as if these heads were there (stack → layer → numbers), whatever the config says; None: all."""
    model = without_adapter(model)
    family = family_of(model)
    base = getattr(model, "base_model", model)
    reason = None if family.refuses is None else family.refuses(base.config)
    if reason is not None:
        raise drift(model, reason)
    crosses = any(attention.kind == "cross" for stack in family.stacks for attention in stack.attentions)
    if getattr(base.config, "add_cross_attention", False) and not crosses:
        raise drift(model, "cross-attention added to an encoder or decoder is not in its family's record")
    stacks = []
    for stack in family.stacks:
        module = submodule(base, stack.module)
        if module is None:  # T5EncoderModel has no decoder
            continue
        stacks.append(LayerStack(stack.name, module, _sites(model, module, stack, family, kept or {})))
    if not stacks:
        raise drift(model, f"no stack of the {family.name} family was found in it")
    return Anatomy(family.name, tuple(stacks), family.shim)


def _sites(
    model: nn.Module, module: nn.Module, stack: record.Stack, family: Family, kept: HeadsKept
) -> tuple[AttentionSite, ...]:
    layers = (
        stack.layers(module)
        if callable(stack.layers)
        else list(required_submodule(module, stack.layers, model).children())
    )
    heads = _count_heads(model.config, stack, family)
    sites = []
    for number, layer in enumerate(layers):
        if isinstance(layer, SkippedLayer):
            continue
        for attention in stack.attentions:
            site = Site(stack.name, attention.kind, number)
            left = kept.get(site.name) if stack.name != "pooler" else None
            numbers = tuple(range(heads)) if left is None else tuple(left[number])
            if numbers:
                sites.append(_site(model, layer, attention, site, numbers, heads, family))
    return tuple(sites)


def _count_heads(config: PretrainedConfig, stack: record.Stack, family: Family) -> int:
    if isinstance(stack.heads, int):
        return stack.heads
    names = stack.heads or family.heads
    return next((int(getattr(config, name)) for name in names if hasattr(config, name)), 0)


def _count_groups(config: PretrainedConfig) -> int:
    """0: every query head has its own."""
    return int(getattr(config, "num_key_value_heads", None) or 0)


def _site(
    model: PreTrainedModel,
    layer: nn.Module,
    attention: record.AttentionLayout,
    site: Site,
    numbers: tuple[int, ...],
    total: int,
    family: Family,
) -> AttentionSite:
    every = (family.groups or _count_groups)(model.config) or total
    groups = groups_left(numbers, total, every).arriving if site.stack == "decoder" else len(numbers)

    def inner(path: str | None) -> Any:
        return None if path is None else submodule(layer, path)

    def projection(part: LinearPart) -> Projection:
        module = required_submodule(layer, part.path, model)
        if not part.by_head:
            return Projection(module, part.which, part.of)
        columns = alternating(module, part.which, len(numbers), groups)
        return Projection(module, columns=columns, bias=inner(part.bias))

    return AttentionSite(
        site=site,
        module=required_submodule(layer, attention.module, model),
        layer=layer,
        query=projection(attention.query),
        key=projection(attention.key),
        value=projection(attention.value),
        output=inner(attention.output),
        norm=inner(attention.norm),
        second_norm=inner(attention.second_norm),
        order=attention.order(layer) if callable(attention.order) else attention.order,
        heads=len(numbers),
        groups=groups,
        numbers=numbers,
        total=total,
    )


def submodule(module: Any, path: str) -> Any:
    """The module at a path of names and numbers; None if there is none."""
    for name in path.split(".") if path else ():
        module = module[int(name)] if name.isdigit() else getattr(module, name, None)
        if module is None:
            return None
    return module


def required_submodule(module: Any, path: str, model: nn.Module) -> nn.Module:
    """The module at a path; a `CaptureError` if there is none."""
    inner = submodule(module, path)
    if inner is None:
        raise drift(model, f"{type(module).__name__} has no {path!r}")
    return inner
