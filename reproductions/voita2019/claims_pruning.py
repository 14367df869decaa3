"""What the pruning curves say about the claims of the paper."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from lorgnette.statistics.rank_agreement import correlations, ranked
from reproductions.frame.claims import Bound, Claim, Estimate, Published
from reproductions.frame.finished import Finished, MissingCell
from reproductions.frame.markdown import estimate as said
from reproductions.frame.page import published
from reproductions.frame.statistics import bootstrap, mean_of, percentile
from reproductions.voita2019.grid import MODES
from reproductions.voita2019.heads import rank_correlation, ranks_in_layers
from reproductions.voita2019.pruning import (
    CURVES,
    DATA,
    LONGER,
    PATTERNS_OF,
    SURE,
    TEST,
    Curve,
    Point,
    clarity,
    classifiers,
    data_of,
    less,
    listed,
    of_the_paper,
    other,
    patterns,
    seed_means,
    survival,
    unfinished,
)

WITHIN = 1.0
"""BLEU that may be lost."""
OPEN_GATES = 0.05
"""Share of gates that may be unfinished."""
AGGRESSIVE = 1.5
"""BLEU that is lost at most, say the slides, when the encoder is pruned very aggressively."""
DONORS = {"small": "marian-small", "opus": "opus-mt"}
WAYS = (("gates", "random"), ("importance", "random"), ("gates", "importance"))
_LAST = Published("positional, rare and syntactic heads go last", "section 6.3.2, figure 8")
Maker = Callable[[], Claim]


def makers(cells: Finished) -> Iterator[Maker]:
    """One function for each claim; it raises `MissingCell` where its cells were not run."""
    for name in ("opus-encoder", "opus-all", "small-all", *_own("encoder"), *_own("all")):
        yield partial(_third, cells, name)
        if name.startswith("opus"):
            yield partial(_chance, cells, name)
            yield partial(_third, cells, name + LONGER)
            yield partial(_longer, cells, name)
    yield from (partial(_converged, cells, name) for name in CURVES)
    yield from (partial(_sparse, cells, "opus-encoder", place) for place in (-2, -3))
    yield from (partial(_empty, cells, name) for name in ("opus-encoder", "opus-all", "small-all"))
    for name in ("opus-all", "small-all", *_own("all")):
        yield from (partial(_kinds, cells, name, stack) for stack in ("encoder", "decoder"))
        yield partial(_higher, cells, name)
    yield from (partial(_roles_last, cells, name) for name in PATTERNS_OF)
    yield from (partial(_roles_last_in_layers, cells, name) for name in PATTERNS_OF)
    yield from (partial(_roles_over_confidence, cells, name) for name in PATTERNS_OF)
    yield from (partial(_trained_over_scratch, cells, name) for name in ("small-all", *_own("all")))
    yield from (partial(_transfer, cells, donor, mode) for donor in DONORS for mode in MODES[1:])
    for model, corpus in classifiers(cells):
        yield from (partial(_classes, cells, model, corpus, *ways) for ways in WAYS)


def _own(what: str) -> list[str]:
    """The curves of the paper's own models."""
    return [f"{data}-{what}" for data in DATA]


def _printed() -> Any:
    return published("voita2019")


def _third(cells: Finished, name: str) -> Claim:
    curve, data = Curve.of(cells, name), data_of(name)
    table, alone = _printed()["pruning"][data], _printed()["encoder"][data]
    public = Published(alone["change"], f"figure 7, {DATA[data]}, {alone['heads']} of 48 heads")
    if "encoder" not in name:
        change = round(table["trained"][-1] - table["trained"][0], 2)
        public = Published(change, f"table 2, {DATA[data]}, {sum(table['heads'][-1])} of 144 heads")
    chosen = curve.best_with()
    if chosen is not None:
        estimate = chosen.minus(curve.whole)
        note = f"λ = {chosen.label}, {chosen.left} heads ({chosen.share:.0%}), chosen on validation; BLEU "
        note += f"{curve.whole.bleu():.2f} → {chosen.bleu():.2f}"
    else:
        estimate, note = Estimate(value=None), _sparsest(curve)
    return Claim(
        id=f"third-{name}",
        text=f"{curve.title}: with at most a third of the heads, at most {WITHIN:g} BLEU is lost",
        estimate=estimate,
        bound=Bound.above(-WITHIN),
        published=public,
        undecided=_short(curve, name),
        note=note,
    )


def _converged(cells: Finished, name: str) -> Claim:
    curve = Curve.of(cells, name)
    points = [point for point in curve.gated if point.unfinished is not None]
    if not points:
        raise MissingCell(f"{name} with gates")
    share = sum(point.unfinished or 0 for point in points) / sum(point.gates for point in points)
    return Claim(
        id=f"converged-{name}",
        text=f"{curve.title}: gates converge to 0 or 1: fewer than {OPEN_GATES:.0%} have neither with a probability "
        f"above {SURE}",
        estimate=Estimate(value=share, low=share, high=share, over="gates", method="counted"),
        bound=Bound.below(OPEN_GATES),
        published=Published("the model converges to solutions where gates are either 1 or 0", "slides"),
        note="unfinished by λ: "
        + ", ".join(f"{point.label}: {point.unfinished} of {point.gates}" for point in points)
        + "; bound added when the numbers were known",
    )


def _empty(cells: Finished, name: str) -> Claim:
    """The most aggressive pruning of all."""
    curve = Curve.of(cells, name)
    empty = next((point for point in curve.points if point.strength is None), None)
    if empty is None:
        raise MissingCell(f"{name} without encoder heads")
    return Claim(
        id=f"empty-{name}",
        text=f"{curve.title}: without any encoder head, at most {AGGRESSIVE:g} BLEU is lost",
        estimate=empty.minus(curve.whole),
        bound=Bound.above(-AGGRESSIVE),
        published=Published(
            -AGGRESSIVE, "slides on figure 7 (“at most 1.5”), which do not say how many heads were left"
        ),
        undecided=f"one run of {int(empty.cell['fitted']['steps']):,} steps without the heads, on other data",
        note=f"BLEU {curve.whole.bleu():.2f} → {empty.bleu():.2f}; bound added when our numbers were known",
    )


def _sparse(cells: Finished, name: str, place: int) -> Claim:
    """Few heads in the encoder: the sparsest λ but one, or but two; the sparsest leaves a single head."""
    curve = Curve.of(cells, name)
    points = sorted(curve.gated, key=lambda point: -point.left)
    if len(points) < -place:
        raise MissingCell(f"{name} with few heads")
    point = points[place]
    whole = point.alive.sel(stack=list(point.pruned)).size
    return Claim(
        id=f"sparse-{name}-{point.left}",
        text=f"{curve.title}: with {point.left} of {whole} heads, at most {AGGRESSIVE:g} BLEU is lost",
        estimate=point.minus(curve.whole),
        bound=Bound.above(-AGGRESSIVE),
        published=Published(-AGGRESSIVE, "slides on figure 7, which do not say how many heads were left"),
        undecided=_short(curve, name),
        note=f"λ = {point.label}; BLEU {curve.whole.bleu():.2f} → {point.bleu():.2f}; bound added when the numbers "
        "were known",
    )


def _short(curve: Curve, name: str) -> str:
    """Why a loss after little training says nothing of the method: more of it loses less (`longer-…`)."""
    if name.endswith(LONGER) or of_the_paper(name) or not curve.gated:
        return ""
    steps = int(curve.gated[-1].cell["fitted"]["steps"])
    return f"one run of {steps:,} steps with gates, and more steps lose less"


def _sparsest(curve: Curve) -> str:
    few = min(curve.gated, key=lambda point: point.left, default=None)
    if few is None:
        return "no λ was run"
    return f"no λ left so few heads; the sparsest has {few.left} ({few.share:.0%}), {said(few.minus(curve.whole))} BLEU"


def _chance(cells: Finished, name: str) -> Claim:
    """What varies is which heads were drawn: one draw for each λ, so that the λ are the sample, not sentences."""
    curve = Curve.of(cells, name)
    pairs = _controlled(curve)
    gains = [point.bleu() - control.bleu() for point, control in pairs]
    each = ", ".join(f"{gain:+.2f} ({point.left})" for gain, (point, _) in zip(gains, pairs, strict=True))
    return Claim(
        id=f"chance-{name}",
        text=f"{curve.title}: heads chosen by gates are better than as many random ones",
        estimate=mean_of(gains, "random choices, one for each λ"),
        bound=Bound.above(0),
        note=f"BLEU by gates minus random, trained as long; by heads left: {each}. λ differ in how many heads remain, "
        "which widens the interval",
        ours=True,
    )


def _controlled(curve: Curve) -> list[tuple[Point, Point]]:
    """Points with their random controls."""
    pairs = [(point, point.control) for point in curve.gated if point.control is not None]
    if not pairs:
        raise MissingCell(f"random heads of {curve.name}")
    return pairs


def _longer(cells: Finished, name: str) -> Claim:
    """What more epochs with gates do to the loss, each curve against its own model without gates."""
    usual, longer = Curve.of(cells, name), Curve.of(cells, name + LONGER)
    points = [point for point in longer.gated if usual.reaches(point)]
    values, draws = [], []
    for point in points:
        value, drawn = usual.at(point.left)
        values.append(point.bleu() - longer.whole.bleu() - (value - usual.whole.bleu()))
        draws.append(point.draws - longer.whole.draws - (drawn - usual.whole.draws))
    return Claim(
        id=f"longer-{name}",
        text=f"{usual.title}: at the same number of heads, less is lost if gates and weights are trained longer",
        estimate=_between(values, draws),
        bound=Bound.above(0),
        note=f"BLEU, mean over {_counts(points)} heads, against the line between the two nearest points of the shorter "
        "training; one run each",
        ours=True,
    )


def _trained_over_scratch(cells: Finished, name: str) -> Claim:
    """Where the trained curve reaches the number of heads of a run from scratch: the line between its neighbours."""
    trained, data = Curve.of(cells, name), data_of(name)
    points = [point for point in Curve.of(cells, other(name)).gated if trained.reaches(point)]
    at = [trained.at(point.left) for point in points]
    values = [value - point.bleu() for (value, _), point in zip(at, points, strict=True)]
    draws = [drawn - point.draws for (_, drawn), point in zip(at, points, strict=True)]
    estimate = _between(values, draws)
    steps = [int(some[-1].cell["fitted"]["steps"]) for some in (trained.gated, points)]
    table = _printed()["pruning"][data]
    gaps = [a - b for a, b in zip(table["trained"][1:], table["scratch"][1:], strict=True)]
    return Claim(
        id="trained-over-scratch" + (f"-{data}" if of_the_paper(name) else ""),
        text=f"{trained.title.split(', ')[0]}: at the same number of heads, pruning a trained model is better than "
        "training with gates",
        estimate=estimate,
        bound=Bound.above(0),
        published=Published(round(float(np.mean(gaps)), 2), f"table 2, {DATA[data]}, mean"),
        undecided=""
        if steps[0] >= steps[1]
        else f"on unequal terms: {steps[0]:,} steps with gates on the trained model, {steps[1]:,} from scratch",
        note=f"BLEU, trained (between its two nearest points) minus scratch, mean over {_counts(points)} heads; "
        "one run each",
    )


def _between(values: Sequence[float], draws: Sequence[np.ndarray]) -> Estimate:
    if not values:
        raise MissingCell("two curves that reach the same number of heads")
    return percentile(float(np.mean(values)), np.mean(draws, axis=0), over="sentences")


def _counts(points: Sequence[Point]) -> str:
    return ", ".join(str(point.left) for point in points)


def _kinds(cells: Finished, name: str, stack: str) -> Claim:
    """Which kind of attention keeps its heads, over all λ that removed some heads and not all."""
    curve = Curve.of(cells, name)
    points = _some(curve)
    alive = survival(points)
    cross, own = (alive.sel(stack=one).stack(each=("layer", "head")).T.values for one in ("cross", stack))
    estimate = bootstrap(lambda a, b: float(a.mean() - b.mean()), cross, own, over="heads")
    assert estimate is not None
    data = data_of(name)
    rows, place = _printed()["pruning"][data]["heads"][1:], ("encoder", "decoder").index(stack)
    public = float(np.mean([(row[2] - row[place]) / 48 for row in rows]))
    return Claim(
        id=f"cross-over-{stack}-{name}",
        text=f"{curve.title}: decoder-encoder attention keeps a larger share of its heads than {stack} self-attention",
        estimate=estimate,
        bound=Bound.above(0),
        published=Published(round(public, 3), f"table 2, {DATA[data]}, mean"),
        note=f"mean over λ = {listed(points)}",
    )


def _higher(cells: Finished, name: str) -> Claim:
    curve = Curve.of(cells, name)
    points = _some(curve)
    alive = survival(points).sum("point")
    layer = np.broadcast_to(np.arange(1, alive.sizes["layer"] + 1)[:, None], alive.shape[1:])
    groups = [np.stack([layer.ravel(), alive.sel(stack=one).values.ravel()], axis=1) for one in ("cross", "decoder")]
    estimate = bootstrap(lambda a, b: _mean_layer(a) - _mean_layer(b), *groups, over="heads")
    return Claim(
        id=f"cross-higher-{name}",
        text=f"{curve.title}: in the decoder, decoder-encoder heads remain in higher layers than self-attention heads",
        estimate=estimate or Estimate(value=None, over="heads"),
        bound=Bound.above(0),
        published=Published("lower self, upper cross", "figure 10"),
        note=f"mean layer of the remaining heads, cross minus self, λ = {listed(points)}",
    )


def _some(curve: Curve) -> list[Point]:
    if not curve.some_left:
        raise MissingCell(f"a λ of {curve.name} that removes some heads")
    return curve.some_left


def _mean_layer(heads: np.ndarray) -> float:
    """Each row is (layer, number of λ that it survives)."""
    layer, survived = heads.T
    return float((layer * survived).sum() / survived.sum()) if survived.sum() else float("nan")


def _roles_last(cells: Finished, name: str) -> Claim:
    curve, clear, survived = _roles_and_survival(cells, name)
    both = np.stack([clear.ravel(), survived.ravel()], axis=1)
    return Claim(
        id=f"roles-last-{name}",
        text=f"{curve.title}: encoder heads with a clear role (neighbour, rarest word) are pruned last",
        estimate=bootstrap(_rank, both, over="heads") or Estimate(value=None, over="heads"),
        bound=Bound.above(0),
        published=_LAST,
        undecided="layers differ in how many heads they keep: judged within layers",
        note="Spearman's ρ of the largest share of argmaxes in one role and the number of λ survived, λ = "
        f"{listed(curve.gated)}. Syntactic roles are not in it",
    )


def _roles_last_in_layers(cells: Finished, name: str) -> Claim:
    curve, clear, survived = _roles_and_survival(cells, name)
    return Claim(
        id=f"roles-last-in-layers-{name}",
        text=f"{curve.title}: within their layer, encoder heads with a clear role are pruned last",
        estimate=rank_correlation(clear, survived),
        bound=Bound.above(0),
        published=_LAST,
        note="the same with ranks within layers, so that it does not count that some layers keep more heads",
    )


def _roles_over_confidence(cells: Finished, name: str) -> Claim:
    """Confident heads go last too: the role must say more than that, on the same heads."""
    curve, clear, survived = _roles_and_survival(cells, name)
    confident = patterns(cells, name)["confidence"].values
    estimate = bootstrap(_says_more, ranks_in_layers(clear, confident, survived).T, over="heads")
    return Claim(
        id=f"roles-over-confidence-{name}",
        text=f"{curve.title}: within their layer, a clear role says better than confidence which heads are pruned last",
        estimate=estimate or Estimate(value=None, over="heads"),
        bound=Bound.above(0),
        note="difference of both ρ within layers, the same heads in every draw",
        ours=True,
    )


def _says_more(ranks: np.ndarray) -> float:
    """ρ of the first and the last column less that of the second and the last [head column]."""
    rho = correlations(ranked(ranks.T))
    return float(rho[0, 2] - rho[1, 2])


def _roles_and_survival(cells: Finished, name: str) -> tuple[Curve, np.ndarray, np.ndarray]:
    """How clear the role of each encoder head is, and how many λ it survives [layer head]."""
    curve = Curve.of(cells, name)
    if not curve.gated:
        raise MissingCell(f"λ of {name}")
    survived = survival(curve.gated).sel(stack="encoder").mean("point").values
    return curve, clarity(patterns(cells, name)).values, survived


def _rank(both: np.ndarray) -> float:
    """Spearman's ρ of two columns."""
    return float(correlations(ranked(both.T))[0, 1])


def _transfer(cells: Finished, donor: str, mode: str) -> Claim:
    base, run = (cells.one(kind="transfer", donor=donor, mode=one) for one in ("scratch", mode))
    late = unfinished(scratch=base, **{mode: run})
    one, other = run["scores"][TEST], base["scores"][TEST]
    return Claim(
        id=f"transfer-{donor}-{mode}",
        text=f"the encoder of {DONORS[donor]} English→French, {mode}, helps English→Czech over one from scratch, "
        "trained as long",
        estimate=less(one, other),
        bound=Bound.above(0),
        published=Published(_printed()["transfer"]["change"], "Raganato & Tiedemann 2018") if mode == "tuned" else None,
        undecided=f"still learning at the end: {', '.join(late)}" if "scratch" in late else "",
        note=f"BLEU {other['bleu']:.2f} → {one['bleu']:.2f}; published: other languages and data"
        + (f"; still learning at the end: {', '.join(late)}" if late and "scratch" not in late else ""),
        ours=mode != "tuned",
    )


def _classes(cells: Finished, model: str, corpus: str, first: str, second: str) -> Claim:
    values = seed_means(classifiers(cells)[model, corpus], first, second)
    if not values:
        raise MissingCell(f"pruned points of {model}, {corpus}")
    return Claim(
        id=f"classes-{model}-{corpus}-{first}-{second}",
        text=f"{model}, {corpus}: accuracy with heads kept by {first} is above that with as many by {second}",
        estimate=mean_of([100 * value for value in values]),
        bound=Bound.above(0),
        note="points of accuracy, mean over λ, trained as long (by gates: while they close)",
        ours=True,
    )
