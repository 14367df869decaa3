"""The tables of the pure-attention models, ours beside the published digits."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import pandas as pd

from reproductions.fosse2023.attention.penalty_claims import EXPLANATIONS
from reproductions.fosse2023.attention.runs import REPLACED, Point, Runs, Seeds
from reproductions.fosse2023.grid import LATE, LATE_POINTS, MAIN, NAMES, OTHERS
from reproductions.frame import markdown
from reproductions.frame.page import Table
from reproductions.frame.statistics import mean_of, ranked_within

Row = dict[str, Any]
Printed = Mapping[str, Any]


def tables(runs: Runs, printed: Printed) -> Iterator[Table]:
    yield from (_similarity(runs, printed, corpus) for corpus in runs.corpora)
    yield _states(runs, printed)
    if rows := [row for corpus, point in product(runs.corpora, LATE_POINTS) for row in _late(runs, corpus, point)]:
        yield Table("late", "The same models with the weights of a late epoch", pd.DataFrame(rows), _LATE)
    for corpus in runs.corpora:
        if len(runs.strengths(corpus)) > 1:
            yield _strengths(runs, printed["regularisation"], corpus)
    rows = [_correlations(runs, *row) for row in product(runs.corpora, _SIDES)]
    yield Table("explained", "Stiff values and explanations", pd.DataFrame(rows), _EXPLAINED)
    rows = [_maps(runs, printed["maps"], corpus, n) for corpus in runs.corpora for n in runs.depths(corpus)]
    note = f"Pooled AUROC. Published: {printed['maps']['source']}. {_MAPS}"
    yield Table("maps", "The cosine map as an explanation", pd.DataFrame(rows), note)
    rows = [_replaced(runs, corpus, point) for corpus in runs.corpora for point in runs.points(corpus)]
    yield Table("replaced", "Weights replaced in all layers at test time", pd.DataFrame(rows), _REPLACED)


def spread(values: Seeds) -> str | None:
    """Mean ± sd over seeds, to read."""
    return str(mean_of(values)) if len(values) else None


def _entry(values: Sequence[float], place: int) -> float:
    return values[place] if place < len(values) else math.nan


def _similarity(runs: Runs, printed: Printed, corpus: str) -> Table:
    rows: list[Row] = []
    kinds = [(MAIN, "published"), (MAIN, "whole"), *((vectors, "published") for vectors in OTHERS)]
    for (of, name), layers in product((("key", "K"), ("value", "V")), runs.depths(corpus)):
        for vectors, group in kinds:
            # Of YelpHat the whole test set is what was published.
            if runs.there(corpus, [(layers, 0.0)], vectors) and (group, corpus) != ("whole", "yelphat"):
                row: Row = {"A": name, "L": layers, "of": vectors + (", all test texts" if group == "whole" else "")}
                sims = partial(runs.sim, of, corpus, (layers, 0.0), group=group, vectors=vectors)
                row |= {f"l = {n}": spread(sims(n)) for n in range(1, layers + 1)}
                if layers > 1 and group == "published":
                    row["slope"] = spread(runs.slopes(of, corpus, layers, vectors))
                rows.append(row)
        if values := printed[of][corpus].get(str(layers)):
            digits = {f"l = {n}": f"{x:.3f}" for n, x in enumerate(values, 1)}
            rows.append({"A": name, "L": layers, "of": "published", **digits})
    note = (
        "SIM of the projected keys and values by layer, mean ± sd over seeds; slope: of the line through the layers, "
        f"per layer. Published: {printed['key']['source']}; one run each."
    )
    frame = pd.DataFrame(rows)
    frame = frame[[*(name for name in frame if name != "slope"), *(name for name in frame if name == "slope")]]
    return Table(f"sim-{corpus}", f"{NAMES[corpus]}: SIM of keys and values by depth", frame, note)


def _states(runs: Runs, printed: Printed) -> Table:
    rows = []
    for corpus, vectors in product(runs.corpora, runs.vectors):
        for layers in runs.depths(corpus, vectors):
            read = partial(runs.of, corpus=corpus, point=(layers, 0.0), vectors=vectors)
            row: Row = {"corpus": NAMES[corpus], "vectors": vectors, "L": layers}
            row["accuracy"] = spread(read("metrics.test.accuracy"))
            row["published"] = _entry(printed["accuracy"][corpus], layers - 1)
            row["rank of V"] = float(read("groups.published.rank_value", at=-1).mean())
            states = [spread(read("groups.published.state", at=n)) for n in range(layers + 1)]
            rows.append(row | {f"state {number}": value for number, value in enumerate(states)})
    said = "; ".join(
        f"{NAMES[c]} (L = {len(printed['state'][c])}) {' '.join(f'{x:.3f}' for x in printed['state'][c])}"
        for c in runs.corpora
    )
    note = (
        "SIM of the states: 0 are the word vectors, before positions and without `<cls>` and `<unk>`, l what layer l "
        f"gives (with `<cls>`). Published, of the states that enter layers 1, 2, …, so from state 0 on: {said}. Rank "
        "of V: effective rank of the last layer's values, mean of 300 texts."
    )
    return Table("states", "Accuracy, states and effective rank by depth", pd.DataFrame(rows), note)


_LATE = (
    "Means over seeds. SIM(K) and SIM(V): last layer, the texts of the published tables. H: first layer. Accuracy on "
    "the training texts is that of the last epoch, also where earlier weights were kept."
)


def _late(runs: Runs, corpus: str, point: Point) -> Iterator[Row]:
    """The point with each kind of weights, by the seeds that have both; nothing if there are no late ones."""
    seeds = len(runs.accuracy(corpus, point, weights="late"))
    kinds = {"best": "best by validation loss", "late": f"after {LATE['epochs']:g} epochs"} if seeds else {}
    for weights, title in kinds.items():
        columns: dict[str, Seeds] = {
            "training accuracy": runs.of("curve.*.train.accuracy", corpus, point, at=-1, weights=weights),
            "test accuracy": runs.accuracy(corpus, point, weights=weights),
            "H": runs.entropy(corpus, point, weights=weights),
            "SIM(K)": runs.sim("key", corpus, point, weights=weights),
            "SIM(V)": runs.sim("value", corpus, point, weights=weights),
        }
        row: Row = {"corpus": NAMES[corpus], "L": point[0], "λ": f"{point[1]:g}", "weights": title, "seeds": seeds}
        yield row | {name: float(values[:seeds].mean()) for name, values in columns.items()}


def penalty_columns(runs: Runs, corpus: str) -> dict[str, Callable[[Point], Seeds]]:
    """What is shown by λ; the first three have published values."""
    return {
        "H": partial(runs.entropy, corpus),
        "SIM(K)": partial(runs.sim, "key", corpus, group="regularisation"),
        "SIM(V)": partial(runs.sim, "value", corpus, group="regularisation"),
        "accuracy": partial(runs.accuracy, corpus),
        **{title: partial(runs.of, path, corpus) for title, (_, path, _) in EXPLANATIONS.items()},
    }


PENALTY_KEYS = {"H": "entropy", "SIM(K)": "key", "SIM(V)": "value"}
"""Column → what it is called among the published numbers."""


def _strengths(runs: Runs, printed: Printed, corpus: str) -> Table:
    rows = []
    for strength in runs.strengths(corpus):
        row: Row = {"λ": f"{strength:g}"}
        for name, read in penalty_columns(runs, corpus).items():
            row[name] = spread(read((1, strength)))
            if name in PENALTY_KEYS:
                levels = dict(zip(printed["lambda"], printed[corpus][PENALTY_KEYS[name]], strict=True))
                row[f"{name}, published"] = levels.get(strength, math.nan)
        rows.append(row)
    chance = runs.of("faithfulness.random.comprehensiveness", corpus, (1, runs.strengths(corpus)[0])).mean()
    note = (
        f"One layer. Published: {printed['source']}. AUPRC and AUROC are pooled over words; comprehensiveness and "
        "sufficiency are AOPC (tokens deleted); a random order of the tokens has a comprehensiveness of "
        f"{chance:.3f} at λ = 0."
    )
    return Table(f"penalty-{corpus}", f"{NAMES[corpus]}, {runs.main}: the entropy penalty", pd.DataFrame(rows), note)


_SIDES = ("SIM(V), over λ", "H, over λ", "SIM(V) of the last layer, over L")
_EXPLAINED = (
    "Spearman's ρ over the settings of a seed with the plausibility and faithfulness of the last layer's attention, "
    "mean over seeds, and p of an exact test over all orders of the settings within each seed; runs at chance are left "
    "out. Settings whose models are copies of those of λ = 0 do not count. Sharper attention has other words on top by "
    "itself, so that a correlation over λ is not an effect of the values alone: compare the rows."
)


def _correlations(runs: Runs, corpus: str, side: str) -> Row:
    points = runs.by_depth(corpus) if side == _SIDES[2] else runs.by_strength(corpus)
    points = runs.different(corpus, points) if points else points
    measure = partial(runs.entropy, corpus, group="whole") if side == _SIDES[1] else partial(runs.stiffness, corpus)
    learnt = runs.by_seed(corpus, points, partial(runs.learnt, corpus)).astype(bool)
    first = runs.by_seed(corpus, points, measure)
    row: Row = {"corpus": NAMES[corpus], "ρ of": side, "settings": len(points), "runs": int(learnt.sum())}
    for title, (_, path, _) in EXPLANATIONS.items():
        rho = ranked_within(first, runs.by_seed(corpus, points, partial(runs.of, path, corpus)), learnt)
        row[title] = None if rho.value is None else markdown.estimate(rho)
    return row


_MAPS = (
    "Attention is the row of `<cls>` in the last layer; with one layer rollout orders the words as attention does "
    "(only the weight of `<cls>` changes)."
)


def _maps(runs: Runs, printed: Printed, corpus: str, layers: int) -> Row:
    row: Row = {"corpus": NAMES[corpus], "L": layers}
    for which, title in (("cosine", "cosine map"), ("attention", "attention"), ("rollout", "rollout")):
        row[title] = spread(runs.plausibility(which, corpus, (layers, 0.0)))
        row[f"{title}, published"] = _entry(printed[which].get(corpus, []), layers - 1)
    return row


_REPLACED = (
    "Means over seeds; SIM(V) and the widest angle of a value with their mean: last layer, all test texts. Accuracy, "
    "share of predictions that change, and cos(CLS before, after): the first 2,000 test texts."
)


def _replaced(runs: Runs, corpus: str, point: Point) -> Row:
    row: Row = {"corpus": NAMES[corpus], "L": point[0], "λ": f"{point[1]:g}"}
    row["SIM(V)"] = float(runs.stiffness(corpus, point).mean())
    row["cone, degrees"] = math.degrees(runs.of("groups.whole.cone_widest", corpus, point, at=-1).mean())
    row["as trained"] = float(runs.replaced("trained", "accuracy", corpus, point).mean())
    for measure, kind in product(("accuracy", "flipped", "cosine"), REPLACED):
        row[f"{measure}, {kind}"] = float(runs.replaced(kind, measure, corpus, point).mean())
    return row
