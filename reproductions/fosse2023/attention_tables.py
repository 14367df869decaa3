"""The tables of the pure-attention models, ours beside the published digits."""

import math
from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

import pandas as pd

from reproductions.fosse2023 import grid
from reproductions.fosse2023.attention_claims import EXPLANATIONS, slopes
from reproductions.fosse2023.attention_late import late_table
from reproductions.fosse2023.outcome import (
    NAMES,
    Measure,
    Outcome,
    Point,
    accuracy,
    faithfulness,
    plausibility,
    replaced,
    sharpness,
    similarity,
    stiffness,
)
from reproductions.frame.estimates import estimate, rank_correlation
from reproductions.frame.record import Table

KINDS = ("uniform", "permuted", "adversarial")


def tables(outcome: Outcome, told: Any) -> Iterator[Table]:
    for corpus in outcome.corpora:
        yield _similarity(outcome, told, corpus)
    yield _states(outcome, told)
    yield from late_table(outcome)
    for corpus in outcome.corpora:
        yield from _strengths(outcome, told, corpus)
    yield _correlations(outcome)
    yield _maps(outcome, told)
    yield _replaced(outcome)


def spread(values: Sequence[float]) -> str | None:
    """Mean ± sd over seeds, to read; `results.json` has the runs."""
    return str(estimate(values)) if values else None


def _similarity(outcome: Outcome, told: Any, corpus: str) -> Table:
    rows: list[dict[str, Any]] = []
    for what, name in (("key", "K"), ("value", "V")):
        for layers in outcome.depths(corpus):
            others = [(vectors, "published") for vectors in grid.OTHERS]
            for vectors, group in ((grid.MAIN, "published"), (grid.MAIN, "whole"), *others):
                rows += _similarity_row(outcome, corpus, (what, name), layers, (vectors, group))
            printed = told[what][corpus].get(str(layers))
            if printed:
                rows.append({"A": name, "L": layers, "of": "published", **_layers([f"{x:.3f}" for x in printed])})
    note = (
        "SIM of the projected keys and values by layer, mean ± sd over seeds; slope: of the line through the layers, "
        f"per layer. Published: {told['key']['source']}; one run each."
    )
    frame = pd.DataFrame(rows)
    frame = frame[[*(name for name in frame.columns if name != "slope"), *(["slope"] if "slope" in frame else [])]]
    return Table(f"{NAMES[corpus]}: SIM of keys and values by depth", frame, note)


def _similarity_row(
    outcome: Outcome, corpus: str, what: tuple[str, str], layers: int, where: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    (key, name), (vectors, group) = what, where
    if not outcome.of(corpus, (layers, 0.0), vectors) or (group == "whole" and corpus == "yelphat"):
        return  # of YelpHat the whole test set is what was published
    row: dict[str, Any] = {"A": name, "L": layers, "of": f"{vectors}{', all test texts' if group == 'whole' else ''}"}
    found = [spread(outcome.values(corpus, (layers, 0.0), similarity(key, n, group), vectors)) for n in range(layers)]
    row |= _layers(found)
    if layers > 1 and group == "published":
        row["slope"] = spread(slopes(outcome, corpus, layers, key, vectors))
    yield row


def _layers(values: Sequence[str | None]) -> dict[str, str | None]:
    return {f"l = {number}": value for number, value in enumerate(values, 1)}


def _states(outcome: Outcome, told: Any) -> Table:
    rows = []
    for corpus in outcome.corpora:
        printed = told["accuracy"][corpus]
        for vectors in outcome.vectors:
            for layers in outcome.depths(corpus, vectors):
                where = (corpus, (layers, 0.0))
                row: dict[str, Any] = {"corpus": NAMES[corpus], "vectors": vectors, "L": layers}
                row["accuracy"] = spread(outcome.values(*where, accuracy, vectors))
                row["published"] = printed[layers - 1] if layers <= len(printed) else math.nan
                row["rank of V"] = mean(outcome.values(*where, similarity("rank_value", -1), vectors))
                states = [spread(outcome.values(*where, similarity("state", n), vectors)) for n in range(layers + 1)]
                row |= {f"state {number}": value for number, value in enumerate(states)}
                rows.append(row)
    said = "; ".join(
        f"{NAMES[c]} (L = {len(told['state'][c])}) {' '.join(f'{x:.3f}' for x in told['state'][c])}"
        for c in outcome.corpora
    )
    note = (
        "SIM of the states: 0 are the word vectors, before positions and without `<cls>` and `<unk>`, l what layer l "
        "gives (with `<cls>`). Published, of the states that enter layers 1, 2, …, so from state 0 on: "
        f"{said}. Rank of V: effective rank of the last layer's values, mean of 300 texts."
    )
    return Table("Accuracy, states and effective rank by depth", pd.DataFrame(rows), note)


def _strengths(outcome: Outcome, told: Any, corpus: str) -> Iterator[Table]:
    table = told["regularisation"]
    for vectors in outcome.vectors:
        strengths = outcome.strengths(corpus, vectors)
        if len(strengths) < 2:
            continue
        rows = []
        for strength in strengths:
            row: dict[str, Any] = {"λ": f"{strength:g}"}
            for name, measure, key in _COLUMNS:
                row[name] = spread(outcome.values(corpus, (1, strength), measure, vectors))
                if key is not None:
                    row[f"{name}, published"] = table[corpus][key][table["lambda"].index(strength)]
            rows.append(row)
        chance = mean(outcome.values(corpus, (1, strengths[0]), faithfulness("comprehensiveness", "random"), vectors))
        note = (
            f"One layer. Published: {table['source']}. AUPRC and AUROC are pooled over words; comprehensiveness and "
            "sufficiency are AOPC (tokens deleted); a random order of the tokens has a comprehensiveness of "
            f"{chance:.3f} at λ = 0."
        )
        yield Table(f"{NAMES[corpus]}, {vectors}: the entropy penalty", pd.DataFrame(rows), note)


_COLUMNS: tuple[tuple[str, Measure, str | None], ...] = (
    ("H", sharpness(), "entropy"),
    ("SIM(K)", similarity("key", 0, "regularisation"), "key"),
    ("SIM(V)", similarity("value", 0, "regularisation"), "value"),
    ("accuracy", accuracy, None),
    ("AUPRC", plausibility("attention", "auprc"), None),
    ("AUROC", plausibility("attention", "auroc"), None),
    ("comprehensiveness", faithfulness("comprehensiveness"), None),
    ("sufficiency", faithfulness("sufficiency"), None),
)


def _correlations(outcome: Outcome) -> Table:
    """ρ of SIM(V) with what an explanation is judged by, over λ, over depth, and of H for comparison."""
    rows = []
    sides = {
        "SIM(V), over λ": ("by_strength", stiffness),
        "H, over λ": ("by_strength", sharpness("whole")),
        "SIM(V) of the last layer, over L": ("by_depth", stiffness),
    }
    for corpus in outcome.corpora:
        for name, (which, measure) in sides.items():
            points: list[Point] = getattr(outcome, which)(corpus)
            row: dict[str, Any] = {"corpus": NAMES[corpus], "ρ of": name}
            row["runs"] = sum(len(outcome.of(corpus, point)) for point in points)
            for title, (_, other, _) in EXPLANATIONS.items():
                row[title] = correlated(outcome.pairs(corpus, points, measure, other))
            rows.append(row)
    note = (
        "Spearman's ρ with the plausibility and faithfulness of the last layer's attention; the interval is a "
        "bootstrap over the seeds of each setting. Sharper attention has other words on top by itself, so that a "
        "correlation over λ is not an effect of the values alone: compare the rows."
    )
    return Table("Stiff values and explanations", pd.DataFrame(rows), note)


def correlated(pairs: Sequence[Any]) -> str | None:
    found = rank_correlation(pairs) if sum(map(len, pairs)) > 2 else None
    if found is None:
        return None
    ends = "" if found.interval is None else f" [{found.interval[0]:.2f}, {found.interval[1]:.2f}]"
    return f"{found.mean:.2f}{ends}"


def _maps(outcome: Outcome, told: Any) -> Table:
    rows = []
    for corpus in outcome.corpora:
        for layers in outcome.depths(corpus):
            row: dict[str, Any] = {"corpus": NAMES[corpus], "L": layers}
            for which, title in (("cosine", "cosine map"), ("attention", "attention"), ("rollout", "rollout")):
                row[title] = spread(outcome.values(corpus, (layers, 0.0), plausibility(which, "auroc", corpus)))
                printed = told["maps"][which].get(corpus, [])
                row[f"{title}, published"] = printed[layers - 1] if layers <= len(printed) else math.nan
            rows.append(row)
    note = (
        f"Pooled AUROC. Published: {told['maps']['source']}. Attention is the row of `<cls>` in the last layer; with "
        "one layer rollout orders the words as attention does (only the weight of `<cls>` changes)."
    )
    return Table("The cosine map as an explanation", pd.DataFrame(rows), note)


def _replaced(outcome: Outcome) -> Table:
    rows = []
    for corpus in outcome.corpora:
        for point in outcome.everything(corpus):
            row: dict[str, Any] = {"corpus": NAMES[corpus], "L": point[0], "λ": f"{point[1]:g}"}
            row["SIM(V)"] = mean(outcome.values(corpus, point, stiffness))
            widest = mean(outcome.values(corpus, point, similarity("cone_widest", -1, "whole")))
            row["cone, degrees"] = math.degrees(widest)
            row["as trained"] = mean(outcome.values(corpus, point, lambda one: one["replaced"]["trained"]["accuracy"]))
            for measure in ("accuracy", "flipped", "cosine"):
                for kind in KINDS:
                    row[f"{measure}, {kind}"] = mean(outcome.values(corpus, point, replaced(kind, measure)))
            rows.append(row)
    note = (
        "Means over seeds; SIM(V) and the widest angle of a value with their mean: last layer, all test texts. "
        "Accuracy, share of predictions that change, and cos(CLS before, after): the first 2,000 test texts."
    )
    return Table("Weights replaced in all layers at test time", pd.DataFrame(rows), note)
