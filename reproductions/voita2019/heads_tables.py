"""Tables of the heads part: syntax beside the paper's table 1, roles under each condition, and who agrees with whom."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reproductions.frame.estimates import estimate
from reproductions.frame.record import Table
from reproductions.voita2019.heads import CONDITIONS, CONFIDENCE, MAPS, METHODS, MULTI30K, RANDOM, SHUFFLED, UD
from reproductions.voita2019.heads_claims import OVER, RELATIONS, TEXTS, WAYS, way_words
from reproductions.voita2019.heads_reading import (
    ABLATION,
    GRADIENT,
    STACKS,
    Looked,
    correlation,
    excess,
    place_in_layer,
    reliability,
    top_shares,
)
from reproductions.voita2019.pruning_reading import Interval

_LEAST = 20
"""Held-out pairs below which a relation is not listed."""
TITLES = {"trained": "trained", SHUFFLED: "shuffled words", RANDOM: "random weights"}


def tables(looked: Looked, told: Any) -> Iterator[Table]:
    for make in (_syntax, _more_syntax, _counts, _agreement, _confident, _uneven, _stable, _rare, _each):
        frame, title, note = make(looked, told)
        if len(frame):
            yield Table(title, pd.DataFrame(frame), note)


def _span(found: Interval) -> str:
    return f"{found.value:.2f} [{found.interval[0]:.2f}, {found.interval[1]:.2f}]"


Made = tuple[list[dict[str, Any]], str, str]


def _syntax(looked: Looked, told: Any) -> Made:
    rows = []
    for relation in RELATIONS:
        for way in WAYS:
            row: dict[str, Any] = {"relation": f"{relation}, {way_words(relation, way)}"}
            for condition in CONDITIONS:
                roles = looked.roles(UD, condition)
                found = None if roles is None else roles.relation(relation, way)
                if found is None:
                    continue
                if condition == CONDITIONS[0]:
                    row |= {"head": f"{found['layer']}.{found['head']}", "pairs": int(found["pairs"])}
                row[TITLES[condition]] = f"{found['accuracy']:.0%} / {found['baseline']:.0%}"
                if condition == CONDITIONS[0]:
                    row["over the offset"] = _span(excess(found))
            for name in ("wmt", "opensubtitles"):
                best, base = told["heads"]["syntax"][name][f"{relation} {way}"]
                row[f"published, {name}"] = f"{best}% / {base}%"
            if "head" in row:
                rows.append(row)
    note = (
        "Encoder, PUD: accuracy of the best head / of the best fixed offset, both chosen on one half of the sentences "
        "and tested on the other. Gold trees of Universal Dependencies, not "
        "CoreNLP's; obj is the paper's dobj. With shuffled words, trees go with their words: what is left goes by the "
        "words alone."
    )
    return rows, "Syntactic heads, beside table 1 of the paper", note


def _more_syntax(looked: Looked, told: Any) -> Made:
    roles = looked.roles(UD)
    rows = []
    for found in () if roles is None else roles.cell.get("relations", ()):
        over = excess(found)
        if found["relation"] not in RELATIONS and over.interval[0] >= OVER and found["pairs"] >= _LEAST:
            row = {"relation": found["relation"], "way": found["way"].replace("_", " ")}
            row |= {"head": f"{found['layer']}.{found['head']}", "accuracy": found["accuracy"]}
            rows.append({**row, "offset": found["baseline"], "over": _span(over), "pairs": int(found["pairs"])})
    rows.sort(key=lambda row: row["offset"] - row["accuracy"])
    return rows, "Other relations that an encoder head finds 10 points better than an offset, by the whole interval", ""


def _counts(looked: Looked, told: Any) -> Made:
    columns: dict[str, Any] = {}
    for corpus, text in TEXTS.items():
        for condition in CONDITIONS:
            roles = looked.roles(corpus, condition)
            if roles is not None:
                columns[f"{text}, {TITLES[condition]}"] = (roles, "encoder")
        trained = looked.roles(corpus)
        if trained is not None and corpus == MULTI30K:
            columns |= {f"{text}, {STACKS[stack]}": (trained, stack) for stack in ("decoder", "cross")}
    names = list(dict.fromkeys(name for roles, _ in columns.values() for name in roles.cell["roles"]))
    rows: list[dict[str, Any]] = []
    for name in names:
        rows.append({"label": name.replace("_", " ")})
        for title, (roles, stack) in columns.items():
            rows[-1][title] = int(roles.label(name, stack).sum())
    if rows:
        rows.append({"label": "none of these"})
        for title, (roles, stack) in columns.items():
            rows[-1][title] = int((~np.any([roles.label(name, stack) for name in names], axis=0)).sum())
    note = (
        "Heads of the encoder unless said, 48 of each attention. A label must fit in both halves of the "
        "texts; thresholds are those of the `roles` lens. Multi30k has no trees, so no syntax. *syntactic* is about "
        "any relation of the treebank, not only the paper's four. With shuffled words an offset finds next to nothing, "
        "so that it takes little to be 10 points better: there, compare accuracies (first table), not labels."
    )
    return rows, "Heads by label", note


def _agreement(looked: Looked, told: Any) -> Made:
    rows = []
    for name in (*MAPS, GRADIENT, ABLATION):
        row: dict[str, Any] = {"signal": name}
        for stack, title in STACKS.items():
            signals = looked.signals(stack)
            if name in signals and ABLATION in signals:
                change = signals[ABLATION].mean(axis=0)
                same = name == ABLATION
                row[title] = "" if same else _span(correlation(signals[name].mean(axis=0), change))
                row[f"{title}, reliability"] = reliability(signals[name])
        if len(row) > 1:
            rows.append(row)
    note = (
        "Spearman's ρ of ranks within layers with the rise of the loss without the head [95 % over heads]. "
        "Reliability: ρ between the two halves of the texts, stepped up to all: no signal can agree better with "
        "another than the root of the product of both. The gradient is of the same texts as the loss, the others of "
        "more, and have less of its noise."
    )
    return rows, "Does a signal rank the heads as taking them away does?", note


def _confident(looked: Looked, told: Any) -> Made:
    rows = []
    for method in METHODS:
        row: dict[str, Any] = {"relevance": method}
        for stack, title in STACKS.items():
            one, other = looked.blocks(method, stack), looked.blocks(CONFIDENCE, stack)
            if one is not None and other is not None:
                row[title] = _span(correlation(one.mean(axis=0), other.mean(axis=0)))
        if len(row) > 1:
            rows.append(row)
    return rows, "Relevance and confidence: ρ within layers", "Multi30k; intervals over heads."


def _uneven(looked: Looked, told: Any) -> Made:
    rows = []
    for stack, title in STACKS.items():
        for method in METHODS:
            row: dict[str, Any] = {"attention": title, "relevance": method}
            for condition in CONDITIONS:
                blocks = looked.blocks(method, stack, condition=condition)
                if blocks is not None:
                    found = estimate(top_shares(blocks).tolist())
                    row[TITLES[condition]] = _span(Interval(found.mean, found.interval or (np.nan, np.nan)))
            if len(row) > 2:
                rows.append(row)
    note = (
        "Share of a layer's relevance, regardless of sign, in the two heads that have most of it on the other half of "
        "the texts; mean over layers [95 % over blocks of texts]. All alike: .25."
    )
    return rows, "How uneven relevance is", note


def _stable(looked: Looked, told: Any) -> Made:
    rows = []
    others = {"PUD": (UD, "trained"), "shuffled words": (MULTI30K, SHUFFLED), "random weights": (MULTI30K, RANDOM)}
    for stack, title in STACKS.items():
        for name in MAPS:
            base = looked.blocks(name, stack)
            row: dict[str, Any] = {"attention": title, "map": name}
            for column, (corpus, condition) in others.items():
                blocks = looked.blocks(name, stack, corpus=corpus, condition=condition)
                if base is not None and blocks is not None:
                    row[column] = correlation(base.mean(axis=0), blocks.mean(axis=0)).value
            if len(row) > 2:
                rows.append(row)
    return rows, "Is it the same map on other texts? ρ within layers with the map on Multi30k", ""


def _rare(looked: Looked, told: Any) -> Made:
    roles = looked.roles(MULTI30K)
    if roles is None:
        return [], "", ""
    first = roles.number("rare", "development")
    order = np.argsort(-np.nan_to_num(first, nan=-1.0).ravel())[:6]
    places = [tuple(map(int, np.unravel_index(int(number), first.shape))) for number in order]
    rows = [_rare_row(looked, place) for place in places]
    note = (
        f"The encoder heads that most often read one of the two rarest pieces most (chosen on half of Multi30k, tested "
        f"on the other; chance {roles.chance:.2f}), and their places in their layer by each signal: 1 is the largest."
    )
    return rows, "Rare words: the heads that read them, and who finds them", note


def _rare_row(looked: Looked, place: Sequence[int]) -> dict[str, Any]:
    layer, head = place
    row: dict[str, Any] = {"head": f"{layer + 1}.{head + 1}"}
    for corpus, text in TEXTS.items():
        roles = looked.roles(corpus)
        if roles is not None:
            row[f"rare, {text}"] = _span(roles.held_out("rare", (layer, head)))
    for name, blocks in looked.signals("encoder").items():
        row[name] = place_in_layer(blocks.mean(axis=0), (layer, head))
    return row


def _each(looked: Looked, told: Any) -> Made:
    """Every encoder head: labels on both texts, and its numbers."""
    roles = {text: looked.roles(corpus) for corpus, text in TEXTS.items()}
    words = {text: found.words("encoder") for text, found in roles.items() if found is not None}
    signals = {name: blocks.mean(axis=0) for name, blocks in looked.signals("encoder").items()}
    if not words or not signals:
        return [], "", ""
    rows = []
    for layer, head in np.ndindex(next(iter(signals.values())).shape):
        row: dict[str, Any] = {"head": f"{layer + 1}.{head + 1}"}
        row |= {f"roles, {text}": found[layer][head].replace("_", " ") for text, found in words.items()}
        rows.append(row | {name: float(values[layer, head]) for name, values in signals.items()})
    return rows, "Every encoder head", "Relevance with its sign, as a share of its layer; Multi30k unless said."
