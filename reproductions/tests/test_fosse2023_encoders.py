"""Fosse 2023, fine-tuned encoders: cones as plain numbers, SIM by layer, and what is said of made-up cells."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from fosse_made_up import cone, finetuned
from made_cells import finished
from made_up import write_hatexplain
from tiny import word_pieces
from transformers import BertConfig, BertModel

from lorgnette.lens.cones.outcome import Sample, cone_variables
from lorgnette.lens.geometry.cosine import sim
from reproductions.fosse2023 import STUDY, grid
from reproductions.fosse2023.claims import claims
from reproductions.fosse2023.cone_claims import every_above, every_orthogonal
from reproductions.fosse2023.cones import cone_numbers, correlations
from reproductions.fosse2023.encoders.measure import LayerSums
from reproductions.fosse2023.encoders.measure import finetuned as finetune
from reproductions.fosse2023.figures import figures
from reproductions.fosse2023.tables import tables
from reproductions.frame.claims import Estimate
from reproductions.frame.settings import Machine


@pytest.mark.parametrize("angle", [0.4, math.pi / 2, 1.9])
def test_planted_cones_are_recovered(angle):
    vectors, labels, _ = cone(angle, 3, 0, wrong=0)
    axes = torch.stack([vectors[labels == c].mean(0) for c in range(3)])[labels]
    found = cone_numbers(axes * 3.0, labels, labels, 3)
    expected = np.full((3, 3), math.cos(angle))
    np.fill_diagonal(expected, 1.0)
    for name in ("cosine", "mean_cosine", "class_cosine", "representatives"):
        np.testing.assert_allclose(np.array(found[name]), expected, atol=0.03)
    assert found["auroc"] == [1.0, 1.0, 1.0]
    assert found["draws"] == [20, 20, 20]
    assert all(low <= high for row in found["quantile"] for box in row for low, high in pairwise(box))


def test_it_is_the_lens_on_the_same_vectors():
    """All texts that are classified right as representatives: then nothing depends on the draw."""
    vectors, labels, predicted = cone(1.0, 3, 1)
    predicted[:3], predicted[40:41] = 1, 2
    found = cone_numbers(vectors, labels, predicted, 3, draws=99)
    confusion = torch.zeros(3, 3).index_put_((labels, predicted), torch.ones(len(labels)), accumulate=True)

    class Lens:
        classes, representative, keep, draws = ("a", "b", "c"), "random", False, 99

    Lens.confusion = confusion
    lens = cone_variables(Sample.of([str(n) for n in range(len(labels))], labels, predicted, vectors), Lens)
    same = ("cosine", "mean_cosine", "class_cosine", "class_cosine_centred", "auroc", "auroc_mean", "accuracy")
    for name in (*same, "own_right", "own_wrong"):
        np.testing.assert_allclose(np.array(found[name]), lens[name].values, atol=2e-6, err_msg=name)
    assert found["spearman"] == pytest.approx(float(lens["spearman"]), abs=2e-6)


def test_first_is_the_first_right_one_and_stays_at_cosine_one():
    vectors, labels, predicted = cone(math.pi / 2, 3, 2)
    predicted[0] = 1  # the first text of class 0 is classified wrong
    found = cone_numbers(vectors, labels, predicted, 3, how="first")
    units = vectors / vectors.norm(dim=-1, keepdim=True)
    by_hand = (units[labels == 1] @ units[1]).mean().item()
    assert found["draws"] == [1, 1, 1]
    assert found["cosine"][0][1] == pytest.approx(by_hand, abs=1e-6)
    own = (units[labels == 0] @ units[1]).mean().item()
    assert found["cosine"][0][0] == pytest.approx(own, abs=1e-6)  # itself included
    assert found["representatives"][0][0] is None


def test_a_class_never_right_and_vectors_without_direction_are_told():
    vectors, labels, predicted = cone(1.0, 3, 3)
    predicted[labels == 2] = 0
    vectors[5] = 0.0
    found = cone_numbers(vectors, labels, predicted, 3)
    assert found["zero_vectors"] == 1
    assert found["draws"][2] == 0
    assert found["cosine"][2] == [None, None, None]
    assert found["auroc"][2] is None
    assert found["mean_cosine"][2][2] is not None
    json.dumps(found, allow_nan=False)
    assert correlations([0.5, None, 0.7], [1.0, 0.5, 0.6]) == {"pearson": None, "spearman": None}


def test_sim_by_layer_is_the_mean_over_pairs_within_texts():
    draw = torch.Generator().manual_seed(0)
    states = [torch.randn(3, 5, 4, generator=draw) for _ in range(2)]
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    special = torch.zeros_like(mask)
    special[:, 0] = True
    sums = LayerSums()
    sums.add([one[:1] for one in states], mask[:1], special[:1])
    sums.add([one[1:] for one in states], mask[1:], special[1:])
    found = sums.numbers()
    for layer, one in enumerate(states):
        within = (sim(one[0].double()) + sim(one[1, :3].double())) / 2
        assert found["tokens"][layer] == pytest.approx(within, abs=1e-6)
        words = (sim(one[0, 1:].double()) + sim(one[1, 1:3].double())) / 2
        assert found["words"][layer] == pytest.approx(words, abs=1e-6)
        together = torch.cat([one[0], one[1, :3], one[2, :1]]).double()
        assert found["tokens_corpus"][layer] == pytest.approx(sim(together), abs=1e-6)
        assert found["cls_corpus"][layer] == pytest.approx(sim(one[:, 0].double()), abs=1e-6)
    assert (found["tokens_texts"], found["tokens_left_out"]) == (2, 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """An encoder of two narrow layers where minilm is looked for."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    tokenizer = word_pieces()
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), **size)).save_pretrained(folder / "minilm")
    tokenizer.save_pretrained(folder / "minilm")
    return folder


@pytest.mark.parametrize("start", ["pretrained", "random"])
def test_a_cell_from_end_to_end(start, models, tmp_path):
    write_hatexplain(tmp_path, {"train": 24, "val": 12, "test": 12})
    cell = grid.encoders(True, (0,))[f"pretrained-hatexplain-minilm-{start}-seed0"]
    machine = Machine(data=str(tmp_path), models=str(models), scratch=tmp_path)
    found = finetune(**{**cell.arguments, "limit": 24, "max_length": 40}, machine=machine)
    json.dumps(found, allow_nan=False)
    assert len(found["before"]["sim"]["tokens"]) == 3  # embeddings and two layers
    assert found["before"]["sim"]["cls_corpus"][0] == pytest.approx(1.0, abs=1e-5)  # [CLS] is the same everywhere
    assert found["before"]["sim"]["tokens"] != found["after"]["sim"]["tokens"]
    assert sum(found["after"]["cones"]["random"]["items"]) == found["texts"]["test"] == 12
    accuracy = np.average(
        found["after"]["cones"]["random"]["accuracy"], weights=found["after"]["cones"]["random"]["items"]
    )
    assert accuracy == pytest.approx(found["metrics"]["test"]["accuracy"], abs=1e-5)


def made_up(labels):
    """Cones at right angles on e-SNLI, opposite ones on YelpHat; on HateXplain anisotropy falls."""
    if labels["part"] != "encoders":
        return None
    angle = {"esnli": math.pi / 2, "yelphat": 2.9, "hatexplain": 1.0}[labels["corpus"]]
    change = (0.3, 0.2) if labels["corpus"] == "hatexplain" else (0.3, 0.5)
    return finetuned(labels["corpus"], labels["seed"], angle=angle, sim=change)


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, made_up)


def test_claims_from_made_up_cells(cells):
    judged = {claim.id: claim for claim in claims(cells)}
    verdicts = {id: claim.verdict for id, claim in judged.items()}
    assert verdicts["orthogonal-esnli-minilm"] == "holds"
    assert verdicts["orthogonal-yelphat-minilm"] == verdicts["orthogonal-hatexplain-minilm"] == "does not hold"
    assert judged["orthogonal-yelphat-minilm"].estimate.value == pytest.approx(-math.cos(2.9), abs=0.12)  # with noise
    assert verdicts["every-orthogonal-yelphat-minilm"] == "does not hold"
    assert judged["anisotropy-cls-esnli-minilm"].ours
    assert verdicts["anisotropy-esnli-minilm"] == "holds"
    assert judged["anisotropy-esnli-minilm"].published.value == pytest.approx(0.28)
    assert verdicts["anisotropy-hatexplain-minilm"] == "does not hold"
    assert judged["anisotropy-hatexplain-minilm"].estimate.value == pytest.approx(-0.1)
    assert verdicts["cones-esnli-minilm"] == "holds"
    assert verdicts["right-closer-esnli-minilm-random"] == "holds"
    assert not any("e5-small" in id for id in verdicts)  # one seed makes no interval
    assert len(judged) == 3 * 2 * 6


def test_tables_and_figures_from_made_up_cells(cells):
    frames = {table.id: table.frame for table in tables(cells)}
    assert len(frames["encoders"]) == 9
    assert frames["medians-esnli"]["published, notebook"].iloc[0] == 0.925
    assert len(frames["matrix-yelphat"]) == 3 * 2
    assert frames["sim-encoders"]["model"].iloc[-1] == "BERT, published"
    assert [figure.name for figure in figures(cells)] == ["cones", "sim-layers"]


def test_one_run_makes_a_table_and_no_claim():
    where = {"corpus": "yelphat", "model": "minilm", "start": "pretrained", "seed": 0}
    cells = finished(STUDY, lambda labels: made_up(labels) if where.items() <= labels.items() else None)
    assert list(claims(cells)) == []
    assert len(next(table for table in tables(cells) if table.id == "encoders").frame) == 1


def test_a_claim_about_all_classes_needs_every_interval():
    one = Estimate(value=0.1, low=0.05, high=0.15)
    wide, out = Estimate(value=0.1, low=-0.3, high=0.4), Estimate(value=0.5, low=0.4, high=0.6)
    alone = Estimate(value=0.1)

    def within(*cosines):
        pairs = {(0, place + 1): cosine for place, cosine in enumerate(cosines)}
        return every_orthogonal("id", "text", pairs, "abcd", "texts", "").verdict

    def above(*areas):
        return every_above("id", "text", dict(zip("abc", areas, strict=False)), 0.3, "").verdict

    assert within(one) == "holds"
    assert within(one, wide) == "cannot tell"
    assert within(wide, out) == "does not hold"
    assert within(alone) == "cannot tell"
    assert above(out) == "holds"
    assert above(out, one) == "does not hold"
    assert above(out, wide) == "cannot tell"


def test_no_more_than_three_seeds_and_keys_of_their_own():
    cells = grid.encoders(False, range(5))
    assert len(cells) == 3 * 2 * 3 + 3
    assert all(key.startswith("pretrained-") for key in cells)
