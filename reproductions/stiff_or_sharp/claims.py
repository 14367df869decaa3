"""What we expected before the runs: bounds on differences between runs of one seed."""

from collections.abc import Iterator, Mapping
from typing import Any

from reproductions.fosse2023.grid import NAMES
from reproductions.frame.claims import Bound, Claim, Published
from reproductions.frame.finished import Finished
from reproductions.frame.page import published
from reproductions.frame.seeds import with_and_without
from reproductions.frame.statistics import mean_of
from reproductions.stiff_or_sharp.runs import Runs

ACTS = 0.1
"""Of H: less, and attention was not sharpened."""
NEAR = 0.03
"""Of AUPRC: less is nothing lost."""
BARELY = 0.02
"""Of accuracy: less is nothing lost."""
LEFT = 0.3
"""Of a rise in SIM: if less is left when the values are centred, the rise was mostly the free constant."""
FREE, HELD, FORCED = ("sharp", "plain"), ("sharp-held", "held"), ("sharp-held", "sharp")
STIFF, PLACEBO = ("stiff", "held"), ("held", "plain")


def claims(cells: Finished) -> Iterator[Claim]:
    runs, printed = Runs(cells), published("stiff_or_sharp")
    for corpus in runs.corpora:
        yield from _checks(runs, corpus)
        yield from _of_the_paper(runs, printed, corpus)
        yield from _ours(runs, corpus)
    for corpus in runs.gauge.corpora:
        yield from _gauge_fixed(runs.gauge, corpus)


def _gauge_fixed(runs: Runs, corpus: str) -> Iterator[Claim]:
    """What is left of SIM less the constant that is free: the mean of the keys, or values, over all test texts."""
    keys = runs.of(corpus, "plain", "key_centred")
    yield Claim(
        id=f"centred-keys-{corpus}",
        text=f"{NAMES[corpus]}: without a penalty, centred SIM of the keys is within ±{ACTS}",
        estimate=mean_of(keys),
        bound=Bound.within(-ACTS, ACTS),
        ours=True,
        note=f"as they are {runs.of(corpus, 'plain', 'key').mean():.2f}",
    )
    text = "the entropy penalty raises centred SIM of the values"
    yield _claim(runs, corpus, "centred-penalty", text, FREE, "value_centred", Bound.above(0))
    for id, arms, said in (("penalty", FREE, "the entropy penalty"), ("stiffening", STIFF, "stiffening")):
        (centred, learnt), (raw, _) = (runs.effect(corpus, arms, path) for path in ("value_centred", "value"))
        yield with_and_without(
            centred - LEFT * raw,
            learnt,
            id=f"gauge-{id}-{corpus}",
            text=f"{NAMES[corpus]}: of the rise in SIM of the values by {said}, less than {LEFT:.0%} is left when they "
            f"are centred (centred rise − {LEFT} · raw rise)",
            bound=Bound.below(0),
            published=None,
            note=f"rises of {raw.mean():.2f} and, centred, {centred.mean():.2f}",
        )


def _claim(
    runs: Runs,
    corpus: str,
    id: str,
    text: str,
    arms: tuple[str, str],
    path: str,
    bound: Bound,
    source: Published | None = None,
) -> Claim:
    values, learnt = runs.effect(corpus, arms, path)
    return with_and_without(
        values,
        learnt,
        id=f"{id}-{corpus}",
        text=f"{NAMES[corpus]}: {text}",
        bound=bound,
        published=source,
        note=f"{arms[0]} less {arms[1]}",
    )


def _checks(runs: Runs, corpus: str) -> Iterator[Claim]:
    """Whether each arm is what it is called."""
    sharp, same = Bound.below(-ACTS), Bound.within(-ACTS, ACTS)
    held, near = Bound.within(-0.05, 0.05), Bound.within(-NEAR, NEAR)
    for id, text, arms, path, bound in (
        ("sharpens", f"the entropy penalty lowers H by more than {ACTS}", FREE, "entropy", sharp),
        ("sharpens-held", f"… also with SIM of the values held (by more than {ACTS})", HELD, "entropy", sharp),
        ("stays", "SIM of the values is held under the entropy penalty (within ±0.05)", HELD, "value", held),
        ("stiffens", "stiffening raises SIM of the values by more than 0.15", STIFF, "value", Bound.above(0.15)),
        ("stays-sharp", f"… and leaves H as it is (within ±{ACTS})", STIFF, "entropy", same),
        ("placebo", f"holding SIM where it is leaves AUPRC as it is (within ±{NEAR})", PLACEBO, "auprc", near),
    ):
        yield _claim(runs, corpus, id, text, arms, path, bound)


def _of_the_paper(runs: Runs, printed: Mapping[str, Any], corpus: str) -> Iterator[Claim]:
    rise = printed["penalty"].get(corpus)
    yield _claim(
        runs,
        corpus,
        "penalty",
        "the entropy penalty raises SIM of the values",
        FREE,
        "value",
        Bound.above(0),
        Published("rises" if rise is None else rise, printed["penalty"]["source"]),
    )
    said = Published(printed["lost"]["value"], printed["lost"]["source"])
    text = "the entropy penalty lowers AUPRC of attention"
    yield _claim(runs, corpus, "lost", text, FREE, "auprc", Bound.below(0), said)


def _ours(runs: Runs, corpus: str) -> Iterator[Claim]:
    same, cheap = Bound.within(-NEAR, NEAR), Bound.above(-BARELY)
    fewer, more = Bound.below(0), Bound.above(0)
    for id, text, arms, path, bound in (
        ("needed", f"holding SIM costs sharp attention less than {BARELY} of accuracy", FORCED, "accuracy.test", cheap),
        ("sharpness-auprc", f"sharp attention, SIM held, changes AUPRC by less than {NEAR}", HELD, "auprc", same),
        ("stiffness-auprc", f"stiff values alone change AUPRC by less than {NEAR}", STIFF, "auprc", same),
        ("stiffness-accuracy", f"stiff values cost less than {BARELY} of accuracy", STIFF, "accuracy.test", cheap),
        ("stiffness-flips", "stiff values: uniform weights change fewer predictions", STIFF, "flipped.uniform", fewer),
        ("sharpness-flips", "sharp attention: uniform weights change more predictions", HELD, "flipped.uniform", more),
    ):
        yield _claim(runs, corpus, id, text, arms, path, bound)
