"""Tables of the heads part: syntax beside the paper's table 1, roles under each condition, and who agrees with whom."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from reproductions.frame.finished import Finished, MissingCell, made
from reproductions.frame.markdown import estimate as said
from reproductions.frame.page import Table, published
from reproductions.frame.statistics import mean_of
from reproductions.voita2019.claims_heads import OVER, RELATIONS, WAYS, way_words
from reproductions.voita2019.grid import CONDITIONS, CONFIDENCE, MAPS, METHODS, MULTI30K, RANDOM, SHUFFLED, TRAINED, UD
from reproductions.voita2019.heads import (
    ABLATION,
    SIGNALS,
    STACKS,
    TEXTS,
    correlation,
    excess,
    head_map,
    held_out,
    labelled,
    name_of,
    place_in_layer,
    relation,
    reliability,
    rho,
    roles,
    signal,
    signals,
    top_shares,
)

TITLES = {TRAINED: "trained", SHUFFLED: "shuffled words", RANDOM: "random weights"}
_LEAST = 20
"""Held-out pairs below which a relation is not listed."""
Row = dict[str, Any]


def makers(cells: Finished) -> Iterator[Callable[[], Table]]:
    for make in (_syntax, _more_syntax, _counts, _agreement, _confident, _uneven, _stable, _rare, _each):
        yield partial(make, cells)


def _table(name: str, title: str, rows: list[Row], note: str = "") -> Table:
    if not rows:
        raise MissingCell(name)
    return Table(name, title, pd.DataFrame(rows), note)


def _columns(row: Row, columns: dict[str, Callable[[], Any]]) -> Row:
    """A row with those columns whose cells were run."""
    filled = {name: list(made([make])) for name, make in columns.items()}
    return row | {name: value[0] for name, value in filled.items() if value}


def _filled(rows: list[Row], keys: int) -> list[Row]:
    """Without rows that have nothing but their first columns."""
    return [row for row in rows if len(row) > keys]


def _accuracies(cells: Finished, name: str, way: str, condition: str) -> str:
    row = relation(roles(cells, UD, condition), name, way)
    return f"{row['accuracy']:.0%} / {row['baseline']:.0%}"


def _syntax(cells: Finished) -> Table:
    printed = published("voita2019")["heads"]["syntax"]
    rows = []
    for name in RELATIONS:
        for way in WAYS:
            best = relation(roles(cells, UD), name, way)
            row: Row = {"relation": f"{name}, {way_words(name, way)}", "head": f"{best['layer']}.{best['head']}"}
            row |= {"pairs": int(best["pairs"]), "over the offset": said(excess(best))}
            row = _columns(row, {TITLES[c]: partial(_accuracies, cells, name, way, c) for c in CONDITIONS})
            for corpus, numbers in printed.items():
                head, offset = numbers[f"{name} {way}"]
                row[f"published, {corpus}"] = f"{head}% / {offset}%"
            rows.append(row)
    note = (
        "Encoder, PUD: accuracy of the best head / of the best fixed offset, both chosen on one half of the sentences "
        "and tested on the other. Gold trees of Universal Dependencies, not CoreNLP's; obj is the paper's dobj. With "
        "shuffled words, trees go with their words: what is left goes by the words alone."
    )
    return _table("syntax", "Syntactic heads, beside table 1 of the paper", rows, note)


def _more_syntax(cells: Finished) -> Table:
    rows = []
    for row in roles(cells, UD).attrs["relations"]:
        over = excess(row)
        if row["relation"] not in RELATIONS and (over.low or 0) >= OVER and row["pairs"] >= _LEAST:
            rows.append(
                {
                    "relation": row["relation"],
                    "way": row["way"].replace("_", " "),
                    "head": f"{row['layer']}.{row['head']}",
                    "accuracy": row["accuracy"],
                    "offset": row["baseline"],
                    "over": said(over),
                    "pairs": int(row["pairs"]),
                }
            )
    rows.sort(key=lambda row: row["offset"] - row["accuracy"])
    title = "Other relations that an encoder head finds 10 points better than an offset, by the whole interval"
    return _table("more-syntax", title, rows)


def _counts(cells: Finished) -> Table:
    columns = {}
    for corpus, text in TEXTS.items():
        for condition in cells.labels("condition", kind="roles", corpus=corpus):
            columns[f"{text}, {TITLES[condition]}"] = roles(cells, corpus, condition)["label"].sel(stack="encoder")
    if cells.of(kind="roles", corpus=MULTI30K, condition=TRAINED):
        label = roles(cells, MULTI30K)["label"]
        columns |= {f"Multi30k, {STACKS[stack]}": label.sel(stack=stack) for stack in ("decoder", "cross")}
    names = list(dict.fromkeys(name for label in columns.values() for name in label["role"].values))
    rows: list[Row] = [
        {
            "label": name.replace("_", " "),
            **{title: int(label.sel(role=name).sum()) for title, label in columns.items()},
        }
        for name in names
    ]
    none = {title: int((~label.any("role")).sum()) for title, label in columns.items()}
    note = (
        "Heads of the encoder unless said, 48 of each attention. A label must fit in both halves of the texts; "
        "thresholds are those of the `roles` lens, measured without its controls. Multi30k has no trees, so no syntax. "
        "*syntactic* is about any relation of the treebank, not only the paper's four. With shuffled words an offset "
        "finds next to nothing, so that it takes little to be 10 points better: there, "
        "compare accuracies (first table), not labels."
    )
    return _table("labels", "Heads by label", [*rows, {"label": "none of these", **none}] if rows else [], note)


def _agreement(cells: Finished) -> Table:
    rows = []
    for name in SIGNALS:
        row: Row = {"signal": name}
        for stack, title in STACKS.items():
            there = signals(cells, stack)
            if name in there and ABLATION in there:
                row[title] = "" if name == ABLATION else said(correlation(there[name], there[ABLATION]))
                row[f"{title}, reliability"] = reliability(there[name])
        rows.append(row)
    note = (
        "Spearman's ρ of ranks within layers with the rise of the loss without the head [95 % over heads]. "
        "Reliability: ρ between the two halves of the texts, stepped up to all: no signal can agree better with "
        "another than the root of the product of both. The gradient is of the same texts as the loss, the others of "
        "more, and have less of its noise."
    )
    return _table("agreement", "Does a signal rank the heads as taking them away does?", _filled(rows, 1), note)


def _confident(cells: Finished) -> Table:
    def column(method: str, stack: str) -> str:
        return said(correlation(signal(cells, method, stack), signal(cells, CONFIDENCE, stack)))

    rows = [
        _columns({"relevance": method}, {title: partial(column, method, stack) for stack, title in STACKS.items()})
        for method in METHODS
    ]
    title = "Relevance and confidence: ρ within layers"
    return _table("confidence", title, _filled(rows, 1), "Multi30k; intervals over heads.")


def _uneven(cells: Finished) -> Table:
    def column(method: str, stack: str, condition: str) -> str:
        return said(mean_of(top_shares(signal(cells, method, stack, condition=condition)), "blocks"))

    rows = [
        _columns(
            {"attention": title, "relevance": method},
            {TITLES[condition]: partial(column, method, stack, condition) for condition in CONDITIONS},
        )
        for stack, title in STACKS.items()
        for method in METHODS
    ]
    note = (
        "Share of a layer's relevance, regardless of sign, in the two heads that have most of it on the other half of "
        "the texts; mean over layers [95 % over blocks of texts]. All alike: .25."
    )
    return _table("uneven", "How uneven relevance is", _filled(rows, 2), note)


def _stable(cells: Finished) -> Table:
    others = {"PUD": (UD, TRAINED), "shuffled words": (MULTI30K, SHUFFLED), "random weights": (MULTI30K, RANDOM)}

    def column(name: str, stack: str, corpus: str, condition: str) -> Any:
        return rho(signal(cells, name, stack), signal(cells, name, stack, corpus=corpus, condition=condition))

    rows = [
        _columns(
            {"attention": title, "map": name},
            {text: partial(column, name, stack, *place) for text, place in others.items()},
        )
        for stack, title in STACKS.items()
        for name in MAPS
    ]
    title = "Is it the same map on other texts? ρ within layers with the map on Multi30k"
    return _table("stable", title, _filled(rows, 2))


def _rare(cells: Finished) -> Table:
    data = roles(cells, MULTI30K)
    numbers = data["number"].sel(stack="encoder", role="rare", part="development").fillna(-1.0).values
    places = [np.unravel_index(int(at), numbers.shape) for at in np.argsort(-numbers.ravel())[:6]]
    rows = []
    for layer, head in ((int(layer), int(head)) for layer, head in places):
        shares = {
            f"rare, {text}": partial(
                lambda corpus, at: said(held_out(roles(cells, corpus), "rare", at)), corpus, (layer, head)
            )
            for corpus, text in TEXTS.items()
        }
        row = _columns({"head": name_of((layer, head))}, shares)
        rows.append(row | {n: place_in_layer(head_map(b), (layer, head)) for n, b in signals(cells).items()})
    note = (
        f"The encoder heads that most often read one of the two rarest pieces most (chosen on half of Multi30k, tested "
        f"on the other; chance {data.attrs['chance']:.2f}), and their places in their layer by each signal: 1 is the "
        "largest."
    )
    return _table("rare", "Rare words: the heads that read them, and who finds them", rows, note)


def _each(cells: Finished) -> Table:
    """Every encoder head: labels on both texts, and its numbers."""
    words = {text: roles(cells, corpus)["words"].sel(stack="encoder").values for corpus, text in TEXTS.items()}
    maps = {name: head_map(blocks) for name, blocks in signals(cells).items()}
    rows = [
        {
            "head": name_of((layer, head)),
            **{f"roles, {text}": str(labels[layer, head]).replace("_", " ") for text, labels in words.items()},
            **{name: float(values[layer, head]) for name, values in maps.items()},
        }
        for layer, head in np.ndindex(next(iter(words.values())).shape)
    ]
    note = "Relevance with its sign, as a share of its layer; Multi30k unless said."
    return _table("heads", "Every encoder head", rows, note)


def label_counts(cells: Finished, role: str, condition: str) -> int:
    """Encoder heads with a label, the larger count of the two texts."""
    there = [roles(cells, corpus, condition) for corpus in TEXTS]
    return max(int(labelled(data, role).sum()) for data in there)
