"""Encoders: BERT and what was built on it or after it."""

from dataclasses import replace
from typing import Any

from torch import nn

from lorgnette.models.families.record import Cut, Family, FeedForwardLayout, Positions, Stack, fused, separate
from lorgnette.models.shims import bert, blip_text, blip_vision, deberta, deberta_v2, luke, mpnet, wavlm
from lorgnette.types import PretrainedConfig


def _albert_layers(transformer: Any) -> list[nn.Module]:
    """ALBERT runs the same modules again and again; its passes are unrolled here as its forward does."""
    config = transformer.config
    per_group = config.num_hidden_layers / config.num_hidden_groups
    order = [transformer.albert_layer_groups[int(i / per_group)] for i in range(config.num_hidden_layers)]
    return [layer for group in order for layer in group.albert_layers]


_BERT = separate(
    "attention.self",
    "query key value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    second_norm="output.LayerNorm",
)

_BERT_UNITS = FeedForwardLayout(("intermediate.dense",), "output.dense", "intermediate_size")

BERT = Family(
    "bert",
    ("bert", "electra", "ernie"),
    (Stack("encoder", "encoder", "layer", (_BERT,), feed_forward=_BERT_UNITS),),
    cut=Cut(("query", "key", "value"), None, ("num_attention_heads",), ("all_head_size",)),
)

ROBERTA = replace(
    BERT,
    name="roberta",
    model_types=("roberta", "xlm-roberta", "camembert", "data2vec-text"),
    positions=Positions(after_padding=True),
)

ALBERT = Family(
    "albert",
    ("albert",),
    (
        Stack(
            "encoder",
            "encoder",
            _albert_layers,
            (
                separate(
                    "attention",
                    "query key value",
                    "attention.dense",
                    "attention.LayerNorm",
                    second_norm="full_layer_layer_norm",
                ),
            ),
            feed_forward=FeedForwardLayout(("ffn",), "ffn_output", "intermediate_size"),
            depth=None,
        ),
    ),
    cut=Cut(
        ("query", "key", "value"),
        "dense",
        ("num_attention_heads",),
        ("all_head_size",),
        dropout="output_dropout",
        norm="LayerNorm",
    ),
    stays={"layers": "it runs the same layer again and again"},
)

DISTILBERT = Family(
    "distilbert",
    ("distilbert",),
    (
        Stack(
            "encoder",
            "transformer",
            "layer",
            (
                separate(
                    "attention",
                    "q_lin k_lin v_lin",
                    "attention.out_lin",
                    "sa_layer_norm",
                    second_norm="output_layer_norm",
                ),
            ),
            feed_forward=FeedForwardLayout(("ffn.lin1",), "ffn.lin2", "hidden_dim"),
            depth="n_layers",
        ),
    ),
    heads=("n_heads", "num_attention_heads"),
    cut=Cut(("q_lin", "k_lin", "v_lin"), "out_lin", ("n_heads",)),
)

MODERNBERT = Family(
    "modernbert",
    ("modernbert",),
    (
        Stack(
            "encoder",
            "",
            "layers",
            (fused("attn", "Wqkv", "attn.Wo", "attn_norm", order="pre"),),
            feed_forward=FeedForwardLayout(("mlp.Wi",), "mlp.Wo", "intermediate_size", parts=2),
            first_stays=True,
        ),
    ),
    cut=Cut(("Wqkv",), "Wo", (), parts=3, dropout="out_drop"),
)

MPNET = Family(
    "mpnet",
    ("mpnet",),
    (
        Stack(
            "encoder",
            "encoder",
            "layer",
            (
                separate(
                    "attention.attn",
                    "q k v",
                    "attention.attn.o",
                    "attention.LayerNorm",
                    second_norm="output.LayerNorm",
                ),
            ),
            feed_forward=_BERT_UNITS,
            returns=(),
        ),
    ),
    positions=Positions(after_padding=True),
    shim=mpnet,
    cut=Cut(
        ("q", "k", "v"),
        "o",
        ("num_attention_heads",),
        ("all_head_size",),
        returns="tuple",
        shared_bias=(2, "position_bias"),
    ),
)

_WAVLM = separate(
    "attention",
    "q_proj k_proj v_proj",
    "attention.out_proj",
    "layer_norm",
    second_norm="final_layer_norm",
    order=lambda layer: "pre" if type(layer).__name__.endswith("StableLayerNorm") else "post",
)

WAVLM = Family("wavlm", ("wavlm",), (Stack("encoder", "encoder", "layers", (_WAVLM,)),), shim=wavlm)

DEBERTA_V2 = Family(
    "deberta-v2",
    ("deberta-v2",),
    (
        Stack(
            "encoder",
            "encoder",
            "layer",
            (
                separate(
                    "attention.self",
                    "query_proj key_proj value_proj",
                    "attention.output.dense",
                    "attention.output.LayerNorm",
                    second_norm="output.LayerNorm",
                ),
            ),
            feed_forward=_BERT_UNITS,
            returns=("weights",),
        ),
    ),
    shim=deberta_v2,
    cut=Cut(
        ("query_proj", "key_proj", "value_proj"),
        None,
        ("num_attention_heads",),
        ("all_head_size",),
        also=("pos_key_proj", "pos_query_proj"),
    ),
)


def _talks(config: PretrainedConfig) -> str | None:
    talks = getattr(config, "talking_head", False)
    return "its heads are mixed before and after the softmax (talking_head)" if talks else None


DEBERTA = replace(
    DEBERTA_V2,
    name="deberta",
    model_types=("deberta",),
    stacks=(
        Stack(
            "encoder",
            "encoder",
            "layer",
            (
                fused(
                    "attention.self",
                    "in_proj",
                    "attention.output.dense",
                    "attention.output.LayerNorm",
                    by_head=True,
                    biases=("q_bias", None, "v_bias"),
                    second_norm="output.LayerNorm",
                ),
            ),
            feed_forward=_BERT_UNITS,
            returns=("weights",),
        ),
    ),
    shim=deberta,
    refuses=_talks,
    cut=Cut(
        ("in_proj",),
        None,
        ("num_attention_heads",),
        ("all_head_size",),
        parts=3,
        by_head=True,
        per_output=("q_bias", "v_bias"),
        also=("pos_proj", "pos_q_proj"),
    ),
)

ROFORMER = replace(
    BERT,
    name="roformer",
    model_types=("roformer", "rembert"),
    stacks=(replace(BERT.stacks[0], returns=("weights",)),),
    shim=bert,
)


def _sparse(config: PretrainedConfig) -> str | None:
    if config.attention_type == "original_full":
        return None
    return (
        "its block-sparse attention samples blocks at random and computes them in parts that are not a softmax over a "
        'row; set "attention_type": "original_full" in config.json, which transformers itself uses for short texts'
    )


BIG_BIRD = replace(ROFORMER, name="big_bird", model_types=("big_bird",), stacks=BERT.stacks, refuses=_sparse)

LUKE = replace(
    BERT,
    name="luke",
    model_types=("luke",),
    stacks=(replace(BERT.stacks[0], returns=("entity_hidden_states",)),),
    positions=Positions(after_padding=True),
    cut=Cut(
        ("query", "key", "value"),
        None,
        ("num_attention_heads",),
        ("all_head_size",),
        also=("w2e_query", "e2w_query", "e2e_query"),
        returns="entities",
    ),
    shim=luke,
)

_MEGATRON = separate("attention.self", "query key value", "attention.output.dense", "attention.ln", order="pre")

MEGATRON = replace(
    ROFORMER,
    name="megatron-bert",
    model_types=("megatron-bert",),
    stacks=(replace(ROFORMER.stacks[0], attentions=(_MEGATRON,)),),
)

BLIP = Family(
    "blip",
    ("blip", "blip_text_model", "blip_vision_model"),
    (),
    stand_ins={"BlipAttention": blip_vision, "BlipTextSelfAttention": blip_text},
)
"""With BlipModel's contrastive pair of towers, its captioner and its retriever: running it says which it is."""

_VIT = separate("attention", "q_proj k_proj v_proj", "attention.o_proj", "layernorm_before", order="pre")

VIT = Family(
    "vit",
    ("vit",),
    (
        Stack(
            "encoder",
            "",
            "layers",
            (_VIT,),
            feed_forward=FeedForwardLayout(("mlp.fc1",), "mlp.fc2", "intermediate_size"),
        ),
    ),
    cut=Cut(("q_proj", "k_proj", "v_proj"), "o_proj", ("num_attention_heads",)),
    head_size="head_dim",
    reads="pictures",
)

ENCODERS = (
    BERT, ROBERTA, ROFORMER, BIG_BIRD, LUKE, MEGATRON, ALBERT, DISTILBERT, MODERNBERT, MPNET, WAVLM, DEBERTA,
    DEBERTA_V2, BLIP, VIT,
)  # fmt: skip
