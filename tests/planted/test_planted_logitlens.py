"""In a circuit that copies, predictions settle at the induction head's layer, and that head writes the right token."""

import random

import numpy as np
import pytest
from copying import copying, vocabulary

import lorgnette as lo
from lorgnette.reporting import findings
from lorgnette.statistics.estimate import Estimate, false_discovery

LENGTHS = (7, 9, 12, 8, 10, 11) * 2


def repeated():
    """Random words, then the same words again."""
    words = [word for word in vocabulary() if word.isalpha()]
    draw = random.Random(0)
    return [" ".join(2 * draw.sample(words, length)) for length in LENGTHS]


CERTAIN = np.mean([(length - 2) / (2 * length - 1) for length in LENGTHS])
"""Share of predictions that are certain: what followed a word in the first half, but for the first word, which has no
predecessor and so is taken for its own."""


def test_the_induction_head_writes_the_right_token_and_nothing_does_in_the_control():
    data, control = (
        lo.look(copying(control=control), repeated(), ["logitlens:positions=0"], progress=False)["logitlens"].data
        for control in (False, True)
    )
    own = data["head_contrast"].sel(stack="decoder", layer=2, head=1)
    rest = np.sort(np.abs(data["head_contrast"].values.flatten()))
    assert float(own) == rest[-1] > 5 * rest[-2]
    assert float(data["head_reciprocal_rank"].sel(stack="decoder", layer=2, head=1)) > CERTAIN
    ranks = data["reciprocal_rank"].sel(stack="decoder")
    assert float(ranks.isel(state=-1)) > CERTAIN > 5 * float(ranks.isel(state=1))
    # What is certain settles in layer 2; elsewhere the model repeats the word, as its embedding does.
    assert 1 - float(data["settled"].sel(stack="decoder", state=1)) == pytest.approx(CERTAIN)
    assert float(data["depth"]) == pytest.approx(2 * CERTAIN)
    found = Estimate.of(control, "head_contrast")
    assert not bool((false_discovery(found.p) < 0.05).any())
    assert float(abs(control["head_contrast"]).max()) < float(own) / 5


def test_the_sentences_say_so():
    result = lo.look(copying(), repeated(), ["logitlens:positions=0"], progress=False)
    text = " ".join(each.text for each in findings(result))
    assert "the largest differences of logits are those of 2.1 (+" in text
    assert "significantly above all others" in text
