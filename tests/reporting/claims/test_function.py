"""What heads do: roles, the synthetic tests, rare tokens."""

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.stats import t

from claims.numbers import (
    BESIDE,
    HEADS,
    LAYERS,
    NAMED,
    NUMBER,
    PER_HEAD,
    are_named,
    by_head,
    by_layer,
    corrected,
    discovered,
    is_beside,
    number,
    p_values,
    prints,
    single,
    triples,
)
from claims.rules import check_sentences, says


def roles(draw):
    draw.sizes |= {"role": ["special", "previous", "broad"], "part": ["development", "held_out"]}
    label = draw.rng.random(draw.shape((*PER_HEAD, "role"))) < draw.rng.choice([0, 0.3])
    seen = np.full(draw.shape((*PER_HEAD, "part")), 5)
    if draw.rng.random() < 0.3:  # one half has too few texts for all roles but special
        seen[..., 1] = draw.rng.integers(0, 5)
        label[..., 1:] = False
    seen[:, -1, -1] = 0
    label[:, -1, -1] = False
    return draw.result("roles", {"label": ((*PER_HEAD, "role"), label), "peak_count": ((*PER_HEAD, "part"), seen)})


@says(
    "roles",
    r"(\d+) of (\d+) heads ha(?:s|ve) a role that holds in both halves of the corpus: (.*?)"
    r"( \(a head may have several\))?\.",
)
def _(match, data):
    counts = {name: int(count) for count, name in (part.split(" ", 1) for part in match[3].split(", "))}
    label = data["label"].values
    assert counts == {str(role): int(n) for role, n in zip(data["role"].values, label.sum((0, 1)), strict=True) if n}
    assert int(match[2]) == 11
    assert int(match[1]) == int((label.sum(-1) > 0).sum())
    assert bool(match[4]) == bool((label.sum(-1) > 1).any())


@says(
    "roles",
    r"(?:(\d+) of (\d+) heads have the role special\. )?Too few texts to find other roles: they must hold in both "
    r"halves of the corpus, with at least 5 texts in each, and the smaller half has (\d)\.",
)
def _(match, data):
    assert int(match[1] or 0) == int(data["label"].sel(role="special").sum())
    assert match[2] in (None, "11")
    assert not data["label"].sel(role=["previous", "broad"]).values.any()
    assert int(match[3]) == int(data["peak_count"].isel(part=1).max()) < 5


@says("roles", r"None of (\d+) heads has a role that holds in both halves of the corpus and beats its control\.")
def _(match, data):
    assert int(match[1]) == 11
    assert not data["label"].values.any()


def frequency(draw):
    draw.sizes |= {"measure": ["weights", "norms"]}
    dims, scale = ("stack", "measure"), draw.rng.choice([0.1, 0.9])
    rho, half = draw.values(dims, -scale, scale), draw.rng.uniform(0, 0.4, (1, 2))
    ends = {"": rho, "_low": rho - half, "_high": rho + half}
    variables = {f"spearman_all{tail}": (dims, value) for tail, value in ends.items()}
    variables["spearman"] = (("stack", "layer", "measure"), draw.rng.uniform(-1, 1, (1, 3, 2)))
    return draw.result("frequency", variables)


@says(
    "frequency",
    r"Rarer tokens (have|do not have significantly) larger transformed-value norms ‖f\(x\)‖ \(ρ of the mean "
    rf"norm over layers: ({NUMBER}), 95 % CI ({NUMBER}) to ({NUMBER}); single layers ({NUMBER}) to "
    rf"({NUMBER})\); attention weight (grows with rarity|falls with rarity|barely depends on it|does not "
    rf"depend on it significantly) \(ρ of the mean over layers: ({NUMBER}), ({NUMBER}) to ({NUMBER})\)\.",
)
def _(match, data):
    of = {name: [float(data[f"spearman_all{tail}"].sel(measure=name)) for tail in ("", "_low", "_high")]
          for name in ("norms", "weights")}  # fmt: skip
    for text, value in zip(match.groups()[1:4] + match.groups()[7:10], of["norms"] + of["weights"], strict=True):
        prints(text, value)
    assert match[1] != "have" or of["norms"][1] > 0
    layers = data["spearman"].sel(measure="norms").values
    prints(match[5], layers.min())
    prints(match[6], layers.max())
    rho, low, high = of["weights"]
    assert {"grows": low > 0, "falls": high < 0, "barely": abs(rho) <= 0.1, "does": low <= 0 <= high}[
        match[7].split()[0]
    ]


def synthetic(draw):
    draw.sizes |= {"test": ["induction", "duplicate", "previous", "retrieval"]}
    dims = (*PER_HEAD, "test")
    excess, q = draw.values(dims, -0.2, draw.rng.choice([0.3, 0.05])), draw.rng.choice([0.01, 0.2], draw.shape(dims))
    return draw.result("synthetic", {"score": (dims, excess), "excess": (dims, excess), "excess_q": (dims, q)})


TESTS = {
    "an induction": "induction",
    "a duplicate-token": "duplicate",
    "a previous-token": "previous",
    "a retrieval": "retrieval",
}


def passing(data, words):
    excess, q = (by_head(data[name].sel(test=TESTS[words])) for name in ("excess", "excess_q"))
    return excess, {name: value for name, value in excess.items() if value >= 0.1 and q[name] <= 0.05}


@says(
    "synthetic",
    r"(\d+) of (\d+) heads (?:has|have) (an? [\w-]+) score at least 0\.1 above the control \(false discovery "
    rf"rate 5 %\): ({NAMED})\.",
)
def _(match, data):
    every, some = passing(data, match[3])
    assert (int(match[1]), int(match[2])) == (len(some), len(every))
    are_named(match[4], some)


@says("synthetic", r"No head has (an? [\w-]+) score that is significantly, and by at least 0\.1, above the control\.")
def _(match, data):
    assert not passing(data, match[1])[1]


def relations(draw):
    draw.texts = max(draw.texts, 2)
    draw.sizes |= {"relation": ["all", "punct", "nsubj", "obj", "det"], "part": ["development", "held_out"]}
    draw.sizes |= {"way": ["to_head", "to_dependent", "read_by_head"], "offset": [-1, 1]}
    dims = ("relation", "part", *PER_HEAD, "way")
    variables = draw.mean("accuracy", dims) | draw.mean("offset_accuracy", ("relation", "part", "offset"))
    if draw.rng.random() < 0.3:
        variables["accuracy"][1][...] *= 0.1  # no head does better
    held, best = (variables[name][1] for name in ("accuracy", "offset_accuracy"))
    chosen = np.take_along_axis(best[:, 1], best[:, 0].argmax(-1)[:, None], 1)
    gain = held[:, 1] - chosen.reshape(-1, 1, 1, 1, 1)
    variables |= draw.mean("gain", ("relation", *PER_HEAD, "way")) | {"gain": (("relation", *PER_HEAD, "way"), gain)}
    variables["pairs"] = (("relation", "part"), np.full((5, 2), 40))
    return draw.result("relations", variables)


GAIN = rf"\w+ \d+\.\d+ \({NUMBER} against {NUMBER}, n = 40\)"


@says(
    "relations",
    r"For (\d+) of (\d+) dependency relations, a head chosen on one half of the texts finds significantly more "
    r"pairs in "
    rf"the other half than the best fixed offset \(false discovery rate 5 %\)(?:\. Largest gains \(their order is not "
    rf"tested\): ({GAIN}(?:, {GAIN})*))?\.",
)
def _(match, data):
    gains, chosen = {}, {}
    for relation in ("nsubj", "obj", "det"):
        cells = data["accuracy"].sel(relation=relation, part="development").stack(cell=("layer", "head", "way"))
        layer, head, way = cells["cell"].values[int(np.argmax(cells.values))]
        at = {"relation": relation, "layer": layer, "head": head, "way": way}
        gains[relation] = single(data, "gain", **at)
        accuracy = float(data["accuracy"].sel(part="held_out", **at))
        chosen[relation] = (f"{layer}.{head}", accuracy, accuracy - gains[relation][0])
    ahead = {name for name in discovered(p_values(gains)) if gains[name][0] > 0}
    assert (int(match[1]), int(match[2])) == (len(ahead), 3)
    named = re.findall(rf"(\w+) (\d+\.\d+) \(({NUMBER}) against ({NUMBER})", match[3] or "")
    assert [name for name, *_ in named] == sorted(ahead, key=lambda name: -gains[name][0])
    for name, place, accuracy, baseline in named:
        assert place == chosen[name][0]
        prints(accuracy, chosen[name][1])
        prints(baseline, chosen[name][2])
        assert number(accuracy) > number(baseline)


def trees(draw):
    draw.sizes |= {"way": ["to_head", "to_dependent"], "baseline": ["head_is_next", "random_tree"]}
    variables = draw.mean("uas", (*PER_HEAD, "way"), missing=True) | draw.mean("baseline_uas", ("baseline",))
    variables |= draw.mean("uas_over_next", PER_HEAD, missing=True)
    gain = variables["uas"][1][..., 0] - variables["baseline_uas"][1][0]
    return draw.result("trees", variables | {"uas_over_next": (PER_HEAD, gain)})


@says(
    "trees",
    rf"Head (\d+\.\d+) \(({NUMBER})\) has the best tree \(UAS, root given\)\.(?: It is ({BESIDE})\.)? (\d+) of "
    rf"(\d+) heads "
    rf"(?:is|are) significantly better than attaching every word to the next one \(({NUMBER}); false discovery "
    rf"rate 5 %\); "
    rf"the mean over heads is ({NUMBER}), random trees score ({NUMBER})\.",
)
def _(match, data):
    means = triples(data, "uas", way="to_head")
    best = max(means, key=lambda name: means[name][0])
    assert match[1] == best
    prints(match[2], means[best][0])
    is_beside(match[3], means, best)
    gains = triples(data, "uas_over_next")
    above = discovered({name: t.sf(m / se, n - 1) for name, (m, se, n) in gains.items()})
    assert (int(match[4]), int(match[5])) == (len(above), len(means))
    prints(match[6], float(data["baseline_uas"].sel(baseline="head_is_next")))
    prints(match[7], np.mean([mean[0] for mean in means.values()]))
    prints(match[8], float(data["baseline_uas"].sel(baseline="random_tree")))


def coreference(draw):
    draw.sizes |= {"kind": ["all"], "part": ["development", "held_out"], "candidates": ["mentions", "words"]}
    draw.sizes |= {"baseline": ["nearest", "head_match", "subject"]}
    variables = draw.mean("accuracy", (*PER_HEAD, "kind", "part", "candidates"))
    variables |= draw.mean("baseline_accuracy", ("kind", "part", "baseline"))
    return draw.result(
        "coreference", variables | draw.mean("over_baseline", (*PER_HEAD, "kind", "part", "baseline"), -1)
    )


BY_RULE = r"(?: \(the difference is (not )?significant\))?"


@says(
    "coreference",
    rf"Head (\d+\.\d+), the best on one half of the texts, finds the antecedent of (\d+ %) of the mentions in the other"
    rf"(?: \(95 % CI ± (\d+ %)\))?; the nearest mention is correct for (\d+ %){BY_RULE}, the same head word for (\d+ %)"
    rf"{BY_RULE}, the nearest subject for (\d+ %){BY_RULE}\.",
)
def _(match, data):
    cells = data.sel(kind="all").sel(candidates="mentions")
    best = by_head(cells["accuracy"].sel(part="development"))
    assert match[1] == max(best, key=lambda name: best[name])
    value, se, n = triples(cells, "accuracy", part="held_out")[match[1]]
    prints(match[2], value)
    if match[3]:
        prints(match[3], t.ppf(0.975, n - 1) * se)
        assert number(match[3]) > 0
    for place, rule in ((4, "nearest"), (6, "head_match"), (8, "subject")):
        prints(match[place], float(data["baseline_accuracy"].sel(kind="all", part="held_out", baseline=rule)))
        over = triples(cells, "over_baseline", part="held_out", baseline=rule)[match[1]]
        p = p_values({rule: over})[rule]
        assert p != p or bool(match[place + 1]) == (p >= 0.05)


def alignment(draw):
    draw.sizes |= {"measure": ["weights", "norms"], "reading": ["output", "input"]}
    return draw.result("alignment", draw.mean("aer", (*PER_HEAD, "measure", "reading"), missing=True))


ALIGNED = rf"\(({NUMBER} %) ± ({NUMBER} %|unknown), (output|input) row\)"


@says(
    "alignment",
    rf"Lowest alignment error rate of (\d+) \(heads, each by its output and its input row\): head (\d+\.\d+) by norms "
    rf"{ALIGNED}, head (\d+\.\d+) by weights {ALIGNED}\. The 95 % intervals over texts leave out that these are the "
    r"lowest of many\.",
)
def _(match, data):
    for place, measure in ((2, "norms"), (6, "weights")):
        cells = {
            (name, row): mean
            for row in ("output", "input")
            for name, mean in triples(data, "aer", measure=measure, reading=row).items()
        }
        assert int(match[1]) == len(cells)
        best = min(cells, key=lambda cell: cells[cell][0])
        assert (match[place], match[place + 3]) == best
        value, se, n = cells[best]
        prints(match[place + 1], value)
        assert (match[place + 2] == "unknown") == np.isnan(se)
        if not np.isnan(se):
            prints(match[place + 2], t.ppf(0.975, n - 1) * se)


def circuits(draw):
    draw.sizes |= {"circuit": ["qk", "ov"]}
    dims = (*PER_HEAD, "circuit")
    variables = {"positive": (PER_HEAD, draw.values(PER_HEAD)), "effective_rank": (dims, draw.values(dims, 1, 20))}
    return draw.result("circuits", variables)


@says(
    "circuits",
    rf"(\d+) of (\d+) heads (?:has|have) an OV circuit that mostly keeps directions \(positive eigenvalue share above "
    rf"0\.5\); the highest is (\d+\.\d+ \({NUMBER}\))\. The numbers are read off the weights: they have no "
    rf"sampling error\.",
)
def _(match, data):
    share = by_head(data["positive"])
    assert (int(match[1]), int(match[2])) == (sum(value > 0.5 for value in share.values()), len(share))
    are_named(match[3], share, most=1)


@says("circuits", rf"The effective rank of W_(QK|OV) is lowest in layer (\d) \(({NUMBER}); highest ({NUMBER})\)\.")
def _(match, data):
    rank = by_layer(data["effective_rank"].sel(circuit=match[1].lower()).mean("head"))
    assert f"layer {match[2]}" == min(rank, key=lambda name: rank[name])
    prints(match[3], min(rank.values()))
    prints(match[4], max(rank.values()))


ON = {
    "previous": "on the previous token",
    "next": "on the next token",
    "self": "on the token itself",
    "cls": "on the opening token ([CLS])",
    "period_comma": "on periods and commas",
}


def distances(draw):
    kinds = [*ON, "broad", "other"] if draw.rng.random() < 0.7 else ["broad", "other"]
    return draw.result("distances", {"kind": (PER_HEAD, draw.rng.choice(kinds, draw.shape(PER_HEAD)).astype(object))})


@says(
    "distances",
    r"(No head has more than half of its attention in one place|Heads with more than half of their attention in one "
    r"place \(each counts once, neighbours first\)): (?:(\d+ on .*?); )?(?:(\d+) (?:is|are) broad \(entropy above 3\.8 "
    r"nats\); )?(\d+) (?:has|have) no dominant pattern\.",
)
def _(match, data):
    counts = Counter(data["kind"].values.ravel().tolist())
    said = dict(part.split(" ", 1)[::-1] for part in (match[2] or "").split(", ") if part)
    assert {kind: int(said[words]) for kind, words in ON.items() if words in said} == {
        kind: n for kind, n in counts.items() if kind in ON
    }
    assert match[1].startswith("No head") == (not said)
    assert (int(match[3] or 0), int(match[4])) == (counts["broad"], counts["other"])


def attention_probe(draw):
    draw.sizes |= {"features": ["attention", "position"], "decoding": ["argmax", "tree"]}
    variables = draw.mean("uas", ("features", "decoding")) | draw.mean("head_is_next_uas", ())
    return draw.result("attention-probe", variables | draw.mean("uas_over_next", ("features", "decoding"), -1))


@says(
    "attention-probe",
    r"A trained combination of all heads attaches (\d+ %)(?: ± (\d+ %))? of held-out words correctly(?: \(95 % CI over "
    r"texts\))?; attaching to the next word is correct for (\d+ %)(?:; the difference is (not )?significant)?\.",
)
def _(match, data):
    at = {"features": "attention", "decoding": "argmax"}
    value, se, n = single(data, "uas", **at)
    prints(match[1], value)
    if match[2]:
        prints(match[2], t.ppf(0.975, n - 1) * se)
        assert number(match[2]) > 0
    prints(match[3], float(data["head_is_next_uas"]))
    p = p_values({"": single(data, "uas_over_next", **at)})[""]
    assert p != p or bool(match[4]) == (p >= 0.05)


def composition(draw):
    """A part of zero wherever the writer does not come before the reader."""
    draw.sizes |= {"way": ["query", "key"], "head_a": [f"encoder {a}-{b}" for a in LAYERS for b in HEADS]}
    draw.sizes["writer"] = ["encoder tokens", "encoder 1 feed-forward", "heads"]
    pairs = draw.mean("composition", (*PER_HEAD, "way", "head_a"), -1, 1)
    for name in ("composition", "composition_se"):
        for layer in LAYERS:
            pairs[name][1][:, layer - 1, :, :, (layer - 1) * len(HEADS) :] = 0.0
    parts = draw.mean("parts", (*PER_HEAD, "way", "writer"), -1, 1)
    for one, name in ((pairs, "composition"), (parts, "parts")):
        one |= corrected(one, [name])
    return draw.result("composition", pairs | parts | draw.mean("advantage", PER_HEAD), {"keys": "all"})


def composed(data, side):
    """Of every earlier and later head: the part, its error and its texts."""
    own = data.sel(way=side)
    out = {}
    for layer in LAYERS:
        for head in HEADS:
            for early in own["head_a"].values:
                at = {"layer": layer, "head": head, "head_a": early}
                if int(early.split()[1].split("-")[0]) < layer:
                    name = f"{early.split()[1].replace('-', '.')} → {layer}.{head}"
                    out[name] = tuple(float(own[f"composition{tail}"].sel(at)) for tail in ("", "_se", "_count"))
    return out


def composing(data, side):
    """The pairs of one side that are significant, corrected over both sides."""
    both = {(way, name): mean for way in ("query", "key") for name, mean in composed(data, way).items()}
    return {name for way, name in discovered(p_values(both)) if way == side}


@says(
    "composition",
    rf"(\d+) of (\d+) pairs of an earlier and a later head (?:has|have) a part of the later head's advantage, written "
    rf"into its (queries|keys), that differs significantly from zero \(false discovery rate 5 %\); the largest: "
    rf"([^()]+ \({NUMBER}\)(?:, [^()]+ \({NUMBER}\))*)\.",
)
def _(match, data):
    means = composed(data, {"queries": "query", "keys": "key"}[match[3]])
    sure = composing(data, {"queries": "query", "keys": "key"}[match[3]])
    assert (int(match[1]), int(match[2])) == (len(sure), len(means))
    named = re.findall(rf"([^(),]+?) \(({NUMBER})\)", match[4])
    largest = sorted(sure, key=lambda name: -abs(means[name][0]))[:3]
    assert [name.strip() for name, _ in named] == largest
    for name, printed in named:
        prints(printed, means[name.strip()][0])


@says(
    "composition",
    r"No head writes a significant part of the advantage of a later head into its (queries|keys)"
    r"(?: \((\d+) texts?\))?\.",
)
def _(match, data):
    assert not composing(data, {"queries": "query", "keys": "key"}[match[1]])
    assert match[2] is None or int(match[2]) == data["composition_count"].max()


KINDS_OF_WRITERS = {"tokens": "tokens", "feed-forward": "feed-forward parts", "heads": "earlier heads together"}


@says(
    "composition",
    r"Into the (queries|keys), a significant part of the advantage \(false discovery rate 5 % over heads, writers and "
    r"both sides\) comes from (.*) of (\d+) heads\.",
)
def _(match, data):
    side = {"queries": "query", "keys": "key"}[match[1]]
    places = list(product(LAYERS, HEADS, ("query", "key"), data["writer"].values.tolist()))
    parts = {}
    for layer, head, way, writer in places:
        at = {"layer": layer, "head": head, "way": way, "writer": writer}
        parts[layer, head, way, writer] = tuple(float(data[f"parts{tail}"].sel(at)) for tail in ("", "_se", "_count"))
    sure = discovered(p_values(parts))
    counts = {}
    for writer in data["writer"].values.tolist():
        found = {(layer, head) for layer, head, way, one in sure if way == side and one == writer}
        if found:
            counts[KINDS_OF_WRITERS[writer.split(" ")[-1]]] = len(found)
    assert match[2] == ", ".join(f"{name} for {count}" for name, count in counts.items())
    assert int(match[3]) == len(LAYERS) * len(HEADS)


@pytest.mark.parametrize(
    "make",
    [
        roles,
        frequency,
        synthetic,
        relations,
        trees,
        coreference,
        alignment,
        composition,
        circuits,
        distances,
        attention_probe,
    ],
    ids=lambda make: make.__name__,
)
def test_sentences_say_what_the_numbers_say(make):
    check_sentences(make)
