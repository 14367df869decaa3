"""What we expected before the runs. Of one model, blocks of documents or texts are the sample; of all, the models are.

Known then, from cancellation_by_layer: that over pairs of tokens the mean ρ(α, ‖f(x)‖) within heads is near zero, and
how far the states move without a sink's value. Nothing was known of means over texts, nor of ρ over texts.

Zero is not a neutral value: a constant may stand in a head's values or in the output bias, and with it what "zero"
does. So each comparison is also made with the head's mean over all tokens in place of zero, which no constant changes.
"""

from collections.abc import Iterator
from math import log

from reproductions.frame.claims import Bound, Claim, Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.markdown import number
from reproductions.frame.statistics import mean_of
from reproductions.sink_as_bias.grid import USUAL
from reproductions.sink_as_bias.measure import NORMS
from reproductions.sink_as_bias.readings import BLOCKS, MODELS, Readings, level

FIFTH, QUARTER, HALF = log(1 / 5), log(1 / 4), log(1 / 2)
NEGLIGIBLE = 0.1
"""Correlations within ± .1 are hardly any (Cohen 1988)."""
CONSTANT, VARIED = 0.9, 0.5


def claims(cells: Finished) -> list[Claim]:
    r = Readings(cells)
    return [*_replaced(r), *_over_texts(r), *(claim for model in r.models for claim in _of_model(r, model))]


def _replaced(r: Readings) -> Iterator[Claim]:
    below, above = Bound.below, Bound.above
    yield _ours(
        "fifth",
        "sinks: the mean over other texts in place of the value moves the states less than a fifth as far as zero "
        "does: ln of the ratio < ln ⅕",
        r.over_models(r.ratio, "mean", "zero"),
        below(FIFTH),
    )
    yield _ours(
        "fifth-average",
        "sinks: and less than a fifth as far as the head's mean over all tokens does, which no free constant changes",
        r.over_models(r.ratio, "mean", "average"),
        below(FIFTH),
    )
    yield _ours(
        "word",
        "a middle word: the mean over other texts moves the states more than half as far as zero does: ln > ln ½",
        r.over_models(r.ratio, "mean", "zero", middle=True),
        above(HALF),
    )
    gaps = [level(r.ratio(m, "mean", "zero")) - level(r.ratio(m, "mean", "zero", middle=True)) for m in r.models]
    yield _ours(
        "sink-over-word",
        "sinks: that ln is lower than that of a middle word",
        mean_of(gaps, MODELS),
        below(0.0),
    )
    yield _ours(
        "swap",
        "sinks: the value from one other text moves the states less than a quarter as far as zero does: ln < ln ¼",
        r.over_models(r.ratio, "swap", "zero"),
        below(QUARTER),
    )
    if len(r.lengths) > 1:
        each = [r.over_models(r.ratio, "mean", "zero", length) for length in r.lengths]
        told = ", ".join(f"{n} tokens {number(one.value, 2)}" for n, one in zip(r.lengths, each, strict=True))
        every = [level([level(r.ratio(m, "mean", "zero", n)) for n in r.lengths]) for m in r.models]
        yield Claim(
            id="every-length",
            text="sinks: less than a fifth at every length (shown: mean over lengths)",
            estimate=mean_of(every, MODELS),
            also=each,
            bound=below(FIFTH),
            note=f"{told}.",
            ours=True,
        )


def _over_texts(r: Readings) -> Iterator[Claim]:
    inside = Bound.within(-NEGLIGIBLE, NEGLIGIBLE)
    yield _ours(
        "constant",
        f"sinks: what a head's sink sends (less the head's mean) is nearly the same vector in every text: "
        f"‖mean‖² / mean ‖·‖² > {CONSTANT}",
        r.over_models(r.of_sinks, "constancy"),
        Bound.above(CONSTANT),
    )
    yield _ours(
        "constant-word",
        f"a middle word: that share is below {VARIED}",
        r.over_models(r.of_sinks, "constancy", middle=True),
        Bound.below(VARIED),
    )
    for norm, said in zip(NORMS, ("‖f(x)‖", "‖f(x)‖ of centred values"), strict=True):
        yield _ours(
            "within-heads" if norm == "norm" else "within-heads-centred",
            f"sinks: within a head and over texts, mean weight and {said} hardly correlate: |mean ρ| < {NEGLIGIBLE}",
            r.over_models(r.of_sinks, "rho", norm=norm),
            inside,
        )
    excess = [r.of_sinks(m, "size", norm="norm") - r.of_sinks(m, "size_by_chance", norm="norm") for m in r.models]
    yield _ours(
        "either-sign",
        f"sinks: nor with either sign: mean |ρ| exceeds that of shuffled texts by less than {NEGLIGIBLE}",
        mean_of(excess, MODELS),
        Bound.below(NEGLIGIBLE),
    )


def _of_model(r: Readings, model: str) -> Iterator[Claim]:
    yield _ours(
        f"{model}-fifth",
        f"{model}, sinks: ln of the change with the mean over that with zero < ln ⅕",
        mean_of(r.ratio(model, "mean", "zero"), BLOCKS),
        Bound.below(FIFTH),
    )
    yield _ours(
        f"{model}-fifth-average",
        f"{model}, sinks: ln of the change with the mean over that with the head's mean of all tokens < ln ⅕",
        mean_of(r.ratio(model, "mean", "average"), BLOCKS),
        Bound.below(FIFTH),
    )
    yield _ours(
        f"{model}-within-heads",
        f"{model}, sinks: mean ρ within heads, over texts of {USUAL} tokens, within ± {NEGLIGIBLE}",
        r.rho(model, "norm"),
        Bound.within(-NEGLIGIBLE, NEGLIGIBLE),
    )
    gap = r.loss_gap(model)
    if gap is not None:
        yield _ours(
            f"{model}-loss",
            f"{model}: with the mean over other texts the loss rises by less than a fifth of its rise with zero",
            mean_of(gap, BLOCKS),
            Bound.below(0.0),
        )


def _ours(id: str, text: str, estimate: Estimate, bound: Bound) -> Claim:
    return Claim(id=id, text=text, estimate=estimate, bound=bound, ours=True)
