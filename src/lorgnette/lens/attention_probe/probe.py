"""Trained combinations of all heads as a parser, and a parser of word vectors and distance to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

FARTHEST = 10
"""Distances beyond this are alike to the parser of word vectors."""
HIDDEN = 256


@dataclass(frozen=True)
class Sentences:
    """Padded sentences: attention of all heads between words and to special tokens, gold heads, word vectors.

    `gold` numbers the candidates: 0 … word − 1, and word (the last) for the root; −1 is not counted.
    """

    attention: Float[Tensor, "text head word word2"]
    special: Float[Tensor, "text head two word"]  # what each word gives to the tokens that open, and that close
    mask: Bool[Tensor, "text word"]
    gold: Int[Tensor, "text word"]
    vectors: Float[Tensor, "text word dim"]


class AttentionOnly(nn.Module):
    """score(i heads j) = Σ_k w_k α^k_ji + u_k α^k_ij; the root: Σ_k r_k α^k_j[CLS] + s_k α^k_j[SEP] + b.

    α_ji is what j gives to i. Clark et al. 2019, §5.1, eq. 1. Weights begin at zero, so nothing depends on a seed.
    """

    def __init__(self, heads: int, dim: int = 0) -> None:
        super().__init__()
        self.own: nn.Parameter = nn.Parameter(torch.zeros(2, heads))
        self.root: nn.Parameter = nn.Parameter(torch.zeros(2, heads))
        self.bias: nn.Parameter = nn.Parameter(torch.zeros(()))

    def forward(self, texts: Sentences) -> Float[Tensor, "text word candidate"]:
        """For each dependent j the score of every candidate i, the root last."""
        to, by = (torch.einsum("k,tkji->tji", w, texts.attention) for w in self.own)
        root = torch.einsum("sk,tksj->tj", self.root, texts.special) + self.bias
        return torch.cat([to + by.mT, root[..., None]], -1)


class AttentionAndVectors(nn.Module):
    """The same with weights that depend on both words: w_k = W_k (v_i ⊕ v_j), u_k = U_k (v_i ⊕ v_j).

    Clark et al. 2019, §5.1, eq. 2; a constant is added to each weight, so that a word without a vector has one too.
    """

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        self.of_head, self.of_dependent = (nn.Parameter(torch.zeros(2, heads, dim)) for _ in range(2))
        self.root_of_dependent: nn.Parameter = nn.Parameter(torch.zeros(2, heads, dim))
        self.plain: AttentionOnly = AttentionOnly(heads)

    def forward(self, texts: Sentences) -> Float[Tensor, "text word candidate"]:
        governor, dependent, root = (
            torch.einsum("skd,twd->stwk", w, texts.vectors)
            for w in (self.of_head, self.of_dependent, self.root_of_dependent)
        )
        to = torch.einsum("tik,tkji->tji", governor[0], texts.attention)
        to = to + torch.einsum("tjk,tkji->tji", dependent[0], texts.attention)
        by = torch.einsum("tik,tkij->tji", governor[1], texts.attention)
        by = by + torch.einsum("tjk,tkij->tji", dependent[1], texts.attention)
        more = torch.einsum("stjk,tksj->tj", root, texts.special)
        return self.plain(texts) + torch.cat([to + by, more[..., None]], -1)


class VectorsAndDistance(nn.Module):
    """score(i heads j) = c · tanh(P v_i + Q v_j + D_(i−j)): what word vectors and distance know without attention.

    Clark et al. 2019, §5.2, baseline "Distances + GloVe"; 256 hidden units. The root has vectors of its own.
    """

    def __init__(self, heads: int, dim: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: nn.Parameter(torch.randn(*shape, generator=generator) * shape[0] ** -0.5)  # noqa: E731
        self.governor, self.dependent = draw(dim, HIDDEN), draw(dim, HIDDEN)
        self.distance: nn.Parameter = nn.Parameter(torch.randn(2 * FARTHEST + 2, HIDDEN, generator=generator) * 0.1)
        self.out: nn.Parameter = draw(HIDDEN, 1)

    def forward(self, texts: Sentences) -> Float[Tensor, "text word candidate"]:
        words = texts.mask.shape[1]
        place = torch.arange(words)
        apart = (place - place[:, None]).clamp(-FARTHEST, FARTHEST) + FARTHEST  # [dependent, candidate]
        governor = texts.vectors @ self.governor
        dependent = texts.vectors @ self.dependent
        between = torch.tanh(governor[:, None] + dependent[:, :, None] + self.distance[apart])
        root = torch.tanh(dependent + self.distance[-1])
        return torch.cat([(between @ self.out)[..., 0], root @ self.out], -1)


def log_odds(probe: nn.Module, texts: Sentences) -> Float[Tensor, "text word candidate"]:
    """Scores with −∞ for the word itself and for what is not there."""
    scores = probe(texts)
    words = texts.mask.shape[1]
    out = torch.cat([texts.mask, texts.mask.new_ones(len(texts.mask), 1)], -1)[:, None].repeat(1, words, 1)
    out[:, torch.arange(words), torch.arange(words)] = False
    return scores.masked_fill(~out, -torch.inf)


def loss(probe: nn.Module, texts: Sentences) -> Float[Tensor, ""]:
    """Mean over words of −log p(gold head), p the softmax over candidates."""
    counted = texts.gold >= 0
    return nn.functional.cross_entropy(log_odds(probe, texts)[counted], texts.gold[counted])


def trained(probe: nn.Module, batches: Sequence[Sentences], *, rate: float, steps: int, seed: int) -> nn.Module:
    """`steps` steps of Adam, one batch each, reshuffled after every epoch; the model under study is frozen."""
    probe = probe.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.enable_grad():
        adam = torch.optim.Adam(probe.parameters(), lr=rate)
        order: list[int] = []
        for _ in range(steps):
            order = order or torch.randperm(len(batches), generator=generator).tolist()
            adam.zero_grad()
            loss(probe, batches[order.pop()]).backward()
            adam.step()
    return probe.eval().requires_grad_(False)
