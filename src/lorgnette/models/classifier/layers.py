"""The blocks of `SelfAttentionClassifier`: attention, g, and the three ways of putting them together.

Every `attention` has `query`, `key`, `value` and `output`, the last None where the heads are simply put side by side.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lorgnette.attending.attend import attend
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.positions import RelativePositions


class SelfAttention(nn.Module):
    """f: f(x_i) = Σ_j α_ij v(x_j), α_ij = softmax_j(q(x_i)·k(x_j)/√d), d the width of a head (TP 9, equation 1).

    Heads share the width. Without an output projection the heads' contexts are put side by side, so that the W_O of
    head h is rows h·d … (h+1)·d of the identity; with one, Z = (A V) W_O + b_O (Fosse et al. 2023).
    """

    is_causal = False

    def __init__(self, config: SelfAttentionClassifierConfig, layer: int) -> None:
        super().__init__()
        self.config = config
        self.layer_idx = layer
        self.heads: int = config.heads
        self.scaling = (config.width // config.heads) ** -0.5
        self.query: nn.Linear = nn.Linear(config.width, config.width)
        self.key: nn.Linear = nn.Linear(config.width, config.width)
        self.value: nn.Linear = nn.Linear(config.width, config.width)
        self.output: nn.Linear | None = nn.Linear(config.width, config.width) if config.output_projection else None
        self.relative = RelativePositions(config.heads, config.max_offset) if config.positions == "relative" else None

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch 1 1 token"] | None
    ) -> Float[Tensor, "batch token width"]:
        context, _ = attend(
            self,
            self._heads(self.query(states)),
            self._heads(self.key(states)),
            self._heads(self.value(states)),
            mask,
            scaling=self.scaling,
            dropout=self.config.attention_dropout if self.training else 0.0,
            position_bias=None if self.relative is None else self.relative(states.shape[1]),
        )
        joined = context.flatten(start_dim=2)
        return joined if self.output is None else self.output(joined)

    def _heads(self, projected: Float[Tensor, "batch token width"]) -> Float[Tensor, "batch head token dim"]:
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class PureNorm(nn.Module):
    """norm(x) = (x − mean(x)) / sqrt(var(x)) for each token: unbiased variance, no ε, nothing learnt.

    Fosse et al. 2023. A vector whose components are all equal has no direction to keep and the formula would give 0/0:
    its norm is defined as the zero vector, with zero gradient. The same holds where the variance underflows to zero.
    """

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        variance, mean = torch.var_mean(states, dim=-1, keepdim=True)
        # Rounding of the mean leaves a constant vector a tiny variance, hence the comparison of the components.
        lowest, highest = states.aminmax(dim=-1, keepdim=True)
        constant = (lowest == highest) | (variance == 0)
        # The variance is replaced before the root: the unused branch of a `where` still sends its gradient back.
        deviation = variance.masked_fill(constant, 1.0).sqrt()
        return ((states - mean) / deviation).masked_fill(constant, 0.0)


class ReluLinear(nn.Module):
    """g = ReLU∘Linear (TP 9)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear: nn.Linear = nn.Linear(width, width)

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return self.linear(states).relu()


class FeedForward(nn.Module):
    """W₂ ReLU(W₁ x + b₁) + b₂ (Vaswani et al. 2017, §3.3)."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__()
        self.expand: nn.Linear = nn.Linear(config.width, config.feed_forward_width)
        self.contract: nn.Linear = nn.Linear(config.feed_forward_width, config.width)
        self.dropout: nn.Dropout = nn.Dropout(config.dropout)

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return self.dropout(self.contract(self.expand(states).relu()))


class PreNormFeedForward(FeedForward):
    """y + FFN(LN y): the second half of a pre-norm Transformer block."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.norm: nn.LayerNorm = nn.LayerNorm(config.width, eps=config.layer_norm_eps)

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return states + super().forward(self.norm(states))


class PostNormFeedForward(FeedForward):
    """norm(y + FFN(y)): the second half of a post-norm block."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__(config)
        self.norm: PureNorm = PureNorm()

    def forward(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        return self.norm(states + super().forward(states))


class Block(nn.Module):
    """What the three styles share: `attention` (f), `transform` (g) and dropout on what attention returns."""

    feed_forward: type[FeedForward] = FeedForward
    norm_order = "none"  # where the norm of the attention sits: none, pre or post

    def __init__(self, config: SelfAttentionClassifierConfig, layer: int) -> None:
        super().__init__()
        self.attention: SelfAttention = SelfAttention(config, layer)
        self.dropout: nn.Dropout = nn.Dropout(config.dropout)
        self.transform: nn.Module
        if config.transform == "relu-linear":
            self.transform = ReluLinear(config.width)
        elif config.transform == "feed-forward":
            self.transform = self.feed_forward(config)
        else:
            self.transform = nn.Identity()


class BareBlock(Block):
    """x ← g(f(x)) (TP 9, exercise 1)."""

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch 1 1 token"] | None
    ) -> Float[Tensor, "batch token width"]:
        return self.transform(self.dropout(self.attention(states, mask)))


class ResidualBlock(Block):
    """x ← g(x + f(LN x)): the norm inside f, g outside the sum (TP 9, exercise 2)."""

    feed_forward = PreNormFeedForward
    norm_order = "pre"

    def __init__(self, config: SelfAttentionClassifierConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.norm: nn.LayerNorm = nn.LayerNorm(config.width, eps=config.layer_norm_eps)

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch 1 1 token"] | None
    ) -> Float[Tensor, "batch token width"]:
        return self.transform(states + self.dropout(self.attention(self.norm(states), mask)))


class PostNormBlock(Block):
    """x ← g(norm(x + f(x))), the norm without affine part (Fosse et al. 2023, where g is the identity)."""

    feed_forward = PostNormFeedForward
    norm_order = "post"

    def __init__(self, config: SelfAttentionClassifierConfig, layer: int) -> None:
        super().__init__(config, layer)
        self.norm: PureNorm = PureNorm()

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch 1 1 token"] | None
    ) -> Float[Tensor, "batch token width"]:
        return self.transform(self.norm(states + self.dropout(self.attention(states, mask))))


BLOCK_STYLES: dict[str, type[Block]] = {"bare": BareBlock, "residual": ResidualBlock, "post-norm": PostNormBlock}


class SelfAttentionStack(nn.Module):
    """The blocks one after the other; parameters differ from layer to layer."""

    def __init__(self, config: SelfAttentionClassifierConfig) -> None:
        super().__init__()
        style = BLOCK_STYLES[config.block]
        self.layers: nn.ModuleList = nn.ModuleList(style(config, layer) for layer in range(config.layers))

    def forward(
        self, states: Float[Tensor, "batch token width"], mask: Bool[Tensor, "batch 1 1 token"] | None
    ) -> tuple[Float[Tensor, "batch token width"], ...]:
        """x⁽⁰⁾ … x⁽ᴸ⁾: what enters the first block, then what each block returns."""
        history: tuple[Tensor, ...] = (states,)
        for block in self.layers:
            history = (*history, block(history[-1], mask))
        return history
