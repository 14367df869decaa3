"""What a penalty on attention does to the values and to the explanation, and what similar values protect from.

The unit is the seed: a model trained with one λ is compared with that of the same seed at another. Correlations are
computed over the settings of each seed and then averaged, since the models of small λ are copies of that without; an
exact test over all orders of the settings decides, for three settings have no t interval.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from reproductions.fosse2023.attention.runs import REPLACED, Point, Runs, Seeds
from reproductions.fosse2023.grid import NAMES, TABLED
from reproductions.frame import markdown
from reproductions.frame.claims import HOLDS, Bound, Claim, Published, disagreement
from reproductions.frame.seeds import MAJORITY, with_and_without
from reproductions.frame.statistics import SHARE, mean_of, rank_correlation, ranked_within

SHARPENED = 0.1
"""Of H: less, and the penalty cannot be said to have acted."""
UNIFORM = 0.9
"""H of weights that are "too uniform": the published ones are .99 and 1.00, but .47 on YelpHat."""
OF = {"key": "keys", "value": "values"}
_LOST = Published("the model reinforces its anisotropy, and explanation is lost", "slides, conclusion")


def remarks(runs: Runs, corpus: str, most: float = TABLED) -> list[str]:
    """What makes a claim about penalties up to some λ say little: they did not act, or nothing was learnt."""
    strengths = [strength for strength in runs.strengths(corpus) if strength <= most]
    first, last = (runs.entropy(corpus, (1, s)).mean() for s in (strengths[0], strengths[-1]))
    said = []
    if first - last < SHARPENED:
        said.append(f"the penalty hardly sharpened attention (H {first:.2f} → {last:.2f})")
    seeds = len(runs.cells.labels("seed"))
    lost = [f"{s:g}" for s in strengths if 2 * runs.at_chance(corpus, [(1, s)]) > seeds]
    if lost:
        said.append(
            f"most runs at λ = {', '.join(lost)} learnt nothing (accuracy of the largest class, {MAJORITY[corpus]:.3f})"
        )
    return said


def compensates(runs: Runs, printed: Mapping[str, Any], corpus: str) -> Iterator[Claim]:
    strengths, table = runs.strengths(corpus), printed["regularisation"]
    if len(strengths) < 2 or strengths[0] != 0:
        return
    yield Claim(
        id=f"uniform-{corpus}",
        text=f"{NAMES[corpus]}: without a penalty the weights are nearly uniform (H of <cls> above {UNIFORM})",
        estimate=mean_of(runs.entropy(corpus, (1, 0.0)), ends=SHARE),
        bound=Bound.above(UNIFORM),
        published=Published(table[corpus]["entropy"][0], table["source"]),
        note="the paper's vectors have width 300",
    )
    known = [strength for strength in strengths if strength in table["lambda"]]
    yield from _sharpens(runs, table, corpus, known[1:2])
    asked = [("value", s) for s in known[-2:] if s > 0] + [("key", known[-1])]
    asked += [("value", s) for s in strengths if s > max(known)]
    for of, strength in asked:
        points = [(1, 0.0), (1, strength)]
        sims = runs.by_seed(corpus, points, lambda point, of=of: runs.sim(of, corpus, point, group="regularisation"))
        levels = dict(zip(table["lambda"], table[corpus][of], strict=True))
        theirs = Published(levels[strength] - levels[0.0], table["source"]) if strength in levels else None
        path = " → ".join(f"{level:.2f}" for level in sims.mean(axis=0))
        yield with_and_without(
            sims[:, 1] - sims[:, 0],
            _learnt(runs, corpus, points).all(axis=1),
            id=f"penalty-{corpus}-{OF[of]}-"
            + (f"{strength:.0e}".replace("e-0", "e-") if strength in levels else f"{strength:g}"),
            text=f"{NAMES[corpus]}: a penalty of λ = {strength:g} raises SIM of the {OF[of]} (from λ = 0, by seed)",
            bound=Bound.above(0),
            published=theirs,
            note="; ".join([path, *remarks(runs, corpus, strength)]),
        )
    printed_rho = rank_correlation([list(zip(table[corpus]["entropy"], table[corpus]["value"], strict=True))])
    yield _correlation(
        runs,
        corpus,
        runs.by_strength(corpus),
        partial(runs.entropy, corpus),
        lambda point: runs.sim("value", corpus, point, group="regularisation"),
        id=f"sharper-{corpus}",
        text=f"{NAMES[corpus]}: the sharper the attention, the higher SIM of the values (ρ of H and SIM over the λ of "
        "a seed is below 0)",
        bound=Bound.below(0),
        published=None if printed_rho is None else Published(printed_rho.value or 0.0, table["source"]),
    )


def _sharpens(runs: Runs, table: Mapping[str, Any], corpus: str, strengths: Sequence[float]) -> Iterator[Claim]:
    """Whether the weakest penalty of the table acts at all, as it does in the table."""
    for strength in strengths:
        levels = runs.by_seed(corpus, [(1, 0.0), (1, strength)], partial(runs.entropy, corpus))
        printed = dict(zip(table["lambda"], table[corpus]["entropy"], strict=True))
        path = " → ".join(f"{level:.3f}" for level in levels.mean(axis=0))
        yield Claim(
            id=f"weakest-{corpus}",
            text=f"{NAMES[corpus]}: a penalty of λ = {strength:g} already sharpens attention (H of <cls> falls by more "
            f"than {SHARPENED}, by seed)",
            estimate=mean_of(levels[:, 1] - levels[:, 0]),
            bound=Bound.below(-SHARPENED),
            published=Published(printed[strength] - printed[0.0], table["source"]),
            note=f"{path}; what the paper's λ multiplies we do not know, so that the two scales may differ",
        )


EXPLANATIONS: dict[str, tuple[str, str, bool]] = {
    "AUPRC": ("pooled AUPRC", "plausibility.attention.all.pooled.auprc", True),
    "AUROC": ("pooled AUROC", "plausibility.attention.all.pooled.auroc", True),
    "comprehensiveness": ("comprehensiveness", "faithfulness.attention.comprehensiveness", True),
    "sufficiency": ("sufficiency (lower is better)", "faithfulness.attention.sufficiency", False),
}
"""Title → what it is called, where it lies in a result, whether more is better."""


def explains(runs: Runs, printed: Mapping[str, Any], corpus: str) -> Iterator[Claim]:
    """The slides' last sentence: under a penalty the model stiffens its values, and the explanation is lost.

    The strongest tabled λ against none, by seed. Where SIM of the values does not rise, nothing is said of the
    sentence: a measure that falls there does not fall because values are stiff.
    """
    strengths = [strength for strength in runs.strengths(corpus) if strength <= TABLED]
    if len(strengths) < 2 or strengths[0] != 0:
        return
    points = [(1, 0.0), (1, strengths[-1])]
    learnt = _learnt(runs, corpus, points).all(axis=1)
    stiff = runs.by_seed(corpus, points, partial(runs.stiffness, corpus))
    rise = mean_of((stiff[:, 1] - stiff[:, 0])[learnt])
    stiffened = Bound.above(0).verdict(rise) == HOLDS
    for title, (name, path, good) in EXPLANATIONS.items():
        values = runs.by_seed(corpus, points, partial(runs.of, path, corpus))
        claim = with_and_without(
            values[:, 1] - values[:, 0],
            learnt,
            id=f"explains-{corpus}-{title.lower()}",
            text=f"{NAMES[corpus]}: a penalty of λ = {strengths[-1]:g} {'lowers' if good else 'raises'} the {name} of "
            "attention (from λ = 0, by seed)",
            bound=Bound.below(0) if good else Bound.above(0),
            published=_LOST,
            note="; ".join(
                [
                    " → ".join(f"{level:.3f}" for level in values[learnt].mean(axis=0)) + " in those that learnt",
                    f"SIM of the last values changes by {markdown.estimate(rise)} in them",
                ]
            )
            if learnt.any()
            else "",
        )
        yield claim if stiffened else replace(claim, undecided=_NOT_STIFF)


_NOT_STIFF = "the penalty did not significantly raise SIM of the values, so that no loss could come from it"


def protects(runs: Runs, corpus: str) -> Iterator[Claim]:
    """Whether it is the stiffness of values that makes weights matter little."""
    points = runs.points(corpus)
    for kind in REPLACED if len(points) > 1 else ():
        yield _correlation(
            runs,
            corpus,
            points,
            partial(runs.stiffness, corpus),
            partial(runs.replaced, kind, "flipped", corpus),
            id=f"protects-{corpus}-{kind}",
            text=f"{NAMES[corpus]}: the higher SIM of the last values, the fewer predictions change with {kind} "
            "weights (ρ over L and λ of a seed)",
            bound=Bound.below(0),
            published=None,
        )


def _learnt(runs: Runs, corpus: str, points: Sequence[Point]) -> Any:
    """[seed point]"""
    return runs.by_seed(corpus, points, partial(runs.learnt, corpus)).astype(bool)


def _correlation(
    runs: Runs,
    corpus: str,
    points: Sequence[Point],
    one: Callable[[Point], Seeds],
    other: Callable[[Point], Seeds],
    **about: Any,
) -> Claim:
    """Over the points of each seed that are not copies; then again without the runs at chance."""
    different = runs.different(corpus, points)
    first, second = (runs.by_seed(corpus, different, read) for read in (one, other))
    learnt = _learnt(runs, corpus, different)
    every, rest = (ranked_within(first, second, keep) for keep in (np.ones_like(learnt), learnt))
    copies, lost = len(points) - len(different), int((~learnt).sum())
    level = max(int((second == value).sum()) for value in np.unique(second)) if second.size else 0
    notes = [f"{len(different)} settings" + (f", without {copies} whose models are copies" if copies else "")]
    notes += [f"{lost} of {learnt.size} runs at chance, without them {markdown.estimate(rest)}"] if lost else []
    notes += [f"{level} of {second.size} runs have one and the same number"] if 2 * level > second.size else []
    shared = "a measure that most runs share cannot go with another" if 2 * level > second.size else ""
    published, bound = about.pop("published"), about["bound"]
    return Claim(
        estimate=every,
        also=[rest] if lost else [],
        note="; ".join([*notes, *(remarks(runs, corpus) if len(runs.strengths(corpus)) > 1 else [])]),
        undecided=shared or (disagreement(bound, every, rest) if lost else ""),
        published=published,
        ours=published is None,
        **about,
    )
