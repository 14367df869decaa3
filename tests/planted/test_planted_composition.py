"""In a planted induction circuit the previous-token head writes the induction head's keys, the tokens its queries."""

import random

import numpy as np
import pytest
from copying import copying, vocabulary

import lorgnette as lo
from lorgnette.reporting import findings


def repeated():
    """Random words, then the same words again."""
    words = [word for word in vocabulary() if word.isalpha()]
    draw = random.Random(0)
    return [" ".join(2 * draw.sample(words, length)) for length in (10, 12, 11, 14, 10, 13)]


@pytest.fixture(scope="module")
def found():
    return lo.look(copying(), repeated(), ["composition"], progress=False)["composition"]


def test_the_previous_token_head_writes_the_keys_of_the_induction_head(found):
    data = found.data.sel(stack="decoder")
    induction = data.sel(layer=2, head=1)
    advantage = float(induction["advantage"])
    assert advantage > 5
    assert float(induction["composition"].sel(way="key", head_a="decoder 1-1")) == pytest.approx(advantage, rel=1e-3)
    assert float(induction["parts"].sel(way="query", writer="decoder tokens")) == pytest.approx(advantage, rel=1e-2)
    assert float(induction["composition"].sel(way="key", head_a="decoder 1-2")) < 0.01 * advantage
    others = data["composition"].where(
        (data["layer"] != 2) | (data["head"] != 1) | (data["way"] != "key") | (data["head_a"] != "decoder 1-1")
    )
    assert float(abs(others).max()) < 0.01 * advantage
    previous = data.sel(layer=1, head=1)["parts"]
    for side in ("query", "key"):  # it looks by position alone
        assert float(previous.sel(way=side, writer="decoder positions")) == pytest.approx(
            float(data["advantage"].sel(layer=1, head=1)), rel=1e-2
        )
    duplicate = data.sel(layer=1, head=2)["parts"]
    assert float(duplicate.sel(way="key", writer="decoder tokens")) > 0.5 * float(
        data["advantage"].sel(layer=1, head=2)
    )


def test_a_sentence_names_the_pair(found):
    text = [each.text for each in findings({"composition": found})]
    keys = next(each for each in text if "into its keys" in each)
    assert "the largest: 1.1 → 2.1 (+" in keys


def test_one_pair_of_tokens_says_the_same():
    text = repeated()[0]
    words = text.split()
    found = lo.why(copying(), text, "2.1", query=len(words) // 2 + 3)
    assert (found.query, found.key) == (words[3], words[4])  # what followed it the first time
    keys = found.to_dataframe().set_index("writer")["key_beyond"]
    assert keys["decoder 1-1"] == pytest.approx(float(found.beyond.sum()), rel=1e-3)
    assert keys.drop("decoder 1-1").abs().max() < 0.01 * keys["decoder 1-1"]


def test_random_weights_have_no_such_pair():
    """The two heads of the first layer write about as much; in the planted model one writes a hundred times more."""
    data = lo.look(copying(control=True), repeated(), ["composition"], progress=False)["composition"].data
    part = abs(data["composition"].sel(stack="decoder", layer=2, way="key"))
    one, other = (part.sel(head_a=f"decoder 1-{head}") for head in (1, 2))
    assert float(np.maximum(one / other, other / one).max()) < 2
