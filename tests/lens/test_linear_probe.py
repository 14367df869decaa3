"""Linear probes are where scikit-learn's are, whatever the sample; they know whether they have converged."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from lorgnette.lens.probes import linear
from lorgnette.lens.probes.probe import Recipe, train_probes


def planted(width, common, items, classes=4, seed=0, test=1500):
    """Labels that are an exact linear function of vectors, which share one direction to some extent."""
    draw = np.random.default_rng(seed)
    direction = draw.normal(size=width)
    direction /= np.linalg.norm(direction)
    x = draw.normal(size=(items + test, width)) * np.sqrt(1 - common) + np.sqrt(common * width) * direction
    scores = x @ draw.normal(size=(width, classes))
    y = (scores - scores.mean(0)).argmax(1)
    return (x[:items], y[:items]), (x[items:], y[items:])


@pytest.mark.parametrize(("width", "common", "items"), [(32, 0.0, 500), (32, 0.0, 1400), (128, 0.9, 1200)])
def test_accuracy_is_scikit_learns(width, common, items):
    """At 500 items of width 32 twelve epochs of Adam reached .486 where scikit-learn has .962."""
    (x, y), (z, asked) = planted(width, common, items)
    vectors = torch.tensor(x, dtype=torch.float32)[None]
    probes = train_probes(vectors, torch.tensor(y)[None], 4, (0, 1), Recipe())
    found = probes.predict(torch.tensor(z, dtype=torch.float32)[None])
    assert bool(probes.converged.all())
    assert torch.equal(found[0], found[1])  # one minimum: no seed
    centre, scale = x.mean(0), x.std(0)
    theirs = LogisticRegression(max_iter=3000).fit((x - centre) / scale, y).score((z - centre) / scale, asked)
    ours = float((found[0, 0].numpy() == asked).mean())
    assert ours >= theirs - 0.02


def test_the_minimum_is_scikit_learns_layer_by_layer(monkeypatch):
    monkeypatch.setattr(linear, "TOLERANCE", 1e-7)
    pairs = [planted(12, common, 300, seed=seed) for seed, common in enumerate((0.0, 0.5))]
    x = torch.tensor(np.stack([pair[0][0] for pair in pairs]))
    labels = torch.tensor(np.stack([pair[0][1] for pair in pairs]))
    strength = torch.tensor([0.3, 2.0], dtype=torch.float64)
    found, converged = linear.minimised(x, labels, 4, 1 / (strength * 300))
    assert bool(converged.all())
    for layer, ((vectors, wanted), _) in enumerate(pairs):
        theirs = LogisticRegression(C=float(strength[layer]), tol=1e-8, max_iter=5000).fit(vectors, wanted)
        ours = found[layer, :-1] - found[layer, :-1].mean(-1, keepdim=True)  # logits are defined up to a constant
        expected = torch.tensor(theirs.coef_.T - theirs.coef_.T.mean(1, keepdims=True))
        torch.testing.assert_close(ours, expected, atol=2e-4, rtol=0)


def test_regularisation_is_chosen_on_the_whole_sample():
    """The best C grows with the sample: on 3,000 of these 10,000 items .1 is best, and costs a point of accuracy."""
    (x, y), (z, asked) = planted(384, 0.9, 10_000)
    centre, scale = x.mean(0), x.std(0)
    fit = linear.fit_linear(torch.tensor((x - centre) / scale)[None], torch.tensor(y)[None], 4)
    found = (torch.tensor((z - centre) / scale) @ fit.weight[0] + fit.bias[0]).argmax(-1).numpy()
    assert fit.strength.tolist() == [1.0]
    assert (found == asked).mean() > 0.96


def test_what_has_not_converged_says_so(monkeypatch):
    (x, y), _ = planted(16, 0.5, 400)
    monkeypatch.setattr(linear, "ITERATIONS", 2)
    fit = linear.fit_linear(torch.tensor(x)[None], torch.tensor(y)[None], 4)
    assert not bool(fit.converged.any())
