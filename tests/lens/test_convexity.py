"""The convexity lens against loops, and the law that a mix stays in the cone of what is mixed."""

import math

import numpy as np
import pytest
import torch
from tiny import EXAMPLES, bert, gpt2, marian

from lorgnette.attending import Tap
from lorgnette.lens.convexity import formulas as maths
from lorgnette.lens.convexity import lens as module
from lorgnette.lens.convexity.formulas import angle
from lorgnette.lens.convexity.lens import Convexity
from lorgnette.testing import run_lens


class Catch(Tap):
    def __init__(self):
        self.calls = {}

    def see(self, call):
        self.calls[call.site] = (call.weights.clone()[0], call.value.clone()[0])


def between(one, other):
    cosine = float(one @ other / (one.norm() * other.norm()))
    return math.acos(max(-1.0, min(1.0, cosine)))


def slow(weights, value, causal):
    """One head of one text, query by query; mean over queries of what is defined."""
    found = {name: [] for name in module._DESCRIPTIONS}
    for i in range(len(weights)):
        seen = value[: i + 1] if causal else value
        y, mean = weights[i] @ value, seen.mean(0)
        angles = [between(v, mean) for v in seen] if len(seen) > 1 else [0.0]
        turn = between(y, mean) if len(seen) > 1 else 0.0
        found["distance"].append(float((y - mean).norm() / mean.norm()))
        found["cosine"].append(math.cos(turn))
        found["angle"].append(turn)
        found["cone_widest"].append(max(angles))
        found["cone_average"].append(sum(angles) / len(angles))
        found["norm_ratio"].append(float(y.norm() / mean.norm()))
        found["beyond"].append(float(turn > max(angles) + 1e-6))
        if max(angles) > 0:
            found["used"].append(turn / max(angles))
    return {name: np.mean(values) for name, values in found.items() if values}


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_it_is_the_loops(make, monkeypatch):
    monkeypatch.setattr(maths, "BLOCK", 300)  # several blocks of rows
    subject = make()
    data = run_lens(Convexity(), subject, [subject.encode(list(EXAMPLES))]).compute().data
    expected = {}
    for example in EXAMPLES:
        catch = Catch()
        with torch.no_grad(), subject.tapped(catch):
            subject.run(subject.encode([example]))
        for site, (weights, value) in catch.calls.items():
            for head in range(subject.heads):
                for name, mean in slow(weights[head], value[head], site.name == "decoder").items():
                    expected.setdefault((site, head, name), []).append(mean)
    for (site, head, name), values in expected.items():
        cell = data.sel(stack=site.name, layer=site.layer + 1, head=head + 1)
        assert cell[name].item() == pytest.approx(np.mean(values), abs=1e-7), (site, head, name)
        assert cell[f"{name}_count"].item() == len(values)
    assert (data.no_mean == 0).all()


def test_angles_are_exact_where_arccos_is_not():
    one = torch.tensor([1.0, 0.0], dtype=torch.float64)
    for turn in (0.0, 1e-9, 1e-4, 1.0, math.pi / 2, math.pi):
        other = torch.tensor([math.cos(turn), math.sin(turn)], dtype=torch.float64) * 3
        assert angle(one, other).item() == pytest.approx(turn, rel=1e-9, abs=1e-15)
    assert angle(one, torch.zeros(2, dtype=torch.float64)).item() == 0.0


def test_a_dead_head_is_counted_not_nan():
    subject = bert()
    value = subject.model.encoder.layer[0].attention.self.value
    with torch.no_grad():
        value.weight[:8] = 0.0
        value.bias[:8] = 0.0
    batch = subject.encode(list(EXAMPLES))
    data = run_lens(Convexity(), subject, [batch]).compute().data.sel(stack="encoder", layer=1)
    assert data.no_mean.sel(head=1).item() == int(batch.source.mask.sum())
    assert data.distance_count.sel(head=1).item() == 0
    assert (data.no_mean.sel(head=[2, 3, 4]) == 0).all()


def test_one_key_leaves_nothing_to_choose():
    subject = gpt2()
    data = run_lens(Convexity(), subject, [subject.encode(["good"])]).compute().data
    assert (data.used_count == 0).all()
    assert (data.distance < 1e-12).all()
    assert (data.cone_widest == 0).all()
