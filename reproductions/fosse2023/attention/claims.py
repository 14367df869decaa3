"""What Fosse et al. 2023 say of pure-attention models, as sentences that can be wrong."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from reproductions.fosse2023.attention.runs import REPLACED, Runs, pairs
from reproductions.fosse2023.grid import CLASSES, DEPTHS, NAMES, OTHERS
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.statistics import difference, mean_of, rank_correlation, slope

HIGH = 0.9
"""What the last layer of deep models has in every published table."""
BARELY = 0.02
"""Of accuracy: less is nothing lost."""
SHARPENED = 0.1
"""Of H: less, and the penalty cannot be said to have acted."""
OF = {"key": "keys", "value": "values"}
Table = Mapping[str, Any]


def claims(runs: Runs, printed: Table) -> Iterator[Claim]:
    for corpus in runs.corpora:
        for of, layers in product(OF, runs.depths(corpus)):
            if layers > 1:
                yield _rises(runs, printed, corpus, of, layers)
        yield from _last_layer(runs, printed, corpus)
    for vectors in OTHERS:
        yield from _from_random(runs, vectors)
    yield from _wider(runs)
    for corpus in runs.corpora:
        yield from _compensates(runs, printed, corpus)
        yield from _explains(runs, corpus)
    for corpus in runs.corpora:
        for layers in runs.depths(corpus):
            yield _cosine_map(runs, printed["maps"], corpus, layers)
    for corpus in runs.corpora:
        yield from _replaces(runs, corpus)


def _published(table: Table, corpus: str, layers: int, read: Callable[[Sequence[float]], float]) -> Published | None:
    values = table[corpus].get(str(layers))
    return None if values is None else Published(read(values), table["source"])


def _rises(runs: Runs, printed: Table, corpus: str, of: str, layers: int) -> Claim:
    path = (runs.sim(of, corpus, (layers, 0.0), n).mean() for n in range(1, layers + 1))
    return Claim(
        id=f"rise-{corpus}-{OF[of]}-l{layers}",
        text=f"{NAMES[corpus]}, L = {layers}: SIM of the {OF[of]} rises through the layers (slope per layer)",
        estimate=mean_of(runs.slopes(of, corpus, layers)),
        bound=Bound.above(0),
        published=_published(printed[of], corpus, layers, slope),
        note=" → ".join(f"{level:.2f}" for level in path),
    )


def _last_layer(runs: Runs, printed: Table, corpus: str) -> Iterator[Claim]:
    """The two ends: deep models are anisotropic in the end, and more so than those of one layer."""
    depths = runs.depths(corpus)
    deep = depths[-1] if depths else 0
    for of, name in OF.items() if deep > 1 else ():
        last = runs.sim(of, corpus, (deep, 0.0))
        if deep >= 4:
            yield Claim(
                id=f"last-{corpus}-{name}-l{deep}",
                text=f"{NAMES[corpus]}, L = {deep}: SIM of the {name} of the last layer is above {HIGH}",
                estimate=mean_of(last),
                bound=Bound.above(HIGH),
                published=_published(printed[of], corpus, deep, lambda values: values[-1]),
            )
        if depths[0] == 1:
            first, theirs = runs.sim(of, corpus, (1, 0.0)), _published(printed[of], corpus, deep, lambda v: v[-1])
            yield Claim(
                id=f"deeper-{corpus}-{name}",
                text=f"{NAMES[corpus]}: SIM of the {name} of the last layer is higher for L = {deep} than for L = 1",
                estimate=difference(last, first),
                bound=Bound.above(0),
                published=theirs and Published(float(theirs.value) - printed[of][corpus]["1"][0], theirs.source),
                note=f"{first.mean():.2f} → {last.mean():.2f}",
            )


def _from_random(runs: Runs, vectors: str) -> Iterator[Claim]:
    """The same of the deepest models from random vectors: few seeds for each corpus, so that corpora are the sample."""
    point = (DEPTHS[-1], 0.0)
    corpora = [corpus for corpus in runs.corpora if runs.there(corpus, [point], vectors)]
    if len(corpora) < 2:
        return
    for of, name in OF.items():
        last = [runs.sim(of, corpus, point, vectors=vectors).mean() for corpus in corpora]
        rises = [runs.slopes(of, corpus, point[0], vectors).mean() for corpus in corpora]
        levels = ", ".join(f"{NAMES[c]} {x:.2f}" for c, x in zip(corpora, last, strict=True))
        for what, values, bound, said in (
            ("rise", rises, 0.0, "rises through the layers (slope per layer)"),
            ("last", last, HIGH, f"is above {HIGH} in the last layer"),
        ):
            yield Claim(
                id=f"{what}-{vectors}-{name}",
                text=f"From {vectors} vectors, L = {point[0]}: SIM of the {name} {said}",
                estimate=mean_of(values, over="corpora"),
                bound=Bound.above(bound),
                note=f"last layer: {levels}; {_accuracies(runs, corpora, vectors)}",
                ours=True,
            )


def _accuracies(runs: Runs, corpora: Sequence[str], *vectors: str) -> str:
    """Test accuracy of the deepest models from these vectors: where nothing was learnt, SIM says nothing of a class."""
    said = []
    for corpus in corpora:
        levels = (f"{runs.accuracy(corpus, (DEPTHS[-1], 0.0), one).mean():.3f}" for one in vectors)
        said.append(f"{NAMES[corpus]} {' → '.join(levels)}")
    return f"accuracy: {', '.join(said)}"


def _wider(runs: Runs) -> Iterator[Claim]:
    """Whether it is the width: random vectors of either, the other settings being the same, corpus by corpus."""
    point, (wide, narrow) = (DEPTHS[-1], 0.0), OTHERS
    corpora = [c for c in runs.corpora if all(runs.there(c, [point], v) for v in OTHERS)]
    for of, name in OF.items() if len(corpora) > 1 else ():
        ends = [[runs.sim(of, c, point, vectors=v).mean() for v in (narrow, wide)] for c in corpora]
        levels = (f"{NAMES[c]} {a:.2f} → {b:.2f}" for c, (a, b) in zip(corpora, ends, strict=True))
        yield Claim(
            id=f"wider-{name}",
            text=f"L = {point[0]}: SIM of the {name} of the last layer is higher from {wide} than from {narrow} "
            "vectors",
            estimate=mean_of([after - before for before, after in ends], over="corpora"),
            bound=Bound.above(0),
            note=f"{', '.join(levels)}; {_accuracies(runs, corpora, narrow, wide)}",
            ours=True,
        )


def remarks(runs: Runs, corpus: str) -> list[str]:
    """What makes a claim about the penalty say little: it did not act, or nothing was learnt."""
    strengths = runs.strengths(corpus)
    first, last = (runs.entropy(corpus, (1, s)).mean() for s in (strengths[0], strengths[-1]))
    said = []
    if first - last < SHARPENED:
        said.append(f"the penalty hardly sharpened attention (H {first:.2f} → {last:.2f})")
    seeds = len(runs.cells.labels("seed"))
    lost = [f"{s:g}" for s in strengths if 2 * runs.at_chance(corpus, [(1, s)]) > seeds]
    if lost:
        said.append(f"most runs at λ = {', '.join(lost)} learnt nothing (accuracy of chance, 1/{CLASSES[corpus]})")
    return said


def _compensates(runs: Runs, printed: Table, corpus: str) -> Iterator[Claim]:
    strengths, table = runs.strengths(corpus), printed["regularisation"]
    if len(strengths) < 2 or strengths[0] != 0:
        return
    asked = [("value", s) for s in strengths[-2:] if s > 0] + [("key", strengths[-1])]
    for of, strength in asked:
        before, after = (runs.sim(of, corpus, (1, s), group="regularisation") for s in (0.0, strength))
        gap = table[corpus][of][table["lambda"].index(strength)] - table[corpus][of][0]
        path = f"{before.mean():.2f} → {after.mean():.2f}"
        yield Claim(
            id=f"penalty-{corpus}-{OF[of]}-{strength:.0e}".replace("e-0", "e-"),
            text=f"{NAMES[corpus]}: a penalty of λ = {strength:g} raises SIM of the {OF[of]} (from λ = 0)",
            estimate=difference(after, before),
            bound=Bound.above(0),
            published=Published(gap, table["source"]),
            note="; ".join([path, *remarks(runs, corpus)]),
        )
    theirs = rank_correlation([list(zip(table[corpus]["entropy"], table[corpus]["value"], strict=True))])
    both = pairs(
        runs.by_strength(corpus),
        partial(runs.entropy, corpus),
        lambda point: runs.sim("value", corpus, point, group="regularisation"),
    )
    yield _correlation(
        f"sharper-{corpus}",
        f"{NAMES[corpus]}: the sharper the attention, the higher SIM of the values (ρ of H and SIM over λ and seeds "
        "is below 0)",
        both,
        Bound.below(0),
        published=None if theirs is None else Published(theirs.value or 0.0, table["source"]),
        note="; ".join(remarks(runs, corpus)),
    )


EXPLANATIONS: dict[str, tuple[str, str, bool]] = {
    "AUPRC": ("pooled AUPRC", "plausibility.attention.all.pooled.auprc", True),
    "AUROC": ("pooled AUROC", "plausibility.attention.all.pooled.auroc", True),
    "comprehensiveness": ("comprehensiveness", "faithfulness.attention.comprehensiveness", True),
    "sufficiency": ("sufficiency (lower is better)", "faithfulness.attention.sufficiency", False),
}
"""Title → what it is called, where it lies in a result, whether more is better."""


def _explains(runs: Runs, corpus: str) -> Iterator[Claim]:
    """The slides' last sentence: the model stiffens its values, and the explanation is lost."""
    points = runs.by_strength(corpus)
    for title, (name, path, good) in EXPLANATIONS.items() if len(points) > 1 else ():
        yield _correlation(
            f"explains-{corpus}-{title.lower()}",
            f"{NAMES[corpus]}: the higher SIM of the values, the {'lower' if good else 'higher'} the {name} of "
            "attention (ρ over λ and seeds)",
            pairs(points, partial(runs.stiffness, corpus), partial(runs.of, path, corpus)),
            Bound.below(0) if good else Bound.above(0),
            note="; ".join(remarks(runs, corpus)),
        )


def _correlation(
    id: str,
    text: str,
    groups: Sequence[Sequence[tuple[float, float]]],
    bound: Bound,
    published: Published | None = None,
    note: str = "",
) -> Claim:
    rho = rank_correlation(groups)
    if rho is None:
        rho, note = Estimate(value=None), "too few runs, or one of the two is the same in all of them"
    counted = f"{sum(map(len, groups))} runs"
    return Claim(
        id=id,
        text=text,
        estimate=rho,
        bound=bound,
        published=published,
        note="; ".join(part for part in (counted, note) if part),
    )


def _cosine_map(runs: Runs, printed: Table, corpus: str, layers: int) -> Claim:
    """With one layer the paper prefers attention, with more the cosine map."""
    one, other = ("attention", "cosine") if layers == 1 else ("cosine", "attention")
    said = {
        "attention": "attention (last layer, row of CLS)" if layers == 1 else "attention",
        "cosine": "the cosine map",
    }
    gains = [runs.plausibility(name, corpus, (layers, 0.0)) for name in (one, other)]
    known = layers <= len(printed[one][corpus])
    return Claim(
        id=f"map-{corpus}-l{layers}",
        text=f"{NAMES[corpus]}, L = {layers}: {said[one]} is more plausible than {said[other]} (difference of pooled "
        "AUROC)",
        estimate=mean_of(gains[0] - gains[1]),
        bound=Bound.above(0),
        published=Published(printed[one][corpus][layers - 1] - printed[other][corpus][layers - 1], printed["source"])
        if known
        else None,
    )


def _replaces(runs: Runs, corpus: str) -> Iterator[Claim]:
    """The title. What is lost, at both depths, and whether it is the stiffness of values that protects."""
    depths = runs.depths(corpus)
    for layers, kind in product(sorted({depths[0], depths[-1]}) if depths else (), REPLACED[:2]):
        point = (layers, 0.0)
        flips = runs.replaced(kind, "flipped", corpus, point).mean()
        dull = runs.at_chance(corpus, [point])
        note = f"accuracy as trained {runs.accuracy(corpus, point).mean():.3f}; {flips:.0%} of the predictions change"
        note += f"; {dull} of the runs learnt nothing, so that nothing can be lost" if dull else ""
        yield Claim(
            id=f"replaced-{corpus}-l{layers}-{kind}",
            text=f"{NAMES[corpus]}, L = {layers}: {kind} weights in all layers cost less than {BARELY} of accuracy",
            estimate=mean_of(runs.cost(kind, corpus, point)),
            bound=Bound.above(-BARELY),
            note=note,
        )
    points = runs.points(corpus)
    dull = runs.at_chance(corpus, points)
    for kind in REPLACED:
        yield _correlation(
            f"protects-{corpus}-{kind}",
            f"{NAMES[corpus]}: the higher SIM of the last values, the fewer predictions change with {kind} weights (ρ "
            "over L, λ and seeds)",
            pairs(points, partial(runs.stiffness, corpus), partial(runs.replaced, kind, "flipped", corpus)),
            Bound.below(0),
            note=f"{dull} of them learnt nothing, so that hardly anything can change" if dull else "",
        )
