"""What an explanation is: how much of one number that a model gives comes from each token and through each head."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from lorgnette.attending import Site
from lorgnette.display import Facts
from lorgnette.texts.batch import Tokens


@dataclass(frozen=True)
class Explanation(Facts):
    """Relevance of one batch, by text; zero at padding. Several predictions of a text (a translation) are added up.

    >>> explanation = lo.explain(subject, texts, "gradient_x_input")
    >>> [len(words) for words in explanation.words(subject.encode(texts).source)]
    [7, 9]
    """

    method: str
    start: Float[Tensor, " batch"]
    """the logit, difference of logits, or sum of the predictions' logits that is explained"""
    tokens: Float[Tensor, "batch token"]
    """of the word vectors of the source"""
    target_tokens: Float[Tensor, "batch target"] | None = None
    """of the word vectors that a translation model's decoder is given"""
    positions: Float[Tensor, "batch token"] | None = None
    """of what is added to the source's word vectors: positions, token types; None where nothing is"""
    target_positions: Float[Tensor, "batch target"] | None = None
    heads: Mapping[Site, Float[Tensor, "batch head"]] = field(default_factory=dict)
    """of every head: summed over its output, before the output projection; empty for methods without such"""
    biases: Float[Tensor, " batch"] | None = None
    """of all biases together, if they were asked for"""
    explained: tuple[str, ...] = ()
    """what is explained of each text: the name of a class, or the predicted pieces"""
    gap: Float[Tensor, " batch"] | None = None
    """integrated gradients: |f(x) − f(x⁰) − Σ relevance| as a share of |f(x) − f(x⁰)|; 0 if the integral is exact"""

    def facts(self) -> dict[str, object]:
        each = zip(self.explained, self.start.tolist(), strict=False)  # rollouts explain no number
        said = {f"text {number}": f"{name}: {start:.4g}" for number, (name, start) in enumerate(islice(each, 8), 1)}
        return {"method": self.method, "texts": len(self.tokens), **said}

    @property
    def layers(self) -> dict[Site, Float[Tensor, " batch"]]:
        """What goes through the attention of each site: the sum over its heads. The rest goes past it."""
        return {site: heads.sum(-1) for site, heads in self.heads.items()}

    @property
    def total(self) -> Float[Tensor, " batch"]:
        """Everything that was handed out. What a conserving rule makes equal to `start`, if biases are counted."""
        parts = (self.tokens, self.target_tokens, self.positions, self.target_positions)
        out = sum(part.sum(-1) for part in parts if part is not None)
        assert isinstance(out, Tensor)
        return out if self.biases is None else out + self.biases

    def words(self, tokens: Tokens, target: bool = False) -> list[Float[Tensor, " word"]]:
        """Relevance of each word of each text: the sum over its pieces; special tokens are left out."""
        scores = self.target_tokens if target else self.tokens
        if scores is None:
            raise ValueError("this explanation has no target tokens")
        out = []
        for row, word, words in zip(scores, tokens.word, tokens.words, strict=True):
            there = word >= 0
            out.append(row.new_zeros(len(words)).index_add(0, word[there], row[there]))
        return out


def masked(scores: Float[Tensor, "batch token"], tokens: Tokens) -> Float[Tensor, "batch token"]:
    """Exactly zero at padding."""
    return torch.where(tokens.mask.to(scores.device), scores, 0.0)
