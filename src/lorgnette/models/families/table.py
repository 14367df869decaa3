"""All records, and the one of a model."""

from torch import nn

from lorgnette.errors import CaptureError, near
from lorgnette.models.families.decoders import DECODERS
from lorgnette.models.families.encoders import ENCODERS
from lorgnette.models.families.own import CLASSIFIER
from lorgnette.models.families.record import Family, Positions
from lorgnette.models.families.translators import TRANSLATORS
from lorgnette.types import PretrainedConfig, PreTrainedTokenizerBase

FAMILIES: tuple[Family, ...] = (*ENCODERS, *DECODERS, *TRANSLATORS, CLASSIFIER)

PRUNED = "lorgnette-pruned-"
"""What stands before the model type of a family whose heads were removed."""

REFUSED = {
    "xlnet": "its projections are plain tensors, not linear modules, with inputs as [token, text]; it has no shim",
    **dict.fromkeys(
        ("longformer", "led"),
        "its windowed attention is custom code with separate projections for global tokens, and it pads texts to whole "
        "windows internally: there is no single row of weights to show",
    ),
    **dict.fromkeys(
        ("falcon_mamba", "mamba", "mamba2", "rwkv", "xlstm"), "it is a recurrent model: it has no attention"
    ),
}
"""Model types that are known not to work, and why."""


def model_types() -> tuple[str, ...]:
    """The model types that have a record."""
    return tuple(sorted(name for family in FAMILIES for name in family.model_types))


def prunable_types(reads: str | None = None) -> tuple[str, ...]:
    """The model types of which something can be removed: heads, feed-forward units or layers.

    `reads`: only those that read texts, or pictures.
    """
    return tuple(
        name
        for family in FAMILIES
        if family.cut is not None or any(stack.feed_forward is not None for stack in family.stacks)
        if reads in (None, family.reads)
        for name in family.model_types
    )


def head_prunable_types() -> tuple[str, ...]:
    """The model types of which heads can be removed."""
    return tuple(name for family in FAMILIES if family.cut is not None for name in family.model_types)


def record_of(config: PretrainedConfig) -> Family | None:
    """The record of a config's model type, if there is one."""
    kind = getattr(config, "model_type", "").removeprefix(PRUNED)
    return next((family for family in FAMILIES if kind in family.model_types), None)


def family_of(model: nn.Module) -> Family:
    """The record of this model's family, or a `CaptureError` that says what to do."""
    config = getattr(model, "config", None)
    family = record_of(config)
    if family is not None:
        return family
    kind = getattr(config, "model_type", "")
    if kind in REFUSED:
        raise drift(model, REFUSED[kind])
    known = ", ".join(model_types())
    raise drift(model, f"its family {kind!r} is not known.{near(kind, model_types())} Known families: {known}")


def longest_text(config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The longest text, in tokens, specials included, that model and tokenizer take; None if any."""
    family = record_of(config)
    positions = Positions() if family is None else family.positions
    limits = []
    size = next((getattr(config, name) for name in positions.names if getattr(config, name, None)), 0)
    if size > 0:
        limits.append(int(size) - (config.pad_token_id + 1 if positions.after_padding else 0))
    known = getattr(tokenizer, "model_max_length", None)
    if known is not None and known < 10**6:
        limits.append(int(known))
    return min(limits, default=None)


def drift(model: nn.Module, what: str) -> CaptureError:
    """The error for a model that is not as its record says."""
    import transformers

    return CaptureError(
        f"{type(model).__name__} under transformers {transformers.__version__}: {what}. "
        "Run `lorgnette check` on a known model to see whether the installation is at fault; "
        "to support a new family, add a record to src/lorgnette/models/families/."
    )
