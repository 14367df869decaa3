"""Models with more than 1,024 heads: nothing is paired, memory grows with the heads alone, sentences claim less."""

import re
from functools import cache

import numpy as np
import pytest
from scipy.stats import false_discovery_control, t
from tiny import EXAMPLES, TREEBANK, classifier, loud, word_pieces
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification

import lorgnette as lo
from lorgnette import lens as lenses
from lorgnette.lens.importance.lens import ABLATIONS
from lorgnette.lens.pairs import MOST_CELLS
from lorgnette.reporting import Report

PAIRED = ("weights", "gradients", "sinks", "relevance", "convexity", "trees", "importance", "effects", "logitlens")
LARGEST = 34e6
"""Bytes of the products of all pairs of 1,024 heads: of every kind of ablation, where there are several."""


@cache
def wide(layers, head=BertForSequenceClassification):
    """Layers of 32 heads, each of them one number wide."""
    config = BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=layers, num_attention_heads=32, intermediate_size=8,
        max_position_embeddings=64,
    )  # fmt: skip
    return lo.Subject(loud(head, config, 0).double(), word_pieces(), name="wide")


def products(name, subject):
    """Bytes of the states of a lens that hold products of pairs, by name."""
    lens = lenses.get(name)
    lens.bind(subject)
    states = {state: getattr(lens, state) for state in lens._defaults if state.endswith("_products")}
    return {state: value.numel() * value.element_size() for state, value in states.items()}


@pytest.mark.parametrize("name", PAIRED)
def test_products_take_a_fixed_memory_and_none_beyond_1024_heads(name):
    head = BertForMaskedLM if name == "logitlens" else BertForSequenceClassification
    few, most, more = (products(name, wide(layers, head)) for layers in (1, 32, 33))
    assert few
    assert max(most.values(), default=0) < LARGEST * (len(ABLATIONS) if name == "importance" else 1)
    of_layers = {state for state in more if state.startswith("layer_")}  # 33 layers are few
    assert of_layers == set(more)
    assert MOST_CELLS == 32 * 32


@pytest.fixture(scope="module")
def looked():
    """Results of lenses that name the largest of 1,056 heads, and what the report says about each."""
    few = lo.look(wide(33), EXAMPLES, ["weights", "gradients", "relevance"], progress=False)
    results = lo.Results([*few.values(), *lo.look(wide(33), TREEBANK, ["trees"], progress=False).values()])
    return results, Report(results).findings["wide"]


def tied(data, variable, **at):
    """The largest of all heads, and those that the sum of both errors cannot tell from it."""
    parts = {tail: data[f"{variable}{tail}"].sel(at).squeeze("stack") for tail in ("", "_se", "_count")}
    value, error, count = (part.values.ravel() for part in parts.values())
    names = [f"{layer}.{head}" for layer in data["layer"].values for head in data["head"].values]
    best = int(value.argmax())
    others = [place for place in range(len(value)) if place != best]
    p = [
        2 * t.sf(abs(value[best] - value[o]) / (error[best] + error[o]), min(count[best], count[o]) - 1) for o in others
    ]
    kept = [names[o] for o, q in zip(others, false_discovery_control(p), strict=True) if not q < 0.05]
    return names[best], kept


SAID = {
    "weights": ("confidence", {}, r"Head (?P<best>\S+) \(± [\d.]+\) is (?P<told>.*?)\.(?: |$)"),
    "gradients": ("gradient", {"category": "all"}, r"heads (?P<best>\S+) .*?; the first is (?P<told>.*?)\. Gradient"),
    "relevance": ("relevance", {}, r"relevance: (?P<best>\S+) .*?; the first is (?P<told>.*?)\. \d+ of"),
    "trees": ("uas", {"way": "to_head"}, r"Head (?P<best>\S+) .*? It is (?P<told>.*?)\. \d+ of"),
}


@pytest.mark.parametrize("name", SAID)
def test_the_largest_is_above_those_that_the_sum_of_errors_can_tell(name, looked):
    variable, at, pattern = SAID[name]
    results, findings = looked
    data = results[name].data
    assert f"{variable}_top_q" not in data
    assert np.isfinite(data[f"{variable}_se"].sel(at)).all()
    texts = [finding.text for finding in findings[name]]
    match = next(found for found in (re.search(pattern, text) for text in texts) if found)
    best, kept = tied(data, variable, **at)
    assert match["best"] == best
    if not kept:
        assert match["told"] == "significantly above all others"
        return
    more = f" and {len(kept) - 3} more" if len(kept) > 3 else ""
    assert match["told"] == f"not significantly above {', '.join(kept[:3])}{more} (not paired)"


def test_categories_of_sinks_and_gradients_are_paired_where_they_fit():
    """Five kinds of token are five cells a head: 409 heads and fewer; three kinds of weight: 682 heads."""
    for name, state, heads in (("sinks", "rate_products", 409), ("gradients", "over_all_products", 682)):
        assert products(name, wide(heads // 32))[state] < 4 * LARGEST
        assert state not in products(name, wide(heads // 32 + 1))
    assert "kind_top_q" in lo.look(classifier(), EXAMPLES, ["sinks"], progress=False)["sinks"].data
