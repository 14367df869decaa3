"""Decoders: GPT-2, OPT, GPT-NeoX, GPT-Neo, GPT-J, BLOOM, Falcon, and Llama with what was built on it."""

from dataclasses import replace

from torch import nn

from lorgnette.models.families.record import Cut, Family, Positions, Stack, fused, separate
from lorgnette.models.shims import bloom, falcon, gpt_neo, gptj
from lorgnette.types import PretrainedConfig

GPT2 = Family(
    "gpt2",
    ("gpt2",),
    (Stack("decoder", "", "h", (fused("attn", "c_attn", "attn.c_proj", "ln_1", order="pre"),)),),
    heads=("n_head", "num_attention_heads"),
    cut=Cut(("c_attn",), "c_proj", ("num_heads",), ("split_size",), parts=3, dropout="resid_dropout"),
)

_LLAMA = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="pre")
_GEMMA2 = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="sandwich")

_GROUPED = Cut(("q_proj",), "o_proj", (), grouped=("k_proj", "v_proj"))

LLAMA = Family(
    "llama",
    ("llama", "qwen2", "qwen3", "mistral", "gemma"),
    (Stack("decoder", "", "layers", (_LLAMA,)),),
    cut=_GROUPED,
)

GPT_OSS = replace(LLAMA, name="gpt_oss", model_types=("gpt_oss",), cut=replace(_GROUPED, per_head=("sinks",)))

GEMMA2 = Family("gemma2", ("gemma2", "gemma3_text"), (Stack("decoder", "", "layers", (_GEMMA2,)),), cut=_GROUPED)


def _opt_order(layer: nn.Module) -> str:
    """The 350m model alone has its norms behind."""
    return "pre" if layer.do_layer_norm_before else "post"


_OPT = separate("self_attn", "q_proj k_proj v_proj", "self_attn.out_proj", "self_attn_layer_norm", order=_opt_order)

OPT = Family(
    "opt",
    ("opt",),
    (Stack("decoder", "decoder", "layers", (_OPT,)),),
    cut=Cut(("q_proj", "k_proj", "v_proj"), "out_proj", ("num_heads",)),
)

# Attention and feed-forward read the same states side by side: no state is the sum with attention alone.
_GPT_NEOX = fused("attention", "query_key_value", "attention.dense", "input_layernorm", by_head=True, order="none")

GPT_NEOX = Family(
    "gpt_neox",
    ("gpt_neox",),
    (Stack("decoder", "", "layers", (_GPT_NEOX,)),),
    cut=Cut(("query_key_value",), "dense", (), parts=3, by_head=True),
)

_GPT_NEO = separate("attn.attention", "q_proj k_proj v_proj", "attn.attention.out_proj", "ln_1", order="pre")

GPT_NEO = Family("gpt_neo", ("gpt_neo",), (Stack("decoder", "", "h", (_GPT_NEO,)),), heads=("num_heads",), shim=gpt_neo)

_GPTJ = separate("attn", "q_proj k_proj v_proj", "attn.out_proj", "ln_1", order="none")

GPTJ = Family(
    "gptj", ("gptj",), (Stack("decoder", "", "h", (_GPTJ,)),), heads=("n_head", "num_attention_heads"), shim=gptj
)


def _bloom_order(layer: nn.Module) -> str:
    """Some checkpoints add what the norm gave, not what it was given."""
    return "none" if layer.apply_residual_connection_post_layernorm else "pre"


_BLOOM = fused(
    "self_attention", "query_key_value", "self_attention.dense", "input_layernorm", by_head=True, order=_bloom_order
)

BLOOM = Family(
    "bloom",
    ("bloom",),
    (Stack("decoder", "", "h", (_BLOOM,)),),
    heads=("n_head", "num_attention_heads"),
    positions=Positions(names=()),
    shim=bloom,
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
    if config.alibi and config._attn_implementation == "eager":
        return "transformers' eager attention adds its slopes (alibi) twice; load it with attn_implementation='sdpa'"
    return None


_FALCON = fused(
    "self_attention", "query_key_value", "self_attention.dense", "input_layernorm", by_head=True, order=_falcon_order
)

FALCON = Family(
    "falcon",
    ("falcon",),
    (Stack("decoder", "", "h", (_FALCON,)),),
    groups=_falcon_groups,
    shim=falcon,
    refuses=_twice,
)

DECODERS = (GPT2, LLAMA, GPT_OSS, GEMMA2, OPT, GPT_NEOX, GPT_NEO, GPTJ, BLOOM, FALCON)
