"""What Fosse et al. 2023 say of pure-attention models, as sentences that can be wrong."""

from collections.abc import Iterator, Sequence
from statistics import mean
from typing import Any

from reproductions.fosse2023 import grid
from reproductions.fosse2023.outcome import (
    CLASSES,
    NAMES,
    Measure,
    Outcome,
    accuracy,
    at_chance,
    cost,
    faithfulness,
    plausibility,
    replaced,
    sharpness,
    similarity,
    stiffness,
)
from reproductions.frame.estimates import (
    Estimate,
    difference,
    estimate,
    rank_correlation,
    slope,
    verdict_above,
    verdict_below,
)
from reproductions.frame.record import Claim

HIGH = 0.9
"""What the last layer of deep models has in every published table."""
BARELY = 0.02
"""Of accuracy: less is nothing lost."""
SHARPENED = 0.1
"""Of H: less, and the penalty cannot be said to have acted."""
KINDS = {"key": "keys", "value": "values"}


def claims(outcome: Outcome, told: Any) -> Iterator[Claim]:
    for corpus in outcome.corpora:
        yield from _built_up(outcome, told, corpus)
        yield from _last_layer(outcome, told, corpus)
    for vectors in grid.OTHERS:
        yield from _from_random(outcome, vectors)
    yield from _wider(outcome)
    for corpus in outcome.corpora:
        yield from _compensates(outcome, told, corpus)
        yield from _explains(outcome, corpus)
    for corpus in outcome.corpora:
        yield from _cosine_map(outcome, told, corpus)
    for corpus in outcome.corpora:
        yield from _replaces(outcome, corpus)


def slopes(outcome: Outcome, corpus: str, layers: int, what: str, vectors: str = "glove-100") -> list[float]:
    """Of SIM over the layers of a model, one for each seed."""
    return [slope(one["groups"]["published"][what]) for one in outcome.of(corpus, (layers, 0.0), vectors)]


def _built_up(outcome: Outcome, told: Any, corpus: str) -> Iterator[Claim]:
    for what, name in KINDS.items():
        for layers in (depth for depth in outcome.depths(corpus) if depth > 1):
            found = estimate(slopes(outcome, corpus, layers, what))
            printed = told[what][corpus].get(str(layers))
            yield Claim(
                text=f"{NAMES[corpus]}, L = {layers}: SIM of the {name} rises through the layers (slope per layer)",
                ours=found.mean,
                interval=found.interval,
                published=None if printed is None else slope(printed),
                verdict=verdict_above(found),
                why=_path(outcome, corpus, layers, what),
            )


def _path(outcome: Outcome, corpus: str, layers: int, what: str) -> str:
    levels = [mean(outcome.values(corpus, (layers, 0.0), similarity(what, layer))) for layer in range(layers)]
    return " → ".join(f"{level:.2f}" for level in levels)


def _last_layer(outcome: Outcome, told: Any, corpus: str) -> Iterator[Claim]:
    """The two ends: deep models are anisotropic in the end, and more so than those of one layer."""
    depths = outcome.depths(corpus)
    if not depths or depths[-1] < 2:
        return
    deep = depths[-1]
    for what, name in KINDS.items():
        last = similarity(what, -1)
        found = estimate(outcome.values(corpus, (deep, 0.0), last))
        printed = told[what][corpus].get(str(deep))
        if deep >= 4:
            yield Claim(
                text=f"{NAMES[corpus]}, L = {deep}: SIM of the {name} of the last layer is above {HIGH}",
                ours=found.mean,
                interval=found.interval,
                published=None if printed is None else printed[-1],
                verdict=verdict_above(found, HIGH),
            )
        if depths[0] != 1:
            continue
        shallow = outcome.values(corpus, (1, 0.0), last)
        more = difference(outcome.values(corpus, (deep, 0.0), last), shallow)
        yield Claim(
            text=f"{NAMES[corpus]}: SIM of the {name} of the last layer is higher for L = {deep} than for L = 1",
            ours=more.mean,
            interval=more.interval,
            published=None if printed is None else printed[-1] - told[what][corpus]["1"][0],
            verdict=verdict_above(more),
            why=f"{mean(shallow):.2f} → {found.mean:.2f}",
        )


def remarks(outcome: Outcome, corpus: str) -> list[str]:
    """What makes a claim about the penalty say little: it did not act, or nothing was learnt."""
    strengths = outcome.strengths(corpus)
    first, last = (mean(outcome.values(corpus, (1, s), sharpness())) for s in (strengths[0], strengths[-1]))
    said = []
    if first - last < SHARPENED:
        said.append(f"the penalty hardly sharpened attention (H {first:.2f} → {last:.2f})")
    lost = [f"{s:g}" for s in strengths if 2 * at_chance(corpus, outcome.of(corpus, (1, s))) > len(outcome.seeds)]
    if lost:
        said.append(f"most runs at λ = {', '.join(lost)} learnt nothing (accuracy of chance, 1/{CLASSES[corpus]})")
    return said


def _from_random(outcome: Outcome, vectors: str) -> Iterator[Claim]:
    """The same of the deepest models from random vectors: few seeds for each corpus, so that corpora are the sample."""
    deep = grid.DEPTHS[-1]
    there = [corpus for corpus in outcome.corpora if outcome.of(corpus, (deep, 0.0), vectors)]
    if len(there) < 2:
        return
    for what, name in KINDS.items():
        last = [mean(outcome.values(corpus, (deep, 0.0), similarity(what, -1), vectors)) for corpus in there]
        rises = [mean(slopes(outcome, corpus, deep, what, vectors)) for corpus in there]
        for found, bound, said in (
            (estimate(rises), 0.0, "rises through the layers (slope per layer)"),
            (estimate(last), HIGH, f"is above {HIGH} in the last layer"),
        ):
            yield Claim(
                text=f"From {vectors} vectors, L = {deep}: SIM of the {name} {said}",
                ours=found.mean,
                interval=found.interval,
                verdict=verdict_above(found, bound),
                why="last layer: "
                + ", ".join(f"{NAMES[c]} {x:.2f}" for c, x in zip(there, last, strict=True))
                + f"; {_interval(outcome, there, vectors)}{_accuracies(outcome, there, vectors)}",
            )


def _interval(outcome: Outcome, corpora: Sequence[str], vectors: str) -> str:
    fewest = min(len(outcome.of(corpus, (grid.DEPTHS[-1], 0.0), vectors)) for corpus in corpora)
    return f"means of {fewest} {'seed' if fewest == 1 else 'seeds'}, interval over corpora"


def _accuracies(outcome: Outcome, corpora: Sequence[str], *vectors: str) -> str:
    """Test accuracy of the deepest models from these vectors: where nothing was learnt, SIM says nothing of a class."""
    point = (grid.DEPTHS[-1], 0.0)
    found = []
    for corpus in corpora:
        levels = (f"{mean(outcome.values(corpus, point, accuracy, one)):.3f}" for one in vectors)
        found.append(f"{NAMES[corpus]} {' → '.join(levels)}")
    return f"; accuracy: {', '.join(found)}"


def _wider(outcome: Outcome) -> Iterator[Claim]:
    """Whether it is the width: random vectors of either, the other settings being the same, corpus by corpus."""
    deep, (wide, narrow) = grid.DEPTHS[-1], grid.OTHERS
    there = [c for c in outcome.corpora if all(outcome.of(c, (deep, 0.0), v) for v in grid.OTHERS)]
    if len(there) < 2:
        return
    for what, name in KINDS.items():
        last = similarity(what, -1)
        ends = [[mean(outcome.values(c, (deep, 0.0), last, v)) for v in (narrow, wide)] for c in there]
        found = estimate([after - before for before, after in ends])
        levels = (f"{NAMES[c]} {a:.2f} → {b:.2f}" for c, (a, b) in zip(there, ends, strict=True))
        yield Claim(
            text=f"L = {deep}: SIM of the {name} of the last layer is higher from {wide} than from {narrow} vectors",
            ours=found.mean,
            interval=found.interval,
            verdict=verdict_above(found),
            why=", ".join(levels) + f"; {_interval(outcome, there, wide)}{_accuracies(outcome, there, narrow, wide)}",
        )


def _compensates(outcome: Outcome, told: Any, corpus: str) -> Iterator[Claim]:
    strengths = outcome.strengths(corpus)
    if len(strengths) < 2 or strengths[0] != 0:
        return
    table = told["regularisation"]
    for what, name in (("value", "values"), ("key", "keys")):
        measure = similarity(what, 0, "regularisation")
        at_zero = outcome.values(corpus, (1, 0.0), measure)
        for strength in strengths[-2:] if what == "value" else strengths[-1:]:
            if strength == 0:
                continue
            found = difference(outcome.values(corpus, (1, strength), measure), at_zero)
            place = table["lambda"].index(strength)
            yield Claim(
                text=f"{NAMES[corpus]}: a penalty of λ = {strength:g} raises SIM of the {name} (from λ = 0)",
                ours=found.mean,
                interval=found.interval,
                published=table[corpus][what][place] - table[corpus][what][0],
                verdict=verdict_above(found),
                why="; ".join([f"{mean(at_zero):.2f} → {mean(at_zero) + found.mean:.2f}", *remarks(outcome, corpus)]),
            )
    measure = similarity("value", 0, "regularisation")
    pairs = outcome.pairs(corpus, outcome.by_strength(corpus), sharpness(), measure)
    printed = rank_correlation([list(zip(table[corpus]["entropy"], table[corpus]["value"], strict=True))])
    yield from _correlation(
        f"{NAMES[corpus]}: the sharper the attention, the higher SIM of the values (ρ of H and SIM over λ and seeds "
        "is below 0)",
        pairs,
        below=True,
        published=None if printed is None else printed.mean,
        why="; ".join(remarks(outcome, corpus)),
    )


EXPLANATIONS: dict[str, tuple[str, Measure, bool]] = {
    "AUPRC": ("pooled AUPRC", plausibility("attention", "auprc"), True),
    "AUROC": ("pooled AUROC", plausibility("attention", "auroc"), True),
    "comprehensiveness": ("comprehensiveness", faithfulness("comprehensiveness"), True),
    "sufficiency": ("sufficiency (lower is better)", faithfulness("sufficiency"), False),
}
"""Name → what it is called, how it is read off a run, whether more is better."""


def _explains(outcome: Outcome, corpus: str) -> Iterator[Claim]:
    """The slides' last sentence: the model stiffens its values, and the explanation is lost."""
    points = outcome.by_strength(corpus)
    if len(points) < 2:
        return
    values = similarity("value", 0, "whole")
    for name, measure, good in EXPLANATIONS.values():
        way = "lower" if good else "higher"
        yield from _correlation(
            f"{NAMES[corpus]}: the higher SIM of the values, the {way} the {name} of attention (ρ over λ and seeds)",
            outcome.pairs(corpus, points, values, measure),
            below=good,
            why="; ".join(remarks(outcome, corpus)),
        )


def _correlation(
    text: str, pairs: Sequence[Any], *, below: bool, published: float | None = None, why: str = ""
) -> Iterator[Claim]:
    found = rank_correlation(pairs)
    runs = sum(len(group) for group in pairs)
    if found is None:
        why = f"{runs} runs: too few, or one of the two is the same in all of them"
        yield Claim(text=text, ours=None, published=published, verdict="cannot tell", why=why)
        return
    verdict = verdict_below(found) if below else verdict_above(found)
    said = "; ".join(part for part in (f"{runs} runs", why) if part)
    yield Claim(text=text, ours=found.mean, interval=found.interval, published=published, verdict=verdict, why=said)


def map_advantage(outcome: Outcome, corpus: str, layers: int) -> list[float]:
    """AUROC of the cosine map less that of the last layer's attention, one for each seed."""
    one, other = (plausibility(which, "auroc", corpus) for which in ("cosine", "attention"))
    return outcome.values(corpus, (layers, 0.0), lambda run: one(run) - other(run))


def _cosine_map(outcome: Outcome, told: Any, corpus: str) -> Iterator[Claim]:
    printed = told["maps"]
    gaps = [a - b for a, b in zip(printed["cosine"][corpus], printed["attention"][corpus], strict=True)]
    for layers in outcome.depths(corpus):
        found = estimate(map_advantage(outcome, corpus, layers))
        text = "attention (last layer, row of CLS) is more plausible than the cosine map"
        if layers > 1:
            text = "the cosine map is more plausible than attention"
        sign = 1 if layers > 1 else -1
        turned = Estimate(sign * found.mean, found.sd, _turned(found.interval, sign))
        yield Claim(
            text=f"{NAMES[corpus]}, L = {layers}: {text} (difference of pooled AUROC)",
            ours=turned.mean,
            interval=turned.interval,
            published=sign * gaps[layers - 1] if layers <= len(gaps) else None,
            verdict=verdict_above(turned),
        )


def _turned(interval: tuple[float, float] | None, sign: int) -> tuple[float, float] | None:
    return interval if interval is None or sign > 0 else (-interval[1], -interval[0])


def _replaces(outcome: Outcome, corpus: str) -> Iterator[Claim]:
    """The title. What is lost, at both depths, and whether it is the stiffness of values that protects."""
    depths = outcome.depths(corpus)
    for layers in sorted({depths[0], depths[-1]}) if depths else []:
        for kind in ("uniform", "permuted"):
            found = estimate(outcome.values(corpus, (layers, 0.0), cost(kind)))
            flips = mean(outcome.values(corpus, (layers, 0.0), replaced(kind, "flipped")))
            right = mean(outcome.values(corpus, (layers, 0.0), accuracy))
            why = f"accuracy as trained {right:.3f}; {flips:.0%} of the predictions change"
            dull = at_chance(corpus, outcome.of(corpus, (layers, 0.0)))
            why += f"; {dull} of the runs learnt nothing, so that nothing can be lost" if dull else ""
            yield Claim(
                text=f"{NAMES[corpus]}, L = {layers}: {kind} weights in all layers cost less than {BARELY} of accuracy",
                ours=found.mean,
                interval=found.interval,
                verdict=verdict_above(found, -BARELY),
                why=why,
            )
    points = outcome.everything(corpus)
    dull = sum(at_chance(corpus, outcome.of(corpus, point)) for point in points)
    for kind in ("uniform", "permuted", "adversarial"):
        yield from _correlation(
            f"{NAMES[corpus]}: the higher SIM of the last values, the fewer predictions change with {kind} weights (ρ "
            "over L, λ and seeds)",
            outcome.pairs(corpus, points, stiffness, replaced(kind, "flipped")),
            below=True,
            why=f"{dull} of them learnt nothing, so that hardly anything can change" if dull else "",
        )
