"""Stand-ins for the forward of attention modules that ignore transformers' attention interface.

Each is put on the module *instances* while a model is tapped and taken off again. They do what the module does, with
the softmax replaced by a call of `attend`.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache

from lorgnette.attending.attend import attend
from lorgnette.errors import CaptureError

Attention: TypeAlias = Any
"""an attention module of a family's own class, whose attributes no type knows"""


def _heads(projected: Tensor, dim: int) -> Tensor:
    return projected.unflatten(-1, (-1, dim)).transpose(1, 2)


def mpnet(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **_: object,
) -> tuple[Tensor, Tensor | None] | tuple[Tensor]:
    """MPNetSelfAttention: the relative position bias is added to the scaled scores."""
    dim = self.attention_head_size
    context, weights = attend(
        self,
        _heads(self.q(hidden_states), dim),
        _heads(self.k(hidden_states), dim),
        _heads(self.v(hidden_states), dim),
        attention_mask,
        dropout=self.dropout.p if self.training else 0.0,
        is_causal=False,
        position_bias=position_bias,
    )
    output = self.o(context.flatten(2))
    return (output, weights) if output_attentions else (output,)


def blip_vision(self: Attention, hidden_states: Tensor, **_: object) -> tuple[Tensor, Tensor | None]:
    """BlipAttention: patches of a picture, all of which see each other."""
    query, key, value = (_heads(part, self.head_dim) for part in self.qkv(hidden_states).chunk(3, dim=-1))
    dropout = self.dropout.p if self.training else 0.0
    context, weights = attend(self, query, key, value, None, scaling=self.scale, dropout=dropout, is_causal=False)
    return self.projection(context.flatten(2)), weights


def blip_text(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    encoder_attention_mask: Tensor | None = None,
    past_key_values: Cache | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """BlipTextSelfAttention: a token attends to the text, or to the patches of the picture."""
    crosses = encoder_hidden_states is not None
    kept = past_key_values
    if isinstance(past_key_values, EncoderDecoderCache):
        kept = past_key_values.cross_attention_cache if crosses else past_key_values.self_attention_cache
        if crosses and past_key_values.is_updated.get(self.layer_idx):  # the picture was read with the first token
            layer = kept.layers[self.layer_idx]
            return _blip_text(self, hidden_states, layer.keys, layer.values, encoder_attention_mask)
    states = hidden_states if encoder_hidden_states is None else encoder_hidden_states
    key, value = (_heads(project(states), self.attention_head_size) for project in (self.key, self.value))
    if kept is not None:
        key, value = kept.update(key, value, self.layer_idx)
        if crosses and isinstance(past_key_values, EncoderDecoderCache):
            past_key_values.is_updated[self.layer_idx] = True
    return _blip_text(self, hidden_states, key, value, encoder_attention_mask if crosses else attention_mask)


def _blip_text(
    self: Attention, states: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    context, weights = attend(
        self,
        _heads(self.query(states), self.attention_head_size),
        key,
        value,
        mask,
        dropout=self.dropout.p if self.training else 0.0,
        is_causal=False,
    )
    return context.flatten(2), weights


def wavlm(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    index: int = 0,
    **_: object,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """WavLMAttention: gates, computed from each query's state, scale the relative position bias of each head."""
    batch, tokens, _width = hidden_states.shape
    if position_bias is None:  # the first layer makes it for all
        position_bias = self.compute_bias(tokens, tokens).repeat(batch, 1, 1)
    gates = self.gru_rel_pos_linear(_heads(hidden_states, self.head_dim)).unflatten(-1, (2, 4)).sum(-1).sigmoid()
    first, second = gates.chunk(2, dim=-1)
    scale = first * (second * self.gru_rel_pos_const - 1.0) + 2.0  # [batch head query 1]
    context, weights = attend(
        self,
        _heads(self.q_proj(hidden_states), self.head_dim),
        _heads(self.k_proj(hidden_states), self.head_dim),
        _heads(self.v_proj(hidden_states), self.head_dim),
        None if attention_mask is None else attention_mask[:, None, None].eq(1),
        dropout=self.dropout if self.training else 0.0,
        is_causal=False,
        position_bias=scale * position_bias.unflatten(0, (batch, -1)),
    )
    return self.out_proj(context.flatten(2)), weights, position_bias


def deberta(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """DisentangledSelfAttention of DeBERTa v1: one map, with the biases of queries and values beside it."""
    if query_states is not None:
        raise CaptureError("DeBERTa with external queries (query_states) is not supported.")
    query, key, value = self.transpose_for_scores(self.in_proj(hidden_states)).chunk(3, dim=-1)
    query = query + self.transpose_for_scores(self.q_bias[None, None])
    value = value + self.transpose_for_scores(self.v_bias[None, None])
    factor = 1 + len(self.pos_att_type)
    # transformers takes this root in float32, whatever the model's precision
    root = float((torch.tensor(query.shape[-1], dtype=torch.float32) * factor).sqrt())
    bias = None
    if self.relative_attention and rel_embeddings is not None and relative_pos is not None:
        places = self.pos_dropout(rel_embeddings)
        bias = self.disentangled_att_bias(query / root, key, relative_pos, places, factor)
    context, weights = attend(
        self,
        query,
        key,
        value,
        attention_mask.bool(),
        scaling=1 / root,
        dropout=self.dropout.p if self.training else 0.0,
        is_causal=False,
        position_bias=bias if isinstance(bias, Tensor) else None,
    )
    return context.flatten(2), weights if output_attentions else None


def deberta_v2(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """DisentangledSelfAttention: content–position and position–content scores enter as a bias."""
    query_input = hidden_states if query_states is None else query_states
    heads = self.num_attention_heads
    query, key, value = (
        self.transpose_for_scores(project(states), heads)
        for project, states in (
            (self.query_proj, query_input),
            (self.key_proj, hidden_states),
            (self.value_proj, hidden_states),
        )
    )
    factor = 1 + ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
    bias = None
    if self.relative_attention:
        bias = self.disentangled_attention_bias(query, key, relative_pos, self.pos_dropout(rel_embeddings), factor)
        bias = bias.unflatten(0, (-1, heads)) if isinstance(bias, Tensor) else None
    query, key, value = (states.unflatten(0, (-1, heads)) for states in (query, key, value))
    context, weights = attend(
        self,
        query,
        key,
        value,
        attention_mask.bool(),
        # transformers takes this root in float32, whatever the model's precision
        scaling=1 / float(torch.tensor(query.shape[-1] * factor, dtype=torch.float32).sqrt()),
        dropout=self.dropout.p if self.training else 0.0,
        is_causal=False,
        position_bias=bias,
    )
    return context.flatten(2), weights if output_attentions else None


def _after(cache: Cache | None, key: Tensor, value: Tensor, layer: int) -> tuple[Tensor, Tensor]:
    """Keys and values with those that the cache kept."""
    return (key, value) if cache is None else cache.update(key, value, layer)


def gpt_neo(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    layer_past: Cache | None = None,
    output_attentions: bool = False,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """GPTNeoSelfAttention: scores are not scaled, and a buffer says which keys a local layer may see."""
    query, key, value = (
        _heads(project(hidden_states), self.head_dim) for project in (self.q_proj, self.k_proj, self.v_proj)
    )
    key, value = _after(layer_past, key, value, self.layer_id)
    queries, keys = query.shape[2], key.shape[2]
    allowed = self.bias[:, :, keys - queries : keys, :keys]
    if attention_mask is not None:
        known = attention_mask if attention_mask.dtype == torch.bool else attention_mask == 0
        allowed = allowed & known[..., :keys]
    dropout = self.attn_dropout.p if self.training else 0.0
    context, weights = attend(self, query, key, value, allowed, scaling=1.0, dropout=dropout, is_causal=False)
    return self.resid_dropout(self.out_proj(context.flatten(2))), weights


def gptj(self: Attention, *arguments: object, **keywords: object) -> tuple[Tensor, Tensor | None]:
    """GPTJAttention: everything but the softmax is its own; positions are rotated before."""

    def attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        dropout = self.attn_dropout.p if self.training else 0.0
        scale = 1.0 / float(self.scale_attn)
        context, weights = attend(self, query, key, value, mask, scaling=scale, dropout=dropout, is_causal=True)
        return context.transpose(1, 2), weights

    self.__dict__["_attn"] = attended
    try:
        return type(self).forward(self, *arguments, **keywords)
    finally:
        del self.__dict__["_attn"]


def bloom(
    self: Attention,
    hidden_states: Tensor,
    residual: Tensor,
    alibi: Tensor,
    attention_mask: Tensor | None,
    layer_past: Cache | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """BloomAttention: a slope for each head is added to the scaled scores; the residual comes in here."""
    if self.pretraining_tp > 1 and self.slow_but_exact:
        raise CaptureError("BLOOM with slow_but_exact sums its output in parts: set it to false in config.json.")
    query, key, value = self._reshape(self.query_key_value(hidden_states))
    key, value = _after(layer_past, key, value, self.layer_idx)
    context, weights = attend(
        self,
        query,
        key,
        value,
        attention_mask,
        scaling=self.inv_norm_factor,
        dropout=self.attention_dropout.p if self.training else 0.0,
        is_causal=True,
        position_bias=alibi.unflatten(0, (len(hidden_states), -1)),
    )
    output = torch.nn.functional.dropout(self.dense(context.flatten(2)), self.hidden_dropout, self.training)
    return output + residual, weights


def bert(
    self: Attention,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    sinusoidal_pos: Tensor | None = None,
    encoder_hidden_states: Tensor | None = None,
    past_key_values: Cache | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """Copies of BERT's self-attention: BigBird's (full), RemBERT's, Megatron's, and RoFormer's, which rotates.

    All are called with keywords but for the first three.
    """
    if getattr(self, "rotary_value", False) or encoder_hidden_states is not None or past_key_values is not None:
        raise CaptureError(
            f"{type(self).__name__} is supported only as an encoder with its own queries and keys, without rotated "
            "values (rotary_value), a cache or cross-attention."
        )
    dim = self.attention_head_size
    query, key, value = (_heads(project(hidden_states), dim) for project in (self.query, self.key, self.value))
    if sinusoidal_pos is not None:
        query, key = self.apply_rotary_position_embeddings(sinusoidal_pos, query, key)
    dropout = self.dropout.p if self.training else 0.0
    context, weights = attend(self, query, key, value, attention_mask, dropout=dropout, is_causal=False)
    return context.flatten(2), weights


def luke(
    self: Attention,
    word_hidden_states: Tensor,
    entity_hidden_states: Tensor | None,
    attention_mask: Tensor | None = None,
    output_attentions: bool = False,
) -> tuple[Tensor | None, ...]:
    """LukeSelfAttention on words: BERT's. Entities are asked about with other queries, in the same softmax."""
    if entity_hidden_states is not None:
        raise CaptureError(
            "LUKE is supported on words only: attention to entities uses other queries in the same softmax. Leave "
            "entity_ids out."
        )
    context, weights = bert(self, word_hidden_states, attention_mask)
    return (context, None, weights) if output_attentions else (context, None)


def falcon(
    self: Attention,
    hidden_states: Tensor,
    alibi: Tensor | None,
    attention_mask: Tensor | None,
    position_ids: Tensor | None = None,
    layer_past: Cache | None = None,
    position_embeddings: tuple[Tensor, Tensor] | None = None,
    **_: object,
) -> tuple[Tensor, Tensor | None]:
    """FalconAttention: one map gives a group's queries, its key and its value; slopes (alibi) come in the mask."""
    from transformers.models.falcon.modeling_falcon import apply_rotary_pos_emb

    query, key, value = (part.transpose(1, 2) for part in self._split_heads(self.query_key_value(hidden_states)))
    if alibi is None and position_embeddings is not None:
        query, key = apply_rotary_pos_emb(query, key, *position_embeddings)
    key, value = _after(layer_past, key, value, self.layer_idx)
    dropout = self.attention_dropout.p if self.training and alibi is not None else 0.0  # with rotations there is none
    context, weights = attend(
        self, query, key, value, attention_mask, scaling=self.inv_norm_factor, dropout=dropout, is_causal=True
    )
    return self.dense(context.flatten(2)), weights
