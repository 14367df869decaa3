"""Probes over a corpus: planted features are found, control tasks are not, and wrong input is told."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from paired_oracle import paired_q
from tiny import EXAMPLES, MAKERS, TREEBANK

from lorgnette.errors import UserError
from lorgnette.lens.moments import Moments
from lorgnette.lens.probes.lens import Probes
from lorgnette.lens.probes.outcome import from_the_best, ratio
from lorgnette.looking.look import look
from lorgnette.looking.probing import probe, structural_probe
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

pytestmark = pytest.mark.usefixtures("few_steps")

WORDS = ("the", "cat", "sat", "on", "mat", "dog", "ran", "slept", "good", "bad")


def sentences(number, seed=0):
    """Words in random order; `form` says which word it is, `coin` is a coin nobody can know."""
    rng = np.random.default_rng(seed)
    out = []
    for index in range(number):
        words = tuple(rng.choice(WORDS, size=6))
        tags = {
            "form": tuple("animal" if word in ("cat", "dog") else "other" for word in words),
            "coin": tuple(rng.choice(["heads", "tails"], size=6)),
        }
        heads = (2, 0, 2, 3, 4, 5)
        out.append(Example(f"s{seed}.{index}", " ".join(words), words=words, tags=tags, heads=heads, label=index % 2))
    return out


def corpus(examples, name="made"):
    return Corpus(name, lambda: iter(examples), labels=("a", "b"))


@pytest.fixture(scope="module")
def subject():
    return MAKERS["bert"]()


def test_a_planted_feature_is_found_and_a_coin_is_not(subject):
    train, test = corpus(sentences(60)), corpus(sentences(30, seed=1))
    found = probe(subject, train, test, "form", hidden=8, seeds=(0, 1), epochs=150).data
    assert float(found.accuracy.min()) > 0.95
    assert float(found.embedding_accuracy.min()) > 0.95
    assert float(found.type_majority) == 1.0
    coin = probe(subject, train, test, "coin", hidden=8, seeds=(0, 1), epochs=150).data
    assert float(abs(coin.accuracy - 0.5).max()) < 0.2


def test_selectivity_is_the_difference_and_counts_are_right(subject):
    data = probe(subject, corpus(sentences(20)), corpus(sentences(10, seed=1)), "form", epochs=1).data
    np.testing.assert_allclose(data.selectivity, data.accuracy - data.control, atol=1e-12)
    assert int(data.train_items) == 120
    assert int(data.test_items) == 60
    assert int(data.labels) == 2
    assert set(np.unique(data.accuracy_count)) == {10}  # texts, over which the error is


def test_as_a_lens_the_parts_are_made_by_the_text(subject):
    lens = Probes("form", epochs=1, hidden=None, seeds=(0,))
    result = look(subject, corpus(sentences(40)), [lens])["probes"]
    assert int(result.data.train_items) + int(result.data.test_items) == 240
    assert int(result.data.train_items) % 6 == 0  # whole texts
    assert list(result.data.probe.values) == ["linear"]


def test_the_label_of_a_text(subject):
    data = probe(subject, corpus(sentences(30)), corpus(sentences(10, seed=1)), "label", epochs=1).data
    assert int(data.test_items) == 10


def test_labels_seen_only_in_test_are_counted_and_wrong(subject):
    strange = [replace(e, tags={"form": ("never",) * 6}) for e in sentences(5, seed=2)]
    data = probe(subject, corpus(sentences(20)), corpus(strange), "form", epochs=1).data
    assert int(data.unseen_labels) == 30
    assert float(data.accuracy.max()) == 0.0


def test_one_label_alone_is_missing_not_wrong(subject):
    same = [replace(e, tags={"form": ("x",) * 6}) for e in sentences(8)]
    data = probe(subject, corpus(same), corpus(same), "form", epochs=1).data
    assert int(data.accuracy_count.max()) == 0
    assert np.isnan(data.accuracy.values).all()


def test_a_tag_that_is_not_there_is_told(subject):
    with pytest.raises(UserError, match="no 'form' tags"):
        look(subject, corpus(EXAMPLES), [Probes("form")])
    with pytest.raises(UserError, match=r"Did you mean.*upos"):
        look(subject, corpus(TREEBANK), [Probes("upo")])


def test_settings_are_checked():
    with pytest.raises(UserError, match="development"):
        Probes(development=2.0)


def test_the_error_is_that_of_moments(subject):
    generator = torch.Generator().manual_seed(0)
    texts = torch.randint(7, (50,), generator=generator)
    hits = torch.rand(2, 50, generator=generator, dtype=torch.float64)
    mean, error = ratio(hits, texts)
    lens = Probes()
    lens.bind(subject)
    moments = Moments(lens, "x", {"row": (0, 1)}, at="corpus")
    for text in texts.unique():
        chosen = texts == text
        moments.add(x=(hits[:, chosen].mean(-1)[None], chosen.sum().expand(1, 2)))
    arrays = moments.arrays()
    np.testing.assert_allclose(arrays["x"].values, mean, rtol=1e-12)
    np.testing.assert_allclose(arrays["x_se"].values, error, rtol=1e-9)


def test_structural_probe_runs_and_counts(subject):
    chain = [replace(e, heads=(2, 3, 4, 5, 6, 0)) for e in sentences(12)]
    data = structural_probe(subject, corpus(chain), corpus(chain), rank=4, epochs=1).data
    assert float(data.chain) == 1.0
    assert int(data.edges) == 5 * 12
    assert ((data.uuas >= 0) & (data.uuas <= 1)).all()


def test_structural_probe_finds_a_planted_tree():
    """Vectors whose squared distances are those of the tree, hidden in a rotation with noise around."""
    from lorgnette.lens.probes.structural import ProbedTree, trained_maps, tree_distances, tree_scores

    rng = np.random.default_rng(0)
    trees, noise = [], []
    rotation = np.linalg.qr(rng.standard_normal((16, 16)))[0]
    for number in range(80):
        n = 7
        heads = [0, *(int(rng.integers(1, word + 1)) for word in range(1, n))]
        low = np.zeros((n, 16))
        for word, head in enumerate(heads):
            if head:
                low[word] = low[head - 1]
                low[word, word] += 1.0  # one edge, one dimension: squared distance = number of edges
        low[:, 8:] += rng.standard_normal((n, 8))
        gold = torch.from_numpy(tree_distances(heads)).double()
        for kept, vectors in ((trees, low @ rotation), (noise, rng.standard_normal((n, 16)))):
            kept.append(ProbedTree(str(number), torch.from_numpy(vectors)[None], gold, np.ones(n, dtype=bool)))
    scores = []
    for kept in (trees, noise):
        maps = trained_maps(kept[:60], 8, 150, 20, 0.02, torch.Generator().manual_seed(0))
        scores.append(float(tree_scores(kept[60:], maps)["uuas"][0]))
    assert scores[0] > 0.9
    assert scores[1] < 0.6


def test_tree_scores_are_hewitt_and_mannings():
    """UUAS by Kruskal's algorithm, and Spearman's ρ of each word's distances by SciPy: both written out."""
    from scipy.stats import spearmanr

    from lorgnette.lens.probes.structural import ProbedTree, tree_distances, tree_scores

    rng = np.random.default_rng(3)
    trees = []
    for number, heads in enumerate(([2, 0, 2, 5, 2], [0, 1, 2, 3], [0, 1], [2, 0, 2, 3, 4, 5])):
        words = rng.random(len(heads)) < 0.9
        vectors = torch.from_numpy(rng.standard_normal((2, len(heads), 6)))
        trees.append(ProbedTree(str(number), vectors, torch.from_numpy(tree_distances(heads)).double(), words))
    maps = torch.from_numpy(rng.standard_normal((2, 6, 3)))
    data = tree_scores(trees, maps)
    for state in range(2):
        hits = wanted = 0
        correlations = []
        for tree in trees:
            low = (tree.vectors[state] @ maps[state]).numpy()
            probed = np.array([[((a - b) ** 2).sum() for b in low] for a in low])
            gold, kept = tree.distances.numpy(), np.flatnonzero(tree.words).tolist()
            group = {word: word for word in kept}
            for a, b in sorted(((a, b) for a in kept for b in kept if a < b), key=lambda pair: probed[pair]):
                if group[a] != group[b]:
                    group = {word: group[a] if own == group[b] else own for word, own in group.items()}
                    hits += gold[a, b] == 1
            wanted += sum(gold[a, b] == 1 for a in kept for b in kept if a < b)
            own = []
            for word in range(len(gold)):
                others = [other for other in range(len(gold)) if other != word]
                if len(set(gold[word, others])) > 1:
                    own.append(spearmanr(probed[word, others], gold[word, others]).statistic)
            if own:  # a text of two words has no correlation, not a correlation of 0
                correlations.append(np.mean(own))
        assert len(correlations) == 3
        assert float(data["uuas"][state]) == pytest.approx(hits / wanted, abs=1e-12)
        assert float(data["distance_correlation"][state]) == pytest.approx(np.mean(correlations), abs=1e-12)
        error = np.std(correlations, ddof=1) / len(correlations) ** 0.5
        assert float(data["distance_correlation_se"][state]) == pytest.approx(error, abs=1e-12)


def test_structural_probe_needs_trees(subject):
    with pytest.raises(UserError, match="no gold tree"):
        structural_probe(subject, corpus(EXAMPLES), corpus(EXAMPLES))


def test_states_are_paired_over_texts():
    """Texts differ far more than states do: what a text does to all of them cancels."""
    draw = np.random.default_rng(0)
    texts = np.sort(draw.integers(12, size=90))
    hits = draw.normal(size=(5, 90)) + 3 * draw.normal(size=12)[texts] + np.array([0, 0, 0, 0, 1.5])[:, None]
    found = from_the_best(torch.from_numpy(hits), torch.from_numpy(texts))
    sizes = np.bincount(texts).astype(float)
    means = np.stack([np.bincount(texts, row) / sizes for row in hits], 1)  # [text state]
    wanted = paired_q(means, np.repeat(sizes[:, None], 5, 1))
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert bool((found[:4] < 0.05).all())
    assert bool(found[4].isnan())


def test_the_best_state_is_compared_with_the_others(subject):
    data = probe(subject, corpus(sentences(20)), corpus(sentences(10, seed=1)), "coin", hidden=None, epochs=1).data
    missing = data.accuracy_top_q.isnull().values[0]
    assert missing.tolist() == [n == int(data.accuracy.values[0].argmax()) for n in range(data.sizes["state"])]
    assert data.accuracy_top_q_count.values[0].tolist() == [0 if none else 10 for none in missing]
