"""The tree routine against exhaustive search: every tree of up to six words, weighed one by one."""

import itertools
from functools import cache

import networkx as nx
import numpy as np
import pytest

from lorgnette.syntax.arborescence import free_trees, rooted_trees


def is_tree(heads):
    for word in range(len(heads)):
        steps = 0
        while word != -1 and steps <= len(heads):
            word, steps = heads[word], steps + 1
        if word != -1:
            return False
    return heads.count(-1) == 1


@cache
def all_trees(words):
    choices = [[h for h in range(-1, words) if h != d] for d in range(words)]
    return np.array([heads for heads in itertools.product(*choices) if heads.count(-1) == 1 and is_tree(heads)])


def weighed(heads, scores):
    """Σ of a tree's edges; heads [… word], scores [word word]."""
    word = np.arange(heads.shape[-1])
    return np.where(heads < 0, 0.0, scores[word, np.clip(heads, 0, None)]).sum(-1)


def graphs(kind, words, count, rng):
    shape = (count, words, words)
    if kind == "attention":
        return rng.dirichlet(np.full(words, 0.3), size=(count, words))
    if kind == "ties":
        return rng.integers(0, 3, shape).astype(float)
    return np.zeros(shape) if kind == "zero" else rng.normal(size=shape)


@pytest.mark.parametrize("words", range(1, 7))
def test_there_are_as_many_trees_as_cayley_says(words):
    assert len(all_trees(words)) == words ** (words - 1)


@pytest.mark.parametrize("kind", ["attention", "ties", "signed", "zero"])
@pytest.mark.parametrize("words", range(1, 7))
def test_no_tree_is_heavier(words, kind):
    rng = np.random.default_rng(words)
    trees = all_trees(words)
    scores = graphs(kind, words, 2 if kind == "zero" else 30, rng)
    root_scores = rng.normal(size=scores.shape[:2])
    weights = np.stack([weighed(trees, graph) for graph in scores])
    as_root = np.stack([(trees == -1) @ row for row in root_scores])
    for root in range(words):
        found = rooted_trees(scores, root)
        for number, tree in enumerate(found):
            assert is_tree(tree.tolist())
            assert tree[root] == -1
            best = weights[number, trees[:, root] == -1].max()
            assert weighed(tree, scores[number]) == pytest.approx(best, abs=1e-9)
    for found, total in ((free_trees(scores), weights), (free_trees(scores, root_scores), weights + as_root)):
        for number, tree in enumerate(found):
            assert is_tree(tree.tolist())
            own = weighed(tree, scores[number]) + (root_scores[number][tree == -1].sum() if total is not weights else 0)
            assert own == pytest.approx(total[number].max(), abs=1e-9)


def test_every_graph_of_three_words_with_weights_of_zero_to_two():
    trees = all_trees(3)
    off = ~np.eye(3, dtype=bool)
    every = np.zeros((3**6, 3, 3))
    every[:, off] = list(itertools.product((0.0, 1.0, 2.0), repeat=6))
    weights = np.stack([weighed(trees, graph) for graph in every])
    for tree, graph, best in zip(free_trees(every), every, weights.max(1), strict=True):
        assert weighed(tree, graph) == best
    for root in range(3):
        of_root = weights[:, trees[:, root] == -1].max(1)
        for tree, graph, best in zip(rooted_trees(every, root), every, of_root, strict=True):
            assert weighed(tree, graph) == best


def test_the_scores_are_not_changed():
    scores = np.random.default_rng(0).random((3, 5, 5))
    before = scores.copy()
    rooted_trees(scores, 2), free_trees(scores)
    assert (scores == before).all()


@pytest.mark.parametrize(("words", "sharpness"), [(9, 0.3), (17, 0.05), (24, 3.0)])
def test_trees_of_sentences_are_those_of_networkx(words, sharpness):
    scores = np.random.default_rng(words).dirichlet(np.full(words, sharpness), size=(4, words))
    for graph, tree in zip(scores, rooted_trees(scores, 2), strict=True):
        edges = nx.DiGraph()
        edges.add_weighted_edges_from(
            (governor, word, graph[word, governor])
            for word, governor in itertools.product(range(words), repeat=2)
            if word not in (governor, 2)
        )
        best = nx.maximum_spanning_arborescence(edges)
        assert {(int(head), word) for word, head in enumerate(tree) if head >= 0} == set(best.edges)


def test_a_tree_does_not_depend_on_the_other_graphs():
    scores = graphs("ties", 12, 20, np.random.default_rng(1))
    together = free_trees(scores)
    for number in range(20):
        assert (free_trees(scores[number : number + 1])[0] == together[number]).all()
