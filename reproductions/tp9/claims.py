"""The exercises of TP 9 as claims: what helps, and what depth does."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from reproductions.frame import markdown
from reproductions.frame.claims import Bound, Claim, Published, disagreement
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.statistics import difference, mean_of
from reproductions.tp9.grid import BLOCKS, DROPOUTS, SCALED_WIDTHS, Model, plain
from reproductions.tp9.order_claims import order_claims
from reproductions.tp9.runs import Runs
from reproductions.tp9.scaling import DIVIDED, UNDIVIDED

SHALLOW = 6
"""Layers up to which every run of both blocks trains."""
DEEP = 8
"""Layers from which on a model is called deep; fixed before the models of 12 and 16 layers were trained."""
_DEGRADED = Published("with many layers, training is much worse; a residual architecture remedies it", "section 2")


def claims(cells: Finished) -> list[Claim]:
    """None about what was not run."""
    runs = Runs(cells)
    targets = published("tp9")["targets"]
    return [*_targets(runs, targets), *_exercises(runs), *_depth(runs), *order_claims(cells), *_scaling(cells)]


ALIKE, UNLIKE = 1.5, 2.0
"""Factors of a gradient: less is alike, more is not. Fixed before anything of it was measured."""


def _scaling(cells: Finished) -> Iterator[Claim]:
    """Division by √d. We expect that it keeps the gradient at the queries alike, and that without it widths differ."""
    few, many = SCALED_WIDTHS[0], SCALED_WIDTHS[-1]
    ratio = {}
    for way in (DIVIDED, UNDIVIDED):
        levels = [cells.array(f"{way}.{width}.gradient", "seed", step="scaling") for width in (few, many)]
        if levels[0].size < 2:
            return
        ratio[way] = np.log(levels[1] / levels[0])
    what = f"at initialisation, the gradient at a query of width {many:,} over that of width {few}"
    yield Claim(
        id="scaling-divided",
        text=f"scores divided by √d: {what} is within a factor of {ALIKE} (shown: ln of the ratio)",
        estimate=mean_of(ratio[DIVIDED]),
        bound=Bound.within(-math.log(ALIKE), math.log(ALIKE)),
        published=_SCALING,
    )
    yield Claim(
        id="scaling-undivided",
        text=f"scores not divided: {what} differs by more than a factor of {UNLIKE:g} (shown: |ln| of the ratio)",
        estimate=mean_of(np.abs(ratio[UNDIVIDED])),
        bound=Bound.above(math.log(UNLIKE)),
        note=f"the gradient is {math.exp(float(ratio[UNDIVIDED].mean())):.1f} times as large at the larger width",
        published=_SCALING,
    )


_SCALING = Published(
    "the factor keeps gradients of the same magnitude whatever the dimension", "the practical, on d^−½"
)


def _targets(runs: Runs, aims: Any) -> Iterator[Claim]:
    """Aims of our own; as for every other claim, the whole interval must lie above."""
    best = runs.best_model()
    for id, name, model in (
        ("target-residual-frozen", "residual, frozen vectors", plain("residual", "frozen")),
        ("target-best", "best model", best),
    ):
        if model is None or not runs.complete(model):
            continue
        aim, which = aims[name], f" ({runs.named(model)})" if model is best else ""
        yield Claim(
            id=id,
            text=f"{name}{which}: test accuracy is above {aim['accuracy']}",
            estimate=runs.accuracy(model),
            bound=Bound.above(aim["accuracy"]),
            note="the model was chosen on validation reviews" if model is best else "",
            ours=True,
        )


def _exercises(runs: Runs) -> Iterator[Claim]:
    for embeddings in runs.size.embeddings:
        base, residual = plain("base", embeddings), plain("residual", embeddings)
        yield from _above(
            runs, f"attention-beats-mean-{embeddings}",
            f"1, {embeddings} vectors: self-attention is better than the mean of the words",
            base, plain("mean", embeddings),
        )  # fmt: skip
        yield from _above(
            runs, f"residual-beats-base-{embeddings}",
            f"2, {embeddings} vectors: the residual model is better than the base model", residual, base,
        )  # fmt: skip
        if embeddings == "frozen":
            yield from _residual_at_every_depth(runs)
        for family, positions in product(BLOCKS, runs.size.positions):
            model = Model(family, embeddings, positions, "mean", 3)
            if positions == "none" or model not in runs.main_models():
                continue
            text = f"3, {embeddings} vectors, {family}: {runs.position_name(model)} positions help"
            id = f"positions-{positions}-{family}-{embeddings}"
            yield from _above(runs, id, text, model, plain(family, embeddings))
        for family in BLOCKS if "cls" in runs.size.poolings else ():
            text = f"4, {embeddings} vectors, {family}: `<cls>` is better than the mean"
            first = Model(family, embeddings, "none", "cls", 3)
            yield from _above(runs, f"cls-beats-mean-{family}-{embeddings}", text, first, plain(family, embeddings))


def _residual_at_every_depth(runs: Runs) -> Iterator[Claim]:
    """All depths together, where each block trains: three seeds at one depth leave too much to chance."""
    depths = [n for n in runs.size.depths if n <= SHALLOW]
    models = {f: [Model(f, "frozen", layers=n) for n in depths] for f in ("residual", "base")}
    if len(depths) < 2 or not all(map(runs.complete, models["residual"] + models["base"])):
        return
    gaps = np.subtract(*([runs.accuracies(model) for model in models[f]] for f in ("residual", "base")))
    searched = {
        rate: max(runs.searched(plain("base", "frozen"), rate), default=float("nan"))
        for rate in DROPOUTS["base", "frozen"]
    }
    told = ", ".join(f"{markdown.number(accuracy, 4)} at {rate:g}" for rate, accuracy in searched.items())
    yield Claim(
        id="residual-beats-base-frozen-depths",
        text=f"2, frozen vectors: the residual model is better than the base model, mean over {depths[0]} to "
        f"{depths[-1]} layers",
        estimate=mean_of(gaps.mean(0)),
        bound=Bound.above(0.0),
        note=f"better in {(gaps > 0).sum()} of {gaps.size} runs; added when the numbers were known. The rates of "
        f"dropout that were searched differ, which hardly matters: validation accuracy of the base model is {told}",
        ours=True,
    )


def _depth(runs: Runs) -> Iterator[Claim]:
    first, last = min(runs.size.depths), deepest(runs)
    base, residual = ({n: Model(f, "frozen", layers=n) for n in (first, last)} for f in ("base", "residual"))
    for id, text, better, worse in (
        ("depth-hurts-base", f"without residuals {last} layers are worse than {first}", base[first], base[last]),
        (
            "depth-residual-beats-base",
            f"at {last} layers the residual model is better than the base model",
            residual[last],
            base[last],
        ),
        (
            "depth-hurts-residual",
            f"with residuals {last} layers are worse than {first}",
            residual[first],
            residual[last],
        ),
    ):
        yield from _above(runs, id, text, better, worse, None if id.endswith("hurts-residual") else _DEGRADED)
    deep = [n for n in runs.size.depths if DEEP <= n <= last]
    if len(deep) > 1:
        yield from _fails(runs, deep)


def deepest(runs: Runs) -> int:
    """The greatest depth of which both blocks have enough seeds."""
    return max(n for n in runs.size.depths if n == 1 or runs.enough(*(Model(f, "frozen", layers=n) for f in BLOCKS)))


def _fails(runs: Runs, depths: Sequence[int]) -> Iterator[Claim]:
    """Runs of many layers that end at chance, by block: the practical expects them without residuals only."""
    dead = {f: [runs.at_chance(Model(f, "frozen", layers=n)) for n in depths] for f in BLOCKS}
    shares = {family: [one for depth in every for one in depth] for family, every in dead.items()}
    counts = {family: f"{sum(every)} of {len(every)}" for family, every in shares.items()}
    yield Claim(
        id="depth-fails-base",
        text=f"with {depths[0]} to {depths[-1]} layers, training fails (accuracy at chance) more often without "
        "residual connections than with them",
        estimate=difference(shares["base"], shares["residual"], over="runs"),
        bound=Bound.above(0.0),
        published=_DEGRADED,
        note=f"at chance: base {counts['base']} runs, residual {counts['residual']}",
    )


def _above(
    runs: Runs, id: str, text: str, better: Model, worse: Model, published: Published | None = None
) -> Iterator[Claim]:
    """With all seeds, and again without those that learnt nothing; both must lie above, as far as seeds are left."""
    if not runs.enough(better, worse):
        return
    note, dead = f"{runs.accuracy(better)} against {runs.accuracy(worse)}", runs.dead(better) + runs.dead(worse)
    gap, rest = runs.gap(better, worse), runs.gap(better, worse, learnt=True)
    if dead:
        note += f"; {dead} of the runs at chance, without them {markdown.estimate(rest)}"
    families = {better.family, worse.family}
    dropouts = {DROPOUTS.get((model.family, model.embeddings)) for model in (better, worse)}
    yield Claim(
        id=id,
        text=text,
        estimate=gap,
        also=[rest] if dead and rest.interval else [],  # all at chance: that is the finding
        bound=Bound.above(0.0),
        published=published,
        ours=published is None,
        undecided="their dropout was searched among different rates"
        if _unlike(families, dropouts)
        else disagreement(Bound.above(0.0), gap, rest)
        if dead and rest.interval
        else "",
        note=note,
    )


def _unlike(families: set[str], dropouts: set[Sequence[float] | None]) -> bool:
    """Whether two models with dropout were searched on different grids."""
    return len(families) > 1 and None not in dropouts and len(dropouts) > 1
