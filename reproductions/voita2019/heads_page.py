"""The heads part of the page: what was looked at, and what holds."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproductions.frame.parts import Part
from reproductions.frame.readings import about_the_claims
from reproductions.frame.record import Claim, published
from reproductions.voita2019.heads import CONFIDENCE, METHODS, MULTI30K, RANDOM, SHUFFLED, UD
from reproductions.voita2019.heads_claims import claims, with_a_role
from reproductions.voita2019.heads_figures import figures
from reproductions.voita2019.heads_reading import (
    ABLATION,
    GRADIENT,
    THREE,
    Looked,
    Roles,
    correlation,
    place_in_layer,
    reliability,
)
from reproductions.voita2019.heads_tables import TITLES, tables

if TYPE_CHECKING:
    from reproductions.frame.record import Settings


def part_of(settings: "Settings", done: Mapping[str, Any]) -> Part:
    looked, told = Looked(done), published("voita2019")
    found = list(claims(looked, told))
    return Part(
        title="Heads",
        setup=_setup(looked),
        summary=_summary(looked, found),
        claims=found,
        tables=list(tables(looked, told)),
        figures=list(figures(looked)),
        provenance=_provenance(looked),
    )


def _texts(looked: Looked, start: str) -> int:
    """Texts of all cells whose key begins so; cells on the same texts count once."""
    cells = {key: cell for key, cell in looked.found.items() if key.startswith(start)}
    return sum({cell["corpus_fingerprint"]: int(cell["texts"]) for cell in cells.values()}.values())


def _setup(looked: Looked) -> list[str]:
    return [
        "**Heads.** *opus-mt-en-fr* as published (6 + 6 layers of 8 heads), not trained further. *Multi30k*: captions "
        f"with their references, the Flickr test set of 2016 ({_texts(looked, f'maps-{MULTI30K}-trained')} sentences "
        f"for relevance and confidence, {_texts(looked, f'roles-{MULTI30K}-trained')} for roles, "
        f"{_texts(looked, 'without-')} without each head of the encoder, {_texts(looked, f'without-{MULTI30K}')} "
        "without each of the decoder's, in blocks that weigh the same); *PUD*: news and Wikipedia with gold trees "
        f"({_texts(looked, f'roles-{UD}-trained')} sentences drawn from it for roles, encoder alone, and "
        f"{_texts(looked, f'maps-{UD}')} for relevance and confidence). The decoder is given the reference; PUD has "
        "none, and there it is given the model's own greedy translation.",
        "*Relevance* starts at the largest logit of every step, added up over the steps, and is normalised over the "
        "heads of a layer (regardless of sign), by four rules: `voita2019` (ratios, as the paper writes them), "
        "`voita2021` (the authors' released code), `attnlrp` (Achtibat et al. 2024), `ah` (Ali et al. 2022). "
        "*Confidence*: the largest weight on a piece that is not end of sentence, mean over pieces. *Roles*: the "
        "labels of the `roles` lens, chosen on one half of the texts and tested on the other; rare pieces "
        "by counts in 10,000 sentences of the same kind (captions; EWT for PUD). *Without the head*: rise of the loss "
        "of the reference when its output is zero, one head at a time; *gradient*: |∂L/∂ξ| of a gate on it "
        "(Michel et al. 2019). Controls: the same architecture with random weights, "
        "and shuffled words in the source (the reference stays).",
        "Intervals of this part: over blocks of consecutive sentences where a number is about texts, over heads where "
        "it is a rank correlation of heads (within layers, so that a layer's level says nothing). Sentences without a "
        "head of the encoder were 48 at first, which did not settle the ranks; the others were added then, and all "
        "count. The paper's models were trained on WMT and OpenSubtitles, English-Russian; ours is another model, "
        "another pair and other texts: its claims are tested, its numbers are not.",
    ]


def _summary(looked: Looked, found: list[Claim]) -> list[str]:
    paragraphs = [
        f"**Heads.** {about_the_claims(found)}" if found else "**Heads.** No claim can be made yet.",
        *_about_rare(looked),
        *_about_roles(looked),
        *_about_relevance(looked),
        *_about_signals(looked),
    ]
    return paragraphs


def _about_rare(looked: Looked) -> list[str]:
    """The seed's question: is the rare-word head found by relevance but not by confidence?"""
    roles = looked.roles(MULTI30K)
    signals = {name: blocks.mean(axis=0) for name, blocks in looked.signals("encoder").items()}
    if roles is None or CONFIDENCE not in signals:
        return []
    place = roles.best("rare")
    lower = 0, int(roles.number("rare", "development")[0].argmax())
    text = f"*The rare-word head is found by relevance but not by confidence?* Here {_rare_head(roles, signals, place)}"
    if lower != place:
        text += f" In the first layer, where the paper's is, {_rare_head(roles, signals, lower)}"
    return [text]


def _rare_head(roles: Roles, signals: Mapping[str, Any], place: tuple[int, int]) -> str:
    share = roles.held_out("rare", place)
    by = {name: place_in_layer(values, place) for name, values in signals.items()}
    rules = [name for name in METHODS if name in by]
    first = [name for name in rules if by[name] == 1]
    found = f"first of its layer by {', '.join(first)}" if first else "first of its layer by no rule"
    others = "".join(f", {text} {by[name]}" for name, text in ((GRADIENT, "gradient"), (ABLATION, "loss without it"))
                     if name in by)  # fmt: skip
    return (
        f"head {place[0] + 1}.{place[1] + 1} reads one of the two rarest pieces most in {share.value:.0%} of the "
        f"sentences (chance {roles.chance:.0%}); it is {found} (places: "
        f"{', '.join(f'{name} {by[name]}' for name in rules)}); by confidence its place is {by[CONFIDENCE]}{others}."
    )


def _about_roles(looked: Looked) -> list[str]:
    has = with_a_role(looked)
    if has is None:
        return []
    parts = []
    for condition in ("trained", SHUFFLED, RANDOM):
        told = {MULTI30K: looked.roles(MULTI30K, condition), UD: looked.roles(UD, condition)}
        counts = []
        for role in THREE:
            numbers = [int(roles.label(role).sum()) for roles in told.values() if roles is not None]
            if numbers:
                counts.append(f"{role} {max(numbers)}")
        if counts:
            parts.append(f"{TITLES[condition]}: {', '.join(counts)}")
    return [
        f"Of {has.size} encoder heads {int(has.sum())} have one of the paper's three functions on either text. By "
        f"condition (the larger count of the two texts): {'; '.join(parts)}. A positional head needs no words, and "
        "where they are shuffled no offset is worth much, so that labels of syntax come easily: the accuracies in the "
        "first table say what is left of it."
    ]


def _about_relevance(looked: Looked) -> list[str]:
    """Which rules give the same map twice?"""
    found = {name: looked.blocks(name, "encoder") for name in METHODS}
    trust = {name: reliability(blocks) for name, blocks in found.items() if blocks is not None}
    if not trust:
        return []
    listed = ", ".join(f"{name} {value:.2f}" for name, value in trust.items())
    noise = [name for name, value in trust.items() if value < 0.5]
    more = f" What {' and '.join(noise)} says of heads here is mostly noise: " if noise else ""
    if "voita2019" in noise:
        more += "as may be expected of ratios without a stabiliser, which grow without bound where parts cancel; "
    more += "its verdicts are about the rule, not about the heads." if noise else ""
    return [f"*Does relevance give the same map twice?* Reliability over these texts, encoder: {listed}.{more}"]


def _about_signals(looked: Looked) -> list[str]:
    signals = looked.signals("encoder")
    if ABLATION not in signals or len(signals[ABLATION]) < 2:
        return []
    change, trust = signals[ABLATION].mean(axis=0), reliability(signals[ABLATION])
    ranked = {name: correlation(b.mean(axis=0), change).value for name, b in signals.items() if name != ABLATION}
    best = max(ranked, key=lambda name: ranked[name])
    listed = ", ".join(f"{name} {rho:+.2f}" for name, rho in sorted(ranked.items(), key=lambda item: -item[1]))
    return [
        "*Which cheap signal to trust?* Within the layers of the encoder, the rise of the loss without a head goes "
        f"best with {best} (ρ: {listed}). The rise itself has a reliability of {trust:.2f} over these texts, so that "
        f"no signal can be expected to go beyond √{trust:.2f} = {math.sqrt(trust):.2f}."
    ]


def _provenance(looked: Looked) -> dict[str, Any]:
    kept = ("model", "weights_sha256", "corpus", "texts", "corpus_fingerprint", "device")
    return {key: {name: cell[name] for name in kept if name in cell} for key, cell in looked.found.items()}
