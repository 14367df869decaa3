"""Maximum spanning arborescences: the best tree that a matrix of scores between words allows."""

import numpy as np
import torch
from jaxtyping import Float, Int

from lorgnette.syntax.edmonds import ROOT, arborescences

WAYS = ("to_head", "read_by_head")
"""Whose row gives an edge its score: the dependent's, or (the transposed matrix) the head's."""
ROOTS = ("gold", "free")


def rooted_trees(
    scores: Float[np.ndarray, "graph dependent governor"], root: int
) -> Int[np.ndarray, "graph dependent"]:
    """For each graph the tree with that root whose edges have the largest sum; heads by position, −1 for the root.

        argmax over trees of Σ_d scores[d, head(d)]

    Chu & Liu 1965, Edmonds 1967. All trees of n words have n − 1 edges, so a constant added to all scores changes
    nothing.
    """
    words = scores.shape[-1]
    # The root goes first: the routine takes its first node for the root.
    order = np.r_[root, np.delete(np.arange(words), root)]
    solution = _solved(_edges(scores)[:, order][:, :, order])
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
    edges = _edges(scores)
    roots = np.zeros((graphs, words)) if root is None else root - root.min(-1, keepdims=True)
    whole = np.full((graphs, words + 1, words + 1), -np.inf)
    whole[:, 1:, 1:] = edges
    least = scores.min((1, 2), initial=0.0)
    spread = scores.max((1, 2), initial=0.0) - least + roots.max(-1, initial=0.0) + 1
    whole[:, 1:, 0] = roots + (least - words * spread)[:, None]
    return _solved(whole)[:, 1:] - 1


def _edges(scores: Float[np.ndarray, "graph dependent governor"]) -> Float[np.ndarray, "graph dependent governor"]:
    """A copy without edges from a word to itself."""
    out = scores.astype(np.float64)
    diagonal = np.arange(scores.shape[-1])
    out[:, diagonal, diagonal] = -np.inf
    return out


def _solved(scores: Float[np.ndarray, "graph node node2"]) -> Int[np.ndarray, "graph node"]:
    return arborescences(torch.from_numpy(np.ascontiguousarray(scores))).numpy()
