"""The questions of TP 9 answered in words, from the numbers."""

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import mean
from typing import Any

from reproductions.frame.estimates import Estimate, verdict_above
from reproductions.frame.record import Claim
from reproductions.tp9.diagnosis import gap, named, worse
from reproductions.tp9.grid import BLOCKS, Model, plain
from reproductions.tp9.missing import not_run
from reproductions.tp9.runs import Outcome
from reproductions.tp9.tables import accuracies, accuracy, best_model, main_models, position_name

_CHANCE = 0.55  # below this a model has learnt nothing on two balanced classes
_NOT_RUN = "not run"


def claims(outcome: Outcome, told: Any) -> list[Claim]:
    """Sentences that can be wrong; none about what was not run."""
    return [*_targets(outcome, told), *_exercises(outcome), *_depth(outcome)]


def _targets(outcome: Outcome, told: Any) -> Iterator[Claim]:
    wanted = {"residual, frozen vectors": plain("residual", "frozen"), "best model": best_model(outcome)}
    for name, model in wanted.items():
        if not outcome.complete(model):
            continue
        aim, found = told["targets"][name]["accuracy"], accuracy(outcome, model)
        which = f" ({named(outcome, model)})" if name == "best model" else ""
        why = "the aim is about the mean of these runs, not of all seeds"
        if found.interval is not None and found.interval[0] < aim <= found.mean:
            why += "; the interval of the latter reaches below the aim"
        if name == "best model":
            why += "; the model was chosen on validation reviews"
        yield Claim(
            text=f"{name}{which}: test accuracy, mean of {len(outcome.seeds)} seeds, at least {aim}",
            ours=found.mean,
            interval=found.interval,
            published=f"aim {aim}",
            verdict="holds" if found.mean >= aim else "does not hold",
            why=why,
        )


def _exercises(outcome: Outcome) -> Iterator[Claim]:
    for embeddings in outcome.size.embeddings:
        base, residual = plain("base", embeddings), plain("residual", embeddings)
        yield from _above(outcome, f"1, {embeddings} vectors: self-attention is better than the mean of the words",
                          base, plain("mean", embeddings))  # fmt: skip
        yield from _above(outcome, f"2, {embeddings} vectors: the residual model is better than the base model",
                          residual, base)  # fmt: skip
        for family, positions in product(BLOCKS, outcome.size.positions):
            model = Model(family, embeddings, positions, "mean", 3)
            if positions == "none" or model not in main_models(outcome):
                continue
            text = f"3, {embeddings} vectors, {family}: {position_name(model, outcome)} positions help"
            yield from _above(outcome, text, model, plain(family, embeddings))
        if "cls" in outcome.size.poolings:
            for family in BLOCKS:
                text = f"4, {embeddings} vectors, {family}: `<cls>` is better than the mean"
                first = Model(family, embeddings, "none", "cls", 3)
                yield from _above(outcome, text, first, plain(family, embeddings))


def _depth(outcome: Outcome) -> Iterator[Claim]:
    first, last = min(outcome.size.depths), max(outcome.size.depths)
    bare = {layers: Model("base", "frozen", layers=layers) for layers in (first, last)}
    deep = Model("residual", "frozen", layers=last)
    yield from _above(outcome, f"without residuals {last} layers are worse than {first}", bare[first], bare[last])
    yield from _above(outcome, f"at {last} layers the residual model is better than the base model", deep, bare[last])
    yield from _above(
        outcome, f"with residuals {last} layers are worse than {first}", Model("residual", "frozen", layers=first), deep
    )


def _above(outcome: Outcome, text: str, better: Model, worse: Model) -> Iterator[Claim]:
    if not outcome.enough(better, worse):
        return
    found = gap(outcome, better, worse)
    yield Claim(
        text=text,
        ours=found.mean,
        interval=found.interval,
        verdict=verdict_above(found),
        why=f"{accuracy(outcome, better)} against {accuracy(outcome, worse)}",
    )


def summary(outcome: Outcome, check: dict[str, float], norms: dict[str, float]) -> list[str]:
    """A paragraph for each question."""
    return [
        *not_run(outcome),
        _first(outcome),
        _second(outcome),
        _third(outcome, check, norms),
        _fourth(outcome),
        _about_depth(outcome),
        *worse(outcome),
        _overall(outcome),
    ]


def _compared(found: Estimate, better: str, worse: str) -> str:
    verdict = verdict_above(found)
    points = f"{abs(found.mean) * 100:.1f} points"
    if verdict == "cannot tell":
        return f"{better} and {worse} cannot be told apart ({'+' if found.mean >= 0 else '−'}{points})"
    return f"{better} is {'better' if verdict == 'holds' else 'worse'} than {worse} by {points}"


def _first(outcome: Outcome) -> str:
    parts = []
    for embeddings in outcome.size.embeddings:
        base, flat = plain("base", embeddings), plain("mean", embeddings)
        if outcome.enough(base, flat):
            said = _compared(gap(outcome, base, flat), "self-attention", "the mean of the words")
            both = f"{accuracy(outcome, base)} against {accuracy(outcome, flat)}"
            parts.append(f"with {embeddings} vectors {said}: {both}")
    title = "**Question 1: the base model, three layers, against TP 8's mean.**"
    return f"{title} On the test reviews, {'; '.join(parts) or _NOT_RUN}."


def _second(outcome: Outcome) -> str:
    parts = []
    for embeddings in outcome.size.embeddings:
        base, residual = plain("base", embeddings), plain("residual", embeddings)
        if outcome.enough(base, residual):
            said = _compared(gap(outcome, residual, base), "the residual model", "the base model")
            both = f"{accuracy(outcome, residual)} against {accuracy(outcome, base)}"
            parts.append(f"with {embeddings} vectors {said}: {both}")
    return f"**Question 2: residual connections at three layers.** {_capital('; '.join(parts) or _NOT_RUN)}."


def _third(outcome: Outcome, check: dict[str, float], norms: dict[str, float]) -> str:
    parts, every = [], []
    for embeddings, family in product(outcome.size.embeddings, BLOCKS):
        pairs = [
            (position_name(model, outcome), model, plain(family, embeddings))
            for model in (Model(family, embeddings, positions, "mean", 3) for positions in outcome.size.positions)
            if model.positions != "none" and model in main_models(outcome)
        ]
        every += pairs
        parts.append(f"{family}, {embeddings} vectors: {_points(outcome, pairs)}")
    return (
        "**Question 3: positions.** pe_i·pe_j depends on i − j alone: the largest departure from "
        f"Σ_k cos((i − j)/10000^(2k/d)) is {check['difference']:.1e}, from a Toeplitz matrix {check['toeplitz']:.1e}, "
        f"and the diagonal is d/2 = {check['diagonal']:g} everywhere. What positions add to the test accuracy, in "
        f"points (a star: within the noise of the seeds): {'; '.join(parts)}. {_decided(outcome, every)} "
        f"{_loudness(outcome, norms)} (The "
        "practical says that BERT uses relative positions; it uses learnt absolute ones.)"
    )


def _points(outcome: Outcome, pairs: Sequence[tuple[str, Model, Model]]) -> str:
    """Differences in points, those that were run."""
    said = []
    for name, first, second in pairs:
        if not outcome.enough(first, second):
            said.append(f"{name} {_NOT_RUN}")
            continue
        found = gap(outcome, first, second)
        points = f"{found.mean * 100:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0").replace("-", "−")
        said.append(f"{name} {points}{'*' if verdict_above(found) == 'cannot tell' else ''}")
    return ", ".join(said)


def _decided(outcome: Outcome, pairs: Sequence[tuple[str, Model, Model]]) -> str:
    """How many of these comparisons are more than noise."""
    verdicts = [
        verdict_above(gap(outcome, first, second)) for _, first, second in pairs if outcome.enough(first, second)
    ]
    up, down = verdicts.count("holds"), verdicts.count("does not hold")
    return f"Clear gains: {up} of {len(verdicts)} comparisons; clear losses: {down}."


def _loudness(outcome: Outcome, norms: dict[str, float]) -> str:
    """Sinusoidal positions against the words: how long their vectors are, and what a smaller factor does."""
    said = (
        f"The scale: a sinusoidal position has the norm {norms['position']:.2f} = √(d/2), the GloVe vectors of the "
        f"reviews' words have {norms['words']:.2f} on average (without the {norms['zero']:.0%} of tokens that have "
        f"none), so positions added as they are, are {norms['position'] / norms['words']:.1f} times as long as words."
    )
    cured = []
    for embeddings, family in product(outcome.size.embeddings, BLOCKS):
        none = plain(family, embeddings)
        loud, quiet = (Model(family, embeddings, positions, "mean", 3) for positions in ("sinusoidal", "scaled"))
        if not {loud, quiet} <= set(main_models(outcome)) or not outcome.enough(loud, quiet, none):
            continue
        lost = verdict_above(gap(outcome, loud, none)) == "does not hold"
        if lost and verdict_above(gap(outcome, quiet, none)) != "does not hold":
            factor = outcome.scales[family, embeddings]
            three = " → ".join(f"{accuracy(outcome, model).mean:.3f}" for model in (loud, quiet))
            length = f"× {factor:g}, norm {factor * norms['position']:.1f}"
            cured.append(
                f"{family}, {embeddings} vectors ({three} at {length}; none {accuracy(outcome, none).mean:.3f})"
            )
    if cured:
        said += f" With a smaller factor the loss is gone: {'; '.join(cured)}. So it is their scale that hurts there."
    return said


def _fourth(outcome: Outcome) -> str:
    title = "**Question 4: `<cls>` or mean?**"
    if "cls" not in outcome.size.poolings:
        return f"{title} Not run."
    parts, every = [], []
    for embeddings, family in product(outcome.size.embeddings, BLOCKS):
        pairs: list[tuple[str, Model, Model]] = []
        for positions in outcome.size.positions:
            first, second = (Model(family, embeddings, positions, pooling, 3) for pooling in ("cls", "mean"))
            if first in main_models(outcome):
                pairs.append((position_name(first, outcome), first, second))
        every += pairs
        nothing = not any(outcome.enough(first, second) for _, first, second in pairs)
        parts.append(f"{family}, {embeddings} vectors: {_NOT_RUN if nothing else _points(outcome, pairs)}")
    return (
        f"{title} Test accuracy from `<cls>` less that from the mean, in points, by kind of positions (a star: within "
        f"the noise of the seeds): {'; '.join(parts)}. {_decided(outcome, every)}"
    )


def _about_depth(outcome: Outcome) -> str:
    said, partial = [], False
    for family in BLOCKS:
        rows = {layers: outcome.of(Model(family, "frozen", layers=layers)) for layers in outcome.size.depths}
        partial |= any(len(results) < len(outcome.seeds) for results in rows.values())
        said.append(_depths(family, {layers: accuracies(results) for layers, results in rows.items() if results}))
    text = f"**Does depth hurt without residuals?** {' '.join(said)}"
    if partial:
        text += (
            " That is no answer yet: a single seed has no interval, and it is the depths that were not run which would "
            "show it. No claim is made."
        )
    return text


def _depths(family: str, values: dict[int, list[float]]) -> str:
    if not values:
        return f"{_capital(family)}: {_NOT_RUN}."
    each = ", ".join(f"{n} layer{'s' * (n > 1)} {mean(v):.3f} ({len(v)})" for n, v in values.items())
    text = f"{_capital(family)}, test accuracy and number of seeds: {each}; "
    dead = [f"{sum(v < _CHANCE for v in each)} of {len(each)} seeds at {n}" for n, each in values.items()
            if min(each) < _CHANCE]  # fmt: skip
    return text + (f"runs that learnt nothing: {', '.join(dead)}." if dead else "every run learnt something.")


def _overall(outcome: Outcome) -> str:
    best = best_model(outcome)
    text = (
        f"**All in all.** The best model by validation{_among(outcome)} is {named(outcome, best)}, at "
        f"{accuracy(outcome, best)} on the test reviews"
    )
    attending = [m for m in main_models(outcome) if m.family in BLOCKS and outcome.complete(m)]
    if best not in attending and attending:
        own = max(attending, key=lambda model: accuracy(outcome, model, "validation").mean)
        text += f"; the best with self-attention is {named(outcome, own)}, at {accuracy(outcome, own)}"
    if outcome.tfidf is not None:
        words = outcome.tfidf["metrics"]["test"]["accuracy"]
        most = max(accuracy(outcome, model).mean for model in main_models(outcome) if outcome.complete(model))
        place = "more than every model here" if words > most else "less than the best model here"
        text += (
            f". TF-IDF with logistic regression, which sees words and pairs of words and no order beyond, reaches "
            f"{words:.3f}, {place}"
        )
    return text + "."


def _among(outcome: Outcome) -> str:
    return "" if all(map(outcome.complete, main_models(outcome))) else ", of those that were run for every seed,"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
