"""Is there a tree in the geometry of a layer? The structural probe of Hewitt and Manning 2019."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
import xarray as xr
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lorgnette import axes
from lorgnette.errors import UserError
from lorgnette.lens.base import Lens
from lorgnette.lens.hidden_states import VectorSizes, hidden_states
from lorgnette.lens.occurrences import word_vectors
from lorgnette.lens.probes.outcome import ratio
from lorgnette.results import Result
from lorgnette.statistics.estimate import error_of_terms
from lorgnette.statistics.hash_sample import NAME, Column, HashSample, as_names
from lorgnette.statistics.hashing import text_key
from lorgnette.statistics.spearman import spearman
from lorgnette.subject import Subject
from lorgnette.texts.batch import Batch
from lorgnette.texts.example import Example
from lorgnette.texts.treebank import is_tree
from lorgnette.types import ModelOutput


def tree_distances(heads: Sequence[int]) -> Int[np.ndarray, "word word2"]:
    """Number of edges between any two words of a tree given by 1-based heads (0 the root)."""
    n = len(heads)
    near = np.full((n, n), n, dtype=np.int64)
    np.fill_diagonal(near, 0)
    for word, head in enumerate(heads):
        if head > 0:
            near[word, head - 1] = near[head - 1, word] = 1
    for middle in range(n):  # Floyd and Warshall: sentences are short
        near = np.minimum(near, near[:, middle, None] + near[None, middle])
    return near


def probed_distances(
    vectors: Float[Tensor, "layer text word width"], maps: Float[Tensor, "layer width rank"]
) -> Float[Tensor, "layer text word word2"]:
    """‖B(h_i − h_j)‖² for all pairs of words (Hewitt and Manning 2019, §2.2), from one Gram matrix."""
    low = vectors @ maps[:, None]
    gram = low @ low.mT
    square = gram.diagonal(dim1=-2, dim2=-1)
    return (square[..., :, None] + square[..., None, :] - 2 * gram).clamp(min=0)


def structural_loss(
    probed: Float[Tensor, "layer text word word2"],
    gold: Float[Tensor, "text word word2"],
    mask: Bool[Tensor, "text word"],
) -> Float[Tensor, " layer"]:
    """Mean over texts of 1/n² Σ_ij |d_tree(i, j) − ‖B(h_i − h_j)‖²| (Hewitt and Manning 2019, §2.2)."""
    pairs = mask[:, :, None] & mask[:, None, :]
    off = torch.where(pairs, (probed - gold).abs(), 0.0).sum((-2, -1))
    return (off / mask.sum(-1).double().to(off).square()).mean(-1)


def spanning_tree(distances: Float[np.ndarray, "word word2"]) -> set[tuple[int, int]]:
    """The edges (i < j) of the minimum spanning tree."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    # scipy reads a zero as "no edge"; a tree on n words has n − 1 edges, so one more for each changes no comparison.
    shifted = distances + 1.0
    np.fill_diagonal(shifted, 0.0)
    rows, columns = minimum_spanning_tree(shifted).nonzero()
    return {(min(i, j), max(i, j)) for i, j in zip(rows.tolist(), columns.tolist(), strict=True)}


DESCRIPTIONS = {
    "uuas": "UUAS: share of gold edges in the minimum spanning tree of the probed distances, without punctuation",
    "distance_correlation": "Spearman correlation of probed and tree distance, per word, mean over texts",
    "chain": "UUAS of the chain that links each word with the next",
}


@dataclass(frozen=True)
class ProbedTree:
    id: str
    vectors: Float[Tensor, "state word width"]
    distances: Float[Tensor, "word word2"]
    words: Bool[np.ndarray, " word"]  # not punctuation


class ProbedTrees(Lens):
    """Keeps whole sentences with the vectors of their words, for `structural_probe`; `trees` is there after `compute`.

    They are states, so that several processes together, and a run that goes on, have the sentences of all.
    """

    name: ClassVar[str] = "structural"
    reads = frozenset({"hidden states", "cpu"})

    def __init__(self, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.trees: list[ProbedTree] = []

    def allocate(self, subject: Subject) -> None:
        self.causal: bool = subject.anatomy.causal
        wide = torch.promote_types(subject.dtype, torch.float32)
        shape = next(iter(VectorSizes.of(subject).states.values()))
        columns = {
            "id": NAME,
            "vectors": Column(shape, wide, ragged=True),
            "marks": Column((2,), torch.int64, ragged=True),  # head, whether it is punctuation
        }
        self.sample: HashSample = HashSample(self, "sentences", columns, size=None)
        self.sums("left_out")

    def finish(self, batch: Batch, outputs: ModelOutput) -> None:
        states = next(iter(hidden_states(outputs, self.causal).values()))
        chosen: list[tuple[Example, Tensor]] = []
        for text, example in enumerate(batch.examples):
            if example.heads is None or example.words is None:
                raise UserError(f"The text {example.id!r} has no gold tree. Give a treebank (.conllu).")
            n = len(example.words)
            words = set(batch.source.word[text].tolist()) - {-1}
            if not 2 <= n <= self.longest or len(words) < n or not is_tree(example.heads):
                continue
            where = torch.stack([torch.full((n,), text), torch.arange(n)], -1)
            chosen.append((example, word_vectors(batch.source, where, states).unflatten(-1, (len(states), -1))))
        self.left_out += len(batch.examples) - len(chosen)
        self.sample.add(
            torch.tensor([text_key(example.id) >> 11 for example, _ in chosen], dtype=torch.int64),
            id=as_names([example.id for example, _ in chosen]),
            vectors=[vectors for _, vectors in chosen],
            marks=[_marks(example) for example, _ in chosen],
        )

    def compute(self) -> Result:
        """How many sentences there are; the sentences themselves, of all processes, are then in `trees`."""
        rows = self.sample.rows()
        self.trees = []
        for name, vectors, marks in zip(rows.names(), rows.pieces("vectors"), rows.pieces("marks"), strict=True):
            gold = torch.from_numpy(tree_distances(marks[:, 0].tolist())).to(vectors)
            self.trees.append(ProbedTree(name, vectors.transpose(0, 1), gold, ~marks[:, 1].bool().numpy()))
        return self.result({"texts": xr.DataArray(len(rows)), "left_out": xr.DataArray(int(self.left_out))})


def _marks(example: Example) -> Int[Tensor, "word 2"]:
    """The head of each word, and whether it is punctuation."""
    heads = example.heads or ()
    return torch.tensor([*zip(heads, (tag == "punct" for tag in example.relations or ("",) * len(heads)), strict=True)])


def trained_maps(
    trees: Sequence[ProbedTree], rank: int, epochs: int, batch_size: int, rate: float, generator: torch.Generator
) -> Float[Tensor, "state width rank"]:
    states, _, width = trees[0].vectors.shape
    start = torch.empty(width, rank).uniform_(-0.05, 0.05, generator=generator)  # as the authors do
    maps = start.expand(states, -1, -1).clone().to(trees[0].vectors).requires_grad_()
    optimizer = torch.optim.Adam([maps], lr=rate)
    with torch.enable_grad():
        for _ in range(epochs):
            order = torch.randperm(len(trees), generator=generator).tolist()
            for first in range(0, len(order), batch_size):
                vectors, gold, mask = _padded([trees[k] for k in order[first : first + batch_size]])
                loss = structural_loss(probed_distances(vectors, maps), gold, mask).sum()
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
    return maps.detach()


def _padded(trees: Sequence[ProbedTree]) -> tuple[Tensor, Tensor, Tensor]:
    n = max(len(tree.words) for tree in trees)
    states, _, width = trees[0].vectors.shape
    vectors = trees[0].vectors.new_zeros(states, len(trees), n, width)
    gold, mask = vectors.new_zeros(len(trees), n, n), torch.zeros(len(trees), n, dtype=torch.bool)
    for k, tree in enumerate(trees):
        size = len(tree.words)
        vectors[:, k, :size], gold[k, :size, :size], mask[k, :size] = tree.vectors, tree.distances, True
    return vectors, gold, mask


def tree_scores(trees: Sequence[ProbedTree], maps: Float[Tensor, "state width rank"]) -> dict[str, xr.DataArray]:
    hits, edges, chained, correlations = [], [], [], []
    for tree in trees:
        probed = probed_distances(tree.vectors[:, None], maps)[:, 0].double().numpy()
        gold, words = tree.distances.numpy(), np.flatnonzero(tree.words)
        inside = gold[np.ix_(words, words)]
        wanted = {(i, j) for i, j in zip(*np.nonzero(inside == 1), strict=True) if i < j}
        edges.append(len(wanted))
        chained.append(sum((i, i + 1) in wanted for i in range(len(words) - 1)))
        hits.append([len(wanted & spanning_tree(state[np.ix_(words, words)])) for state in probed])
        correlations.append([_correlation(state, gold) for state in probed])
    size = torch.tensor(edges, dtype=torch.float64)
    texts = torch.arange(len(trees)).repeat_interleave(size.long())
    spread = lambda correct: torch.cat([(torch.arange(e) < f).double() for f, e in zip(correct, edges, strict=True)])  # noqa: E731
    per_state = torch.stack([spread([row[state] for row in hits]) for state in range(len(maps))])
    uuas, error = ratio(per_state, texts)
    chain, chain_error = ratio(spread(chained), texts)
    rho, rho_error = _mean_and_error(np.array(correlations))
    dims, coordinates = (axes.STATE,), {axes.STATE: list(range(len(maps)))}
    laid = {
        "uuas": uuas,
        "uuas_se": error,
        "distance_correlation": rho,
        "distance_correlation_se": rho_error,
    }
    out = {name: xr.DataArray(np.asarray(values), dims=dims, coords=coordinates) for name, values in laid.items()}
    out |= {"chain": xr.DataArray(float(chain)), "chain_se": xr.DataArray(float(chain_error))}
    return out | {"edges": xr.DataArray(int(size.sum()))}


def _correlation(probed: np.ndarray, gold: np.ndarray) -> float:
    """Spearman of each word's distances to all others, mean over the words for which it is defined; NaN without any."""
    others = ~np.eye(len(gold), dtype=bool)
    values = [spearman(probed[row, others[row]], gold[row, others[row]]) for row in range(len(gold))]
    defined = [value for value in values if value is not None]
    return float(np.mean(defined)) if defined else math.nan


def _mean_and_error(
    rho: Float[np.ndarray, "text state"],
) -> tuple[Float[np.ndarray, " state"], Float[np.ndarray, " state"]]:
    """Over the texts that have a correlation: two words, or distances that are all alike, have none."""
    count = np.isfinite(rho).sum(0)
    mean = np.where(count > 0, np.nansum(rho, 0) / np.maximum(count, 1), np.nan)
    return mean, error_of_terms(np.nan_to_num((rho - mean) / np.maximum(count, 1)), count.astype(float))
