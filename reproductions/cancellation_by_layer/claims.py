"""What we expected before the runs. Of one model, blocks of documents are the sample; of all, the models are.

Two things were known then, from kobayashi2020: the pooled ρ and the mean ρ within layers of MiniLM and e5-small on
segments of 128 tokens. Nothing of the other models, of single heads, of other lengths or of zeroed values was.

Norms, and what zero does, move with a constant that is free: it can stand in a head's values or in the output bias
(docs/gauge.md). So the usual length is measured once more less each head's mean value over these texts, and with this
mean in place of zero. Known then: all raw numbers, MiniLM's ρ of [CLS] over layers and heads on other texts (−.44 raw,
+.27 centred), and of sink_as_bias how far the states move with that mean in texts of 64 tokens. We expect that the
cancelling of sinks is not there without the constant (ρ above −.1, also with norms relative to those of words), and
that the norm is still nearer to the change than the weight is. The last is expected almost by construction: to replace
a value by c moves the output of a head by α (f(x) − f(c)), whose length is the norm; what can differ is how later
layers carry it on.
"""

from collections.abc import Callable, Iterator

import numpy as np

from reproductions.cancellation_by_layer.grid import CENTRED, USUAL
from reproductions.cancellation_by_layer.readings import BLOCKS, MODELS, Readings, level
from reproductions.frame.claims import Bound, Claim, Estimate
from reproductions.frame.finished import Finished
from reproductions.frame.markdown import number
from reproductions.frame.statistics import mean_of

NEGLIGIBLE = 0.1
"""A correlation that is closer to zero is small by Cohen's (1988) convention."""
IN_BERT = -0.25
"""The published ρ of periods and commas in BERT (Kobayashi et al. 2020, Table 2)."""
LOSS = {
    "smollm2-135m": ("more", Bound.above(0.0)),
    "opus-mt-en-fr": ("less", Bound.below(0.0)),
    "opus-mt-fr-en": ("less", Bound.below(0.0)),
}
"""We expected a language model to need its sink more than a middle word, and a translation the word more than </s>."""


FEW_NORMS = (
    "a text has one such token, so that a head's few norms are compared with weights that vary by query, which draws ρ "
    "within heads towards zero; see sink_as_bias"
)
"""Why nothing is judged of single heads and sinks; said after the runs."""


def claims(cells: Finished) -> list[Claim]:
    readings = Readings(cells)
    return [
        *_over_models(readings),
        *_punctuation(readings),
        *_lengths(readings),
        *_zeroed(readings),
        *_centred(readings),
        *(claim for model in readings.models for claim in _of_model(readings, model)),
        *_losses(readings),
    ]


def _over_models(r: Readings) -> Iterator[Claim]:
    above, below = Bound.above, Bound.below
    yield _ours(
        "pooled", "sinks: over all layers and heads, ρ(α, ‖f(x)‖) < 0", r.over_models(r.sink, "pooled"), below(0)
    )
    yield _ours(
        "within-heads",
        f"sinks: within a head there is hardly any cancelling: mean ρ > −{NEGLIGIBLE}",
        r.over_models(r.sink, "within_heads"),
        above(-NEGLIGIBLE),
        FEW_NORMS,
    )
    yield _ours(
        "paradox",
        f"sinks: ρ within heads exceeds the pooled ρ by more than {NEGLIGIBLE}",
        r.over_models(r.paradox),
        above(NEGLIGIBLE),
        FEW_NORMS,
    )
    yield _ours(
        "layers-carry",
        "sinks: differences between layers make more of the pooled ρ than all differences between and inside heads",
        r.over_models(_layers_over_rest(r)),
        below(0),
    )
    yield _ours(
        "relative",
        "sinks: the pooled ρ is negative also with ‖f(x)‖ over that of other words in the same head: it is not only "
        "that layers differ in scale",
        r.over_models(r.sink, "pooled", USUAL, "relative"),
        below(0),
    )


def _punctuation(r: Readings) -> Iterator[Claim]:
    yield _ours(
        "punctuation",
        f"periods and commas cancel less than in BERT: pooled ρ > {IN_BERT}",
        r.over_models(r.punctuation, "pooled"),
        Bound.above(IN_BERT),
    )
    yield _ours(
        "punctuation-within-heads",
        f"periods and commas: within a head there is hardly any cancelling: mean ρ > −{NEGLIGIBLE}",
        r.over_models(r.punctuation, "within_heads"),
        Bound.above(-NEGLIGIBLE),
    )


def _layers_over_rest(r: Readings) -> Callable[[str], np.ndarray]:
    def read(model: str) -> np.ndarray:
        rest = r.sink(model, "between_heads") + r.sink(model, "inside_heads")
        return r.sink(model, "between_layers") - rest

    return read


def _lengths(r: Readings) -> Iterator[Claim]:
    models = r.models
    if len(r.lengths) < 2:
        return
    by_length = [mean_of([level(r.paradox(m, n)) for m in models], MODELS) for n in r.lengths]
    every = mean_of([level([level(r.paradox(m, n)) for n in r.lengths]) for m in models], MODELS)
    told = ", ".join(f"{n}: {number(one.value, 2)}" for n, one in zip(r.lengths, by_length, strict=True))
    yield Claim(
        id="paradox-every-length",
        text="sinks: ρ within heads exceeds the pooled ρ at every length (shown: mean over lengths)",
        estimate=every,
        also=by_length,
        bound=Bound.above(0.0),
        note=f"By tokens of a text: {told}.",
        undecided=FEW_NORMS,
        identified=False,
        ours=True,
    )
    first, last = r.lengths[0], r.lengths[-1]
    gaps = [level(r.sink(m, "pooled", last)) - level(r.sink(m, "pooled", first)) for m in models]
    yield _ours(
        "longer",
        f"sinks: the pooled ρ is lower in texts of {last} tokens than in those of {first}",
        mean_of(gaps, MODELS),
        Bound.below(0.0),
    )


def _zeroed(r: Readings) -> Iterator[Claim]:
    yield _ours(
        "sink-changes-more",
        "zeroing the value of a sink changes the final states more than zeroing that of a middle word (log ratio > 0)",
        r.over_models(r.ratio, "change"),
        Bound.above(0.0),
    )
    yield _ours(
        "less-than-weight",
        "… but by less than its weight suggests: log ratio of the changes − log ratio of the weights < 0",
        r.over_models(lambda m: r.ratio(m, "change") - r.ratio(m, "sent_weight")),
        Bound.below(0.0),
    )
    yield _ours(
        "norm-foretells",
        "the norm foretells the change better than the weight does: its log ratio is nearer to that of the changes",
        r.over_models(
            lambda m: (
                np.abs(r.ratio(m, "change") - r.ratio(m, "sent_weight"))
                - np.abs(r.ratio(m, "change") - r.ratio(m, "sent_norm"))
            )
        ),
        Bound.above(0.0),
    )


def _centred(r: Readings) -> Iterator[Claim]:
    """The same less the constant that is free, of the models of which it was measured."""
    if not r.centred_models:
        return
    for measure, said in (("norm", "norm"), ("relative", "norm relative to other words in the same head")):
        id = "pooled-centred" if measure == "norm" else "relative-centred"
        text = f"sinks, centred: over all layers and heads, weight and {said} hardly cancel: ρ > −{NEGLIGIBLE}"
        each = {model: r.sink(model, "pooled", CENTRED, measure) for model in r.centred_models}
        yield _judged(id, text, mean_of(list(map(level, each.values())), MODELS), Bound.above(-NEGLIGIBLE))
        for model, values in each.items():
            short = f"{model}: sinks, centred, {measure}: pooled ρ > −{NEGLIGIBLE}"
            yield _judged(f"{model}-{id}", short, mean_of(values, BLOCKS), Bound.above(-NEGLIGIBLE))
    change, weight = (
        np.array([level(r.ratio(model, name, CENTRED)) for model in r.centred_models])
        for name in ("change", "sent_weight")
    )
    yield _judged(
        "sink-changes-more-centred",
        "replacing a sink's value by the head's mean changes the final states more than doing so with a middle word "
        "(log ratio > 0)",
        mean_of(change, MODELS),
        Bound.above(0.0),
    )
    yield _judged(
        "less-than-weight-centred",
        "… but by less than its weight suggests: log ratio of the changes − log ratio of the weights < 0",
        mean_of(change - weight, MODELS),
        Bound.below(0.0),
    )
    gap = [
        level(
            np.abs(r.ratio(m, "change", CENTRED) - r.ratio(m, "sent_weight", CENTRED))
            - np.abs(r.ratio(m, "change", CENTRED) - r.ratio(m, "sent_norm", CENTRED))
        )
        for m in r.centred_models
    ]
    yield _judged(
        "norm-foretells-centred",
        "the centred norm is nearer to that change than the weight is",
        mean_of(gap, MODELS),
        Bound.above(0.0),
    )


def _of_model(r: Readings, model: str) -> Iterator[Claim]:
    def of(values: np.ndarray) -> Estimate:
        return mean_of(values, BLOCKS)

    yield _ours(f"{model}-pooled", f"{model}: sinks, pooled ρ < 0", of(r.sink(model, "pooled")), Bound.below(0.0))
    yield _ours(
        f"{model}-within-heads",
        f"{model}: sinks, mean ρ within heads > −{NEGLIGIBLE}",
        of(r.sink(model, "within_heads")),
        Bound.above(-NEGLIGIBLE),
        FEW_NORMS,
    )
    yield _ours(
        f"{model}-paradox",
        f"{model}: sinks, ρ within heads − pooled ρ > {NEGLIGIBLE}",
        of(r.paradox(model)),
        Bound.above(NEGLIGIBLE),
        FEW_NORMS,
    )
    yield _ours(
        f"{model}-relative",
        f"{model}: sinks, pooled ρ with the relative norm < 0",
        of(r.sink(model, "pooled", USUAL, "relative")),
        Bound.below(0.0),
    )
    yield _ours(
        f"{model}-punctuation",
        f"{model}: periods and commas, pooled ρ > {IN_BERT}",
        of(r.punctuation(model, "pooled")),
        Bound.above(IN_BERT),
    )


def _losses(r: Readings) -> Iterator[Claim]:
    for model, (how, bound) in LOSS.items():
        if model in r.models and (gap := r.loss_gap(model)) is not None:
            yield _ours(
                f"{model}-loss",
                f"{model}: the loss rises {how} without the value of the sink than without that of a middle word",
                mean_of(gap, BLOCKS),
                bound,
            )


def _ours(id: str, text: str, estimate: Estimate, bound: Bound, undecided: str = "") -> Claim:
    """Of norms as they are, or of zero in place of a value: both move with the constant that is free."""
    return Claim(id=id, text=text, estimate=estimate, bound=bound, ours=True, undecided=undecided, identified=False)


def _judged(id: str, text: str, estimate: Estimate, bound: Bound) -> Claim:
    """Of values less the mean of their head, which that constant does not move."""
    return Claim(id=id, text=text, estimate=estimate, bound=bound, ours=True)
