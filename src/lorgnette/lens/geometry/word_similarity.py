"""How alike the occurrences of a word are, and how alike any words are (Ethayarajh 2019)."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lorgnette.lens.geometry.cosine import mean_pairwise_cosine
from lorgnette.lens.geometry.isotropy import eigenvalues, first_component_share, gram
from lorgnette.statistics.hash_sample import moved


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
    vectors: Float[Tensor, "occurrence state dim"],
    sizes: Int[Tensor, " word"],
    least: int,
    random: Float[Tensor, "random state dim"],
    random_values: Float[Tensor, "state least"],
) -> WordSimilarity:
    """SelfSim(w), the mean cosine of the occurrences of w, and MEV(w) = σ₁²/Σσ² of their matrix; means over words w.

    `vectors` are those of all words, one word after the other, and `sizes` (on the CPU) how many each has; a word that
    has fewer than `least` does not count. MEV is uncentred for words and for the baseline alike; it cannot be below one
    over the number of occurrences, which the baseline, of many more words, does not share: compare MEV between states,
    not with 0. `random_values` are the eigenvalues of `state_grams(random)`, which the caller finds with others.
    """
    cosines, shares = _by_word(vectors, sizes, least)
    states = random.shape[1]
    many, enough = torch.tensor(float(len(random))), len(random) > 1
    missing = torch.full((states,), torch.nan, dtype=torch.float64)
    baseline = (_cosine(random).cpu(), first_component_share(random_values)) if enough else (missing, missing)
    counts = [(~values.isnan() * many).long() for values in baseline]
    return WordSimilarity(*_mean(cosines), *_mean(shares), baseline[0], counts[0], baseline[1], counts[1])


def _by_word(
    vectors: Float[Tensor, "occurrence state dim"], sizes: Int[Tensor, " word"], least: int
) -> tuple[Float[Tensor, "often state"], Float[Tensor, "often state"]]:
    """Mean cosine and first share of every word that occurs often enough; those that occur about as often together."""
    starts, often = sizes.cumsum(0) - sizes, (sizes >= least).nonzero()[:, 0]
    alike = torch.frexp(sizes[often].double() - 1).exponent  # 5 to 8 times, 9 to 16, …
    cosines, shares = torch.zeros(2, len(often), vectors.shape[1], dtype=torch.float64)
    classes = [(alike == one).nonzero()[:, 0] for one in alike.unique()]
    padded = [_padded(vectors, starts[often[which]], sizes[often[which]]) for which in classes]
    found, grams = [_cosine(some) for some in padded], [state_grams(some) for some in padded]
    for which, cosine, values in zip(classes, found, eigenvalues(grams), strict=True):
        cosines[which], shares[which] = cosine.cpu(), first_component_share(values)
    return cosines, shares


def _padded(
    vectors: Float[Tensor, "occurrence state dim"], starts: Int[Tensor, " word"], sizes: Int[Tensor, " word"]
) -> Float[Tensor, "word most state dim"]:
    """Side by side; words that occur less are filled up with zero vectors: no cosine, and nothing in the products."""
    place = torch.arange(int(sizes.max()))
    there = place < sizes[:, None]
    source, goal = (
        moved(rows, vectors.device) for rows in ((starts[:, None] + place)[there], there.flatten().nonzero()[:, 0])
    )
    out = vectors.new_zeros(there.numel(), *vectors.shape[1:])
    out.index_copy_(0, goal, vectors[source])
    return out.unflatten(0, there.shape)


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
