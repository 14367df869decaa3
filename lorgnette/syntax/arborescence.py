"""Maximum spanning arborescences: the best tree that a matrix of scores between words allows."""

import numpy as np
from jaxtyping import Float, Int

WAYS = ("to_head", "read_by_head")
"""Whose row gives an edge its score: the dependent's, or (the transposed matrix) the head's."""
ROOTS = ("gold", "free")
ROOT = -1


def rooted_trees(
    scores: Float[np.ndarray, "graph dependent governor"], root: int
) -> Int[np.ndarray, "graph dependent"]:
    """For each graph the tree with that root whose edges have the largest sum; heads by position, −1 for the root.

        argmax over trees of Σ_d scores[d, head(d)]

    Chu & Liu 1965, Edmonds 1967; `ufal.chu_liu_edmonds`. All trees of n words have n − 1 edges, so a constant added to
    all scores changes nothing, and zero is as good a score as any other.
    """
    words = scores.shape[-1]
    # The root goes first: the routine takes its first node for the root.
    order = np.r_[root, np.delete(np.arange(words), root)]
    solution = _solved(_positive(scores)[:, order][:, :, order])
    heads = np.full((len(scores), words), ROOT)
    heads[:, order[1:]] = order[solution[:, 1:]]
    return heads


def free_trees(
    scores: Float[np.ndarray, "graph dependent governor"], root: Float[np.ndarray, "graph dependent"] | None = None
) -> Int[np.ndarray, "graph dependent"]:
    """The same over all trees with one root, whichever word that is; `root` scores each word as the root (else alike).

    A node before all words has an edge to each, so dear that the best tree uses one of them only.
    """
    graphs, words = scores.shape[:2]
    edges = _positive(scores)
    roots = np.zeros((graphs, words)) if root is None else root - root.min(-1, keepdims=True)
    whole = np.full((graphs, words + 1, words + 1), np.nan)
    whole[:, 1:, 1:] = edges
    dear = words * (np.nanmax(edges, (1, 2), initial=1.0) + roots.max(-1) + 1)
    whole[:, 1:, 0] = roots - dear[:, None]
    return _solved(whole)[:, 1:] - 1


def _positive(scores: Float[np.ndarray, "graph dependent governor"]) -> Float[np.ndarray, "graph dependent governor"]:
    """At least 1, because the routine drops scores near zero; no edges from a word to itself."""
    out = scores.astype(np.float64)
    diagonal = np.arange(scores.shape[-1])
    out[:, diagonal, diagonal] = np.nan
    if scores.shape[-1] > 1:
        out -= np.nanmin(out, (1, 2), keepdims=True) - 1
    return out


def _solved(scores: Float[np.ndarray, "graph node node2"]) -> Int[np.ndarray, "graph node"]:
    from ufal.chu_liu_edmonds import chu_liu_edmonds

    if scores.shape[-1] == 1:
        return np.full((len(scores), 1), ROOT)
    return np.array([chu_liu_edmonds(graph)[0] for graph in np.ascontiguousarray(scores)]).reshape(scores.shape[:2])
