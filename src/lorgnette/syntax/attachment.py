"""Agreement of a tree with the gold tree, and baseline trees that ignore the words."""

import numpy as np
from jaxtyping import Bool, Float, Int

from lorgnette.syntax.arborescence import rooted_trees
from lorgnette.syntax.edmonds import ROOT

UNKNOWN = -2
"""Gold head of a word whose head the model does not see: it cannot be right, and is not scored."""

SCORES = ("uas", "uas_nonroot", "uas_words", "uas_words_nonroot", "undirected", "undirected_words")
"""What `agreement` gives, in order; `words`: without punctuation, `undirected`: edges, whichever end is the head."""

BASELINES = ("head_is_next", "head_is_previous", "random_word", "random_tree", "star")


def agreement(
    predicted: Int[np.ndarray, "tree word"], gold: Int[np.ndarray, " word"], punctuation: Bool[np.ndarray, " word"]
) -> tuple[Bool[np.ndarray, "tree word score"], Bool[np.ndarray, "word score"]]:
    """Which words each score counts, and which of them are right; heads by position, −1 for the root.

        uas                head(d) = gold(d); the root is right if it is the gold root (always, where it was given)
        uas_nonroot        the same without the gold root's own word
        undirected         head(d) = gold(d) or gold(head(d)) = d, over words other than the gold root

    UAS as in CoNLL's shared tasks; with one head for every word its precision, recall and F₁ are one number.
    """
    directed = predicted == gold
    back = np.take_along_axis(np.broadcast_to(gold, predicted.shape), np.clip(predicted, 0, None), -1)
    either = directed | ((predicted >= 0) & (back == np.arange(len(gold))))
    known, inner = gold != UNKNOWN, gold >= 0
    counted = [known, inner, known & ~punctuation, inner & ~punctuation, inner, inner & ~punctuation]
    right = [directed] * 4 + [either] * 2
    counts = np.stack(counted, -1)
    return np.stack(right, -1) & counts, counts


def head_is_next(words: int, root: int) -> Int[np.ndarray, " word"]:
    """Every word hangs on the next one ("right-branching" in Raganato & Tiedemann); the last, on none."""
    heads = np.arange(1, words + 1)
    heads[-1] = UNKNOWN
    heads[root] = ROOT
    return heads


def head_is_previous(words: int, root: int) -> Int[np.ndarray, " word"]:
    """Every word hangs on the one before ("left-branching" in Raganato & Tiedemann); the first, on none."""
    heads = np.arange(-1, words - 1)
    heads[0] = UNKNOWN
    heads[root] = ROOT
    return heads


def star(words: int, root: int) -> Int[np.ndarray, " word"]:
    """Every word hangs on the root."""
    heads = np.full(words, root)
    heads[root] = ROOT
    return heads


def random_word(words: int, root: int, draws: Float[np.ndarray, "draw word"]) -> Int[np.ndarray, "draw word"]:
    """Every word hangs on one of the other words, all equally likely; `draws` are uniform in [0, 1)."""
    other = np.floor(draws * (words - 1)).astype(int)
    heads = other + (other >= np.arange(words))
    heads[:, root] = ROOT
    return heads


def random_tree(root: int, draws: Float[np.ndarray, "draw word word2"]) -> Int[np.ndarray, "draw word"]:
    """The best tree of random scores: what the tree constraint alone achieves."""
    return rooted_trees(draws, root)


def baseline_trees(words: int, root: int, seed: int, draws: int) -> dict[str, Int[np.ndarray, "draw word"]]:
    """All `BASELINES` for a sentence; the random ones `draws` times."""
    rng = np.random.default_rng(seed)
    return {
        "head_is_next": head_is_next(words, root)[None],
        "head_is_previous": head_is_previous(words, root)[None],
        "random_word": random_word(words, root, rng.random((draws, words))),
        "random_tree": random_tree(root, rng.random((draws, words, words))),
        "star": star(words, root)[None],
    }
