"""The private names of transformers that we depend on, each with the reason why no public one does.

Whoever needs one asks here; a test names those that have vanished.
"""

from typing import Any

from transformers.utils import output_capturing

ATTENTION = "_attn_implementation_internal"
"""Where a config keeps the name of its attention function.

`model.set_attn_implementation` looks the name up, may ask the hub for a kernel, and changes all configs of a model. Our
name is put into each config by itself, counted over models that share one, and left out by copies of the config; and
what was there before comes back as it was, also where it was no name that could be set.
"""

MAPPING = "_model_mapping"
"""Which model classes an Auto class knows. `register` is public, but no question whether it was called before is."""

RECORDED = "_can_record_outputs"
REGISTRY = "_CAN_RECORD_REGISTRY"
"""What outputs a class can record: transformers notes it for the class that a model is made as, and a whole model that
is cut down becomes one of a pruned class afterwards.
"""


def attention_name(config: object) -> Any:
    """The name of a config's attention function, as it is kept; None where there is none."""
    return getattr(config, ATTENTION, None)


def name_attention(config: object, name: Any) -> None:
    setattr(config, ATTENTION, name)


def names_attention(config: object) -> bool:
    """Whether a config keeps the name of an attention function."""
    return hasattr(config, ATTENTION)


def known_models(auto: object, config: type) -> Any:
    """The model classes that an Auto class has for a config; its keys() would import every family there is."""
    return getattr(auto, MAPPING).get(config, ())


def record_as(made: type, base: type) -> None:
    """Let a class record the outputs that its base does."""
    getattr(output_capturing, REGISTRY)[str(made)] = getattr(base, RECORDED, None)
