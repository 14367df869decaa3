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


_LATER = "added when the numbers were known: of the comparison with zero, the bound was fixed before"


def _replaced(r: Readings) -> Iterator[Claim]:
    """Each against the head's mean over all tokens, and against zero, which a free constant moves."""
    for to, end, said in (("average", "-average", "the head's mean over all tokens"), ("zero", "", "zero")):
        fixed = to == "average"
        about = {"identified": fixed, "note": _LATER if fixed else ""}
        yield _ours(
            f"fifth{end}",
            "sinks: the mean over other texts in place of the value moves the states less than a fifth as far as "
            f"{said} does: ln of the ratio < ln ⅕",
            r.over_models(r.ratio, "mean", to),
            Bound.below(FIFTH),
            identified=fixed,
        )
        yield _ours(
            f"word{end}",
            f"a middle word: the mean over other texts moves the states more than half as far as {said} does: "
            "ln > ln ½",
            r.over_models(r.ratio, "mean", to, middle=True),
            Bound.above(HALF),
            **about,
        )
        gaps = [level(r.ratio(m, "mean", to)) - level(r.ratio(m, "mean", to, middle=True)) for m in r.models]
        yield _ours(
            f"sink-over-word{end}",
            f"sinks: that ln, relative to {said}, is lower than that of a middle word",
            mean_of(gaps, MODELS),
            Bound.below(0.0),
            **about,
        )
        yield _ours(
            f"swap{end}",
            f"sinks: the value from one other text moves the states less than a quarter as far as {said} does: "
            "ln < ln ¼",
            r.over_models(r.ratio, "swap", to),
            Bound.below(QUARTER),
            **about,
        )
        if len(r.lengths) > 1:
            yield _every_length(r, to, f"every-length{end}", said, **about)


def _every_length(r: Readings, to: str, id: str, said: str, *, identified: bool, note: str) -> Claim:
    each = [r.over_models(r.ratio, "mean", to, length) for length in r.lengths]
    told = ", ".join(f"{n} tokens {number(one.value, 2)}" for n, one in zip(r.lengths, each, strict=True))
    every = [level([level(r.ratio(m, "mean", to, n)) for n in r.lengths]) for m in r.models]
    return Claim(
        id=id,
        text=f"sinks: less than a fifth as far as {said} at every length (shown: mean over lengths)",
        estimate=mean_of(every, MODELS),
        also=each,
        bound=Bound.below(FIFTH),
        note="; ".join(part for part in (told, note) if part),
        identified=identified,
        ours=True,
    )


def _over_texts(r: Readings) -> Iterator[Claim]:
    inside = Bound.within(-NEGLIGIBLE, NEGLIGIBLE)
    yield _ours(
        "constant",
        f"sinks: a head reads nearly the same centred vector there in every text: ‖mean‖² / mean ‖·‖² > {CONSTANT}",
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
            identified=norm != "norm",
        )
        excess = [r.of_sinks(m, "size", norm=norm) - r.of_sinks(m, "size_by_chance", norm=norm) for m in r.models]
        yield _ours(
            "either-sign" if norm == "norm" else "either-sign-centred",
            f"sinks: nor with either sign: mean |ρ| with {said} exceeds that of shuffled texts by less than "
            f"{NEGLIGIBLE}",
            mean_of(excess, MODELS),
            Bound.below(NEGLIGIBLE),
            identified=norm != "norm",
            note="" if norm == "norm" else "added when the numbers were known",
        )


def _of_model(r: Readings, model: str) -> Iterator[Claim]:
    yield _ours(
        f"{model}-fifth",
        f"{model}, sinks: ln of the change with the mean over that with zero < ln ⅕",
        mean_of(r.ratio(model, "mean", "zero"), BLOCKS),
        Bound.below(FIFTH),
        identified=False,
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
        identified=False,
    )
    for to, end, said in (("average", "-average", "the head's mean over all tokens"), ("zero", "", "zero")):
        if (gap := r.loss_gap(model, to)) is not None:
            yield _ours(
                f"{model}-loss{end}",
                f"{model}: with the mean over other texts the loss rises by less than a fifth of its rise with {said}",
                mean_of(gap, BLOCKS),
                Bound.below(0.0),
                identified=to == "average",
                note=_LATER if to == "average" else "",
            )


def _ours(id: str, text: str, estimate: Estimate, bound: Bound, *, identified: bool = True, note: str = "") -> Claim:
    return Claim(id=id, text=text, estimate=estimate, bound=bound, ours=True, identified=identified, note=note)
