"""Geometry by layer."""

import numpy as np
import pytest

from claims.numbers import BESIDE, NUMBER, PER_HEAD, by_head, by_layer, is_beside, prints, single, triples
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
    rf"After subtracting their mean over the corpus, a constant that no output depends on, it is ({NUMBER}) for "
    rf"keys and ({NUMBER}) for values\.",
)
def _(match, data):
    for kind, text in zip(("key", "value"), match.groups(), strict=True):
        prints(text, float(data["sim_centred_all"].sel(vectors=kind).mean()))


def convexity(draw):
    variables = draw.mean("distance", PER_HEAD, missing=True) | draw.mean("used", PER_HEAD, missing=True)
    return draw.result("convexity", variables | draw.mean("cone_widest", PER_HEAD, 0, 3, missing=True))


@says(
    "convexity",
    rf"For (\d+) of (\d+) heads, the output differs from the uniform average of the values by less than half of the "
    rf"length of that average \(from ([\d.]+) "
    rf"\(({NUMBER})\) to ([\d.]+) \(({NUMBER})\)(?:, ({BESIDE}))?\); attention uses (\d+ %) of the cone that the "
    rf"values span "
    r"\(mean width (\d+)°\)\.",
)
def _(match, data):
    means = triples(data, "distance")
    values = {name: mean[0] for name, mean in means.items()}
    assert (int(match[1]), int(match[2])) == (sum(value < 0.5 for value in values.values()), len(values))
    for place, choose in ((3, min), (5, max)):
        assert match[place] == choose(values, key=lambda name: values[name])
        prints(match[place + 1], values[match[place]])
    is_beside(match[7], means, match[5])
    prints(match[8], np.mean(list(by_head(data["used"]).values())))
    prints(match[9], np.degrees(np.mean(list(by_head(data["cone_widest"]).values()))))


def cones(draw):
    classes = ["bad", "good", "mixed"]
    draw.sizes |= {"direction": classes, "direction_b": classes}
    variables = draw.mean("auroc", ("direction",))
    between = draw.rng.uniform(-1, 1, (3, 3))
    return draw.result("cones", variables | {"class_cosine": (("direction", "direction_b"), between)})


@says(
    "cones",
    r"In (\d+ %) of comparisons, a text of a class is closer \(cosine\) to a representative of the class than a "
    r"text of "
    rf"another class is \(mean over classes; lowest for (\w+), (\d+ %)(?:, ({BESIDE}))?\); the mean directions of two "
    rf"classes have a mean cosine of ({NUMBER})\.",
)
def _(match, data):
    means = {str(name): single(data, "auroc", direction=name) for name in data["direction"].values}
    prints(match[1], np.mean([mean[0] for mean in means.values()]))
    assert match[2] == min(means, key=lambda name: means[name][0])
    prints(match[3], means[match[2]][0])
    is_beside(match[4], means, match[2])
    prints(match[5], data["class_cosine"].values[~np.eye(3, dtype=bool)].mean())


def probes(draw):
    draw.sizes |= {"probe": ["linear", "mlp"], "state": [0, 1, 2, 3]}
    variables = draw.mean("accuracy", ("probe", "state")) | draw.mean("selectivity", ("probe", "state"), -0.5)
    variables |= {"majority": ((), 0.4), "converged": (("state",), draw.rng.choice([0.0, 1.0], 4, p=[0.2, 0.8]))}
    return draw.result("probes", variables, {"label": "upos"})


@says(
    "probes",
    rf"A linear probe predicts upos best (after layer \d|in the embeddings): accuracy (\d+ %)(?:, ({BESIDE}))?; "
    rf"selectivity "
    rf"({NUMBER}); the majority class reaches (\d+ %)\.",
)
def _(match, data):
    names = ["the embeddings", "layer 1", "layer 2", "layer 3"]
    means = {name: single(data, "accuracy", probe="linear", state=state) for state, name in enumerate(names)}
    best = max(means, key=lambda name: means[name][0])
    assert match[1] == place_of_state(names.index(best))
    prints(match[2], means[best][0])
    is_beside(match[3], means, best)
    prints(match[4], float(data["selectivity"].sel(probe="linear", state=names.index(best))))
    prints(match[5], 0.4)


@says("probes", r"(\d) of (\d) linear probes stopped before their minimum: do not compare them with the others\.")
def _(match, data):
    assert (int(match[1]), int(match[2])) == (int((data["converged"] == 0).sum()), 4)


@pytest.mark.parametrize("make", [geometry, convexity, cones, probes], ids=lambda make: make.__name__)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
