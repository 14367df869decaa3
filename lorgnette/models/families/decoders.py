"""Decoders: GPT-2, and Llama with what was built on it."""

from lorgnette.models.families.record import Cut, Family, Stack, fused, separate

GPT2 = Family(
    "gpt2",
    ("gpt2",),
    (Stack("decoder", "", "h", (fused("attn", "c_attn", "attn.c_proj", "ln_1", order="pre"),)),),
    heads=("n_head", "num_attention_heads"),
    cut=Cut(("c_attn",), "c_proj", ("num_heads",), ("split_size",), parts=3, dropout="resid_dropout"),
)

_LLAMA = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="pre")
_GEMMA2 = separate("self_attn", "q_proj k_proj v_proj", "self_attn.o_proj", "input_layernorm", order="sandwich")

LLAMA = Family(
    "llama",
    ("llama", "qwen2", "qwen3", "mistral", "gemma", "gpt_oss"),
    (Stack("decoder", "", "layers", (_LLAMA,)),),
)

GEMMA2 = Family("gemma2", ("gemma2", "gemma3_text"), (Stack("decoder", "", "layers", (_GEMMA2,)),))

DECODERS = (GPT2, LLAMA, GEMMA2)
