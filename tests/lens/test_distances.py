"""Distances between heads: the paper's sum loop by loop, the laws, and heads planted to be alike."""

import math

import numpy as np
import pytest
import torch
from tiny import NUMBERED, examples, subject

from benchmarks.planted_heads import HEADS, annotated, planted_subject
from lorgnette.errors import UserError
from lorgnette.kernels import Room
from lorgnette.lens.distances import lens as module
from lorgnette.lens.distances.lens import Distances
from lorgnette.testing import run_lens
from lorgnette.texts.example import Example


def oracle(subject_, texts, smoothing=0.001):
    """Mean over texts of the mean over queries of JS between every two heads, in nats, one number at a time."""
    sums = {}
    for example in texts:
        trace = subject_.trace(example)
        for stack in trace.stacks:
            weights = trace[f"{stack}.weights"].double().flatten(0, 1)  # [layer·head, query, key]
            for a in range(len(weights)):
                for b in range(len(weights)):
                    total = 0.0
                    for i in range(weights.shape[1]):
                        seen = [j for j in range(weights.shape[2]) if stack != "decoder" or j <= i]
                        p, q = ([(1 - smoothing) * w[i, j].item() + smoothing / len(seen) for j in seen]
                                for w in (weights[a], weights[b]))  # fmt: skip
                        for x, y in zip(p, q, strict=True):
                            m = (x + y) / 2
                            total += (x * math.log(x / m) + y * math.log(y / m)) / 2
                    sums.setdefault((stack, a, b), []).append(total / weights.shape[1])
    return {key: (np.mean(values), np.std(values, ddof=1) / len(values) ** 0.5) for key, values in sums.items()}


@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_it_is_the_papers_sum(family, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", Room(200, 200))  # several blocks of queries
    tiny, texts = subject(family), examples((3, 5, 2))
    data = run_lens(Distances(), tiny, [tiny.encode(texts)]).compute().data
    for (stack, a, b), (mean, error) in oracle(tiny, texts).items():
        cell = data.sel(stack=stack).isel(head_a=a, head_b=b)
        assert cell.divergence.item() == pytest.approx(mean, abs=1e-11)
        assert cell.divergence_se.item() == pytest.approx(error, abs=1e-11)
        assert cell.divergence_count.item() == 3


def test_a_shorter_stack_is_missing_not_zero():
    tiny = subject("marian")  # two encoder layers, three decoder layers
    data = run_lens(Distances(), tiny, [tiny.encode(examples((3, 4)))]).compute().data
    assert data.x.sel(stack="encoder", layer=3).isnull().all()
    assert data.divergence_count.sel(stack="encoder", head_a="3-1").sum() == 0
    assert data.kind.sel(stack="encoder", layer=3).isnull().all()
    assert data.x.sel(stack="cross").notnull().all()


@pytest.fixture(scope="module")
def planted_text():
    from lorgnette.texts import corpus

    return annotated(corpus("planted", limit=12))


def test_planted_heads_are_found_alike_and_named(planted_text):
    planted = planted_subject(planted_text)
    data = run_lens(Distances(), planted, [planted.encode(list(planted_text))]).compute().data.sel(stack="encoder")
    place = {name: f"1-{number + 1}" for number, name in enumerate(HEADS)}
    between = lambda a, b: data.divergence.sel(head_a=place[a], head_b=place[b]).item()  # noqa: E731
    assert between("previous", "dead") < 1e-4  # the same weights
    assert between("previous", "next") > 0.6  # nearly ln 2: never the same token
    kinds = dict(zip(HEADS, data.kind.sel(layer=1).values, strict=True))
    assert [kinds[name] for name in ("previous", "next", "sep", "dead", "first")] == [
        "previous", "next", "sep", "previous", "cls",
    ]  # fmt: skip
    at = np.stack([data.x.values[0], data.y.values[0]], -1)
    gap = lambda a, b: np.linalg.norm(at[HEADS.index(a)] - at[HEADS.index(b)])  # noqa: E731
    assert gap("previous", "dead") < 0.2 * gap("previous", "next")


def test_the_control_has_no_such_pair(planted_text):
    control = planted_subject(planted_text, control=True)
    data = run_lens(Distances(), control, [control.encode(list(planted_text))]).compute().data
    off = data.divergence.values[0][~np.eye(len(HEADS), dtype=bool)]
    assert off.min() > 1e-3
    assert set(data.kind.values.ravel()) == {"other"}


def test_a_broad_head_needs_long_texts():
    tiny = subject("bert")
    with torch.no_grad():
        for site in tiny.anatomy.sites:
            site.module.query.weight.zero_(), site.module.query.bias.zero_()  # every row is even
    # Words only: of a text that is half punctuation, an even row has half of its mass there.
    short, long = (
        run_lens(Distances(), tiny, [tiny.encode([Example("1", " ".join(NUMBERED[2 : 2 + length]))])]).compute().data
        for length in (10, 60)
    )
    assert set(short.kind.values.ravel()) == {"other"}
    assert set(long.kind.values.ravel()) == {"broad"}
    assert long.divergence.max() < 1e-12


def test_bad_smoothing():
    with pytest.raises(UserError, match=r"smoothing.*must be a number of at least 0 and below 1"):
        Distances(smoothing=1.0)
