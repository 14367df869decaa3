"""The head that carries the class has the largest direct, total and gradient effect; the control has no such head."""

from dataclasses import replace

import numpy as np
import pytest
from test_planted_relevance import CARRIER, classifier, texts

from lorgnette.lens.effects.lens import Effects
from lorgnette.lens.patching.lens import Patching
from lorgnette.looking.look import look
from lorgnette.reporting import findings
from lorgnette.texts import corpus


def test_the_planted_head_is_found_by_all_three_and_nothing_in_the_control():
    data = look(classifier(), texts(), [Effects()], progress=False)["effects"].data
    for name in ("direct", "total", "by_gradient"):
        effect = data[name].sel(stack="encoder")
        own = float(effect.sel(layer=1, head=CARRIER + 1))
        rest = np.abs(effect.values).flatten()
        assert own == pytest.approx(rest.max())
        assert own > 5 * np.sort(rest)[-2], name
    control = look(classifier(control=True), texts(), [Effects()], progress=False)["effects"].data
    for name in ("direct", "by_gradient"):
        effect = np.abs(control[name].sel(stack="encoder").values).flatten()
        assert effect.max() < 5 * np.sort(effect)[-2]


def pairs():
    """Planted minimal pairs, decisive words marked with the way they decide, as in `texts`."""
    marked = {}
    for example in corpus("planted", split="pairs").take(40):
        sign = "+" if example.label else "-"
        words = [w + sign * int(r > 0) for w, r in zip(example.words, example.rationale, strict=True)]
        marked[example.text] = replace(example, text=" ".join(words), words=tuple(words))
    return [
        replace(example, extra={"counterpart": marked[example.extra["counterpart"]].text})
        for example in marked.values()
    ]


def test_patching_finds_the_planted_head_and_nothing_in_the_control():
    data = look(classifier(), pairs(), [Patching()], progress=False)["patching"].data.sel(stack="encoder")
    own = data["effect"].sel(layer=1, head=CARRIER + 1)
    assert int(data["clean_count"]) == 40
    assert float(own) > 0.9
    assert float(data["effect_low"].sel(layer=1, head=CARRIER + 1)) > 0.9
    rest = data["effect"].values.flatten()
    assert np.sort(np.abs(rest))[-2] < 0.1
    assert float(data["change_q"].sel(layer=1, head=CARRIER + 1)) < 1e-6
    control = look(classifier(control=True), pairs(), [Patching()], progress=False)["patching"]
    assert abs(float(control.data["difference"])) < 2 * float(control.data["difference_se"])
    assert "not significant" in findings({"patching": control})[0].text
