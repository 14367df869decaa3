"""The structural probe: is there a linear map under which distance between words is distance in the tree?"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


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
