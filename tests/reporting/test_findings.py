"""The numbers in the sentences are those of the results, counted here once more, one head after another."""

import numpy as np
import pytest
from made import norms, nothing, plugin, weights
from tiny import EXAMPLES, marian

import lorgnette as lo
from lorgnette.figures.finding import Finding, HeadValue, named_above
from lorgnette.lens.norms.report import arriving
from lorgnette.lens.weights.report import focus, most_confident, neighbours, on_special, sinks
from lorgnette.reporting import findings
from lorgnette.reporting.contents import opening
from lorgnette.results import Result, Results


def one_stack(result: Result) -> Result:
    return Result(result.lens, result.data.sel(stack="encoder", drop=True), result.provenance)


def each_head(result: Result, variable: str, **selection):
    """(layer, head, value) of every head that is there."""
    array = result.data[variable].sel(**selection)
    for layer in array["layer"].values.tolist():
        for head in array["head"].values.tolist():
            value = array.sel(layer=layer, head=head).item()
            if not np.isnan(value):
                yield layer, head, value


@pytest.mark.parametrize("seed", range(5))
def test_sinks_are_counted(seed):
    result = one_stack(weights(6, 8, seed=seed))
    found = sinks(result)
    counts = {
        kind: sum(value > 0.5 for *_, value in each_head(result, "mass", category=kind))
        for kind in ("cls", "sep", "period_comma")
    }
    assert found.numbers["count"] == max(counts.values()) > 0
    assert found.numbers["heads"] == 6 * 8 - 1


@pytest.mark.parametrize("kind", ["previous", "next", "self"])
def test_neighbours_are_counted_and_the_first_named(kind):
    result = one_stack(weights(4, 6, seed=1))
    above = [(value, layer, head) for layer, head, value in each_head(result, "mass", category=kind) if value > 0.5]
    found = neighbours(result, kind)
    assert found.numbers["count"] == len(above)
    value, layer, head = max(above)
    assert found.numbers["named"].startswith(f"{layer}.{head} ({value:.2f})")


def test_no_neighbour_no_sentence():
    result = one_stack(weights())
    result.data["mass"] = result.data["mass"].where(result.data["mass"].isnull(), 0.1)
    assert neighbours(result, "previous") is None
    assert sinks(result).numbers["count"] == 0


def test_the_most_confident_heads():
    result = one_stack(weights(4, 6, seed=2))
    value, layer, head = max((value, layer, head) for layer, head, value in each_head(result, "confidence"))
    assert most_confident(result).numbers["named"].startswith(f"{layer}.{head} ({value:.2f})")


def test_nobody_is_sure_of_texts_without_words():
    assert most_confident(one_stack(nothing())) is None
    assert "nan" not in " ".join(finding.text for finding in findings(Results([nothing()])))


def test_focus_by_layer():
    result = one_stack(weights(5, 6, seed=3))
    means = {
        layer: np.mean([v for at, _, v in each_head(result, "entropy_normalised") if at == layer])
        for layer in range(1, 6)
    }
    numbers = focus(result).numbers
    assert numbers["broad"] == max(means, key=means.get)
    assert numbers["narrow"] == min(means, key=means.get)
    assert numbers["most"] == pytest.approx(max(means.values()))


def test_what_arrives():
    result = one_stack(norms())
    sure = [(layer, head) for layer, head, value in each_head(result, "weight", category="cls") if value > 0.5]
    assert sure
    moved = {place: result.data["norm"].sel(layer=place[0], head=place[1]) for place in sure}
    share = sum(norm.sel(category="cls").item() for norm in moved.values()) / sum(
        norm.sum().item() for norm in moved.values()
    )
    numbers = arriving(result).numbers
    assert numbers["count"] == len(sure)
    assert numbers["norm"] == pytest.approx(share)


def test_every_stack_speaks_for_itself():
    found = [finding.text for finding in findings(Results([weights(stacks=("encoder", "cross"))]))]
    assert sum(text.startswith("Encoder: ") for text in found) == sum(
        text.startswith("Cross-attention: ") for text in found
    )


def test_a_lens_that_is_not_known():
    result = plugin()
    (found,) = findings(Results([result]))
    assert found.numbers["mean"] == pytest.approx(result.data["score"].mean().item())
    assert found.numbers["variable"] == "score"


def test_numbers_are_told_from_words():
    finding = Finding(
        "{count} of {heads} heads, {share:.0%} {what}", {"count": 1200, "heads": 3, "share": 0.5, "what": "x"}
    )
    assert finding.text == "1,200 of 3 heads, 50 % x"
    assert [text for text, is_number in finding.parts if is_number] == ["1,200", "3", "50 %"]


def test_numbers_are_written_as_in_print():
    finding = Finding("{rho:.2f} {gain:+.1%} {tiny:.1g}", {"rho": -0.361, "gain": -0.034, "tiny": -2e-5})
    assert finding.text == "−0.36 −3.4 % −2e-05"


def test_what_is_about_the_whole_model_is_said_once():
    """The loss without sinks is not a number of a stack; how many heads have a sink is one."""
    results = lo.look(marian(), EXAMPLES, ["sinks:effect=true,threshold=0.01,thresholds=0.01"], progress=False)
    found = [finding.text for finding in findings(results)]
    assert sum("changes the loss" in text for text in found) == 2  # values, and keys
    assert sum("a sink in most texts" in text for text in found) == 3
    assert not any(text.startswith(("Encoder", "Decoder", "Cross")) for text in found if "changes the loss" in text)


def test_a_head_above_a_threshold_reads_as_above_it():
    some = [HeadValue(3, 12, 0.5003), HeadValue(1, 3, 0.651), HeadValue(2, 1, 0.5 + 1e-9)]
    assert named_above(some) == "3.12 (0.5003), 1.3 (0.65), 2.1 (0.500000001)"


def test_a_page_opens_with_what_was_found():
    results = {name: one_stack(make()) for name, make in (("weights", weights), ("norms", norms))}
    found = {name: [Finding(f"about {name}")] for name in results}
    first, *_ = opening(results, found)
    assert opening(results, found | {first: [Finding("nothing", nothing=True)]})[0] != first


def test_special_tokens_are_said_once():
    result = one_stack(weights())
    data, mass = result.data, result.data["mass"].sel(category="cls", drop=True)
    data = data.assign(special_count=data["mass_count"].sel(category="cls", drop=True))
    same = Result("weights", data.assign(special=mass), result.provenance)
    assert on_special(same) is None
    others = Result("weights", data.assign(special=1 - mass), result.provenance)
    assert "special tokens" in on_special(others).text
