"""The questions of TP 9 answered in words, from the numbers."""

from collections.abc import Iterator
from itertools import product
from statistics import mean
from typing import Any

from lorgnette.reproduce.estimates import Estimate, difference, verdict_above
from lorgnette.reproduce.record import Claim
from lorgnette.reproduce.tp9.grid import BLOCKS, Model, plain
from lorgnette.reproduce.tp9.runs import Outcome
from lorgnette.reproduce.tp9.tables import (
    NAMES,
    accuracies,
    accuracy,
    best_model,
    main_models,
    position_name,
    train_accuracy,
)

_CHANCE = 0.55  # below this a model has learnt nothing on two balanced classes
_CLEAR = 0.005  # half a point: what a reader would call a difference


def gap(outcome: Outcome, first: Model, second: Model) -> Estimate:
    return difference(accuracies(outcome.of(first)), accuracies(outcome.of(second)))


def claims(outcome: Outcome, told: Any) -> list[Claim]:
    """Sentences that can be wrong."""
    return [*_targets(outcome, told), *_exercises(outcome), *_depth(outcome)]


def _targets(outcome: Outcome, told: Any) -> Iterator[Claim]:
    wanted = {"residual, frozen vectors": plain("residual", "frozen"), "best model": best_model(outcome)}
    for name, model in wanted.items():
        aim, found = told["targets"][name]["accuracy"], accuracy(outcome, model)
        yield Claim(
            text=f"{name}{_which(outcome, model) if name == 'best model' else ''}: test accuracy at least {aim}",
            ours=found.mean,
            interval=found.interval,
            published=f"aim {aim}",
            verdict="holds" if found.mean >= aim else "does not hold",
            why="mean over seeds; the model was chosen on validation reviews"
            if name == "best model"
            else "mean over seeds",
        )


def _exercises(outcome: Outcome) -> Iterator[Claim]:
    for embeddings in outcome.size.embeddings:
        base, residual = plain("base", embeddings), plain("residual", embeddings)
        yield _above(outcome, f"1, {embeddings} vectors: self-attention is better than the mean of the words", base,
                     plain("mean", embeddings))  # fmt: skip
        yield _above(outcome, f"2, {embeddings} vectors: the residual model is better than the base model", residual,
                     base)  # fmt: skip
        for family, positions in product(BLOCKS, outcome.size.positions):
            model = Model(family, embeddings, positions, "mean", 3)
            if positions == "none" or model not in main_models(outcome):
                continue
            text = f"3, {embeddings} vectors, {family}: {position_name(model, outcome)} positions help"
            yield _above(outcome, text, model, plain(family, embeddings))
        if "cls" in outcome.size.poolings:
            for family in BLOCKS:
                text = f"4, {embeddings} vectors, {family}: <cls> is better than the mean"
                yield _above(outcome, text, Model(family, embeddings, "none", "cls", 3), plain(family, embeddings))


def _depth(outcome: Outcome) -> Iterator[Claim]:
    first, last = min(outcome.size.depths), max(outcome.size.depths)
    bare = {layers: Model("base", "frozen", layers=layers) for layers in (first, last)}
    deep = Model("residual", "frozen", layers=last)
    yield _above(outcome, f"without residuals {last} layers are worse than {first}", bare[first], bare[last])
    yield _above(outcome, f"at {last} layers the residual model is better than the base model", deep, bare[last])
    yield _above(
        outcome, f"with residuals {last} layers are worse than {first}", Model("residual", "frozen", layers=first), deep
    )


def _above(outcome: Outcome, text: str, better: Model, worse: Model) -> Claim:
    found = gap(outcome, better, worse)
    return Claim(
        text=text,
        ours=found.mean,
        interval=found.interval,
        verdict=verdict_above(found),
        why=f"{accuracy(outcome, better)} against {accuracy(outcome, worse)}",
    )


def _which(outcome: Outcome, model: Model) -> str:
    inside = "" if model.layers is None else f", {position_name(model, outcome)} positions, {model.pooling}"
    return f" ({NAMES[model.family].split(':')[0]}{inside}, {model.embeddings} vectors)"


def summary(outcome: Outcome, check: dict[str, float], norms: dict[str, float]) -> list[str]:
    """A paragraph for each question."""
    return [
        _first(outcome),
        _second(outcome),
        _third(outcome, check, norms),
        _fourth(outcome),
        _about_depth(outcome),
        *_worse(outcome),
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
        said = _compared(gap(outcome, base, flat), "self-attention", "the mean of the words")
        parts.append(f"with {embeddings} vectors {said}: {accuracy(outcome, base)} against {accuracy(outcome, flat)}")
    return (
        f"**Question 1: the base model, three layers, against TP 8's mean.** On the test reviews, {'; '.join(parts)}."
    )


def _second(outcome: Outcome) -> str:
    parts = []
    for embeddings in outcome.size.embeddings:
        base, residual = plain("base", embeddings), plain("residual", embeddings)
        said = _compared(gap(outcome, residual, base), "the residual model", "the base model")
        parts.append(f"with {embeddings} vectors {said} ({accuracy(outcome, residual)})")
    return f"**Question 2: residual connections at three layers.** {_capital('; '.join(parts))}."


def _third(outcome: Outcome, check: dict[str, float], norms: dict[str, float]) -> str:
    parts = []
    for embeddings, family in product(outcome.size.embeddings, BLOCKS):
        gaps = []
        for positions in outcome.size.positions:
            model = Model(family, embeddings, positions, "mean", 3)
            if positions != "none" and model in main_models(outcome):
                found = gap(outcome, model, plain(family, embeddings))
                mark = "" if verdict_above(found) != "cannot tell" else ", within the noise"
                gaps.append(f"{position_name(model, outcome)} {found.mean * 100:+.1f}{mark}")
        parts.append(f"{family}, {embeddings} vectors: {', '.join(gaps)}")
    scale = (
        f"A sinusoidal position has the norm {norms['position']:.2f} = √(d/2), the words of the reviews have vectors "
        f"of norm {norms['words']:.2f} on average ({norms['zero']:.0%} of the tokens have none at all): added as they "
        "are, positions are as loud as words."
    )
    return (
        "**Question 3: positions.** pe_i·pe_j depends on i − j alone: the largest departure from "
        f"Σ_k cos((i − j)/10000^(2k/d)) is {check['difference']:.1e}, from a Toeplitz matrix {check['toeplitz']:.1e}, "
        f"and the diagonal is d/2 = {check['diagonal']:g} everywhere. What positions add to the test accuracy, in "
        f"points: {'; '.join(parts)}. {scale} (The practical says that BERT uses relative positions; it uses learnt "
        "absolute ones.)"
    )


def _fourth(outcome: Outcome) -> str:
    if "cls" not in outcome.size.poolings:
        return "**Question 4: `<cls>` or mean?** Not run."
    parts = []
    for embeddings, family in product(outcome.size.embeddings, BLOCKS):
        gaps = []
        for positions in outcome.size.positions:
            first, second = (Model(family, embeddings, positions, pooling, 3) for pooling in ("cls", "mean"))
            if first in main_models(outcome) and second in main_models(outcome):
                gaps.append(f"{position_name(first, outcome)} {gap(outcome, first, second).mean * 100:+.1f}")
        parts.append(f"{family}, {embeddings} vectors: {', '.join(gaps)}")
    said = "**Question 4: `<cls>` or mean?** Test accuracy from `<cls>` less that from the mean, in points:"
    return f"{said} {'; '.join(parts)}."


def _about_depth(outcome: Outcome) -> str:
    said = []
    for family in BLOCKS:
        values = {
            layers: accuracies(outcome.of(Model(family, "frozen", layers=layers))) for layers in outcome.size.depths
        }
        best = max(values, key=lambda layers: mean(values[layers]))
        lost = [layers for layers, each in values.items() if min(each) < _CHANCE]
        text = (
            f"{family}: best at {best} ({mean(values[best]):.3f}), {max(values)} layers {mean(values[max(values)]):.3f}"
        )
        if lost:
            dead = ", ".join(f"{sum(v < _CHANCE for v in values[n])} of {len(values[n])} seeds at {n}" for n in lost)
            text += f"; runs that learnt nothing: {dead}"
        else:
            text += "; every run learnt something"
        said.append(text)
    return f"**Does depth hurt without residuals?** {'. '.join(map(_capital, said))}."


def _worse(outcome: Outcome) -> list[str]:
    """Where a richer model is worse than a simpler one: what the numbers say about why."""
    found = []
    for model in main_models(outcome):
        simple = _simpler(model)
        if simple is None:
            continue
        step = gap(outcome, model, simple)
        if verdict_above(step) != "does not hold" or step.mean > -_CLEAR:
            continue
        learnt = train_accuracy(outcome, model) - train_accuracy(outcome, simple)
        if learnt > _CLEAR:
            why = f"it fits the training reviews better ({learnt * 100:+.1f} points), so it is over-fitted"
        elif learnt < -_CLEAR:
            why = f"it fits even the training reviews worse ({learnt * 100:+.1f} points), so it is harder to train"
        else:
            why = "it fits the training reviews equally well"
        names = [_which(outcome, one).strip(" ()") for one in (model, simple)]
        found.append(f"{_capital(names[0])}: {step.mean * 100:+.1f} points against {names[1]}; {why}.")
    if not found:
        return ["**Richer and worse?** No model is clearly worse than the simpler one that it extends."]
    return ["**Richer and worse.** " + " ".join(found)]


def _simpler(model: Model) -> Model | None:
    """The model that this one adds one thing to."""
    if model.family not in BLOCKS:
        return None if model.family == "mean" else plain("mean", model.embeddings)
    if model.pooling == "cls":
        return Model(model.family, model.embeddings, model.positions, "mean", 3)
    if model.positions != "none":
        return plain(model.family, model.embeddings)
    return plain("base" if model.family == "residual" else "mean", model.embeddings)


def _overall(outcome: Outcome) -> str:
    best, words = best_model(outcome), outcome.tfidf["metrics"]["test"]["accuracy"]
    return (
        f"**All in all.** The best model by validation is {_which(outcome, best).strip(' ()')}, at "
        f"{accuracy(outcome, best)} on the test reviews; TF-IDF with logistic regression, which sees words and "
        f"pairs of words and no order beyond, reaches {words:.3f}."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
