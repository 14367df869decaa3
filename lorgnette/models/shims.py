"""Stand-ins for the forward of attention modules that ignore transformers' attention interface.

Each is put on the module *instances* while a model is tapped and taken off again. They do what the module does, with
the softmax replaced by a call of `attend`.
"""

from typing import Any

import torch
from torch import Tensor

from lorgnette.attending.attend import attend


def _heads(projected: Tensor, dim: int) -> Tensor:
    return projected.unflatten(-1, (-1, dim)).transpose(1, 2)


def mpnet(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool = False,
    **_: Any,
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


def deberta_v2(
    self: Any,
    hidden_states: Tensor,
    attention_mask: Tensor,
    output_attentions: bool = False,
    query_states: Tensor | None = None,
    relative_pos: Tensor | None = None,
    rel_embeddings: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """DisentangledSelfAttention: content–position and position–content scores enter as a bias."""
    asking = hidden_states if query_states is None else query_states
    heads = self.num_attention_heads
    query, key, value = (
        self.transpose_for_scores(project(states), heads)
        for project, states in (
            (self.query_proj, asking),
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
