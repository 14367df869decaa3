"""What the maps and labels of heads say about the claims of the paper, each beside what taking heads away says.

Bounds were fixed before anything was measured; where the paper gives none, half (a share) or none at all (ρ, a
difference) is the bound.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from reproductions.frame.estimates import Estimate, estimate, verdict_above
from reproductions.frame.record import Claim
from reproductions.voita2019.heads import CONFIDENCE, METHODS, MULTI30K, RANDOM, UD
from reproductions.voita2019.heads_reading import (
    ABLATION,
    GRADIENT,
    THREE,
    Looked,
    Roles,
    correlation,
    excess,
    over_blocks,
    place_in_layer,
    top_shares,
)
from reproductions.voita2019.pruning_reading import Interval, over_heads

TEXTS = {MULTI30K: "Multi30k", UD: "PUD"}
WAYS = ("to_dependent", "to_head")
RELATIONS = {"nsubj": ("verb", "subject"), "obj": ("verb", "object"), "amod": ("noun", "adjective")}
RELATIONS |= {"advmod": ("verb", "adverb")}
OVER = 0.1
"""What a syntactic head must have over the best offset, and a rare-word head over chance."""


def claims(looked: Looked, told: Any) -> Iterator[Claim]:
    yield from _few(looked)
    yield from _confident(looked)
    yield from _positional(looked)
    yield from _syntactic(looked, told)
    yield from _rare(looked, told)
    yield from _other_text(looked)
    yield from _causal(looked)
    yield from _roles_matter(looked)


def way_words(relation: str, way: str) -> str:
    governor, dependent = RELATIONS[relation]
    return f"{governor} → {dependent}" if way == "to_dependent" else f"{dependent} → {governor}"


def _claim(text: str, found: Interval, bound: float = 0.0, *, published: Any = None, why: str = "") -> Claim:
    if np.isnan([found.value, *found.interval]).any():  # a signal that is the same for all heads has no rank
        return Claim(text=text, ours=None, published=published, verdict="cannot tell", why=why)
    verdict = verdict_above(Estimate(found.value, 0.0, found.interval), bound)
    return Claim(
        text=text, ours=found.value, interval=found.interval, published=published, verdict=verdict, why=why
    )  # fmt: skip


def _few(looked: Looked) -> Iterator[Claim]:
    for method in METHODS:
        blocks = looked.blocks(method, "encoder")
        if blocks is None:
            continue
        shares, heads = top_shares(blocks), blocks.shape[-1]
        found = estimate(shares.tolist())
        assert found.interval is not None
        why = f"chosen on the other half of the texts; {2 / heads:.2f} if all were alike"
        text = f"relevance ({method}): the two most relevant of {heads} encoder heads have more than half of a layer's"
        yield _claim(text, Interval(found.mean, found.interval), 0.5, why=why)
        control = looked.blocks(method, "encoder", condition=RANDOM)
        if control is not None:
            # The same texts: a difference for each block.
            gap = estimate((top_shares(blocks[: len(control)]) - top_shares(control)).tolist())
            assert gap.interval is not None
            yield _claim(
                f"relevance ({method}): it is more uneven than with random weights",
                Interval(gap.mean, gap.interval),
                why=f"share of the first two less that of the untrained model, {len(control)} blocks of the same texts",
            )


def _confident(looked: Looked) -> Iterator[Claim]:
    confidence = looked.blocks(CONFIDENCE, "encoder")
    for method in METHODS:
        blocks = looked.blocks(method, "encoder")
        if blocks is not None and confidence is not None:
            yield _claim(
                f"encoder heads that are relevant ({method}) are confident",
                correlation(blocks.mean(axis=0), confidence.mean(axis=0)),
                published="mostly",
                why="Spearman's ρ of ranks within layers; interval over heads",
            )


def _positional(looked: Looked) -> Iterator[Claim]:
    for corpus, title in TEXTS.items():
        roles = looked.roles(corpus)
        if roles is None:
            continue
        layer, head = place = roles.best("positional")
        offset = int(roles.cell["offset"][roles.cell["stacks"].index("encoder")][layer][head])
        yield _claim(
            f"{title}: an encoder head reads at one offset for at least 90 % of the words",
            roles.held_out("positional", place),
            0.9,
            published=0.9,
            why=f"head {layer + 1}.{head + 1}, offset {offset:+d}, chosen on one half of the texts and tested on the "
            f"other; {int(roles.label('positional').sum())} encoder heads have the label",
        )


def _syntactic(looked: Looked, told: Any) -> Iterator[Claim]:
    roles = looked.roles(UD)
    for relation in RELATIONS:
        for way in WAYS:
            row = None if roles is None else roles.relation(relation, way)
            if row is None:
                continue
            paper = told["heads"]["syntax"]["wmt"][f"{relation} {way}"]
            yield _claim(
                f"PUD: an encoder head finds {relation} ({way_words(relation, way)}) 10 points better than an offset",
                excess(row),
                OVER,
                published=round((paper[0] - paper[1]) / 100, 2),
                why=f"head {row['layer']}.{row['head']}: {row['accuracy']:.0%}, offset {row['offset']:+d}: "
                f"{row['baseline']:.0%}, {row['pairs']} held-out pairs",
            )


def _rare(looked: Looked, told: Any) -> Iterator[Claim]:
    for corpus, title in TEXTS.items():
        roles = looked.roles(corpus)
        if roles is None:
            continue
        place = roles.best("rare")
        yield _claim(
            f"{title}: an encoder head reads one of the two rarest pieces most, in more than half of the sentences",
            roles.held_out("rare", place),
            max(0.5, roles.chance + OVER),
            published=told["heads"]["rare"]["two_rarest"]["opensubtitles"],
            why=f"head {_name(place)} (the paper's is in layer 1); chance {roles.chance:.2f}, and the bound is .5 or "
            ".1 above it",
        )
    roles = looked.roles(MULTI30K)
    if roles is not None:
        yield from _found_by(looked, roles)


def _found_by(looked: Looked, roles: Roles) -> Iterator[Claim]:
    """Is the rare-word head the first of its layer by relevance, and not by confidence?"""
    place = roles.best("rare")
    labelled = "" if roles.label("rare")[place] else "; no head has the label, this one is nearest to it"
    for method in METHODS:
        blocks = looked.blocks(method, "encoder")
        if blocks is not None:
            yield _place(f"the rare-word head is the most relevant of its layer ({method})", blocks, place, 1, labelled)
    confidence = looked.blocks(CONFIDENCE, "encoder")
    if confidence is not None:
        yield _place(
            "the rare-word head is not among the two most confident of its layer", confidence, place, 2, labelled,
            within=False,
        )  # fmt: skip
    change = looked.without("change", "encoder")
    if change is not None and len(change) > 1:
        yield _place(
            "the rare-word head matters: its layer loses most without it", change, place, 1,
            labelled + "; loss of the references",
        )  # fmt: skip


def _place(text: str, blocks: np.ndarray, place: tuple[int, int], most: int, why: str, *, within: bool = True) -> Claim:
    """Whether a head is among the first `most` of its layer (or is not), in all draws of the blocks but 2.5 %."""
    found = over_blocks(lambda values: place_in_layer(values, place), blocks)
    low, high = (round(end) for end in found.interval)
    inside, outside = high <= most, low > most
    verdict = "holds" if (inside if within else outside) else "does not hold" if inside or outside else "cannot tell"
    told = f"head {_name(place)}: its place among {blocks.shape[-1]}; interval over {len(blocks)} blocks of texts{why}"
    return Claim(text=text, ours=round(found.value), interval=(float(low), float(high)), verdict=verdict, why=told)


def _other_text(looked: Looked) -> Iterator[Claim]:
    for name in (CONFIDENCE, *METHODS):
        one, other = looked.blocks(name, "encoder"), looked.blocks(name, "encoder", corpus=UD)
        if one is not None and other is not None:
            yield _claim(
                f"{_said(name)} ranks the encoder heads on PUD as on Multi30k",
                correlation(one.mean(axis=0), other.mean(axis=0)),
                0.5,
                why="ρ within layers above .5; on PUD the decoder is given the model's own translation",
            )


def _causal(looked: Looked) -> Iterator[Claim]:
    signals = looked.signals("encoder")
    if ABLATION not in signals:
        return
    change = signals[ABLATION]
    for name in (CONFIDENCE, *METHODS, GRADIENT):
        if name in signals:
            yield _claim(
                f"{_said(name)} says which encoder heads the translation needs",
                correlation(signals[name].mean(axis=0), change.mean(axis=0)),
                why=f"ρ within layers with the rise of the loss without the head ({len(change)} blocks of texts); "
                "interval over heads",
            )


def _said(name: str) -> str:
    return {CONFIDENCE: "confidence", GRADIENT: "the gradient (Michel et al. 2019)"}.get(name, f"relevance ({name})")


def with_a_role(looked: Looked) -> np.ndarray | None:
    """Encoder heads that have one of the paper's three functions: syntax on PUD, the others on either text."""
    found = [roles for roles in (looked.roles(corpus) for corpus in TEXTS) if roles is not None]
    return np.any([roles.label(role) for roles in found for role in THREE], axis=0) if found else None


def _roles_matter(looked: Looked) -> Iterator[Claim]:
    has, change = with_a_role(looked), looked.without("change", "encoder")
    if has is None or change is None or not 1 < has.sum() < has.size - 1:
        return
    mean = change.mean(axis=0)
    found = over_heads(lambda one, other: float(one.mean() - other.mean()), mean[has], mean[~has])
    assert found is not None
    yield _claim(
        "encoder heads with a function (positional, syntactic, rare words) are needed more than the others",
        found,
        why=f"rise of the loss without a head: {mean[has].mean():.4f} for {has.sum()} heads with a function, "
        f"{mean[~has].mean():.4f} for {(~has).sum()} without; interval over heads",
    )


def _name(place: tuple[int, int]) -> str:
    return f"{place[0] + 1}.{place[1] + 1}"
