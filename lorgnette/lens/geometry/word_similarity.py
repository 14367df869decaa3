"""How alike the occurrences of a word are, and how alike any words are (Ethayarajh 2019)."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from lorgnette.lens.geometry.cosine import mean_pairwise_cosine
from lorgnette.lens.geometry.isotropy import eigenvalues, first_component_share, gram


class WordSimilarity(NamedTuple):
    """Means over words with their standard errors, and the baselines of random words; for every state."""

    self_similarity: Float[Tensor, " state"]
    self_similarity_se: Float[Tensor, " state"]
    self_similarity_count: Int[Tensor, " state"]
    mev: Float[Tensor, " state"]
    mev_se: Float[Tensor, " state"]
    mev_count: Int[Tensor, " state"]
    random_cosine: Float[Tensor, " state"]
    random_cosine_count: Int[Tensor, " state"]
    random_mev: Float[Tensor, " state"]
    random_mev_count: Int[Tensor, " state"]


def word_similarity(
    words: Sequence[Float[Tensor, "_ state dim"]],
    random: Float[Tensor, "word state dim"],
    random_values: Float[Tensor, "state least"],
) -> WordSimilarity:
    """SelfSim(w), the mean cosine of the occurrences of w, and MEV(w) = σ₁²/Σσ² of their matrix; means over words w.

    MEV is uncentred for words and for the baseline alike; it cannot be below one over the number of occurrences, which
    the baseline, of many more words, does not share: compare MEV between states, not with 0. `random_values` are the
    eigenvalues of `state_grams(random)`, which the caller finds together with others.
    """
    cosines, shares = _by_word(words, random.shape[1])
    states = random.shape[1]
    many, enough = torch.tensor(float(len(random))), len(random) > 1
    missing = torch.full((states,), torch.nan, dtype=torch.float64)
    baseline = (_cosine(random).cpu(), first_component_share(random_values)) if enough else (missing, missing)
    counts = [(~values.isnan() * many).long() for values in baseline]
    return WordSimilarity(*_mean(cosines), *_mean(shares), baseline[0], counts[0], baseline[1], counts[1])


def _by_word(words: Sequence[Float[Tensor, "_ state dim"]], states: int) -> tuple[Tensor, Tensor]:
    """Mean cosine and first share of every word [word state]; words that occur about as often together.

    Shorter ones are filled up with zero vectors, which have no cosine and add nothing to the products.
    """
    cosines, shares = torch.zeros(2, len(words), states, dtype=torch.float64)
    alike: dict[int, list[int]] = {}
    for number, word in enumerate(words):
        alike.setdefault((len(word) - 1).bit_length(), []).append(number)
    grams = []
    for which in alike.values():
        some = pad_sequence([words[number] for number in which], batch_first=True)
        cosines[which] = _cosine(some).cpu()
        grams.append(state_grams(some))
    for which, values in zip(alike.values(), eigenvalues(grams), strict=True):
        shares[which] = first_component_share(values)
    return cosines, shares


def _cosine(vectors: Float[Tensor, "*word item state dim"]) -> Float[Tensor, "*word state"]:
    """Mean pairwise cosine by state, of the vectors that have a direction; NaN for fewer than two."""
    vectors = vectors.double()
    length = vectors.norm(dim=-1, keepdim=True)
    count = (length[..., 0] > 0).sum(-2).double()
    units = (vectors / torch.where(length > 0, length, 1.0)).sum(-3)
    return torch.where(count > 1, mean_pairwise_cosine(units, count), torch.nan)


def state_grams(vectors: Float[Tensor, "*word item state dim"]) -> Float[Tensor, "*word state least least"]:
    """Products of the vectors of each state, whose eigenvalues say how much one direction holds."""
    return gram(vectors.transpose(-3, -2))


def _mean(
    values: Float[Tensor, "word state"],
) -> tuple[Float[Tensor, " state"], Float[Tensor, " state"], Int[Tensor, " state"]]:
    """Mean over words, its standard error, and how many words."""
    known = ~values.isnan()
    count = known.sum(0)
    n = count.double()
    mean = torch.where(known, values, 0.0).sum(0) / n
    spread = torch.where(known, values - mean, 0.0).square().sum(0)
    return mean, torch.where(count > 1, (spread / (n - 1) / n).sqrt(), torch.nan), count
