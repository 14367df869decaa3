"""One record per model family: where its attention lives. Data, not code."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from lorgnette.attention import Site
from lorgnette.errors import CaptureError, near
from lorgnette.models.anatomy import Anatomy, AttentionSite, Stack

PRUNED = "lorgnette-pruned-"
"""What stands before the model type of a family whose heads were removed."""


@dataclass(frozen=True)
class AttentionLayout:
    """One attention of a layer; paths are relative to the layer."""

    module: str
    value: str
    output: str | None
    norm: str | None
    order: str = "post"
    kind: str = "self"
    value_part: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class StackLayout:
    """One stack; `module` is relative to the base model, `layers` to the stack (a path, or a function of it)."""

    name: str
    module: str
    layers: str | Callable[[Any], Sequence[nn.Module]]
    attentions: tuple[AttentionLayout, ...]
    heads: int | None = None  # None: what the config says


@dataclass(frozen=True)
class Layout:
    """A family: the model types that share it, its stacks, and the shim it needs if it ignores the interface."""

    family: str
    model_types: tuple[str, ...]
    stacks: tuple[StackLayout, ...]
    shim: str | None = None
    heads: tuple[str, ...] = field(default=("num_attention_heads",))


def _albert_layers(transformer: Any) -> list[nn.Module]:
    """ALBERT runs the same modules again and again; its passes are unrolled here as its forward does."""
    config = transformer.config
    per_group = config.num_hidden_layers / config.num_hidden_groups
    order = [transformer.albert_layer_groups[int(i / per_group)] for i in range(config.num_hidden_layers)]
    return [layer for group in order for layer in group.albert_layers]


def _pooler_layers(pooler: Any) -> list[nn.Module]:
    """The pooler of our own classifier is a site if it attends, with its one query; mean and <cls> do not."""
    return [pooler] if hasattr(pooler, "attention") else []


_BERT = AttentionLayout(
    "attention.self", "attention.self.value", "attention.output.dense", "attention.output.LayerNorm"
)
_LLAMA = AttentionLayout("self_attn", "self_attn.v_proj", "self_attn.o_proj", "input_layernorm", order="pre")
_GEMMA = AttentionLayout("self_attn", "self_attn.v_proj", "self_attn.o_proj", "input_layernorm", order="sandwich")
_MARIAN_SELF = AttentionLayout("self_attn", "self_attn.v_proj", "self_attn.out_proj", "self_attn_layer_norm")
_MARIAN_CROSS = AttentionLayout(
    "encoder_attn", "encoder_attn.v_proj", "encoder_attn.out_proj", "encoder_attn_layer_norm", kind="cross"
)
_T5_SELF = AttentionLayout(
    "layer.0.SelfAttention", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o", "layer.0.layer_norm", order="pre"
)
_T5_CROSS = AttentionLayout(
    "layer.1.EncDecAttention",
    "layer.1.EncDecAttention.v",
    "layer.1.EncDecAttention.o",
    "layer.1.layer_norm",
    order="pre",
    kind="cross",
)


LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "bert",
        ("bert", "roberta", "xlm-roberta", "camembert", "electra"),
        (StackLayout("encoder", "encoder", "layer", (_BERT,)),),
    ),
    Layout(
        "albert",
        ("albert",),
        (
            StackLayout(
                "encoder",
                "encoder",
                _albert_layers,
                (AttentionLayout("attention", "attention.value", "attention.dense", "attention.LayerNorm"),),
            ),
        ),
    ),
    Layout(
        "distilbert",
        ("distilbert",),
        (
            StackLayout(
                "encoder",
                "transformer",
                "layer",
                (AttentionLayout("attention", "attention.v_lin", "attention.out_lin", "sa_layer_norm"),),
            ),
        ),
        heads=("n_heads", "num_attention_heads"),
    ),
    Layout(
        "modernbert",
        ("modernbert",),
        (
            StackLayout(
                "encoder",
                "",
                "layers",
                (AttentionLayout("attn", "attn.Wqkv", "attn.Wo", "attn_norm", order="pre", value_part=(2, 3)),),
            ),
        ),
    ),
    Layout(
        "gpt2",
        ("gpt2",),
        (
            StackLayout(
                "decoder",
                "",
                "h",
                (AttentionLayout("attn", "attn.c_attn", "attn.c_proj", "ln_1", order="pre", value_part=(2, 3)),),
            ),
        ),
        heads=("n_head", "num_attention_heads"),
    ),
    Layout(
        "llama",
        ("llama", "qwen2", "qwen3", "mistral", "gemma"),
        (StackLayout("decoder", "", "layers", (_LLAMA,)),),
    ),
    Layout("gemma2", ("gemma2", "gemma3_text"), (StackLayout("decoder", "", "layers", (_GEMMA,)),)),
    Layout(
        "marian",
        ("marian",),
        (
            StackLayout("encoder", "encoder", "layers", (_MARIAN_SELF,)),
            StackLayout("decoder", "decoder", "layers", (_MARIAN_SELF, _MARIAN_CROSS)),
        ),
        heads=("num_attention_heads", "encoder_attention_heads"),
    ),
    Layout(
        "t5",
        ("t5",),
        (
            StackLayout("encoder", "encoder", "block", (_T5_SELF,)),
            StackLayout("decoder", "decoder", "block", (_T5_SELF, _T5_CROSS)),
        ),
        heads=("num_heads", "num_attention_heads"),
    ),
    Layout(
        "mpnet",
        ("mpnet",),
        (
            StackLayout(
                "encoder",
                "encoder",
                "layer",
                (AttentionLayout("attention.attn", "attention.attn.v", "attention.attn.o", "attention.LayerNorm"),),
            ),
        ),
        shim="mpnet",
    ),
    Layout(
        "deberta-v2",
        ("deberta-v2",),
        (
            StackLayout(
                "encoder",
                "encoder",
                "layer",
                (
                    AttentionLayout(
                        "attention.self",
                        "attention.self.value_proj",
                        "attention.output.dense",
                        "attention.output.LayerNorm",
                    ),
                ),
            ),
        ),
        shim="deberta-v2",
    ),
    Layout(
        "lorgnette",
        ("lorgnette-classifier",),
        (
            StackLayout(
                "encoder",
                "encoder",
                "layers",
                (AttentionLayout("attention", "attention.value", "attention.output", "norm", order="own"),),
            ),
            StackLayout(
                "pooler",
                "pooler",
                _pooler_layers,
                (
                    AttentionLayout(
                        "attention", "attention.value", "attention.output", None, order="none", kind="cross"
                    ),
                ),
                heads=1,
            ),
        ),
        heads=("heads", "num_attention_heads"),
    ),
)


def model_types() -> tuple[str, ...]:
    """The model types that can be looked at."""
    return tuple(sorted(name for layout in LAYOUTS for name in layout.model_types))


def layout_of(model: nn.Module) -> Layout:
    """The record of this model's family, or a `CaptureError` that says what to do."""
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", "").removeprefix(PRUNED)
    for layout in LAYOUTS:
        if kind in layout.model_types:
            return layout
    if kind == "deberta":
        raise drift(
            model, "DeBERTa v1 fuses its projections and cannot be watched exactly; use a DeBERTa-v2 or v3 model"
        )
    known = ", ".join(model_types())
    raise drift(model, f"its family {kind!r} is not known.{near(kind, model_types())} Known families: {known}")


def anatomy_of(model: nn.Module) -> Anatomy:
    """Find every attention site of a loaded model; a site that has lost all its heads is none."""
    return whole_anatomy(model, getattr(getattr(model, "config", None), "kept_heads", None))


def whole_anatomy(model: Any, kept: Mapping[str, Sequence[Sequence[int]]] | None = None) -> Anatomy:
    """The sites as if these heads were there (stack → layer → numbers), whatever the config says; None: all."""
    layout = layout_of(model)
    base = getattr(model, "base_model", model)
    if getattr(base.config, "add_cross_attention", False) and layout.family != "marian":
        raise drift(model, "cross-attention added to an encoder or decoder is not in its family's layout")
    stacks = []
    for stack in layout.stacks:
        module = _descend(base, stack.module, model)
        if module is None:  # T5EncoderModel has no decoder
            continue
        stacks.append(Stack(stack.name, module, _sites(model, module, stack, layout, kept or {})))
    if not stacks:
        raise drift(model, f"no stack of the {layout.family} layout was found in it")
    return Anatomy(layout.family, tuple(stacks), layout.shim)


def _sites(
    model: nn.Module,
    module: nn.Module,
    stack: StackLayout,
    layout: Layout,
    kept: Mapping[str, Sequence[Sequence[int]]],
) -> tuple[AttentionSite, ...]:
    layers = stack.layers(module) if callable(stack.layers) else list(_need(module, stack.layers, model).children())
    config: Any = model.config
    heads = next((int(getattr(config, name)) for name in layout.heads if hasattr(config, name)), 0)
    if stack.name == "decoder" and hasattr(config, "decoder_attention_heads"):
        heads = int(config.decoder_attention_heads)
    heads = stack.heads or heads
    groups = int(getattr(config, "num_key_value_heads", None) or heads)
    sites = []
    for number, layer in enumerate(layers):
        for a in stack.attentions:
            site = Site(stack.name, a.kind, number)
            left = kept.get(site.name) if stack.name != "pooler" else None
            numbers = tuple(range(heads)) if left is None else tuple(left[number])
            if not numbers:
                continue
            norm = None if a.norm is None else _descend(layer, a.norm, model)
            order = a.order if a.order != "own" else str(getattr(layer, "norm_order", "none"))
            sites.append(
                AttentionSite(
                    site=site,
                    module=_need(layer, a.module, model),
                    layer=layer,
                    value=_need(layer, a.value, model),
                    value_part=a.value_part,
                    output=None if a.output is None else _descend(layer, a.output, model),
                    norm=norm,
                    order=order,
                    heads=len(numbers),
                    groups=groups if stack.name == "decoder" and left is None else len(numbers),
                    numbers=numbers,
                    total=heads,
                )
            )
    return tuple(sites)


def _descend(module: Any, path: str, model: nn.Module) -> Any:
    for name in path.split(".") if path else ():
        module = module[int(name)] if name.isdigit() else getattr(module, name, None)
        if module is None:
            return None
    return module


def _need(module: Any, path: str, model: nn.Module) -> nn.Module:
    found = _descend(module, path, model)
    if found is None:
        raise drift(model, f"{type(module).__name__} has no {path!r}")
    return found


def drift(model: nn.Module, what: str) -> CaptureError:
    """The error for a model that is not as its layout says."""
    import transformers

    return CaptureError(
        f"{type(model).__name__} under transformers {transformers.__version__}: {what}. "
        "Run `lorgnette check` on a known model to see whether the installation is at fault; "
        "a new family is one record in lorgnette/models/layouts.py."
    )
