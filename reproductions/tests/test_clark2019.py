"""Clark et al. 2019: what is read off cells whose truth is known, parts by oracles, and a tiny run of all of it."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
import torch
import xarray as xr
from made_cells import finished
from tiny import EXAMPLES, bert

from lorgnette.attending import Tap
from lorgnette.looking.look import look
from lorgnette.syntax.relation_names import SUBTYPES, UNIVERSAL
from reproductions.clark2019 import STUDY, syntax
from reproductions.clark2019.claims import claims
from reproductions.clark2019.figures import figures
from reproductions.clark2019.measure import MASSES, SpecialRows, reduced, within_and_between
from reproductions.clark2019.measure_syntax import UD_RELATIONS, rows_as_arrays
from reproductions.clark2019.stanford import STANFORD_TO_UD
from reproductions.clark2019.tables import tables
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.page import published
from reproductions.frame.settings import Settings

LAYERS, HEADS, BLOCKS = 3, 4, 4


def row(relation, way, accuracy, development=None, head=3):
    return {
        "relation": relation, "way": way, "stack": "encoder", "layer": 2, "head": head, "pairs": 400, "offset": 1,
        "development": accuracy if development is None else development, "accuracy": accuracy,
        "low": accuracy - 0.04, "high": accuracy + 0.04, "baseline": 0.5, "baseline_low": 0.46, "baseline_high": 0.54,
    }  # fmt: skip


def relations(*rows):
    return rows_as_arrays(pd.DataFrame(rows), "relation", "way").assign_attrs(sentences=2000)


def relations_cell(accuracy):
    return relations(*(row(one, way, accuracy) for one in UD_RELATIONS for way in ("to_head", "to_dependent")))


def parser_cell(attention, both, plain):
    scores = np.array([[value, value + 0.01] for value in (attention, both, plain)])
    variables = {"uas_words": (("features", "decoding"), scores), "head_is_next_uas_words": 0.3}
    variables["uas_words_se"] = (("features", "decoding"), np.full((3, 2), 0.01))
    coords = {"features": list(syntax.FEATURES), "decoding": ["argmax", "tree"]}
    return xr.Dataset(variables, coords, {"sentences": 700})


def antecedents_cell(accuracy):
    one = {**row("", "", accuracy), "kind": "all", "candidates": "mentions", "nearest": 0.3, "head_match": 0.5}
    rows = [one, {**one, "candidates": "words", "accuracy": 0.1}]
    frame = pd.DataFrame(rows).drop(columns=["relation", "way"])
    return rows_as_arrays(frame, "kind", "candidates").assign_attrs(sentences=40)


def surface_cell(share, seed):
    """[SEP] gets `share` of layer 2; head 1 of layer 1 looks at the previous token; layers resemble themselves."""
    draw = np.random.default_rng(seed)
    mass = np.full((BLOCKS, LAYERS, HEADS, len(MASSES)), 0.05)
    mass[:, 1, :, MASSES.index("sep")] = share
    mass[:, 0, 0, MASSES.index("previous")] = 0.9 if share > 0.1 else 0.1
    mass += 0.002 * draw.standard_normal(mass.shape)
    entropy = 2.0 + 0.01 * draw.standard_normal((BLOCKS, LAYERS, HEADS))
    dims = ("block", "layer", "head")
    coords = {"category": list(MASSES), "layer": [1, 2, 3], "head": [1, 2, 3, 4]}
    blocks = xr.Dataset({"mass": ((*dims, "category"), mass), "entropy": (dims, entropy)}, coords)
    blocks = blocks.assign(cls_entropy=blocks["entropy"] + 0.5, sep_to_sep=(dims, np.full(entropy.shape, 0.95)))
    data = reduced(blocks)
    place = draw.standard_normal((LAYERS, HEADS))
    near = 0.1 if share > 0.1 else 0.4
    data = data.assign(x=(dims[1:], place), y=(dims[1:], place), kind=(dims[1:], np.full(place.shape, "sep")))
    apart = {"within": near + 0.01 * draw.random(BLOCKS), "between": np.full(BLOCKS, 0.4)}
    data = data.assign({name: ("block", values) for name, values in apart.items()})
    counts = {"corpus": "ud_en_gum", "segments": 24, "blocks": BLOCKS, "tokens": 2400, "squared_tokens": 240000}
    return data.assign(stress=0.2, compared_segments=4).assign_attrs(counts)


def made_up(labels):
    if labels["model"] != "minilm":
        return None
    kind, condition = labels["kind"], labels["condition"]
    trained = condition == TRAINED
    if kind == "surface":
        return surface_cell(0.7 if trained else 0.05, {TRAINED: 0, RANDOM: 1, SHUFFLED: 2}[condition])
    if kind == "relations":
        return relations_cell({TRAINED: 0.8, RANDOM: 0.1, SHUFFLED: 0.2}[condition])
    if kind == "parser":
        return {TRAINED: parser_cell(0.55, 0.65, 0.5), RANDOM: parser_cell(0.12, 0.64, 0.5)}.get(condition)
    return antecedents_cell(0.48) if trained else None


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, made_up)


def test_relations_exist():
    assert {one.relation for one in STANFORD_TO_UD.values()} <= {"all", *UNIVERSAL, *SUBTYPES}
    assert set(published("clark2019")["numbers"]["relations"]["value"]) == set(STANFORD_TO_UD) - {"cop"}


def test_a_head_is_chosen_on_the_development_half():
    data = relations(
        row("nsubj", "to_head", 0.4, development=0.9, head=1),
        row("nsubj", "read_by_head", 0.9, development=0.4, head=2),
        row("nsubj", "to_dependent", 1.0, development=1.0, head=3),  # not one of the paper's ways
        row("case", "to_head", 0.9, head=4),
        row("case", "read_by_head", 0.9, head=4),
        row("case", "to_dependent", 0.6, head=5),
    )
    assert syntax.best(data, "nsubj")["head"] == 1
    assert syntax.best(data, "pobj")["head"] == 5  # the noun's row: the ends are swapped
    assert syntax.best(data, "det") is None


def test_gain_by_hand():
    gain = syntax.gain(row("det", "to_head", 0.8))
    assert gain.value == pytest.approx(0.3)
    assert (gain.value - gain.low, gain.high - gain.value) == pytest.approx((0.04 * 2**0.5,) * 2)


def test_uas_with_its_interval():
    uas = syntax.uas(parser_cell(0.5, 0.6, 0.4), "attention", "tree")
    assert (uas.value, uas.low, uas.high) == pytest.approx((0.51, 0.4904, 0.5296))
    assert syntax.uas(parser_cell(0.5, 0.6, 0.4).sel(features=["attention"]), "attention_vectors") is None


def test_claims_from_a_known_truth(cells):
    judged = {claim.id: claim for claim in claims(cells)}
    verdicts = {id: claim.verdict for id, claim in judged.items()}
    assert verdicts["minilm-sep-share"] == "holds"
    assert judged["minilm-sep-share"].estimate.value == pytest.approx(0.7, abs=0.01)
    assert verdicts["minilm-sep-share-over-random"] == verdicts["minilm-sep-share-over-shuffled"] == "holds"
    assert (judged["minilm-previous-heads"].estimate.value, verdicts["minilm-previous-heads"]) == (1, "holds")
    assert (judged["minilm-next-heads"].estimate.value, verdicts["minilm-next-heads"]) == (0, "does not hold")
    assert (
        verdicts["minilm-sep-to-sep"] == verdicts["minilm-cls-broad"] == verdicts["minilm-families-learnt"] == "holds"
    )
    assert judged["minilm-cls-broad"].estimate.value == pytest.approx(0.5)
    assert verdicts["minilm-no-parser"] == "does not hold"  # all relations at .8
    assert verdicts["minilm-head-for-det"] == verdicts["minilm-head-for-pobj"] == "holds"
    assert verdicts["minilm-parser-over-next-word"] == verdicts["minilm-vectors-add"] == "holds"
    assert verdicts["minilm-parser-over-random"] == "cannot tell"
    assert verdicts["minilm-antecedents-over-nearest"] == "holds"
    assert verdicts["minilm-antecedents-over-same-word"] == "cannot tell"
    assert "minilm-parser-over-shuffled" not in judged  # what was not run is not judged


def test_tables_and_figures_from_a_known_truth(cells):
    frames = {table.id: table.frame for table in tables(cells)}
    assert len(frames["mapping"]) == len(frames["relations-minilm"]) == 16
    assert list(frames["parser"]["condition"])[-1] == RANDOM
    assert len(frames["antecedents"]) == 5
    assert frames["heads"]["previous"].tolist() == ["4", "1: 1-1", "0", "0"]
    names = [figure.name for figure in figures(cells)]
    assert names == ["weight-by-kind", "entropy", "head-map-minilm", "relations-minilm"]


def test_nothing_measured_nothing_said():
    nothing = finished(STUDY, lambda labels: None)
    assert list(claims(nothing)) == list(tables(nothing)) == list(figures(nothing)) == []


def test_intervals_of_neighbours_are_those_of_a_t_test():
    data = surface_cell(0.7, 0)
    draw = np.random.default_rng(0)
    mass = np.full((BLOCKS, LAYERS, HEADS, len(MASSES)), 0.05)
    mass[:, 1, :, MASSES.index("sep")] = 0.7
    mass[:, 0, 0, MASSES.index("previous")] = 0.9
    mass += 0.002 * draw.standard_normal(mass.shape)
    ends = scipy.stats.ttest_1samp(mass[:, 2, 3, MASSES.index("next")], 0).confidence_interval(0.95)
    where = {"neighbour": "next", "layer": 3, "head": 4}
    found = [float(data[f"neighbour_{end}"].sel(where)) for end in ("low", "high")]
    assert found == pytest.approx([ends.low, ends.high])


class Rows(Tap):
    """Keeps the matrices."""

    def __init__(self):
        self.weights_of = []

    def see(self, call):
        self.weights_of.append(call.weights.double())


def test_special_rows_by_loops():
    subject = bert()
    data = look(subject, EXAMPLES, [SpecialRows()], progress=False)["special_rows"].data.isel(stack=0)
    for name, pick in (("cls_entropy", "cls"), ("sep_to_sep", "sep")):
        sums = np.zeros(data[name].shape)
        for example in EXAMPLES:
            rows = Rows()
            batch = subject.encode([example])
            with torch.no_grad(), subject.tapped(rows):
                subject.run(batch)
            asked = batch.source.categories[pick][0].nonzero()[:, 0].tolist()
            for layer, weights in enumerate(rows.weights_of):
                for head in range(weights.shape[1]):
                    for query in asked:
                        row_ = weights[0, head, query].tolist()
                        value = (
                            -sum(w * math.log(w) for w in row_ if w > 0)
                            if pick == "cls"
                            else sum(w for w, sep in zip(row_, batch.source.categories["sep"][0], strict=True) if sep)
                        )
                        sums[layer, head] += value / len(asked)
        np.testing.assert_allclose(data[name].values, sums / len(EXAMPLES), rtol=1e-5)


def test_within_and_between_layers():
    labels = ["1-1", "1-2", "2-1", "2-2"]
    values = np.array([[0, 1, 5, 6], [1, 0, 7, 8], [5, 7, 0, 3], [6, 8, 3, 0]], dtype=float)
    data = xr.Dataset(
        {"divergence": (("stack", "head_a", "head_b"), values[None])}, {"head_a": labels, "head_b": labels}
    )
    assert within_and_between(data) == (2.0, 6.5)


def test_a_quick_run(tiny_shelf, tmp_path, monkeypatch):
    monkeypatch.delenv("LORGNETTE_MODELS", raising=False)  # models that lie there besides are not asked for
    options = {"data": str(tiny_shelf / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    settings = Settings(out=tmp_path / "clark2019", quick=True, **options)
    outcome = STUDY.reproduce(settings)
    det = syntax.row(outcome.cells.one(kind="relations", condition=TRAINED), relation="det", way="to_head")
    assert (det["offset"], det["baseline"]) == (1, 1.0)  # in this treebank every word hangs on the next
    parser = outcome.cells.one(kind="parser", condition=TRAINED)
    assert float(parser["head_is_next_uas_nonroot"]) == 1.0
    assert not outcome.cells.of(kind="antecedents", condition=SHUFFLED)
    trained, shuffled = (outcome.cells.one(kind="surface", condition=c).attrs for c in (TRAINED, SHUFFLED))
    assert (trained["segments"], trained["tokens"]) == (24, shuffled["tokens"])
    assert trained["segments_fingerprint"] != shuffled["segments_fingerprint"]
    folder = outcome.write(settings.out)
    text = "".join((folder / name).read_text() for name in ("README.md", "APPENDIX.md", "results.json"))
    assert "Do not quote" in text
    assert str(tiny_shelf) not in text
    assert "unbelievably" not in text  # no text of the data
    assert json.loads(STUDY.reproduce(settings).results()) == json.loads(outcome.results())  # every cell is there
