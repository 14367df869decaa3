"""Probes trained side by side against probes trained one by one; control labels; the structural probe's parts."""

import itertools

import numpy as np
import pytest
import torch

from lorgnette.lens.probes.probe import Recipe, control_labels, train_mixture, train_probes
from lorgnette.lens.probes.structural import probed_distances, spanning_tree, structural_loss, tree_distances


def clouds(items=120, layers=3, width=5, classes=3, seed=0):
    """Layer 0 is noise; in layers 1 and 2 the label is the place."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (items,), generator=generator)
    vectors = torch.randn(layers, items, width, generator=generator, dtype=torch.float64)
    places = 4 * torch.randn(classes, width, generator=generator, dtype=torch.float64)
    vectors[1:] += places[labels]
    return vectors, labels


def slow_probe(vectors, labels, classes, seed, recipe):
    """One probe, by the book: torch.nn and CrossEntropyLoss, with the same start and the same order of items."""
    x = (vectors - vectors.mean(0)) / vectors.std(0, correction=0)
    width = x.shape[1]
    sizes = [(width, classes)] if recipe.hidden is None else [(width, recipe.hidden), (recipe.hidden, classes)]
    modules = []
    for rows, columns in sizes:
        linear = torch.nn.Linear(rows, columns, dtype=torch.float64)
        drawn = torch.randn(
            rows, columns, generator=torch.Generator().manual_seed(seed * 7919 + rows), dtype=torch.float64
        )
        with torch.no_grad():
            linear.weight.copy_(drawn.T / rows**0.5)
            linear.bias.zero_()
        modules += [linear, torch.nn.ReLU()]
    model = torch.nn.Sequential(*modules[:-1])
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    steps = recipe.epochs_for(len(x)) * -(-len(x) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(recipe.epochs_for(len(x))):
        order = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), recipe.batch_size):
            chosen = order[start : start + recipe.batch_size]
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x[chosen]), labels[chosen]).backward()
            optimizer.step()
            schedule.step()
    return [parameter.detach() for parameter in model.parameters()]


@pytest.mark.parametrize(("epochs", "least"), [(2, 90), (20, 6)])
def test_side_by_side_is_one_by_one(epochs, least, monkeypatch):
    """Of probes with a hidden layer; linear ones are compared with scikit-learn's."""
    monkeypatch.setattr("lorgnette.lens.probes.probe.LEAST_STEPS", least)
    vectors, labels = clouds()
    recipe = Recipe(hidden=4, epochs=epochs, batch_size=50)
    assert recipe.epochs_for(len(labels)) * 3 == max(epochs * 3, least)
    probes = train_probes(vectors, labels[None], 3, (0, 5), recipe)
    for (s, seed), layer in itertools.product(enumerate((0, 5)), range(3)):
        alone = slow_probe(vectors[layer], labels, 3, seed, recipe)
        for number, parameter in enumerate(alone):
            ours = probes.parameters[number][s, layer]
            expected = parameter.T if parameter.ndim == 2 else parameter[None]
            torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-11)


def test_a_probe_finds_what_is_there_and_not_what_is_not():
    vectors, labels = clouds(items=600)
    probes = train_probes(vectors[:, :400], labels[None, :400], 3, (0, 1), Recipe(learning_rate=0.02, epochs=60))
    accuracy = (probes.predict(vectors[:, 400:]) == labels[400:]).double().mean(-1)
    assert (accuracy[:, 1:] > 0.9).all()
    assert (accuracy[:, 0] < 0.5).all()


def test_the_mixture_takes_the_layers_that_know():
    vectors, labels = clouds(items=600)
    mixture = train_mixture(vectors, labels, 3, (0, 1), Recipe(epochs=20, learning_rate=0.01))
    assert (mixture.weights[:, 0] < 0.15).all()
    torch.testing.assert_close(mixture.weights.sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(mixture.centre, mixture.weights[:, 1] + 2 * mixture.weights[:, 2])


def test_a_constant_dimension_does_no_harm():
    vectors, labels = clouds()
    vectors[:, :, 0] = 7.0
    probes = train_probes(vectors, labels[None], 3, (0,), Recipe(epochs=1))
    assert all(parameter.isfinite().all() for parameter in probes.parameters)


def test_control_labels_follow_the_labels_and_depend_on_the_type_alone():
    labels = torch.tensor([0] * 70 + [1] * 20 + [2] * 10)
    types = [f"word{number}" for number in range(5000)]
    first, again = control_labels(types, labels, 3), control_labels(types[::-1], labels, 3)
    assert first == again
    shares = np.bincount(list(first.values()), minlength=3) / len(types)
    np.testing.assert_allclose(shares, [0.7, 0.2, 0.1], atol=0.03)
    assert control_labels(types, labels, 3, seed=1) != first


def test_distances_in_a_tree_by_hand():
    #       2 (root)
    #     1   4
    #        3  5
    expected = [[0, 1, 3, 2, 3], [1, 0, 2, 1, 2], [3, 2, 0, 1, 2], [2, 1, 1, 0, 1], [3, 2, 2, 1, 0]]
    assert tree_distances([2, 0, 4, 2, 4]).tolist() == expected


def test_probed_distances_and_loss_by_loops():
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    maps = torch.randn(2, 5, 2, generator=generator, dtype=torch.float64)
    gold = torch.randint(1, 4, (3, 4, 4), generator=generator).double()
    there = torch.tensor([[True] * 4, [True, True, True, False], [True, True, False, False]])
    probed = probed_distances(vectors, maps)
    loss = structural_loss(probed, gold, there)
    for layer in range(2):
        total = 0.0
        for text in range(3):
            n = int(there[text].sum())
            off = 0.0
            for i, j in itertools.product(range(n), range(n)):
                difference = (vectors[layer, text, i] - vectors[layer, text, j]) @ maps[layer]
                distance = float(difference @ difference)
                assert abs(float(probed[layer, text, i, j]) - distance) < 1e-10
                off += abs(distance - float(gold[text, i, j]))
            total += off / n**2
        assert abs(float(loss[layer]) - total / 3) < 1e-10


def test_the_spanning_tree_is_the_lightest_of_all():
    rng = np.random.default_rng(0)
    for n in (2, 3, 4, 5):
        for _ in range(10):
            distances = rng.random((n, n))
            distances = distances + distances.T
            pairs = list(itertools.combinations(range(n), 2))
            best = min(
                (edges for edges in itertools.combinations(pairs, n - 1) if _connected(edges, n)),
                key=lambda edges: sum(distances[edge] for edge in edges),
            )
            assert spanning_tree(distances) == set(best)


def test_words_at_the_same_place_still_have_a_tree():
    assert len(spanning_tree(np.zeros((4, 4)))) == 3


def _connected(edges, n):
    reached = {0}
    for _ in range(n):
        reached |= {j for i, j in edges if i in reached} | {i for i, j in edges if j in reached}
    return len(reached) == n
