"""Encoder–decoder models."""

from dataclasses import replace

from lorgnette.models.families.record import Cut, Family, FeedForwardLayout, Positions, Stack, separate
from lorgnette.types import Json

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
        Stack(
            "encoder",
            "encoder",
            "layers",
            (_SELF,),
            heads=("encoder_attention_heads", "num_attention_heads"),
            feed_forward=FeedForwardLayout(("fc1",), "fc2", "encoder_ffn_dim"),
            depth="encoder_layers",
        ),
        Stack(
            "decoder",
            "decoder",
            "layers",
            (replace(_SELF, second_norm=None), _CROSS),
            heads=("decoder_attention_heads",),
            feed_forward=FeedForwardLayout(("fc1",), "fc2", "decoder_ffn_dim"),
            depth="decoder_layers",
        ),
    ),
    cut=Cut(("q_proj", "k_proj", "v_proj"), "out_proj", ("num_heads",)),
)

BART = replace(MARIAN, name="bart", model_types=("bart",))

_T5_SELF = separate("layer.0.SelfAttention", "q k v", "layer.0.SelfAttention.o", "layer.0.layer_norm", order="pre")
_T5_CROSS = separate(
    "layer.1.EncDecAttention", "q k v", "layer.1.EncDecAttention.o", "layer.1.layer_norm", order="pre", kind="cross"
)

# Gated ones (v1.1) have two maps; a path that is not there is left out.
_T5_UNITS = [
    FeedForwardLayout(tuple(f"layer.{n}.DenseReluDense.{name}" for name in ("wi", "wi_0", "wi_1")),
                f"layer.{n}.DenseReluDense.wo", "d_ff")
    for n in (1, 2)
]  # fmt: skip
# The first layer computes the position biases of all.
_T5_LAYERS: Json = {"returns": ("position_bias", "encoder_decoder_position_bias"), "first_stays": True}

T5 = Family(
    "t5",
    ("t5", "mt5"),
    (
        Stack("encoder", "encoder", "block", (_T5_SELF,), feed_forward=_T5_UNITS[0], depth="num_layers", **_T5_LAYERS),
        Stack(
            "decoder",
            "decoder",
            "block",
            (_T5_SELF, _T5_CROSS),
            feed_forward=_T5_UNITS[1],
            depth="num_decoder_layers",
            **_T5_LAYERS,
        ),
    ),
    heads=("num_heads", "num_attention_heads"),
    positions=Positions(names=()),  # relative: n_positions is what it was trained with, not what it takes
    cut=Cut(("q", "k", "v"), "o", ("n_heads",), ("inner_dim",), returns="biased", shared_bias=(3, "position_bias")),
)

TRANSLATORS = (MARIAN, BART, T5)
