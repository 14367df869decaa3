"""BLEU: sacrebleu's number, and a paired bootstrap that knows what it does not know."""

import math
import random
from collections import Counter

import numpy as np
import pytest
import sacrebleu

from lorgnette.errors import UserError
from lorgnette.statistics.bleu import bleu, difference

WORDS = [f"word{number}" for number in range(40)]


def texts(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) for _ in range(draw.randint(5, 15))) for _ in range(count)]


def spoilt(references, share, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choice(WORDS) if draw.random() < share else w for w in one.split()) for one in references]


def by_hand(translations, references):
    """Papineni et al. 2002 on words between spaces, without smoothing."""
    logs, lengths = 0.0, [0, 0]
    for order in range(1, 5):
        hits = total = 0
        for said, wanted in zip(translations, references, strict=True):
            grams = [Counter(tuple(w[i : i + order]) for i in range(len(w) - order + 1))
                     for w in (said.split(), wanted.split())]  # fmt: skip
            hits += sum((grams[0] & grams[1]).values())
            total += sum(grams[0].values())
        logs += math.log(hits / total) / 4
    for said, wanted in zip(translations, references, strict=True):
        lengths[0] += len(said.split())
        lengths[1] += len(wanted.split())
    return 100 * min(1.0, math.exp(1 - lengths[1] / lengths[0])) * math.exp(logs)


def test_the_score_is_sacrebleus_and_the_papers():
    references = texts(60)
    said = [" ".join(one.split()[:-1]) for one in spoilt(references, 0.2)]  # too short, so that brevity counts
    found = bleu(said, references)
    assert found.score == pytest.approx(sacrebleu.corpus_bleu(said, [references]).score, abs=1e-9)
    assert found.score == pytest.approx(by_hand(said, references), abs=1e-9)
    assert "tok:13a" in found.signature
    assert sacrebleu.__version__ in found.signature
    assert found.brevity < 1


def test_draws_are_scores_of_drawn_texts():
    references = texts(30)
    said = spoilt(references, 0.3)
    found = bleu(said, references)
    chosen = np.random.default_rng(5).integers(30, size=(3, 30))
    for some, score in zip(chosen, found.draws(3, seed=5), strict=True):
        again = sacrebleu.corpus_bleu([said[i] for i in some], [[references[i] for i in some]]).score
        assert score == pytest.approx(again, abs=1e-9)


def test_a_difference_is_seen_where_there_is_one():
    references = texts(200)
    good, bad, same = (bleu(spoilt(references, share, seed), references)
                       for share, seed in ((0.1, 1), (0.2, 2), (0.1, 3)))  # fmt: skip
    clear = difference(good, bad, draws=200)
    assert clear.interval[0] > 0
    assert clear.p == pytest.approx(1 / 201)
    assert clear.value == pytest.approx(good.score - bad.score)
    unclear = difference(good, same, draws=200)
    assert unclear.interval[0] < 0 < unclear.interval[1]
    assert unclear.p > 0.05
    nothing = difference(good, good, draws=50)
    assert nothing.interval == (0, 0)
    assert nothing.p == 1


def test_wrong_input_is_told():
    with pytest.raises(UserError, match="2 translations cannot be compared with 1"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(UserError, match="at least one"):
        bleu([], [])
