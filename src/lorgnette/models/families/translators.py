"""Encoder–decoder models."""

from dataclasses import replace

from lorgnette.models.families.record import Cut, Family, Positions, Stack, separate

_SELF = separate(
    "self_attn",
    "q_proj k_proj v_proj",
    "self_attn.out_proj",
    "self_attn_layer_norm",
    second_norm="final_layer_norm",
)
_CROSS = separate(
    "encoder_attn",
    "q_proj k_proj v_proj",
    "encoder_attn.out_proj",
    "encoder_attn_layer_norm",
    kind="cross",
)

MARIAN = Family(
    "marian",
    ("marian",),
    (
        Stack("encoder", "encoder", "layers", (_SELF,), heads=("encoder_attention_heads", "num_attention_heads")),
        Stack(
            "decoder",
            "decoder",
            "layers",
            (replace(_SELF, second_norm=None), _CROSS),
            heads=("decoder_attention_heads",),
        ),
    ),
    cut=Cut(("q_proj", "k_proj", "v_proj"), "out_proj", ("num_heads",)),
)

_T5_SELF = separate("layer.0.SelfAttention", "q k v", "layer.0.SelfAttention.o", "layer.0.layer_norm", order="pre")
_T5_CROSS = separate(
    "layer.1.EncDecAttention", "q k v", "layer.1.EncDecAttention.o", "layer.1.layer_norm", order="pre", kind="cross"
)

T5 = Family(
    "t5",
    ("t5",),
    (
        Stack("encoder", "encoder", "block", (_T5_SELF,)),
        Stack("decoder", "decoder", "block", (_T5_SELF, _T5_CROSS)),
    ),
    heads=("num_heads", "num_attention_heads"),
    positions=Positions(names=()),  # relative: n_positions is what it was trained with, not what it takes
)

TRANSLATORS = (MARIAN, T5)
