"""How well a language model predicts some texts, and how sure a difference of two models is."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from lorgnette.errors import UserError
from lorgnette.statistics.bootstrap import DRAWS, bootstrap_draws, percentile_interval
from lorgnette.statistics.estimate import Interval


@dataclass(frozen=True)
class Likelihoods:
    """What a model gives to each text. Models with other tokenizers predict other tokens: they cannot be compared."""

    losses: Float[np.ndarray, " text"]
    """−log p of the tokens of a text, summed"""
    tokens: Int[np.ndarray, " text"]
    """how many of them are predicted"""

    @property
    def perplexity(self) -> float:
        """exp of the mean −log p over the tokens of all texts."""
        return float(np.exp(self.losses.sum() / self.tokens.sum()))

    @property
    def interval(self) -> Interval:
        """95 %, by a bootstrap over texts, widened where they are few."""
        return percentile_interval(self.draws(), len(self.tokens))

    def draws(self, number: int = DRAWS, seed: int = 0) -> Float[np.ndarray, " draw"]:
        """Perplexities of texts drawn with replacement; two models on the same texts get the same draws."""
        both = np.stack([self.losses, self.tokens.astype(float)])

        def of(texts: Int[np.ndarray, "*draw text"], axis: int) -> Float[np.ndarray, "*draw"]:
            losses, tokens = both[:, texts].sum(axis=axis)
            return np.exp(losses / tokens)

        return bootstrap_draws(np.arange(len(self.tokens)), of, draws=number, seed=seed)


def difference(model: Likelihoods, base: Likelihoods) -> tuple[float, Interval]:
    """Perplexity(model) − perplexity(base) on the same texts, with the 95 % interval of a paired bootstrap."""
    if not np.array_equal(model.tokens, base.tokens):
        raise UserError("two language models must be compared on the same tokens: these have other numbers of them.")
    return model.perplexity - base.perplexity, percentile_interval(model.draws() - base.draws(), len(base.tokens))
