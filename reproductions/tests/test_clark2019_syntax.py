"""The syntactic part of Clark et al. 2019: what is read off cells whose truth is known, and a tiny run of them."""

import json

import pytest

from lorgnette.syntax.relation_names import SUBTYPES, UNIVERSAL
from reproductions.clark2019 import (
    reproduce,
    syntax,
    syntax_cell,
    syntax_claims,
    syntax_figures,
    syntax_tables,
    syntax_words,
)
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.syntax_reading import best, gain, uas
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.record import Settings, published


def row(relation, way, accuracy, development=None, head=3):
    return {
        "relation": relation, "way": way, "stack": "encoder", "layer": 2, "head": head, "pairs": 400, "offset": 1,
        "development": accuracy if development is None else development, "accuracy": accuracy,
        "low": accuracy - 0.04, "high": accuracy + 0.04, "baseline": 0.5, "baseline_low": 0.46, "baseline_high": 0.54,
    }  # fmt: skip


def relations_cell(accuracy):
    rows = [row(one, way, accuracy) for one in syntax_cell.UD_RELATIONS for way in ("to_head", "to_dependent")]
    return {"sentences": 2000, "rows": rows}


def parser_cell(attention, both, plain):
    scores = {
        name: {"uas_words": [value, value + 0.01], "uas_words_se": [0.01, 0.01]}
        for name, value in (("attention", attention), ("attention_vectors", both), ("vectors_distance", plain))
    }
    return {"sentences": 700, "features": scores, "head_is_next": {"uas_words": 0.3}}


def antecedents_cell(accuracy):
    one = {**row("", "", accuracy), "kind": "all", "candidates": "mentions", "nearest": 0.3, "head_match": 0.5}
    return {"sentences": 40, "rows": [one, {**one, "candidates": "words", "accuracy": 0.1}]}


FOUND = {
    "relations": {"minilm": {TRAINED: relations_cell(0.8), RANDOM: relations_cell(0.1), SHUFFLED: relations_cell(0.2)}},
    "parser": {"minilm": {TRAINED: parser_cell(0.55, 0.65, 0.5), RANDOM: parser_cell(0.12, 0.64, 0.5)}},
    "antecedents": {"minilm": {TRAINED: antecedents_cell(0.48)}},
}


def test_relations_exist():
    assert {one.relation for one in STANFORD_TO_UD.values()} <= {"all", *UNIVERSAL, *SUBTYPES}
    assert set(published("clark2019")["numbers"]["relations"]["value"]) == set(STANFORD_TO_UD) - {"cop"}


def test_a_head_is_chosen_on_the_development_half():
    rows = [
        row("nsubj", "to_head", 0.4, development=0.9, head=1),
        row("nsubj", "read_by_head", 0.9, development=0.4, head=2),
        row("nsubj", "to_dependent", 1.0, development=1.0, head=3),  # not one of the paper's ways
        row("case", "to_head", 0.9, head=4),
        row("case", "to_dependent", 0.6, head=5),
    ]
    assert best({"rows": rows}, "nsubj")["head"] == 1
    assert best({"rows": rows}, "pobj")["head"] == 5  # the noun's row: the ends are swapped
    assert best({"rows": rows}, "det") is None


def test_gain_by_hand():
    mean, low, high = gain(row("det", "to_head", 0.8))
    assert mean == pytest.approx(0.3)
    assert (mean - low, high - mean) == pytest.approx((0.04 * 2**0.5,) * 2)


def test_uas_with_its_interval():
    assert uas(parser_cell(0.5, 0.6, 0.4), "attention", "tree") == pytest.approx((0.51, 0.4904, 0.5296))
    assert uas({"features": {}}, "attention") is None


def test_claims_and_words_from_a_known_truth():
    numbers = published("clark2019")["numbers"]
    said = {c.text: c for c in syntax_claims.claims(FOUND, numbers)}

    def verdict(part):
        [one] = [c for text, c in said.items() if part in text]
        return one.verdict

    assert verdict("no single head is a parser") == "does not hold"  # all relations at .8
    assert verdict("a head finds det better") == "holds"
    assert verdict("case (the paper's pobj)") == "holds"
    assert verdict("better than “the head is the next word”") == "holds"
    assert verdict("word vectors add to attention") == "holds"
    assert verdict("better than with random weights") == "cannot tell"
    assert verdict("better than “the nearest mention”") == "holds"
    assert verdict("the nearest with the same word") == "cannot tell"
    text = "\n".join(syntax_words.summary(FOUND))
    assert "For 16 of 16 relations" in text
    assert "With random weights: 0 of 16 beat the offsets of that text; they find 0.10" in text
    assert "relations of mpnet" in text  # what was not run is said
    [mapping, relations, parser, antecedents] = syntax_tables.tables(FOUND, numbers)
    assert len(mapping.frame) == len(relations.frame) == 16
    assert list(parser.frame["condition"])[-1] == RANDOM
    assert len(antecedents.frame) == 5
    assert [figure.name for figure in syntax_figures.figures(FOUND, numbers)] == ["relations-minilm"]


def test_nothing_measured_nothing_said():
    assert syntax_claims.claims({}, published("clark2019")["numbers"]) == []
    assert syntax_tables.tables({}, published("clark2019")["numbers"]) == []
    assert syntax_words.setup({}) == []


def test_quick_cells_and_page(tiny_shelf, tmp_path):
    options = {"data": str(tiny_shelf / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    settings = Settings(out=tmp_path / "clark2019", quick=True, **options)
    document = json.loads(reproduce(settings).to_json())
    kept = {path.name for path in (settings.out / "cells").iterdir()}
    assert {f"{key}.json" for key in syntax.cells(settings)} <= kept
    found = syntax.run(Settings(out=settings.out, quick=True, partial=True, **options), "clark2019")
    det = next(r for r in found["relations"]["minilm"][TRAINED]["rows"] if r["relation"] == "det")
    assert (det["offset"], det["baseline"]) == (1, 1.0)  # in this treebank every word hangs on the next
    following = found["parser"]["minilm"][TRAINED]["head_is_next"]
    assert following["uas_nonroot"] == 1.0
    assert SHUFFLED not in found["antecedents"]["minilm"]
    assert any(table["title"].startswith("The best head for each relation: minilm") for table in document["tables"])
    assert document["provenance"]["syntax"]["relations, minilm, trained"]["sentences"] == 120
