"""What the pruning curves say about the claims of the paper."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from reproductions.frame.estimates import estimate, verdict_above
from reproductions.frame.record import Claim
from reproductions.voita2019.pruning_between import longer, scratch
from reproductions.voita2019.pruning_reading import (
    LONGER,
    NAMES,
    Interval,
    Outcome,
    Point,
    above,
    against_control,
    change,
    clarity,
    draws_of,
    over_heads,
    paired_scores,
    seed_means,
    survival,
    unfinished,
)

WITHIN = 1.0
"""BLEU that may be lost."""


def claims(outcome: Outcome, told: Any) -> Iterator[Claim]:
    for name in ("opus-encoder", "opus-all", "small-all"):
        yield from _two_thirds(outcome, told, name)
        yield from _chance(outcome, name)
        yield from _two_thirds(outcome, told, name + LONGER)
        yield from longer(outcome, name)
    for name in ("opus-all", "small-all"):
        yield from _kinds(outcome, told, name)
    yield from _roles(outcome)
    yield from scratch(outcome, told)
    yield from _transfer(outcome, told)
    yield from _classes(outcome)


def _two_thirds(outcome: Outcome, told: Any, name: str) -> Iterator[Claim]:
    points = outcome.curve(name)
    if not points or points[0].strength != 0:
        return
    chosen = outcome.chosen(name)
    text = f"{NAMES[name]}: with at most a third of the heads, at most {WITHIN:g} BLEU is lost"
    public = told["encoder"]["wmt"]["change"] if "encoder" in name else round(28.9 - 29.6, 2)
    if chosen is None:
        yield Claim(text=text, ours=None, published=public, verdict="cannot tell", why=_nearest(outcome, name))
        return
    found = change(chosen, points[0])
    low, high = found.interval
    verdict = "holds" if low > -WITHIN else "does not hold" if high < -WITHIN else "cannot tell"
    why = f"λ = {chosen.strength:g}, {chosen.left} heads ({chosen.share:.0%}), chosen on validation; BLEU "
    why += f"{points[0].bleu():.2f} → {chosen.bleu():.2f}"
    yield Claim(text=text, ours=found.value, interval=found.interval, published=public, verdict=verdict, why=why)


def _chance(outcome: Outcome, name: str) -> Iterator[Claim]:
    """Gates against one random choice at each λ, on the same sentences."""
    there = [point for point in outcome.gated(name) if point.control is not None]
    if not there:
        return
    gains = [against_control(point) for point in there]
    draws = np.mean([draws_of(point.result) - draws_of(point.result["control"]) for point in there], axis=0)
    low, high = (float(x) for x in np.quantile(draws, [0.025, 0.975]))
    each = ", ".join(f"{gain.value:+.2f} ({point.left})" for gain, point in zip(gains, there, strict=True))
    yield Claim(
        text=f"{NAMES[name]}: heads chosen by gates serve better than as many chosen at random",
        ours=float(np.mean([gain.value for gain in gains])),
        interval=(low, high),
        verdict=above((low, high)),
        why=f"BLEU by gates less at random, trained as long, mean over λ; by heads left: {each}. One random choice for "
        "each λ; interval over sentences",
    )


def _nearest(outcome: Outcome, name: str) -> str:
    points = outcome.gated(name)
    if not points:
        return "no λ was run"
    few = min(points, key=lambda point: point.left)
    found = change(few, outcome.curve(name)[0])
    low, high = found.interval
    return (
        f"no λ left so few heads; the sparsest has {few.left} ({few.share:.0%}), {found.value:+.2f} BLEU "
        f"[{low:+.2f}, {high:+.2f}]"
    )


def _kinds(outcome: Outcome, told: Any, name: str) -> Iterator[Claim]:
    """Which kind of attention keeps its heads, over all λ that removed some heads and not all."""
    points = [point for point in outcome.gated(name) if 0.05 < point.share < 0.95]
    if not points:
        return
    alive = {stack: survival(points, stack) for stack in ("encoder", "decoder", "cross")}
    flat = {stack: np.moveaxis(table, 0, -1).reshape(-1, len(points)) for stack, table in alive.items()}
    rows = told["pruning"]["wmt"]["heads"][1:]
    for stack, title, place in (("encoder", "encoder self", 0), ("decoder", "decoder self", 1)):
        found = over_heads(lambda cross, own: float(cross.mean() - own.mean()), flat["cross"], flat[stack])
        assert found is not None
        public = float(np.mean([(row[2] - row[place]) / 48 for row in rows]))
        yield _claim(
            f"{NAMES[name]}: decoder-encoder attention keeps a larger share of its heads than {title}-attention",
            found,
            f"mean over λ = {_listed(points)}; interval over heads",
            public,
        )
    layers = np.arange(1, alive["decoder"].shape[1] + 1)[:, None]
    found = over_heads(
        _apart, *(np.concatenate([_spread(layers, alive[s]), flat[s]], axis=1) for s in ("cross", "decoder"))
    )
    if found is not None:
        yield _claim(
            f"{NAMES[name]}: in the decoder, decoder-encoder heads stay in higher layers than self-attention heads",
            found,
            f"mean layer of the heads that stay, cross less self, λ = {_listed(points)}; interval over heads",
            None,
        )


def _listed(points: list[Point]) -> str:
    return ", ".join(f"{point.strength:g}" for point in points)


def _spread(layers: np.ndarray, table: np.ndarray) -> np.ndarray:
    return np.broadcast_to(layers, table.shape[1:]).reshape(-1, 1).astype(float)


def _apart(cross: np.ndarray, own: np.ndarray) -> float:
    """Mean layer of surviving heads, first less second; each row is (layer, whether it survives at each λ)."""
    middles = []
    for group in (cross, own):
        weight = group[:, 1:].sum(axis=1)
        middles.append(float((group[:, 0] * weight).sum() / weight.sum()) if weight.sum() else float("nan"))
    return middles[0] - middles[1]


def _roles(outcome: Outcome) -> Iterator[Claim]:
    places = {"opus-encoder": "opus-tuned", "opus-all": "opus-tuned", "small-all": "small-en-fr"}
    for name, source in places.items():
        points = outcome.gated(name)
        looked = outcome.found.get(source, {}).get("patterns")
        if not points or looked is None:
            continue
        alive = survival(points, "encoder").mean(axis=0).ravel()
        clear = clarity(looked).ravel()
        if np.ptp(alive) == 0 or np.ptp(clear) == 0:
            continue
        found = over_heads(lambda both: _rank(both), np.stack([clear, alive], axis=1))
        if found is not None:
            yield _claim(
                f"{NAMES[name]}: encoder heads with a clear role (neighbour, itself, rarest word) go last",
                found,
                "Spearman's ρ of the largest share of argmaxes in one role and the number of λ survived, λ = "
                f"{_listed(points)}; interval over heads. Syntactic roles are not in it",
                None,
            )


def _rank(both: np.ndarray) -> float:
    if (np.ptp(both, axis=0) == 0).any():
        return float("nan")
    return float(spearmanr(both[:, 0], both[:, 1]).statistic)


def _transfer(outcome: Outcome, told: Any) -> Iterator[Claim]:
    for donor, title in (("small", "marian-small"), ("opus", "opus-mt")):
        runs = {mode: outcome.found.get(f"transfer-{donor}-{mode}") for mode in ("scratch", "frozen", "tuned")}
        base = runs["scratch"]
        for mode in ("frozen", "tuned"):
            run = runs[mode]
            if base is None or run is None:
                continue
            found = paired_scores(run["scores"]["test"], base["scores"]["test"])
            late = unfinished(scratch=base, **{mode: run})
            yield Claim(
                text=f"the encoder of {title} English→French, {mode}, helps English→Czech over one from scratch, "
                "trained as long",
                ours=found.value,
                interval=found.interval,
                published=told["transfer"]["change"] if mode == "tuned" else None,
                verdict="cannot tell" if "scratch" in late else above(found.interval),
                why=f"BLEU {base['scores']['test']['bleu']:.2f} → {run['scores']['test']['bleu']:.2f}; published: "
                "other languages and data" + (f"; still learning at the end: {', '.join(late)}" if late else ""),
            )


def _classes(outcome: Outcome) -> Iterator[Claim]:
    for name, results in outcome.classifiers().items():
        for first, second in (("gates", "random"), ("importance", "random"), ("gates", "importance")):
            values = seed_means(results, first, second)
            if not values:
                continue
            found = estimate([100 * value for value in values])
            yield Claim(
                text=f"{name}: accuracy with heads kept by {first} is above that with as many by {second}",
                ours=found.mean,
                interval=found.interval,
                verdict=verdict_above(found),
                why="points of accuracy, mean over λ, trained as long (by gates: while they close); "
                f"{len(values)} seeds",
            )


def _claim(text: str, found: Interval, why: str, public: float | None) -> Claim:
    return Claim(
        text=text,
        ours=found.value,
        interval=found.interval,
        published=None if public is None else round(public, 3),
        verdict=above(found.interval),
        why=why,
    )
