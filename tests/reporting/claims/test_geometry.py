"""Geometry by layer."""

import numpy as np
import pytest

from claims.numbers import BESIDE, NUMBER, by_layer, is_beside, prints, single, triples
from claims.rules import check_sentences, says


def geometry(draw):
    draw.sizes |= {"state": [0, 1, 2, 3], "vectors": ["query", "key", "value"]}
    by_layer = ("stack", "layer", "vectors")
    variables = draw.mean("state_sim", ("stack", "state")) | draw.mean("sim_all", by_layer)
    variables |= {"state_isoscore": (("stack", "state"), draw.values(("stack", "state")))}
    variables |= {"sim_centred_all": (by_layer, draw.values(by_layer, -0.2, 0.2))}
    return draw.result("geometry", variables)


def place_of_state(state):
    return f"after layer {state}" if state else "in the embeddings"


@says(
    "geometry",
    rf"Tokens of a text have a mean cosine similarity of ({NUMBER}) in the embeddings and ({NUMBER}) after "
    rf"layer 3; the maximum is ({NUMBER}), (.*?)(?:, ({BESIDE}))?\.",
)
def _(match, data):
    names = ["the embeddings", *by_layer(data["sim_all"].isel(vectors=0))]
    means = {name: single(data, "state_sim", state=state) for state, name in enumerate(names)}
    best = max(means, key=lambda name: means[name][0])
    assert match[4] == place_of_state(names.index(best))
    for place, name in ((1, names[0]), (2, names[-1]), (3, best)):
        prints(match[place], means[name][0])
    is_beside(match[5], means, best)
    if "all others" in (match[5] or ""):
        assert best in (names[0], names[-1]) or match[3] not in (match[1], match[2])


@says(
    "geometry",
    rf"Isotropy is lowest (.*) \(IsoScore ({NUMBER})\); the maximum is ({NUMBER})\. IsoScore is of all texts "
    r"together and has no standard error\.",
)
def _(match, data):
    score = data["state_isoscore"].values
    assert match[1] == place_of_state(int(np.argmin(score)))
    prints(match[2], score.min())
    prints(match[3], score.max())


@says(
    "geometry",
    rf"Mean cosine similarity within a text: keys ({NUMBER}) \(maximum ({NUMBER}) in (layer \d)(?:, "
    rf"({BESIDE}))?\), values ({NUMBER}) \(maximum ({NUMBER}) in (layer \d)(?:, ({BESIDE}))?\)\.",
)
def _(match, data):
    for kind, place in (("key", 1), ("value", 5)):
        means = triples(data, "sim_all", by_layer, vectors=kind)
        best = max(means, key=lambda name: means[name][0])
        assert match[place + 2] == best
        prints(match[place], np.mean([mean[0] for mean in means.values()]))
        prints(match[place + 1], means[best][0])
        is_beside(match[place + 3], means, best)


@says(
    "geometry",
    rf"Less their mean over the corpus, a constant that no output depends on, it is ({NUMBER}) for keys and "
    rf"({NUMBER}) for values\.",
)
def _(match, data):
    for kind, text in zip(("key", "value"), match.groups(), strict=True):
        prints(text, float(data["sim_centred_all"].sel(vectors=kind).mean()))


@pytest.mark.parametrize("make", [geometry], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
