"""Tiny random models of every text architecture that transformers knows, from its own table of configs."""

from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_MAPPING, MODEL_MAPPING_NAMES

from tiny.models import peaked

WIDTH, HEADS, GROUPS, DIM, LAYERS, WORDS = 32, 4, 2, 8, 2, 97


def _same(size: int, names: str) -> dict[str, int]:
    return dict.fromkeys(names.split(), size)


SMALL: dict[str, Any] = {
    **_same(
        WIDTH,
        "hidden_size d_model n_embd dim emb_dim embed_dim model_dim embedding_size word_embed_proj_dim "
        "lstm_hidden_size d_embed embedding_dim",
    ),
    **_same(
        LAYERS,
        "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
        "num_encoder_layers num_hidden_groups text_encoder_layers",
    ),
    **_same(
        HEADS,
        "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
        "num_encoder_attention_heads num_decoder_attention_heads index_n_heads",
    ),
    **_same(
        GROUPS,
        "num_key_value_heads num_kv_heads n_head_kv multi_query_group_num",
    ),
    **_same(
        DIM,
        "head_dim d_kv d_head kv_channels v_head_dim index_head_dim attention_head_dim",
    ),
    **_same(
        48,
        "intermediate_size ffn_dim d_ff n_inner encoder_ffn_dim decoder_ffn_dim hidden_dim "
        "ffn_hidden_size d_inner dense_ffn_hidden_size mlp_hidden_size feed_forward_proj_dim num_ff",
    ),
    **_same(
        16,
        "moe_intermediate_size expert_intermediate_size shared_expert_intermediate_size "
        "expert_ffn_hidden_size shared_intermediate_size moe_ffn_hidden_size expert_ffn_dim",
    ),
    **_same(
        4,
        "num_experts num_local_experts n_routed_experts moe_num_experts ffn_num_experts "
        "num_routed_experts qk_rope_head_dim qk_nope_head_dim",
    ),
    **_same(
        2,
        "num_experts_per_tok moe_topk moe_k top_k_experts num_selected_experts",
    ),
    **_same(
        1,
        "n_group topk_group moe_num_shared_experts n_shared_experts num_shared_experts",
    ),
    **_same(
        64,
        "max_position_embeddings n_positions max_target_positions max_source_positions max_seq_len",
    ),
    **_same(
        5,
        "sliding_window window_size local_attention attention_window_size",
    ),
    **_same(
        8,
        "kv_lora_rank q_lora_rank mamba_d_state state_size ssm_state_size",
    ),
    "vocab_size": WORDS,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "mask_token_id": 4,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": 1,
    "forced_bos_token_id": None,
    "type_vocab_size": 2,
    "vocab_size_per_layer_input": WORDS,
    "hidden_size_per_layer_input": 8,
    "mamba_n_heads": 4,
    "mamba_d_head": 16,
    "mamba_n_groups": 1,
    "mamba_num_heads": 4,
    "mamba_head_dim": 16,
    "n_mamba_heads": 1,
    "mamba_headdim": 16,
    "mamba_dt_rank": 4,
    "time_step_rank": 4,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "index_topk": 4,
}
"""What configs call their sizes, and small ones."""

_MROPE = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}
_HALF = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.5}
_FULL = {"full_attention": {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5}}
_HYBRID = {
    "num_hidden_layers": 3, "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
    "num_key_value_heads": HEADS, "attention_head_dim": 16,
}  # fmt: skip
_ALTERNATE = {"layer_types": ["linear_attention", "full_attention"]}

SPECIAL: dict[str, dict[str, Any]] = {
    "qwen2_vl_text": {"rope_parameters": _MROPE},
    "qwen2_5_vl_text": {"rope_parameters": _MROPE},
    "glm4v_text": {"rope_parameters": _MROPE},
    "glm_image_text": {"rope_parameters": _MROPE},
    "glm_ocr_text": {"rope_parameters": _MROPE},
    "glm4v_moe_text": {"rope_parameters": _HALF},
    "qwen3_next": _ALTERNATE,
    "qwen3_5_text": _ALTERNATE,
    "qwen3_5_moe_text": _ALTERNATE,
    "granitemoehybrid": _ALTERNATE,
    "bailing_hybrid": _ALTERNATE,
    "qwen4_exp_text": {"layer_types": ["linear_attention", "indexed_attention"]},
    "kimi_linear": {**_ALTERNATE, "num_experts": 4, "num_experts_per_token": 2, "num_key_value_heads": HEADS},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "bamba": {"attn_layer_indices": [1]},
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
    "nemotron": {"num_key_value_heads": HEADS},
    "nemotron_h": {"layers_block_type": ["mamba", "attention"], "n_groups": 2},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "falcon": {"new_decoder_architecture": True},
    "big_bird": {"attention_type": "original_full"},
    "cohere_compass_text": {"rope_parameters": {"full_attention": _MROPE}},
    "cosmos3_edge_text": {"rope_parameters": _MROPE},
    "esmc": {"num_key_value_heads": HEADS},
    "falcon_h1": {"mamba_d_ssm": 64},
    "glm5_next_text": {**_ALTERNATE, "index_kpool": 2, "qk_rope_head_dim": 0},
    "mamba2": {"head_dim": 16},
    "neomme": {"layer_types": ["full_attention"] * LAYERS, "rope_parameters": _FULL},
    "reformer": {"axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 8]},
    "zamba": _HYBRID,
    "zamba2": {**_HYBRID, "n_mamba_heads": 4},
    "zaya": {"num_experts_per_tok": 1},
    "gemma3n_text": {"layer_types": ["sliding_attention", "full_attention"], "num_kv_shared_layers": 0},
}  # fmt: skip
"""What some families need besides."""


def text_types() -> tuple[str, ...]:
    """The model types whose plain model takes token ids and nothing else that must be there."""
    found = []
    for kind in sorted(MODEL_MAPPING_NAMES):
        if kind not in CONFIG_MAPPING or kind.startswith("lorgnette"):
            continue
        try:
            takes = model_class(kind).main_input_name
        except (ImportError, RuntimeError, AttributeError, ValueError):  # needs a package that is not here
            continue
        config = CONFIG_MAPPING[kind]
        if takes == "input_ids" and not config.sub_configs and "vocab_size" in _names(config):
            found.append(kind)
    return tuple(found)


def model_class(kind: str) -> Any:
    known = MODEL_MAPPING[CONFIG_MAPPING[kind]]
    return known[0] if isinstance(known, tuple) else known


def _names(made: Any) -> set[str]:
    return {*made().to_dict(), *made.attribute_map.values(), *made.attribute_map}


def tiny_config(kind: str, **more: Any) -> Any:
    """The family's config with small numbers in the place of its own."""
    made = CONFIG_MAPPING[kind]
    own = made().to_dict()
    names = {*own, *made.attribute_map.values()} - set(made.attribute_map)
    changed = {name: size for name, size in SMALL.items() if name in names and not isinstance(own.get(name), bool)}
    if own.get("num_key_value_heads", 0) is None:
        changed.pop("num_key_value_heads", None)
    if "kv_lora_rank" in names:  # heads are made from a latent vector: each has its own key, as wide as it says
        changed |= {"num_key_value_heads": HEADS}
        changed.pop("head_dim", None)
    config = made(**{**changed, **SPECIAL.get(kind, {}), **more})
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0  # checkpoints have it, the class of the config need not
    return config


def model_of_type(kind: str, seed: int = 0, **more: Any) -> Any:
    torch.manual_seed(seed)
    return peaked(model_class(kind)(tiny_config(kind, **more)).eval())
