"""From one vector per token to one vector per text: mean, CLS, and the attention baselines of TP 8 and Nguyen 2022.

The three attention poolers are attention with a single query row: they call `attend` from `pooler.attention`, as cross
attention (the query is no token of the text), so that a lens can look at them like at any other site.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lorgnette.attending.attend import attend
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig


def masked_mean(
    states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
) -> Float[Tensor, "batch width"]:
    """Σ_i m_i x_i / Σ_i m_i: the mean over the real tokens of each text. Every text must have one."""
    weights = mask.to(states.dtype) / mask.sum(dim=-1, keepdim=True)
    return torch.bmm(weights.to(states.dtype)[:, None], states)[:, 0]


class Pooler(nn.Module):
    """States [batch token width] and the mask of real tokens in, one vector of `output_width` per text out."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__()
        self.output_width: int = config.width


class MeanPooler(Pooler):
    """The mean of the last states over real tokens; without layers, TP 8's mean of embeddings."""

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch width"]:
        return masked_mean(states, mask)


class ClsPooler(Pooler):
    """The last state of the first token, <cls> (TP 9, exercise 4)."""

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch width"]:
        return states[:, 0]


class IdentityMap(nn.Module):
    """The identity, with the `weight` and `bias` of a Linear for code that reads the map."""

    bias = None
    like: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.register_buffer("like", torch.empty(0), persistent=False)  # follows the model's device and precision

    @property
    def weight(self) -> Float[Tensor, "width width"]:
        return torch.eye(self.width, dtype=self.like.dtype, device=self.like.device)

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return states


class PoolingAttention(nn.Module):
    """One query over the tokens: Σ_j softmax_j(scale · q·k(x_j)) v(x_j), one head; maps not named are the identity."""

    is_causal = False
    is_cross_attention = True
    layer_idx = 0
    heads = 1

    def __init__(
        self, config: SelfAttentionClassifierConfig, width: int, maps: tuple[str, ...], scaling: float
    ) -> None:
        super().__init__()
        self.config = config
        self.scaling = scaling
        self.query: nn.Linear | IdentityMap = nn.Linear(width, width) if "query" in maps else IdentityMap(width)
        self.key: nn.Linear | IdentityMap = nn.Linear(width, width) if "key" in maps else IdentityMap(width)
        self.value: nn.Linear | IdentityMap = nn.Linear(width, width) if "value" in maps else IdentityMap(width)
        self.output: nn.Linear | None = nn.Linear(width, width) if "output" in maps else None

    def forward(
        self,
        reader: Float[Tensor, "batch width"],
        states: Float[Tensor, "batch token width"],
        mask: Bool[Tensor, "batch token"],
    ) -> Float[Tensor, "batch width"]:
        context, _ = attend(
            self,
            self.query(reader)[:, None, None],
            self.key(states)[:, None],
            self.value(states)[:, None],
            mask[:, None, None],
            scaling=self.scaling,
            dropout=self.config.attention_dropout if self.training else 0.0,
        )
        pooled = context[:, 0, 0]
        return pooled if self.output is None else self.output(pooled)


class AttentionPooler(Pooler):
    """Σ_j α_j x_j with α = softmax_j(q·x_j), q one learnt vector for all texts (TP 8; not scaled by 1/√d)."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.query: nn.Parameter = nn.Parameter(torch.empty(config.width))
        self.attention: PoolingAttention = PoolingAttention(config, config.width, maps=(), scaling=1.0)

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch width"]:
        return self.attention(self.query.expand(len(states), -1), states, mask)


class QueryPooler(Pooler):
    """Σ_j α_j v(x_j) with α = softmax_j(q(x̄)·x_j), x̄ the mean of the text, q and v linear (TP 8; not scaled)."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.attention: PoolingAttention = PoolingAttention(config, config.width, maps=("query", "value"), scaling=1.0)

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch width"]:
        return self.attention(masked_mean(states, mask), states, mask)


class BiLstmAttentionPooler(Pooler):
    """ReLU(Linear(context)): the final state of a BiLSTM is the query, its states the keys (Nguyen et al. 2022).

    h = BiLSTM(x); the query is [h→_n; h←_1] of the last layer; one head with q, k, v and output maps, scaled 1/√(2h).
    Padding is packed away, so the backward direction starts at the last real token (the released code runs over the
    padding). `concatenate_state` classifies from [context; final state], the default of the released code: the state
    then bypasses attention.
    """

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.output_width: int = 2 * config.lstm_width
        self.concatenate_state: bool = config.concatenate_state
        self.lstm: nn.LSTM = nn.LSTM(
            config.width,
            config.lstm_width,
            num_layers=config.lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.lstm_layers > 1 else 0.0,
        )
        self.attention: PoolingAttention = PoolingAttention(
            config, self.output_width, maps=("query", "key", "value", "output"), scaling=self.output_width**-0.5
        )
        self.linear: nn.Linear = nn.Linear(self.output_width * (1 + self.concatenate_state), self.output_width)

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch token"]
    ) -> Float[Tensor, "batch pooled"]:
        # Up to the last real token: a mask with holes (a part-of-speech filter) is for attention, the LSTM reads all.
        lengths = (mask * torch.arange(1, mask.shape[1] + 1, device=mask.device)).amax(dim=-1)
        packed = pack_padded_sequence(states, lengths.cpu(), batch_first=True, enforce_sorted=False)
        sequence, (last, _) = self.lstm(packed)
        hidden, _ = pad_packed_sequence(sequence, batch_first=True, total_length=states.shape[1])
        final = torch.cat((last[-2], last[-1]), dim=-1)
        context = self.attention(final, hidden, mask)
        return self.linear(torch.cat((context, final), dim=-1) if self.concatenate_state else context).relu()


POOLERS: dict[str, type[Pooler]] = {
    "mean": MeanPooler,
    "cls": ClsPooler,
    "cls-zero": ClsPooler,
    "attention": AttentionPooler,
    "query": QueryPooler,
    "bilstm-attention": BiLstmAttentionPooler,
}
