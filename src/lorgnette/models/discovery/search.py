"""The anatomy of a model that has no record."""

import inspect
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor, nn

from lorgnette.errors import CaptureError
from lorgnette.models.anatomy import Anatomy, AttentionSite, LayerStack
from lorgnette.models.discovery.events import (
    Attended,
    Pass,
    explored,
    seen_in,
    silenced,
    small_batch,
)
from lorgnette.models.discovery.mixers import giving_nothing, kept_calls, mixers_of
from lorgnette.models.discovery.proofs import proved
from lorgnette.models.discovery.stacks import DiscoveredStack, Place, stacks_of, unchanged
from lorgnette.models.families.table import drift, record_of
from lorgnette.models.linear import TOLERANCE
from lorgnette.models.private import attention_name
from lorgnette.models.proof import proof_of
from lorgnette.models.quantised import unrounded
from lorgnette.models.switching import eager, evaluating, switched
from lorgnette.models.watching import sees_beside
from lorgnette.models.ways import numbers_of, picture_ways, ways
from lorgnette.types import PretrainedConfig, PreTrainedModel

NOT_THROUGH_US = "its attention does not go through transformers' attention interface"
_KNOWN: "weakref.WeakKeyDictionary[nn.Module, tuple[int, Anatomy]]" = weakref.WeakKeyDictionary()


def discovered(model: PreTrainedModel, inputs: Mapping[str, object] | None = None) -> Anatomy:
    """Every attention site, found by running the model twice on a small batch: as it is, and through `attend`.

    A model that sees pictures beside texts is run on `inputs`, if there are pictures among them; later calls return
    what was found then. Without, only the stacks that texts pass through are found.

    The two outputs must be equal up to rounding, then and on every other way to run the model (`models.ways`), else the
    model is refused. What could not be proved of a site is named in `site.unknown`.
    """
    house = hash(tuple((name, id(module)) for name, module in model.named_modules()))
    sees = seen_in(inputs or {}) if "input_ids" in (inputs or {}) else ()
    if model not in _KNOWN or _KNOWN[model][0] != house or not set(sees) <= set(_KNOWN[model][1].sees):
        base = _base(model)
        if not sees and sees_beside(model) and "input_ids" in inspect.signature(base.forward).parameters:
            _refuse_blind(model, base)
        given, real = small_batch(base, inputs if sees else None)
        family = record_of(model.config)
        blank = Anatomy("", (), sees=sees, stand_ins={} if family is None else family.stand_ins)
        with unrounded(model):
            recorded = _explore(model, base, given, real, blank)
            anatomy = replace(_anatomy(base, recorded, sees), sees=sees, stand_ins=blank.stand_ins)
            _refuse_longer(base, recorded, anatomy, given)
            _prove(base, anatomy, given)
        _KNOWN[model] = house, anatomy
    return _KNOWN[model][1]


def without_attention(model: PreTrainedModel) -> str | None:
    """That a model has no attention layer, if its config names the kinds of its layers and none of them is one."""
    config = model.config
    named = (getattr(config, name, None) for name in ("layer_types", "layers_block_type", "block_types"))
    kinds = next((kinds for kinds in named if isinstance(kinds, list | tuple) and kinds), ())
    if not kinds or any(set(str(kind).split("_")) & _ATTENDING and kind != "linear_attention" for kind in kinds):
        return None
    names = ", ".join(sorted({str(kind) for kind in kinds}))
    return f"none of its {len(kinds)} layers has attention weights (its config calls them {names})"


_ATTENDING = {"attention", "hybrid"}
"""Words in what configs call layers that have softmax attention; linear attention has none."""


def _refuse_blind(model: PreTrainedModel, base: PreTrainedModel) -> None:
    """Refuse a model of pictures that does not run without one, and say so; or that nothing could be captured of."""
    try:
        given, _ = small_batch(base)
        with torch.no_grad(), evaluating(model):
            _output(base, given, "without a picture")
    except CaptureError as error:
        family = record_of(model.config)
        own, through_us = _softmaxes(base, {} if family is None else family.stand_ins)
        if own and not through_us:
            raise drift(model, f"{NOT_THROUGH_US} (a softmax of its own: {', '.join(own)})") from error
        raise CaptureError(
            f"{type(model).__name__} sees pictures beside texts and does not run on texts alone. Show it an example: "
            "lo.attention(model, **inputs) or lo.Subject(model, inputs=inputs), where the inputs are what its "
            "processor made of a picture and a text."
        ) from error


def _softmaxes(model: nn.Module, stand_ins: Mapping[str, object]) -> tuple[list[str], bool]:
    """The classes of attention that take a softmax themselves, and whether any goes through the interface."""
    own, through_us = [], bool(stand_ins)
    for kind in {type(module) for module in model.modules()}:
        if "Attention" in kind.__name__ and kind.__name__ not in stand_ins and "transformers" in kind.__module__:
            source = inspect.getsource(kind).lower()
            through_us |= "attention_interface" in source
            if "softmax" in source and "attention_interface" not in source:
                own.append(kind.__name__)
    return sorted(own), through_us


def _base(model: PreTrainedModel) -> PreTrainedModel:
    """The model below a head; what takes something else than the model's inputs is a part of it (DINOv3's encoder)."""
    base = getattr(model, "base_model", model)
    takes = inspect.signature(base.forward).parameters
    return base if getattr(model, "main_input_name", "input_ids") in takes else model


def _explore(model: nn.Module, base: PreTrainedModel, given: dict[str, Tensor], real: Tensor, blank: Anatomy) -> Pass:
    with torch.no_grad(), evaluating(model):
        plain = _output(base, given, "on these inputs" if blank.sees else "on a batch of token ids alone")
        with switched(model.modules(), blank), explored(base) as recorded:
            watched = _output(base, given, "with a different attention function")
    if not any(isinstance(event, Attended) for event in recorded.events):
        raise drift(model, without_attention(base) or NOT_THROUGH_US)
    if plain.shape[:2] == real.shape:
        plain, watched = plain[real], watched[real]
    difference = unchanged(plain, watched)
    if not difference <= TOLERANCE.get(plain.dtype, 1e-4):
        raise drift(model, _why_other(base, given, real, watched, difference, blank.stand_ins))
    recorded.mixes = _mixes(model, base, given, real, blank)
    if recorded.mixes:
        recorded.mixers = _mixers(model, base, given, real, blank, recorded)
    return recorded


def _mixers(
    model: nn.Module, base: PreTrainedModel, given: dict[str, Tensor], real: Tensor, blank: Anatomy, recorded: Pass
) -> tuple[nn.Module, ...]:
    """The modules that mix tokens beside attention; none unless tokens stay apart where all of them give nothing."""
    attending = {id(event.module) for event in recorded.events if isinstance(event, Attended)}
    with torch.no_grad(), evaluating(model), switched(model.modules(), blank), silenced(base):
        with kept_calls(base, real) as calls:
            _output(base, given, "without attention")
        found = mixers_of(base, calls, attending, real)
    return () if _mixes(model, base, given, real, blank, without=found) else tuple(found)


def _why_other(
    base: PreTrainedModel,
    given: dict[str, Tensor],
    real: Tensor,
    watched: Tensor,
    size: float,
    stand_ins: Mapping[str, object],
) -> str:
    """Why capturing a model's attention changes its output: the implementation that it runs may have a fault."""
    own = attention_name(base.config)
    if own != "eager":
        try:
            with torch.no_grad(), evaluating(base), eager(base):
                plain = _output(base, given, "with eager attention")
        except CaptureError:
            plain = None
        if plain is not None:
            plain = plain[real] if plain.shape[:2] == real.shape else plain
            if plain.shape == watched.shape and unchanged(plain, watched) <= TOLERANCE.get(plain.dtype, 1e-4):
                return (
                    f"its {own} and its eager attention give outputs that differ by {size:.1e}, and only the eager one "
                    'can be captured: load it with attn_implementation="eager"'
                )
    others, _ = _softmaxes(base, stand_ins)
    if others:
        return f"some of {NOT_THROUGH_US} (a softmax of its own: {', '.join(others)})"
    return f"its attention is not softmax(scores) · value: capturing it changes the output by {size:.1e}"


def _refuse_longer(base: PreTrainedModel, recorded: Pass, anatomy: Anatomy, given: dict[str, Tensor]) -> None:
    """Refuse a model that puts a picture among the words by itself: nobody says which token is which (UDOP)."""
    ids = given.get("input_ids")
    answers = given.get("decoder_input_ids", ids)
    read = {id(event.module): event.query.shape[2] for event in recorded.events if isinstance(event, Attended)}
    for site in anatomy.sites if anatomy.sees else ():
        texts = answers if site.site.stack == "decoder" else ids
        width = read[id(site.module)]
        if site.site.stack in ("encoder", "decoder") and texts is not None and texts.shape[1] != width:
            raise drift(
                base,
                f"its {site.site.stack} reads {width} tokens where the texts have {texts.shape[1]}: it puts the "
                "picture among the words by itself",
            )


def _prove(base: PreTrainedModel, anatomy: Anatomy, given: dict[str, Tensor]) -> None:
    """Refuse a model that runs otherwise where its texts are not padded on the right, as those above were."""
    if not {"input_ids", "attention_mask"} <= set(given):
        return
    found = picture_ways(given, anatomy.sees) if anatomy.sees else ways(given)
    # Eager attention is left to `check`: this is waited for when a model is loaded.
    proof = proof_of(base, anatomy, found[1:], partial(base, return_dict=True), with_eager=False)
    if proof.failed is not None:
        way, why = proof.failed
        raise drift(base, f"with {way} its attention cannot be captured ({why.rstrip('.')})")
    dtype = next(parameter.dtype for parameter in base.parameters() if parameter.is_floating_point())
    if not proof.output.size <= TOLERANCE.get(dtype, 1e-4):
        raise drift(
            base, f"with {proof.output.way} capturing its attention changes the output by {proof.output.size:.1e}"
        )


def _mixes(
    model: nn.Module,
    base: PreTrainedModel,
    given: dict[str, Tensor],
    real: Tensor,
    blank: Anatomy,
    without: Sequence[nn.Module] = (),
) -> bool:
    """Whether another first token changes what later tokens are while attention gives nothing, nor what is `without`:
    a convolution, a recurrence beside it.
    """
    ids = given.get("input_ids")
    if ids is None or ids.shape != real.shape:
        return False
    first, swapped = 0, torch.cat([ids[:, :1].flip(0), ids[:, 1:]], dim=1)
    if seen_in(given):
        stands_for = _placeholders(base.config)
        words = (real & ~torch.isin(ids, torch.tensor(stands_for, device=ids.device))).all(0).nonzero()[:, 0]
        if not len(words):
            return True  # nothing can be swapped, so nothing is proved
        first, swapped = int(words[0]), ids.clone()
        swapped[:, first] = _other_ids(ids[:, first], stands_for)
    with torch.no_grad(), evaluating(model), switched(model.modules(), blank), silenced(base), giving_nothing(without):
        one, other = (_output(base, {**given, "input_ids": some}, "without attention") for some in (ids, swapped))
    if one.shape[:2] != ids.shape:
        return False
    later = real[:, first + 1 :]
    one, other = one[:, first + 1 :][later], other[:, first + 1 :][later]
    return bool(len(one)) and not unchanged(one, other) <= TOLERANCE.get(one.dtype, 1e-4)


def _placeholders(config: PretrainedConfig) -> list[int]:
    """The ids that stand for a place of a picture or a sound, by their names in the config."""
    names = {*vars(config), *getattr(config, "attribute_map", {})}
    named = [n for n in names if "token_i" in n and any(sense in n for sense in ("image", "video", "audio", "vision"))]
    return [number for number in (getattr(config, name, None) for name in named) if isinstance(number, int)]


def _other_ids(ids: Int[Tensor, " batch"], stands_for: list[int]) -> Int[Tensor, " batch"]:
    """Another id for each, which stands for a word too."""
    pool = [number for number in range(10, 10 + len(stands_for) + 2) if number not in stands_for]
    return torch.where(ids == pool[0], pool[1], pool[0])


def _output(base: PreTrainedModel, given: dict[str, Tensor], how: str) -> Tensor:
    options: dict[str, object] = {"use_cache": False} if hasattr(base.config, "use_cache") else {}
    try:
        output = base(**given, **options, return_dict=True)
    except CaptureError:
        raise
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        raise drift(base, f"it does not run {how} ({type(error).__name__}: {first})") from error
    return numbers_of(output)[0]


def _anatomy(base: PreTrainedModel, recorded: Pass, sees: tuple[str, ...]) -> Anatomy:
    stacks = [
        LayerStack(
            discovered_stack.name,
            discovered_stack.module,
            tuple(_site(place, recorded, discovered_stack) for place in discovered_stack.places),
            discovered_stack.total,
        )
        for discovered_stack in stacks_of(base, recorded, beside=bool(sees))
    ]
    if getattr(base.config, "is_encoder_decoder", False) and "encoder" not in {stack.name for stack in stacks}:
        raise drift(base, "the attention of its encoder does not go through transformers' attention interface")
    doubled = [site.site for stack in stacks for site in stack.sites]
    if len(doubled) != len(set(doubled)):
        raise drift(base, "two of its attention calls would be the same layer of the same stack")
    return Anatomy(str(getattr(base.config, "model_type", "")), tuple(stacks), mixers=recorded.mixers)


def _site(place: Place, recorded: Pass, stack: DiscoveredStack) -> AttentionSite:
    call = recorded.events[place.at]
    assert isinstance(call, Attended)
    parts = proved(recorded.events, place.at, place.layer)
    heads = call.query.shape[1]
    unknown = dict(parts.unknown)
    if stack.other_layers:
        which = ", ".join(str(number + 1) for number in stack.other_layers)
        unknown["mixing"] = f"its layers {which} mix tokens without attention, by no weights that could be multiplied"
    elif recorded.mixes:
        unknown["mixing"] = "its layers mix tokens beside their attention too, by no weights that could be multiplied"
    if "mixing" in unknown and not recorded.mixers:
        unknown["mixers"] = "tokens reach each other beside attention, and not in whole modules alone"
    return AttentionSite(
        site=place.site,
        module=call.module,
        layer=place.layer,
        query=parts.query,
        key=parts.key,
        value=parts.value,
        output=parts.output,
        norm=parts.norm,
        second_norm=parts.second_norm,
        order=parts.order,
        heads=heads,
        groups=parts.groups,
        numbers=tuple(range(heads)),
        total=heads,
        unknown=unknown,
        gate=parts.gate,
    )
