"""The same on a real classifier: LORGNETTE_SST2_MODEL was fine-tuned on SST-2, LORGNETTE_DATA has the corpora.

lorgnette train minilm --corpus sst2 --out runs/minilm-sst2
LORGNETTE_SST2_MODEL=runs/minilm-sst2 LORGNETTE_DATA=… pytest tests/planted/test_real_rankings.py
"""

import os
import random

import pytest

from benchmarks.head_ranking import Study, lowest, matched
from lorgnette.subject import load
from lorgnette.texts import corpus
from lorgnette.training.pruning.ranking import agreement_scores, importance_scores

MODEL, DATA = os.environ.get("LORGNETTE_SST2_MODEL"), os.environ.get("LORGNETTE_DATA")
pytestmark = pytest.mark.skipif(
    not (MODEL and DATA), reason="no classifier of SST-2 is given: set LORGNETTE_SST2_MODEL and LORGNETTE_DATA"
)


@pytest.mark.parametrize("method", [importance_scores, agreement_scores])
def test_no_ranking_is_worse_than_random_sets(method):
    subject = load(MODEL)
    study = Study(subject, list(corpus("sst2", split="test", data=DATA).take(300)))
    texts = random.Random(0).sample(list(corpus("sst2", split="validation", data=DATA)), 48)
    gone = lowest(method(subject, texts), len(study.heads) // 2)
    sets = [matched(study.heads, gone, seed) for seed in range(2)]
    sets += [random.Random(seed).sample(study.heads, len(gone)) for seed in range(4)]
    others = [study.accuracy(one) for one in sets]
    assert study.accuracy(gone) > sum(others) / len(others)
