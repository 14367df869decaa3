"""Fosse 2023, part 3: cones as plain numbers, SIM by layer, and the page from made-up cells."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from fosse_made_up import cone, finetuned
from made_up import write_hatexplain
from subjects import word_pieces
from transformers import BertConfig, BertModel

from lorgnette.lenses.cones.outcome import Sample, cone_variables
from lorgnette.lenses.geometry.cosine import sim
from reproductions.fosse2023 import pretrained
from reproductions.fosse2023.pretrained_cell import LayerSums
from reproductions.fosse2023.pretrained_cell import finetuned as finetune
from reproductions.fosse2023.pretrained_cones import cone_numbers, correlations
from reproductions.fosse2023.pretrained_page import page_part
from reproductions.fosse2023.pretrained_reading import all_above, all_within
from reproductions.frame.estimates import Estimate
from reproductions.frame.record import Reproduction, Settings


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
    known = torch.stack([labels, predicted], -1).double()
    confusion = torch.zeros(3, 3).index_put_((labels, predicted), torch.ones(len(labels)), accumulate=True)

    class Lens:
        classes, representative, keep, draws = ("a", "b", "c"), "random", False, 99

    Lens.confusion = confusion
    lens = cone_variables(Sample.of([str(n) for n in range(len(labels))], torch.cat([known, vectors], -1)), Lens)
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
    cell = pretrained.Run("minilm", "hatexplain", start, 0).cell(quick=True)
    assert cell.function.endswith(":finetuned")
    found = finetune(
        **{**cell.arguments, "limit": 24, "max_length": 40},
        data=str(tmp_path),
        models=str(models),
        scratch=str(tmp_path),
    )
    json.dumps(found, allow_nan=False)
    assert len(found["before"]["sim"]["tokens"]) == 3  # embeddings and two layers
    assert found["before"]["sim"]["cls_corpus"][0] == pytest.approx(1.0, abs=1e-5)  # [CLS] is the same everywhere
    assert found["before"]["sim"]["tokens"] != found["after"]["sim"]["tokens"]
    assert sum(found["after"]["cones"]["random"]["items"]) == found["texts"]["test"] == 12
    accuracy = np.average(
        found["after"]["cones"]["random"]["accuracy"], weights=found["after"]["cones"]["random"]["items"]
    )
    assert accuracy == pytest.approx(found["metrics"]["test"]["accuracy"], abs=1e-5)


def settings_for(tmp_path, seeds=(0, 1, 2)):
    return Settings(out=tmp_path / "fosse2023", seeds=seeds)


def written(part, tmp_path):
    whole = Reproduction(
        name="fosse2023", title="t", reference="r", summary=part.summary, setup=part.setup, claims=part.claims,
        tables=part.tables, figures=part.figures, provenance=part.provenance,
    )  # fmt: skip
    return (whole.write(tmp_path / "page") / "README.md").read_text()


def test_the_page_from_made_up_cells(tmp_path):
    settings = settings_for(tmp_path)
    done = {}
    for run in pretrained.runs(False, settings.seeds):
        angle = math.pi / 2 if run.corpus == "esnli" else 2.9 if run.corpus == "yelphat" else 1.0
        change = (0.3, 0.2) if run.corpus == "hatexplain" else (0.3, 0.5)
        done[run.key] = finetuned(run.corpus, run.seed, angle=angle, sim=change)
    part = page_part(settings, done)
    verdicts = {claim.text: claim.verdict for claim in part.claims}
    pick = lambda *words: [v for t, v in verdicts.items() if all(w in t for w in words) and "random" not in t]  # noqa: E731
    assert pick("e-SNLI", "orthogonal") == ["holds"]
    assert pick("YelpHat", "orthogonal") == ["does not hold"]
    assert pick("HateXplain", "orthogonal") == ["does not hold"]
    assert pick("e-SNLI", "anisotropy") == ["holds"]
    assert pick("HateXplain", "anisotropy") == ["does not hold"]
    assert pick("e-SNLI", "closer to representatives") == ["holds"]
    assert not any("e5-small" in text for text in verdicts)  # one seed makes no interval
    page = written(part, tmp_path)
    assert "already spread out" in page
    assert "0.925" in page
    assert "opposite" in page
    assert len(part.figures) == 2


def test_the_page_of_what_is_there(tmp_path):
    key = pretrained.Run("minilm", "yelphat", "pretrained", 0).key
    part = page_part(settings_for(tmp_path), {key: finetuned("yelphat", 0)})
    assert part.claims == []
    assert "YelpHat" in written(part, tmp_path)


def test_verdicts_need_whole_intervals():
    one = Estimate(0.1, 0.0, (0.05, 0.15))
    wide, out, alone = Estimate(0.1, 0.1, (-0.3, 0.4)), Estimate(0.5, 0.0, (0.4, 0.6)), Estimate(0.1, 0.0, None)
    assert all_within([one]) == "holds"
    assert all_within([one, wide]) == "cannot tell"
    assert all_within([wide, out]) == "does not hold"
    assert all_within([alone]) == "cannot tell"
    assert all_above([out], 0.3) == "holds"
    assert all_above([out, one], 0.3) == "does not hold"
    assert all_above([out, wide], 0.3) == "cannot tell"


def test_no_more_than_three_seeds_and_keys_of_their_own():
    cells = pretrained.cells(False, range(5))
    assert len(cells) == 3 * 2 * 3 + 3
    assert all(key.startswith("pretrained-") for key in cells)
