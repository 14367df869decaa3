"""What the maps and labels of heads say about the claims of the paper, each beside what taking heads away says.

Bounds were fixed before anything was measured; where the paper gives none, half (a share) or none at all (ρ, a
difference) is the bound.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from lorgnette.statistics.rank_agreement import correlations, ranked
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import bootstrap, mean_of, paired
from reproductions.voita2019.grid import CONFIDENCE, METHODS, MULTI30K, RANDOM, SHUFFLED, TRAINED, UD
from reproductions.voita2019.heads import (
    ABLATION,
    GRADIENT,
    TEXTS,
    best_for,
    correlation,
    excess,
    head_map,
    held_out,
    labelled,
    name_of,
    place_in_layer,
    ranks_in_layers,
    relation,
    roles,
    signal,
    top_shares,
    with_a_role,
)

WAYS = ("to_dependent", "to_head")
RELATIONS = {"nsubj": ("verb", "subject"), "obj": ("verb", "object"), "amod": ("noun", "adjective")}
RELATIONS |= {"advmod": ("verb", "adverb")}
OVER = 0.1
"""What a syntactic head must have over the best offset, and a rare-word head over chance."""
_RARE = Published("the most relevant head of layer 1, not confident, attends to rare words", "sections 4 and 5.3")
SPOKEN = {CONFIDENCE: "confidence", GRADIENT: "the gradient (Michel et al. 2019)"}
SPOKEN |= {method: f"relevance ({method})" for method in METHODS}
Maker = Callable[[], Claim]


def makers(cells: Finished) -> Iterator[Maker]:
    """One function for each claim; it raises `MissingCell` where its cells were not run."""
    for method in METHODS:
        yield partial(_few, cells, method)
        yield partial(_uneven, cells, method)
    yield from (partial(_confident, cells, method) for method in METHODS)
    yield from (partial(_positional, cells, corpus) for corpus in TEXTS)
    yield from (partial(_syntactic, cells, name, way) for name in RELATIONS for way in WAYS)
    yield from (partial(_rare, cells, corpus) for corpus in TEXTS)
    yield from (partial(_rare_first, cells, method) for method in METHODS)
    yield partial(_rare_not_confident, cells)
    yield partial(_rare_needed, cells)
    yield from (partial(_stable, cells, name) for name in (CONFIDENCE, *METHODS))
    yield from (partial(_needed, cells, name) for name in (CONFIDENCE, *METHODS, GRADIENT))
    yield partial(_gradient_best, cells)
    yield partial(_roles_needed, cells)
    yield partial(_roles_needed_in_layers, cells)
    yield partial(_syntax_over_shuffled, cells)
    yield partial(_many_without, cells)


def way_words(name: str, way: str) -> str:
    governor, dependent = RELATIONS[name]
    return f"{governor} → {dependent}" if way == "to_dependent" else f"{dependent} → {governor}"


def _printed() -> Any:
    return published("voita2019")["heads"]


def _few(cells: Finished, method: str) -> Claim:
    blocks = signal(cells, method)
    heads = blocks.sizes["head"]
    return Claim(
        id=f"few-{method}",
        text=f"relevance ({method}): the two most relevant of {heads} encoder heads have more than half of a layer's",
        estimate=mean_of(top_shares(blocks), "blocks"),
        bound=Bound.above(0.5),
        note=f"chosen on the other half of the texts; {2 / heads:.2f} if all were alike",
        published=Published("few heads", "section 4"),
    )


def _uneven(cells: Finished, method: str) -> Claim:
    """On the same texts: a difference for each block."""
    control = signal(cells, method, condition=RANDOM)
    trained = signal(cells, method).isel(block=slice(len(control)))
    return Claim(
        id=f"uneven-{method}",
        text=f"relevance ({method}): it is more uneven than with random weights",
        estimate=paired(top_shares(trained), top_shares(control)),
        bound=Bound.above(0),
        note="share of the first two minus that of the untrained model",
        ours=True,
    )


def _confident(cells: Finished, method: str) -> Claim:
    return Claim(
        id=f"confident-{method}",
        text=f"encoder heads that are relevant ({method}) are confident",
        estimate=correlation(signal(cells, method), signal(cells, CONFIDENCE)),
        bound=Bound.above(0),
        published=Published("mostly", "section 4"),
        note="Spearman's ρ of ranks within layers",
    )


def _positional(cells: Finished, corpus: str) -> Claim:
    data = roles(cells, corpus)
    place = best_for(data, "positional")
    offset = int(data["offset"].sel(stack="encoder").values[place])
    return Claim(
        id=f"positional-{corpus}",
        text=f"{TEXTS[corpus]}: an encoder head attends most to one offset for at least 90 % of the words",
        estimate=held_out(data, "positional", place),
        bound=Bound.above(0.9),
        published=Published(_printed()["positional"]["share"], "section 5.1, its criterion"),
        note=f"head {name_of(place)}, offset {offset:+d}, chosen on one half of the texts and tested on the other; "
        f"{int(labelled(data, 'positional').sum())} encoder heads have the label",
    )


def _syntactic(cells: Finished, name: str, way: str) -> Claim:
    row = relation(roles(cells, UD), name, way)
    best, base = _printed()["syntax"]["wmt"][f"{name} {way}"]
    return Claim(
        id=f"syntax-{name}-{way.replace('_', '-')}",
        text=f"PUD: an encoder head finds {name} ({way_words(name, way)}) 10 points better than an offset",
        estimate=excess(row),
        bound=Bound.above(OVER),
        published=Published(round((best - base) / 100, 2), "table 1, WMT"),
        note=f"head {row['layer']}.{row['head']}: {row['accuracy']:.0%}, offset {row['offset']:+d}: "
        f"{row['baseline']:.0%}, on held-out pairs",
    )


def _rare(cells: Finished, corpus: str) -> Claim:
    data = roles(cells, corpus)
    place, chance = best_for(data, "rare"), data.attrs["chance"]
    return Claim(
        id=f"rare-{corpus}",
        text=f"{TEXTS[corpus]}: an encoder head attends most to one of the two rarest tokens, in more than half of the "
        "sentences",
        estimate=held_out(data, "rare", place),
        bound=Bound.above(max(0.5, chance + OVER)),
        published=Published(_printed()["rare"]["two_rarest"]["opensubtitles"], "section 5.3, OpenSubtitles"),
        note=f"head {name_of(place)} (the paper's is in layer 1); chance {chance:.2f}, and the bound is .5 or .1 above "
        "it",
    )


def _place(
    cells: Finished, name: str, claim_id: str, text: str, bound: Bound, published: Published | None = None
) -> Claim:
    """The place in its layer of the head that reads rare words most."""
    data, blocks = roles(cells, MULTI30K), signal(cells, name)
    place = best_for(data, "rare")
    estimate = bootstrap(lambda draw: place_in_layer(draw.mean(axis=0), place), blocks.values, over="blocks of texts")
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    value, low, high = (round(float(end)) for end in (estimate.value or 0, estimate.low, estimate.high))
    label = "" if labelled(data, "rare")[place] else "no head attends to rare words: this one is nearest to it"
    return Claim(
        id=claim_id,
        text=text,
        estimate=Estimate(value=value, low=low, high=high, n=estimate.n, over=estimate.over, method=estimate.method),
        bound=bound,
        note=f"head {name_of(place)}: its place among {blocks.sizes['head']}",
        undecided=label,
        published=published,
        ours=published is None,
    )


def _rare_first(cells: Finished, method: str) -> Claim:
    text = f"the rare-word head is the most relevant of its layer ({method})"
    return _place(cells, method, f"rare-first-{method}", text, Bound.below(1.5), _RARE)


def _rare_not_confident(cells: Finished) -> Claim:
    text = "the rare-word head is not among the two most confident of its layer"
    return _place(cells, CONFIDENCE, "rare-not-confident", text, Bound.above(2.5), _RARE)


def _rare_needed(cells: Finished) -> Claim:
    text = "the rare-word head matters: its layer loses most without it"
    return _place(cells, ABLATION, "rare-needed", text, Bound.below(1.5))


def _stable(cells: Finished, name: str) -> Claim:
    return Claim(
        id=f"stable-{name}",
        text=f"{SPOKEN[name]} ranks the encoder heads on PUD as on Multi30k",
        estimate=correlation(signal(cells, name), signal(cells, name, corpus=UD)),
        bound=Bound.above(0.5),
        note="ρ within layers; on PUD the decoder is given the model's own translation",
        ours=True,
    )


def _needed(cells: Finished, name: str) -> Claim:
    change = signal(cells, ABLATION)
    return Claim(
        id=f"needed-{name}",
        text=f"{SPOKEN[name]} says which encoder heads the translation needs",
        estimate=correlation(signal(cells, name), change),
        bound=Bound.above(0),
        note=f"ρ within layers with the rise of the loss without the head ({len(change)} blocks of texts)",
        ours=True,
    )


def _roles_needed(cells: Finished) -> Claim:
    change, has = head_map(signal(cells, ABLATION)), with_a_role(cells)
    estimate = _difference(change[has], change[~has])
    return Claim(
        id="roles-needed",
        text="encoder heads with a function (positional, syntactic, rare words) are needed more than the others",
        estimate=estimate,
        bound=Bound.above(0),
        published=Published("they do the heavy lifting", "title"),
        undecided="layers differ in what their heads are worth: judged within layers",
        note=f"rise of the loss without a head: {change[has].mean():.4f} for {has.sum()} heads with a function, "
        f"{change[~has].mean():.4f} for {(~has).sum()} without",
    )


def _roles_needed_in_layers(cells: Finished) -> Claim:
    """Layers differ in what their heads are worth and in how many have a function; ranks do not hang on one head."""
    change, has = head_map(signal(cells, ABLATION)), with_a_role(cells)
    rank = ranks_in_layers(change)[0].reshape(change.shape)
    return Claim(
        id="roles-needed-in-layers",
        text="encoder heads with a function are needed more than the others of their layer",
        estimate=_difference(rank[has], rank[~has]),
        bound=Bound.above(0),
        published=Published("they do the heavy lifting", "title"),
        note="rank in the layer (from 0 to 1) by the rise of the loss without the head, difference of means",
    )


def _syntax_over_shuffled(cells: Finished) -> Claim:
    """The label must not be as frequent where there is no syntax."""
    trained, shuffled = (labelled(roles(cells, UD, one), "syntactic").ravel() for one in (TRAINED, SHUFFLED))
    return Claim(
        id="syntactic-over-shuffled",
        text="PUD: more encoder heads are called syntactic on sentences than on shuffled words (difference of shares)",
        estimate=paired(trained, shuffled, "heads"),
        bound=Bound.above(0),
        note=f"{trained.sum()} heads on sentences, {shuffled.sum()} on shuffled words",
        ours=True,
    )


def _many_without(cells: Finished) -> Claim:
    data = roles(cells, MULTI30K)
    found = [labelled(data, "positional"), labelled(data, "rare"), labelled(roles(cells, UD), "syntactic")]
    without = ~np.any(found, axis=0)
    share = float(without.mean())
    return Claim(
        id="many-without-function",
        text="more than half of the encoder heads are neither positional nor syntactic nor attend to rare words",
        estimate=Estimate(value=share, low=share, high=share, over="heads", method="counted"),
        bound=Bound.above(0.5),
        published=Published("many heads don't really follow any of these patterns", "slides"),
        note=f"{without.sum()} of {without.size}; bound added when our numbers were known",
    )


def _gradient_best(cells: Finished) -> Claim:
    maps = [head_map(signal(cells, name)) for name in (GRADIENT, CONFIDENCE, ABLATION)]
    estimate = bootstrap(_agrees_more, ranks_in_layers(*maps).T, over="heads")
    return Claim(
        id="gradient-over-confidence",
        text="the gradient says better than confidence which encoder heads the translation needs",
        estimate=estimate or Estimate(value=None, over="heads"),
        bound=Bound.above(0),
        note="difference of both ρ within layers, the same heads in every draw",
        ours=True,
    )


def _agrees_more(ranks: np.ndarray) -> float:
    """ρ of the first and the last signal less that of the second and the last [head signal]."""
    rho = correlations(ranked(ranks.T))
    return float(rho[0, 2] - rho[1, 2])


def _difference(one: np.ndarray, other: np.ndarray) -> Estimate:
    """Of two means over heads; heads are drawn."""
    if min(len(one), len(other)) < 2:
        return Estimate(value=None, over="heads")
    estimate = bootstrap(lambda a, b: float(a.mean() - b.mean()), one, other, over="heads")
    assert estimate is not None
    return estimate
