"""Decoders: GPT-2, OPT, GPT-NeoX, GPT-Neo, GPT-J, BLOOM, Falcon, and Llama with what was built on it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import nn

from lorgnette.models.families.record import Cut, Family, FeedForwardLayout, Positions, Stack, fused, separate
from lorgnette.models.private import attention_name
from lorgnette.models.shims import bloom, falcon, gpt_neo, gptj
from lorgnette.types import PretrainedConfig

GPT2 = Family(
    "gpt2",
    ("gpt2",),
    (
        Stack(
            "decoder",
            "",
            "h",
            (fused("attn", "c_attn", "attn.c_proj", "ln_1", order="pre"),),
            feed_forward=FeedForwardLayout(("mlp.c_fc",), "mlp.c_proj", "n_inner"),
            depth="n_layer",
        ),
    ),
    heads=("n_head", "num_attention_heads"),
    cut=Cut(("c_attn",), "c_proj", ("num_heads",), ("split_size",), parts=3, dropout="resid_dropout"),
)

_LLAMA = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="pre")
_GEMMA2 = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="sandwich")

_GLU = FeedForwardLayout(("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj", "intermediate_size")

_GROUPED = Cut(("q_proj",), "o_proj", (), grouped=("k_proj", "v_proj"))

LLAMA = Family(
    "llama",
    ("llama", "qwen2", "qwen3", "mistral", "gemma", "ministral", "ministral3", "seed_oss", "ernie4_5"),
    (Stack("decoder", "", "layers", (_LLAMA,), feed_forward=_GLU),),
    cut=_GROUPED,
    head_size="head_dim",
)


# The output projection is as wide as the states, whatever the size of a head: the config cannot say fewer heads.
HELIUM = replace(LLAMA, name="helium", model_types=("helium",), head_size=None)


_DECODER = LLAMA.stacks[0]


def _like_llama(kind: str, decoder: Stack) -> Family:
    """A family that differs from Llama in the layout of its decoder."""
    return replace(LLAMA, name=kind, model_types=(kind,), stacks=(decoder,))


def _no_rope_layers(config: PretrainedConfig, numbers: Sequence[int]) -> Mapping[str, object]:
    """Every fourth layer has no positions, and the config lists which."""
    return {"no_rope_layers": [config.no_rope_layers[number] for number in numbers]}


SMOLLM3 = _like_llama("smollm3", replace(_DECODER, left=_no_rope_layers))


def _granite_order(layer: nn.Module) -> str:
    """What attention gives is scaled before it is added; only by 1 is the sum what a record can say."""
    return "pre" if layer.residual_multiplier == 1 else "none"


GRANITE = _like_llama("granite", replace(_DECODER, attentions=(replace(_LLAMA, order=_granite_order),)))
ARCEE = _like_llama(
    "arcee", replace(_DECODER, feed_forward=FeedForwardLayout(("mlp.up_proj",), "mlp.down_proj", "intermediate_size"))
)
STARCODER2 = _like_llama(
    "starcoder2", replace(_DECODER, feed_forward=FeedForwardLayout(("mlp.c_fc",), "mlp.c_proj", "intermediate_size"))
)
GPT_OSS = replace(
    LLAMA,
    name="gpt_oss",
    model_types=("gpt_oss",),
    stacks=(Stack("decoder", "", "layers", (_LLAMA,)),),
    cut=replace(_GROUPED, per_head=("sinks",)),
    stays={"units": "they are in experts, each of which reads some of the tokens only"},
)

GEMMA2 = Family(
    "gemma2",
    ("gemma2", "gemma3_text"),
    (Stack("decoder", "", "layers", (_GEMMA2,), feed_forward=_GLU),),
    cut=_GROUPED,
    head_size="head_dim",
)


def _opt_order(layer: nn.Module) -> str:
    """The 350m model alone has its norms behind."""
    return "pre" if layer.do_layer_norm_before else "post"


_OPT = separate("self_attn", "q_proj k_proj v_proj", "self_attn.out_proj", "self_attn_layer_norm", order=_opt_order)

OPT = Family(
    "opt",
    ("opt",),
    (Stack("decoder", "decoder", "layers", (_OPT,), feed_forward=FeedForwardLayout(("fc1",), "fc2", "ffn_dim")),),
    cut=Cut(("q_proj", "k_proj", "v_proj"), "out_proj", ("num_heads",)),
)

# Attention and feed-forward read the same states side by side: no state is the sum with attention alone.
_GPT_NEOX = fused("attention", "query_key_value", "attention.dense", "input_layernorm", by_head=True, order="none")

GPT_NEOX = Family(
    "gpt_neox",
    ("gpt_neox",),
    (
        Stack(
            "decoder",
            "",
            "layers",
            (_GPT_NEOX,),
            feed_forward=FeedForwardLayout(("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h", "intermediate_size"),
        ),
    ),
    cut=Cut(("query_key_value",), "dense", (), parts=3, by_head=True),
)

_GPT_NEO = separate("attn.attention", "q_proj k_proj v_proj", "attn.attention.out_proj", "ln_1", order="pre")

_NEO_UNITS = FeedForwardLayout(("mlp.c_fc",), "mlp.c_proj", "intermediate_size")


def _neo_layers(config: PretrainedConfig, numbers: Sequence[int]) -> Mapping[str, object]:
    """Two kinds of layers alternate, and the config lists them twice."""
    kinds = [config.attention_layers[number] for number in numbers]
    return {"attention_types": [[kinds, 1]], "attention_layers": kinds}


GPT_NEO = Family(
    "gpt_neo",
    ("gpt_neo",),
    (
        Stack(
            "decoder",
            "",
            "h",
            (_GPT_NEO,),
            feed_forward=_NEO_UNITS,
            depth="num_layers",
            left=_neo_layers,
            returns=("weights",),
        ),
    ),
    heads=("num_heads",),
    shim=gpt_neo,
    cut=Cut(("q_proj", "k_proj", "v_proj"), "out_proj", ("num_heads",), ("embed_dim",), dropout="resid_dropout"),
)

_GPTJ = separate("attn", "q_proj k_proj v_proj", "attn.out_proj", "ln_1", order="none")

_GPTJ_UNITS = FeedForwardLayout(("mlp.fc_in",), "mlp.fc_out", "n_inner")

GPTJ = Family(
    "gptj",
    ("gptj",),
    (Stack("decoder", "", "h", (_GPTJ,), feed_forward=_GPTJ_UNITS, depth="n_layer", returns=("weights",)),),
    heads=("n_head", "num_attention_heads"),
    shim=gptj,
    cut=Cut(
        ("q_proj", "k_proj", "v_proj"), "out_proj", ("num_attention_heads",), ("embed_dim",), dropout="resid_dropout"
    ),
)


def _bloom_order(layer: nn.Module) -> str:
    """Some checkpoints add the output of the norm to the residual, not its input."""
    return "none" if layer.apply_residual_connection_post_layernorm else "pre"


_BLOOM = fused(
    "self_attention", "query_key_value", "self_attention.dense", "input_layernorm", by_head=True, order=_bloom_order
)

_H_TO_4H = FeedForwardLayout(("mlp.dense_h_to_4h",), "mlp.dense_4h_to_h", None)

BLOOM = Family(
    "bloom",
    ("bloom",),
    (Stack("decoder", "", "h", (_BLOOM,), feed_forward=_H_TO_4H, depth="n_layer", returns=("weights",)),),
    heads=("n_head", "num_attention_heads"),
    positions=Positions(names=()),
    shim=bloom,
    cut=Cut(
        ("query_key_value",),
        "dense",
        ("num_heads",),
        parts=3,
        by_head=True,
        returns="residual",
        shared_bias=(2, "alibi"),
    ),
)


def _falcon_order(layer: nn.Module) -> str:
    """7B and later run attention and feed-forward side by side; the RW models do not."""
    config: PretrainedConfig = layer.config
    return "none" if config.new_decoder_architecture or config.parallel_attn else "pre"


def _falcon_groups(config: PretrainedConfig) -> int:
    if config.new_decoder_architecture:
        return int(config.num_kv_heads)
    return 1 if config.multi_query else int(config.num_attention_heads)


def _twice(config: PretrainedConfig) -> str | None:
    if config.alibi and attention_name(config) == "eager":
        return "transformers' eager attention adds its slopes (alibi) twice; load it with attn_implementation='sdpa'"
    return None


_FALCON = fused(
    "self_attention", "query_key_value", "self_attention.dense", "input_layernorm", by_head=True, order=_falcon_order
)

FALCON = Family(
    "falcon",
    ("falcon",),
    (
        Stack(
            "decoder",
            "",
            "h",
            (_FALCON,),
            feed_forward=replace(_H_TO_4H, size="ffn_hidden_size"),
            returns=("weights",),
        ),
    ),
    groups=_falcon_groups,
    shim=falcon,
    refuses=_twice,
    stays={"heads": "one map holds the queries, the key and the value of each group"},
)

DECODERS = (
    GPT2, LLAMA, HELIUM, SMOLLM3, GRANITE, ARCEE, STARCODER2, GPT_OSS, GEMMA2, OPT, GPT_NEOX, GPT_NEO, GPTJ, BLOOM,
    FALCON,
)  # fmt: skip
