"""What a family's record can say. Paths are those of modules; nothing here is looked up in a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lorgnette.types import PretrainedConfig


@dataclass(frozen=True)
class LinearPart:
    """A linear map, or one of several equal parts of a fused one: query, key and value in turn."""

    path: str
    which: int = 0
    of: int = 1
    by_head: bool = False
    """the parts alternate head by head (GPT-NeoX), or group by group: its queries, its key, its value (Falcon)"""
    bias: str | None = None
    """path of a bias that is kept beside the map (DeBERTa)"""


@dataclass(frozen=True)
class AttentionLayout:
    """One attention of a layer; paths are relative to the layer."""

    module: str
    """calls the attention function"""
    query: LinearPart
    key: LinearPart
    value: LinearPart
    output: str | None
    """None where the heads are simply concatenated"""
    norm: str | None
    order: str | Callable[[nn.Module], str] = "post"
    """post: norm(x + attention(x)); pre: x + attention(norm(x)); sandwich: x + norm2(attention(norm(x))); none; or a
    function of the layer"""
    kind: str = "self"
    second_norm: str | None = None
    """the norm of the layer's second half, where it ends a post-norm layer"""


@dataclass(frozen=True)
class FeedForwardLayout:
    """The feed-forward part of a layer; paths are relative to the layer. A unit is one input of `contract`."""

    expand: tuple[str, ...]
    """linear maps that have an output for each unit"""
    contract: str
    size: str | None
    """what the config calls the number of units; None: it cannot say"""
    parts: int = 1
    """a fused map holds as many values for each unit, in turn (ModernBERT)"""


@dataclass(frozen=True)
class Stack:
    """One stack; `module` is relative to the base model, `layers` to the stack (a path, or a function of it)."""

    name: str
    module: str
    layers: str | Callable[[Any], Sequence[nn.Module]]
    attentions: tuple[AttentionLayout, ...]
    heads: int | tuple[str, ...] | None = None
    """a number, or names of it in the config; None: the family's names"""
    feed_forward: FeedForwardLayout | None = None
    """None: its units cannot be removed"""
    depth: str | None = "num_hidden_layers"
    """what the config calls the number of layers; None: layers cannot be removed"""
    left: Callable[[PretrainedConfig, Sequence[int]], Mapping[str, object]] | None = None
    """what else a config says where only layers of these numbers are left"""
    returns: tuple[str, ...] | None = None
    """None: a layer returns its states alone; else a tuple of the states and of these arguments, or of None for a name
    that is none of its arguments"""
    first_stays: bool = False
    """the first layer is unlike the others, and cannot be removed"""


@dataclass(frozen=True)
class Cut:
    """What must shrink with the heads; paths are relative to the module that calls attention."""

    projections: tuple[str, ...]
    output: str | None
    """None: the output projection is a neighbour of the module, not inside it"""
    head_counts: tuple[str, ...]
    widths: tuple[str, ...] = ()
    parts: int = 1
    """a fused projection holds query, key and value in turn"""
    by_head: bool = False
    """… head by head"""
    grouped: tuple[str, ...] = ()
    """projections that have a head for each group of query heads"""
    per_head: tuple[str, ...] = ()
    """parameters with one number for each head"""
    per_output: tuple[str, ...] = ()
    """parameters with one number for each output of the heads, such as a bias beside its map"""
    also: tuple[str, ...] = ()
    """other maps with outputs for each head, some of which a model may lack"""
    returns: str = "pair"
    """what a forward gives: (output, weights) "pair", (output,) "tuple", the output alone "state", (output, bias,
    weights) "biased", where the bias for each head goes on to the next layer, (output + its second argument, weights)
    "residual", or (output, its second argument) "entities" """
    dropout: str | None = None
    """applied behind the output projection, inside the module"""
    norm: str | None = None
    """applied to the sum with the residual, inside the module (ALBERT)"""
    bias: str | None = None
    """a module with a table `bias` that has one row for each head of this layer"""
    shared_bias: tuple[int, str] | None = None
    """place and name of an argument with a bias for each head that all layers share, and so must be cut on its way"""


@dataclass(frozen=True)
class Positions:
    """How long a text may be: where the config says so, and whether positions begin behind the padding id."""

    names: tuple[str, ...] = ("max_position_embeddings", "n_positions")
    after_padding: bool = False


@dataclass(frozen=True)
class Family:
    """Everything that depends on a family, for all model types that share it."""

    name: str
    model_types: tuple[str, ...]
    stacks: tuple[Stack, ...]
    heads: tuple[str, ...] = ("num_attention_heads",)
    """what the config may call the number of heads, the first that is there"""
    groups: Callable[[PretrainedConfig], int] | None = None
    """the number of key/value heads by the config, where it is not called num_key_value_heads"""
    positions: Positions = Positions()
    shim: Callable[..., object] | None = None
    """stands in for the forward of attention modules that ignore the attention interface"""
    stand_ins: Mapping[str, Callable[..., object]] = field(default_factory=dict)
    """where `stacks` are found by running the model: what stands in for the forward of modules of these classes"""
    refuses: Callable[[PretrainedConfig], str | None] | None = None
    """why a config of the family cannot be watched exactly, if it cannot"""
    cut: Cut | None = None
    """None: heads cannot be removed"""
    head_size: str | None = None
    """what the config calls the width of a head, where it may have any number of heads of that width"""
    reads: str = "texts"
    """or pictures, which nothing here trains on or scores"""
    stays: Mapping[str, str] = field(default_factory=dict)
    """why heads, units or layers cannot be removed, where they cannot"""


def separate(module: str, names: str, output: str | None, norm: str | None, **more: Any) -> AttentionLayout:
    """An attention with a linear map each for query, key and value, named inside the module."""
    query, key, value = (LinearPart(f"{module}.{name}") for name in names.split())
    return AttentionLayout(module, query, key, value, output, norm, **more)


def fused(
    module: str,
    name: str,
    output: str | None,
    norm: str | None,
    *,
    by_head: bool = False,
    biases: tuple[str | None, str | None, str | None] = (None, None, None),
    **more: Any,
) -> AttentionLayout:
    """An attention whose one linear map gives query, key and value in turn, of all heads or head by head."""
    query, key, value = (
        LinearPart(f"{module}.{name}", which, 3, by_head, None if bias is None else f"{module}.{bias}")
        for which, bias in enumerate(biases)
    )
    return AttentionLayout(module, query, key, value, output, norm, **more)
