"""Charts and sentences about what goes where: frequency, rollout, gradients, relevance, alignment."""

from collections.abc import Iterator
from typing import Any

import altair as alt

from lorgnette.axes import CATEGORY, LAYER, MEASURE, READING
from lorgnette.figures.cells import said, shown
from lorgnette.figures.charts import COLOURS
from lorgnette.figures.figure import Figure
from lorgnette.figures.finding import Finding, heads
from lorgnette.report.findings import CLEAR, findings_for
from lorgnette.report.sections import by_default, figures_for, kinds_there, variable_figure
from lorgnette.results import Result

_NAMED = 3


@figures_for("frequency")
def of_frequency(result: Result) -> list[Figure]:
    title = "Are frequent words discounted? Frequency rank against α and ‖f(x)‖ (Spearman's ρ)"
    return [variable_figure(result, "spearman", title)] if "spearman" in shown(result) else by_default(result)


@findings_for("frequency")
def frequent_words(result: Result) -> Iterator[Finding]:
    """ρ of rarity with what is read, and with the length of what would arrive, over all layers."""
    rho = result.data["spearman_all"]
    numbers = {name: float(rho.sel({MEASURE: name})) for name in ("weights", "norms") if name in rho[MEASURE].values}
    if len(numbers) < 2 or any(value != value for value in numbers.values()):
        return
    told = (
        "Frequent tokens are discounted: the rarer a token, the longer what it would give (‖f(x)‖, ρ {norms:+.2f}), "
        "while the weight on it has ρ {weights:+.2f}."
        if numbers["norms"] > CLEAR
        else "Frequent tokens are not discounted: rarity has ρ {norms:+.2f} with the length of what a token would give "
        "(‖f(x)‖), and {weights:+.2f} with the weight on it."
    )
    yield Finding(told, numbers)


@figures_for("rollout")
def of_rollout(result: Result) -> list[Figure]:
    titles = {
        "share": "What of the input is left in the states, by layer",
        "entropy": "How many input tokens are mixed in a state (entropy, nats)",
    }
    return [variable_figure(result, name, title) for name, title in titles.items() if name in shown(result)]


@findings_for("rollout")
def what_reaches_the_top(result: Result) -> Iterator[Finding]:
    """The share of a token's own input in its last state, by weights and by norms."""
    share = result.data["share"]
    if "self" not in share[CATEGORY].values:
        return
    own = share.sel({CATEGORY: "self"}).dropna(LAYER, how="all")
    if not own.sizes[LAYER]:
        return
    last = own.isel({LAYER: -1})
    numbers: dict[str, Any] = {name: float(last.sel({MEASURE: name})) for name in ("weights", "norms")}
    if any(value != value for value in numbers.values()):
        return
    numbers["layer"] = int(last[LAYER])
    yield Finding(
        "After layer {layer}, {weights:.0%} of a token's state is still its own input by rollout of the weights, "
        "{norms:.0%} by rollout of the norms.",
        numbers,
    )


@figures_for("gradients")
def of_gradients(result: Result) -> list[Figure]:
    kinds = kinds_there(result, "gradient", ("all", "cls", "sep", "punctuation", "other"))
    return [
        variable_figure(result, "gradient", "Would the loss notice? |∂loss/∂α| by kind of token read", category=kinds)
    ]


@findings_for("gradients")
def steepest(result: Result) -> Iterator[Finding]:
    """The heads whose weights the loss depends on most; and special tokens beside all tokens."""
    gradient = result.data["gradient"]
    every = gradient.sel({CATEGORY: "all"}) if "all" in gradient[CATEGORY].values else gradient.mean(CATEGORY)
    found = heads(every)
    if not found or not found[0].value:
        return
    mean = float(every.mean())
    named = ", ".join(f"{one.layer}.{one.head} ({one.value / mean:.1f} times the mean)" for one in found[:_NAMED])
    numbers: dict[str, Any] = {"named": named}
    words = "The loss depends most on the weights of heads {named}"
    ratios: dict[str, float] = {}
    for kind in ("cls", "sep"):
        there = kind in gradient[CATEGORY].values and bool(gradient.sel({CATEGORY: kind}).notnull().any())
        ratios |= {kind: float(gradient.sel({CATEGORY: kind}).mean()) / mean} if there else {}
    parts = [f"that of the {said(kind)} {{{kind}:.1f}} times" for kind in ratios]
    tail = f"; a weight on any token counts once, {' and '.join(parts)} as much." if ratios else "."
    yield Finding(words + tail, numbers | ratios)


@figures_for("relevance")
def of_relevance(result: Result) -> list[Figure]:
    figures = [variable_figure(result, "relevance", "How much of the prediction goes through each head")]
    if "layer_share" in shown(result):
        figures.append(variable_figure(result, "layer_share", "Each layer's share of the relevance of heads"))
    return figures + _token_bars(result)


def _token_bars(result: Result) -> list[Figure]:
    frame = result.to_dataframe("token_share").dropna(subset=["token_share"])
    frame = frame[frame["token_share"] != 0]
    if not len(frame):
        return []
    rows = [
        {"kind": said(kind), "value": float(v)} for kind, v in frame[[CATEGORY, "token_share"]].itertuples(index=False)
    ]
    chart = alt.Chart(alt.Data(values=rows), width=300, height=alt.Step(20)).mark_bar(color=COLOURS[0]).encode(
        x=alt.X(field="value", type="quantitative", title="share of the relevance of all tokens, signed"),
        y=alt.Y(field="kind", type="nominal", title=None, sort=None),
    )  # fmt: skip
    caption = "Kinds overlap: punctuation can be the last token too. Below zero: speaks against the prediction."
    return [
        Figure("token_share", "Which kinds of token the prediction comes from", caption, chart, frame.round(4), frame)
    ]


@findings_for("relevance")
def through_which_heads(result: Result) -> Iterator[Finding]:
    """The heads that carry most of their layer's relevance, and those that speak against the prediction."""
    found = heads(result.data["relevance"])
    if not found:
        return
    against = sum(one.value < 0 for one in found)
    numbers: dict[str, Any] = {"named": ", ".join(map(str, found[:_NAMED])), "against": against, "heads": len(found)}
    words = "Most of its layer's relevance for the prediction goes through heads {named}; {against} of {heads} heads "
    words += "speak against the prediction on average."
    share = result.data["layer_share"].dropna(LAYER)
    if share.sizes[LAYER] > 1:
        numbers |= {"layer": int(share.idxmax(LAYER)), "share": float(share.max())}
        words += " Layer {layer} carries {share:.0%} of it."
    yield Finding(words, numbers)


@figures_for("alignment")
def of_alignment(result: Result) -> list[Figure]:
    titles = {
        "aer": "Alignment error rate of each head's links (low is good)",
        "layer_aer": "The heads of a layer together",
    }
    return [variable_figure(result, name, title) for name, title in titles.items() if name in shown(result)]


@findings_for("alignment")
def best_aligned(result: Result) -> Iterator[Finding]:
    """The head whose links are nearest to the gold ones, by weights and by norms."""
    aer, best = result.data["aer"], {}
    for measure in aer[MEASURE].values.tolist():
        # The lowest error over both readings of the decoder's rows.
        cells = [
            (one.value, f"{one.layer}.{one.head}", reading)
            for reading in aer[READING].values.tolist()
            for one in heads(aer.sel({MEASURE: measure, READING: reading}))
        ]
        if cells:
            best[measure] = min(cells)
    if set(best) != {"weights", "norms"}:
        return
    numbers: dict[str, Any] = {}
    for measure, (value, head, reading) in best.items():
        numbers |= {measure: value, f"{measure}_head": head, f"{measure}_row": f"{reading} row"}
    yield Finding(
        "Words are aligned best by head {norms_head} by norms (AER {norms:.0%}, {norms_row}) and by head "
        "{weights_head} by weights ({weights:.0%}, {weights_row}).",
        numbers,
    )
