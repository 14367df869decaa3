"""What we expected before the runs. Of encoders, the models are the sample; of classifiers, the seeds.

Known then, of one layer (stiff_or_sharp): of the rise in SIM of the values that an entropy penalty brings on HateXplain
an eighth is left when they are centred, and centred SIM of the keys is below .1. Of MiniLM on the texts of the demo
(docs/gauge.md): mean SIM .25 for keys and .13 for values, .05 for both when centred. Nothing was known of the other
encoders, of layers, or of centred SIM in models of several layers.
"""

from collections.abc import Iterator

from reproductions.frame.claims import Bound, Claim, Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.seeds import with_and_without
from reproductions.frame.statistics import COSINE, mean_of
from reproductions.free_constant.grid import ARMS, CORPUS, FAST, PLAIN, SHARP
from reproductions.free_constant.readings import Readings, Trainings

LEFT, HALF, NEAR = 0.3, 0.5, 0.1
"""Less than 30 % left: mostly the constant. More than half: mostly not. Within ±.1: hardly any."""
SAID = {"value": "the values", "key": "the keys"}


def claims(cells: Finished) -> list[Claim]:
    encoders, trainings = Readings(cells), Trainings(cells)
    return [
        *(_encoders(encoders) if len(encoders.models) > 1 else ()),
        *(claim for model in encoders.models for claim in _of_model(encoders, model)),
        *(_classifiers(trainings) if all(trainings.seeds(arm) for arm in ARMS) else ()),
    ]


def _encoders(r: Readings) -> Iterator[Claim]:
    for vector, said in SAID.items():
        yield _ours(
            f"kept-{vector}s",
            f"encoders: of SIM of {said}, less than {LEFT:.0%} is left when they are centred (centred − {LEFT} · "
            "raw, mean over layers)",
            r.over_models(lambda m, v=vector: float((r.sim(m, v, "centred") - LEFT * r.sim(m, v, "raw")).mean())),
            Bound.below(0),
            f"raw {r.level(vector, 'raw'):.2f}, centred {r.level(vector, 'centred'):.2f}",
        )
    for vector, said in SAID.items():
        yield _ours(
            f"level-{vector}s",
            f"encoders: centred SIM of {said} is within ±{NEAR} (mean over layers)",
            r.over_models(lambda m, v=vector: float(r.sim(m, v, "centred").mean()), COSINE),
            Bound.within(-NEAR, NEAR),
        )
    for vector, said in SAID.items():
        yield _ours(
            f"rise-{vector}s",
            f"encoders: from the first layer to the last, centred SIM of {said} changes by less than {NEAR}",
            r.over_models(lambda m, v=vector: r.rise(m, v, "centred")),
            Bound.within(-NEAR, NEAR),
            f"raw {r.mean_rise(vector, 'raw'):+.2f}, centred {r.mean_rise(vector, 'centred'):+.2f}",
        )
    for vector, said in SAID.items():
        yield _ours(
            f"order-{vector}s",
            f"encoders: raw SIM of {said} hardly says which layers are most similar when centred (Spearman over layers "
            f"below {HALF})",
            r.over_models(lambda m, v=vector: r.order(m, v), COSINE),
            Bound.below(HALF),
        )
    if r.has_controls:
        for vector, said in SAID.items():
            yield _ours(
                f"learnt-{vector}s",
                f"encoders: centred SIM of {said} is higher than with random weights (mean over layers)",
                r.over_models(lambda m, v=vector: r.learnt(m, v)),
                Bound.above(0),
            )


def _of_model(r: Readings, model: str) -> Iterator[Claim]:
    for vector, said in SAID.items():
        raw, centred = (r.by_block(model, vector, kind) for kind in ("raw", "centred"))
        yield _ours(
            f"{model}-kept-{vector}s",
            f"{model}: of SIM of {said}, less than {LEFT:.0%} is left when they are centred",
            mean_of(centred - LEFT * raw, "blocks"),
            Bound.below(0),
            f"raw {raw.mean():.2f}, centred {centred.mean():.2f}",
        )


def _classifiers(t: Trainings) -> Iterator[Claim]:
    last = -1
    keys, learnt = t.values(lambda run: run["key_centred"][last], (PLAIN,))
    yield _both(
        "deep-level-keys",
        f"without a penalty, centred SIM of the keys of the last layer is within ±{NEAR}",
        keys,
        learnt,
        Bound.within(-NEAR, NEAR),
        ends=COSINE,
    )
    (raw, learnt), (centred, _) = (t.values(lambda run, n=n: run[n][last] - run[n][0], (PLAIN,)) for n in t.VALUES)
    yield _both(
        "deep-kept-rise",
        f"of the rise in SIM of the values from the first layer to the last, less than {LEFT:.0%} is left when they "
        f"are centred (centred rise − {LEFT} · raw rise)",
        centred - LEFT * raw,
        learnt,
        Bound.below(0),
        f"rises of {raw.mean():.2f} and, centred, {centred.mean():.2f}",
    )
    (raw, learnt), (centred, _) = (t.effect(SHARP, lambda run, n=n: sum(run[n]) / len(run[n])) for n in t.VALUES)
    yield _both(
        "deep-penalty",
        "the entropy penalty raises SIM of the values (mean over layers, from the same initial weights)",
        raw,
        learnt,
        Bound.above(0),
    )
    yield _both(
        "deep-penalty-kept",
        f"of that rise, less than {LEFT:.0%} is left when the values are centred (centred rise − {LEFT} · raw rise)",
        centred - LEFT * raw,
        learnt,
        Bound.below(0),
        f"rises of {raw.mean():.2f} and, centred, {centred.mean():.2f}",
    )
    (raw, learnt), (centred, _) = (t.effect(FAST, lambda run, n=n: run[n][last]) for n in t.VALUES)
    yield _both(
        "deep-fast",
        "three times the step size raises SIM of the values of the last layer (from the same initial weights)",
        raw,
        learnt,
        Bound.above(0),
    )
    yield _both(
        "deep-fast-kept",
        "of that rise, more than half is left when the values are centred (centred rise − half the raw rise)",
        centred - HALF * raw,
        learnt,
        Bound.above(0),
        f"rises of {raw.mean():.2f} and, centred, {centred.mean():.2f}",
    )
    level, learnt = t.values(lambda run: run["value_centred"][last], (FAST,))
    yield _both(
        "deep-fast-level",
        f"with three times the step size, centred SIM of the values of the last layer is above {HALF}",
        level,
        learnt,
        Bound.above(HALF),
        ends=COSINE,
    )


def _both(
    id: str,
    text: str,
    values: object,
    learnt: object,
    bound: Bound,
    note: str = "",
    ends: tuple[float, float] | None = None,
) -> Claim:
    name = {"hatexplain": "HateXplain"}[CORPUS]
    return with_and_without(
        values, learnt, id=id, text=f"{name}, five layers: {text}", bound=bound, note=note, published=None, ends=ends
    )


def _ours(id: str, text: str, estimate: Estimate, bound: Bound, note: str = "") -> Claim:
    return Claim(id=id, text=text, estimate=estimate, bound=bound, note=note, ours=True)
