"""The same on real texts: a small classifier of SST-2, trained here, and one of yours.

lorgnette train minilm --corpus sst2 --out runs/minilm-sst2
LORGNETTE_SST2_MODEL=runs/minilm-sst2 LORGNETTE_DATA=… pytest tests/planted/test_real_rankings.py
"""

import os
import random

import pytest

import lorgnette as lo
from benchmarks.head_ranking import Study, lowest, matched, rankings
from lorgnette.subject import load
from lorgnette.texts import corpus

MODEL, DATA = os.environ.get("LORGNETTE_SST2_MODEL"), os.environ.get("LORGNETTE_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="no SST-2: set LORGNETTE_DATA to the folder that has the corpora")
METHODS = ("greedy, mean abs. slope", "agreement")  # what `prune` calls importance and agreement


def texts_of(split, count):
    return random.Random(0).sample(list(corpus("sst2", split=split, data=DATA)), count)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two layers of five heads on GloVe, a few seconds: accuracy about .77."""
    folder = tmp_path_factory.mktemp("sst2") / "small"
    lo.train(
        "tp9-residual-cls", "sst2", folder, layers=2, heads=5, limit=3000, epochs=2, seed=1, test_limit=100, data=DATA
    )
    return folder


@pytest.fixture(scope="module")
def study(trained):
    return Study(load(str(trained)), texts_of("test", 600))


@pytest.fixture(scope="module")
def scores(study):
    return rankings(study, texts_of("validation", 64))


@pytest.fixture(scope="module")
def by_chance(study):
    sets = [random.Random(seed).sample(study.heads, len(study.heads) // 2) for seed in range(6)]
    return sum(study.accuracy(one) for one in sets) / len(sets)


@pytest.mark.parametrize("method", METHODS)
def test_no_ranking_is_worse_than_random_sets(study, scores, by_chance, method):
    """One small model: of six such, both rankings beat the mean of random sets in five, signed ones in none."""
    assert study.accuracy([]) > 0.7
    assert study.accuracy(lowest(scores[method](), len(study.heads) // 2)) > by_chance


def test_a_signed_ranking_is_worse(study, scores, by_chance):
    """What `prune` did once; if this passed for chance, the test above would say nothing."""
    assert study.accuracy(lowest(scores["change, signed"](), len(study.heads) // 2)) < by_chance


def test_gates_are_not_worse_than_random_sets(trained, tmp_path):
    training = {"epochs": 2, "limit": 600, "test_limit": 400, "data": DATA, "settle": 0, "onnx": False}
    training |= {"keep": 0.5, "only": ["heads"]}
    pruned = lo.prune(trained, "sst2", tmp_path / "gates", method="gates", controls=6, **training)
    controls = pruned.record["controls"]
    assert controls["chosen"] >= sum(controls["random"]) / len(controls["random"])


@pytest.mark.skipif(not MODEL, reason="no classifier of SST-2 is given: set LORGNETTE_SST2_MODEL")
@pytest.mark.parametrize("method", METHODS)
def test_no_ranking_is_worse_on_a_model_of_yours(method):
    study = Study(load(str(MODEL)), texts_of("test", 300))
    gone = lowest(rankings(study, texts_of("validation", 48))[method](), len(study.heads) // 2)
    sets = [matched(study.heads, gone, seed) for seed in range(2)]
    sets += [random.Random(seed).sample(study.heads, len(gone)) for seed in range(4)]
    assert study.accuracy(gone) > sum(study.accuracy(one) for one in sets) / len(sets)
