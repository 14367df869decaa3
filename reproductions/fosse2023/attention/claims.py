"""What Fosse et al. 2023 say of pure-attention models, as sentences that can be wrong."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from reproductions.fosse2023.attention.penalty_claims import OF, compensates, explains, protects
from reproductions.fosse2023.attention.runs import REPLACED, Runs
from reproductions.fosse2023.grid import DEPTHS, NAMES, OTHERS
from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.seeds import with_and_without
from reproductions.frame.statistics import COSINE, difference, mean_of, slope

HIGH = 0.9
"""What the last layer of deep models has in every published table."""
BARELY = 0.02
"""Of accuracy: less is nothing lost."""
Table = Mapping[str, Any]


def claims(runs: Runs, printed: Table) -> Iterator[Claim]:
    for corpus in runs.corpora:
        for of, layers in product(OF, runs.depths(corpus)):
            if layers > 1:
                yield _rises(runs, printed, corpus, of, layers)
        yield from _last_layer(runs, printed, corpus)
    for vectors, corpus in product(OTHERS, runs.corpora):
        yield from _from_random(runs, printed, corpus, vectors)
    yield from _wider(runs)
    for corpus in runs.corpora:
        yield from compensates(runs, printed, corpus)
        yield from explains(runs, printed, corpus)
    for corpus in runs.corpora:
        for layers in runs.depths(corpus):
            yield _cosine_map(runs, printed["maps"], corpus, layers)
    for corpus in runs.corpora:
        yield from _replaces(runs, corpus)
        yield from protects(runs, corpus)


def _published(table: Table, corpus: str, layers: int, read: Callable[[Sequence[float]], float]) -> Published | None:
    values = table[corpus].get(str(layers))
    return None if values is None else Published(read(values), table["source"])


def _rises(runs: Runs, printed: Table, corpus: str, of: str, layers: int) -> Claim:
    path = (runs.sim(of, corpus, (layers, 0.0), n).mean() for n in range(1, layers + 1))
    theirs = _published(printed[of], corpus, layers, slope)
    return Claim(
        id=f"rise-{corpus}-{OF[of]}-l{layers}",
        text=f"{NAMES[corpus]}, L = {layers}: SIM of the {OF[of]} rises through the layers (slope per layer)",
        estimate=mean_of(runs.slopes(of, corpus, layers)),
        identified=False,
        bound=Bound.above(0),
        published=theirs,
        ours=theirs is None,
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
                text=f"{NAMES[corpus]}, L = {deep}, GloVe of width 100: SIM of the {name} of the last layer is above "
                f"{HIGH}",
                estimate=mean_of(last, ends=COSINE),
                identified=False,
                bound=Bound.above(HIGH),
                ours=True,
                note="the paper's vectors have width 300",
            )
        if depths[0] == 1:
            yield from _few(runs, printed, corpus, of)
            first, theirs = runs.sim(of, corpus, (1, 0.0)), _published(printed[of], corpus, deep, lambda v: v[-1])
            yield Claim(
                id=f"deeper-{corpus}-{name}",
                text=f"{NAMES[corpus]}: SIM of the {name} of the last layer is higher for L = {deep} than for L = 1",
                estimate=difference(last, first),
                identified=False,
                bound=Bound.above(0),
                published=theirs and Published(float(theirs.value) - printed[of][corpus]["1"][0], theirs.source),
                ours=theirs is None,
                note=f"{first.mean():.2f} → {last.mean():.2f}",
            )


def _few(runs: Runs, printed: Table, corpus: str, of: str) -> Iterator[Claim]:
    """Few layers against many: not anisotropic with one or two, and every deeper model above one layer."""
    name, one = OF[of], runs.sim(of, corpus, (1, 0.0))
    for layers in runs.depths(corpus)[:2]:
        last, theirs = runs.sim(of, corpus, (layers, 0.0)), _published(printed[of], corpus, layers, lambda v: v[-1])
        yield Claim(
            id=f"few-{corpus}-{name}-l{layers}",
            text=f"{NAMES[corpus]}, L = {layers}: models with few layers are not anisotropic (SIM of the {name} of the "
            f"last layer below {HIGH})",
            estimate=mean_of(last, ends=COSINE),
            identified=False,
            bound=Bound.below(HIGH),
            published=theirs,
            ours=theirs is None,
        )
    for layers in runs.depths(corpus)[1:-1]:
        last, theirs = runs.sim(of, corpus, (layers, 0.0)), _published(printed[of], corpus, layers, lambda v: v[-1])
        yield Claim(
            id=f"deeper-{corpus}-{name}-l{layers}",
            text=f"{NAMES[corpus]}: SIM of the {name} of the last layer is higher for L = {layers} than for L = 1",
            estimate=difference(last, one),
            identified=False,
            bound=Bound.above(0),
            published=theirs and Published(float(theirs.value) - printed[of][corpus]["1"][0], theirs.source),
            ours=theirs is None,
            note=f"{one.mean():.2f} → {last.mean():.2f}",
        )


def _from_random(runs: Runs, printed: Table, corpus: str, vectors: str) -> Iterator[Claim]:
    """The same of the deepest models from random vectors; the table of the paper is judged at its own width."""
    point, same_width = (DEPTHS[-1], 0.0), vectors == OTHERS[0]
    if not runs.there(corpus, [point], vectors):
        return
    for of, name in OF.items():
        last, rises = runs.sim(of, corpus, point, vectors=vectors), runs.slopes(of, corpus, point[0], vectors)
        for what, values, bound, said, read, ends in (
            ("rise", rises, 0.0, "rises through the layers (slope per layer)", slope, None),
            ("last", last, HIGH, f"is above {HIGH} in the last layer", lambda levels: levels[-1], COSINE),
        ):
            theirs = _published(printed[of], corpus, point[0], read) if same_width else None
            yield with_and_without(
                values,
                runs.learnt(corpus, point, vectors),
                id=f"{what}-{corpus}-{name}-{vectors}",
                text=f"{NAMES[corpus]}, L = {point[0]}, {vectors} vectors: SIM of the {name} {said}",
                bound=Bound.above(bound),
                identified=False,
                ends=ends,
                published=theirs,
                note=_accuracies(runs, [corpus], vectors),
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
    less = any(runs.accuracy(c, point, wide).mean() < runs.accuracy(c, point, narrow).mean() - BARELY for c in corpora)
    for of, name in OF.items() if len(corpora) > 1 else ():
        ends = [[runs.sim(of, c, point, vectors=v).mean() for v in (narrow, wide)] for c in corpora]
        levels = (f"{NAMES[c]} {a:.2f} → {b:.2f}" for c, (a, b) in zip(corpora, ends, strict=True))
        yield Claim(
            id=f"wider-{name}",
            text=f"L = {point[0]}: SIM of the {name} of the last layer is higher from {wide} than from {narrow} "
            "vectors",
            estimate=mean_of([after - before for before, after in ends], over="corpora"),
            identified=False,
            bound=Bound.above(0),
            undecided="wide models learnt less, so that width and failed training cannot be told apart" if less else "",
            note=f"{', '.join(levels)}; {_accuracies(runs, corpora, narrow, wide)}",
            ours=True,
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
        ours=not known,
    )


def _replaces(runs: Runs, corpus: str) -> Iterator[Claim]:
    """The title, put to the test: what is lost without the weights, at both depths."""
    depths = runs.depths(corpus)
    for layers, kind in product(sorted({depths[0], depths[-1]}) if depths else (), REPLACED[:2]):
        point = (layers, 0.0)
        flips = runs.replaced(kind, "flipped", corpus, point).mean()
        dull = runs.at_chance(corpus, [point])
        note = f"accuracy as trained {runs.accuracy(corpus, point).mean():.3f}; {flips:.0%} of the predictions change"
        note += f"; {dull} of the runs learnt nothing, so that nothing can be lost" if dull else ""
        yield Claim(
            id=f"replaced-{corpus}-l{layers}-{kind}",
            ours=True,
            text=f"{NAMES[corpus]}, L = {layers}: {kind} weights in all layers cost less than {BARELY} of accuracy",
            estimate=mean_of(runs.cost(kind, corpus, point)),
            bound=Bound.above(-BARELY),
            note=note,
        )
