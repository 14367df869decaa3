"""What we expected before the runs, and the paper's table at the paper's width."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import fisher_exact

from reproductions.anisotropy_or_training.grid import FAST, SLOW, WARM, Setting
from reproductions.anisotropy_or_training.runs import HIGH, LESS, Runs
from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.seeds import with_and_without
from reproductions.frame.statistics import COSINE, FEWEST, SHARE, difference, mean_of, rank_correlation, slope

OF = {"key": "keys", "value": "values"}
WIDE = ("random-300", "padded-300")
NEAR = 0.1
NARROW = Setting("random-100")
UNIFORM = 0.9


def claims(cells: Finished) -> Iterator[Claim]:
    runs, printed = Runs(cells), published("anisotropy_or_training")
    for corpus in runs.corpora:
        yield from _as_published(runs, printed, corpus)
    for corpus in runs.corpora:
        yield from _learnt_less(runs, corpus)
        yield from _gentle(runs, corpus)
        yield from _crossed(runs, corpus)


def _as_published(runs: Runs, printed: Any, corpus: str) -> Iterator[Claim]:
    """The published table by layer, at its width: GloVe of width 100 and zeros, trained as the paper does."""
    setting = Setting("padded-300")
    learnt = runs.learnt(corpus, setting)
    for of, name in OF.items():
        theirs, source = printed[of][corpus], printed[of]["source"]
        layers = range(1, setting.layers + 1)
        by_layer = np.array([runs.sim(corpus, setting, of, layer) for layer in layers])
        start = f"{NAMES[corpus]}, padded to width 300, L = {setting.layers}: SIM of the {name}"
        yield with_and_without(
            by_layer[-1],
            learnt,
            identified=False,
            ends=COSINE,
            id=f"last-{corpus}-{name}",
            text=f"{start} of the last layer is above {HIGH}",
            bound=Bound.above(HIGH),
            published=Published(theirs[-1], source),
        )
        yield with_and_without(
            [slope(levels) for levels in by_layer.T],
            learnt,
            identified=False,
            id=f"rise-{corpus}-{name}",
            text=f"{start} rises through the layers (slope per layer)",
            bound=Bound.above(0),
            published=Published(slope(theirs), source),
            note=" → ".join(f"{level.mean():.2f}" for level in by_layer if len(level)),
        )
    one = Setting("padded-300", layers=1)
    if corpus in printed["entropy"]:
        yield with_and_without(
            runs.of(corpus, one, "trained.entropy", 1),
            runs.learnt(corpus, one),
            ends=SHARE,
            id=f"uniform-{corpus}",
            text=f"{NAMES[corpus]}, padded to width 300, L = 1: the weights are nearly uniform (H of <cls> above "
            f"{UNIFORM})",
            bound=Bound.above(UNIFORM),
            published=Published(printed["entropy"][corpus], printed["entropy"]["source"]),
        )


def _learnt_less(runs: Runs, corpus: str) -> Iterator[Claim]:
    """The question: does SIM above .9 occur only in models that learnt less?"""
    counts = [runs.anisotropic(corpus, split) for split in ("train", "test")]
    shares = [
        mean_of([some / every for some, every in count.values()], ends=SHARE)
        if count
        else Estimate(value=None, n=0, over="seeds")
        for count in counts
    ]
    (some, every), (tested, _) = (map(sum, zip(*count.values(), strict=True)) if count else (0, 0) for count in counts)
    yield Claim(
        id=f"learnt-less-{corpus}",
        text=f"{NAMES[corpus]}: more than three quarters of the runs of a seed with SIM of the last values above "
        f"{HIGH} learnt less (training accuracy more than {LESS} below GloVe of width 100)",
        estimate=shares[0],
        also=[shares[1]],
        bound=Bound.above(0.75),
        ours=True,
        note=f"{some} of {every} runs by training accuracy, {tested} by test accuracy; reference "
        f"{runs.reference(corpus, 'train'):.3f} and {runs.reference(corpus, 'test'):.3f}",
    )
    few, others = runs.less_otherwise(corpus)
    if every and others:
        shares = some / every, few / others
        p = float(fisher_exact([[some, every - some], [few, others - few]]).pvalue)
        yield Claim(
            id=f"base-rate-{corpus}",
            text=f"{NAMES[corpus]}: runs of five layers with SIM of the last values above {HIGH} learnt less more "
            "often than the others (difference of shares)",
            estimate=Estimate(value=shares[0] - shares[1], n=every + others, over="runs", method="Fisher", p=p),
            bound=Bound.above(0),
            ours=True,
            note=f"{some} of {every} against {few} of {others}; added when the numbers were known",
        )
    groups = [
        list(zip(runs.sim(corpus, one).tolist(), runs.accuracy(corpus, one).tolist(), strict=True))
        for one in runs.settings(corpus, deep=True)
        if len(runs.at(corpus, one)) >= FEWEST
    ]
    rho = rank_correlation(groups)
    yield Claim(
        id=f"correlation-{corpus}",
        text=f"{NAMES[corpus]}: the higher SIM of the last values, the lower the training accuracy (ρ over all runs of "
        "five layers is below −0.5; settings with three seeds or more)",
        estimate=rho or Estimate(value=None, n=0, over="seeds"),
        bound=Bound.below(-0.5),
        ours=True,
    )


def _gentle(runs: Runs, corpus: str) -> Iterator[Claim]:
    """The same width, trained more gently."""
    for vectors in WIDE:
        paper, slow, warm = Setting(vectors), Setting(vectors, SLOW), Setting(vectors, warmup=WARM)
        for name, other, said in (
            ("gentle", slow, f"a step size of {SLOW:g}"),
            ("warm", warm, f"a warm-up of {WARM} steps"),
        ):
            if not runs.at(corpus, other):
                continue
            learning = runs.pairs(corpus, other, paper, "accuracy.train")
            levels = [runs.sim(corpus, one).mean() for one in (paper, other) if runs.at(corpus, one)]
            yield Claim(
                id=f"{name}-{vectors}-{corpus}",
                text=f"{NAMES[corpus]}, {vectors}, L = 5: {said} lowers SIM of the last values (by seed, from the "
                "paper's)",
                estimate=mean_of(runs.pairs(corpus, other, paper, "trained.value", -1)),
                bound=Bound.below(0),
                ours=True,
                note=" → ".join(f"{level:.2f}" for level in levels),
            )
            yield Claim(
                id=f"{name}-learns-{vectors}-{corpus}",
                text=f"{NAMES[corpus]}, {vectors}, L = 5: {said} raises training accuracy (by seed, from the paper's)",
                estimate=mean_of(learning),
                bound=Bound.above(0),
                ours=True,
            )


def _crossed(runs: Runs, corpus: str) -> Iterator[Claim]:
    """Width without failure, failure without width, width alone, and no training at all."""
    slow, fast, wide = Setting("random-300", SLOW), Setting("random-100", FAST), Setting("random-300")
    yield Claim(
        id=f"wider-{corpus}",
        text=f"{NAMES[corpus]}, L = 5: as the paper trains, random-300 has a higher SIM of the last values than "
        "random-100",
        estimate=_apart(runs, corpus, wide, NARROW),
        identified=False,
        bound=Bound.above(0),
        ours=True,
    )
    yield Claim(
        id=f"width-gently-{corpus}",
        text=f"{NAMES[corpus]}, L = 5: at a step size of {SLOW:g}, random-300 and random-100 have the same SIM of the "
        f"last values (difference within ±{NEAR})",
        estimate=_apart(runs, corpus, slow, Setting("random-100", SLOW)),
        identified=False,
        bound=Bound.within(-NEAR, NEAR),
        ours=True,
    )
    yield Claim(
        id=f"width-{corpus}",
        text=f"{NAMES[corpus]}, L = 5: random-300 at a step size of {SLOW:g} and random-100 at 0.001 have the same SIM "
        f"of the last values (difference within ±{NEAR})",
        estimate=_apart(runs, corpus, slow, NARROW),
        identified=False,
        bound=Bound.within(-NEAR, NEAR),
        ours=True,
    )
    yield Claim(
        id=f"fast-{corpus}",
        text=f"{NAMES[corpus]}, random-100, L = 5: a step size of {FAST:g} raises SIM of the last values (by seed, "
        "from 0.001)",
        estimate=mean_of(runs.pairs(corpus, fast, NARROW, "trained.value", -1)),
        bound=Bound.above(0),
        ours=True,
    )
    yield Claim(
        id=f"fast-learns-less-{corpus}",
        text=f"{NAMES[corpus]}, random-100, L = 5: a step size of {FAST:g} lowers training accuracy (by seed, from "
        "0.001)",
        estimate=mean_of(runs.pairs(corpus, fast, NARROW, "accuracy.train")),
        bound=Bound.below(0),
        ours=True,
    )
    yield Claim(
        id=f"padded-{corpus}",
        text=f"{NAMES[corpus]}, L = 5: zeros that make GloVe as wide as published raise SIM of the last values",
        estimate=_apart(runs, corpus, Setting("padded-300"), Setting("glove-100")),
        identified=False,
        bound=Bound.above(0),
        ours=True,
    )
    yield Claim(
        id=f"untrained-{corpus}",
        text=f"{NAMES[corpus]}, random-300, L = 5: before training SIM of the last values is below {HIGH}",
        estimate=mean_of(runs.sim(corpus, wide, when="untrained"), ends=COSINE),
        identified=False,
        bound=Bound.below(HIGH),
        ours=True,
    )


def _apart(runs: Runs, corpus: str, one: Setting, other: Setting) -> Estimate:
    """Models of other widths share no weights, whatever the seed."""
    first, second = runs.sim(corpus, one), runs.sim(corpus, other)
    return difference(first, second) if len(first) and len(second) else Estimate(value=None, n=0, over="seeds")
