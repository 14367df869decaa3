"""Stiff values or sharp attention, on made-up cells, and the penalty that holds SIM."""

import itertools

import pytest
import torch
from made_cells import finished
from made_up import write_hatexplain, write_vectors

from lorgnette.models.classifier import SelfAttentionClassifier
from lorgnette.models.classifier.presets import preset
from lorgnette.models.tapping import tapped
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Machine
from reproductions.stiff_or_sharp import STUDY, grid, measure
from reproductions.stiff_or_sharp.claims import claims
from reproductions.stiff_or_sharp.runs import Runs

SIM = {"plain": 0.3, "sharp": 0.5, "held": 0.3, "sharp-held": 0.3, "stiff": 0.55}
H = {"plain": 0.8, "sharp": 0.3, "held": 0.8, "sharp-held": 0.3, "stiff": 0.8}
AUPRC = {"plain": 0.5, "sharp": 0.4, "held": 0.5, "sharp-held": 0.4, "stiff": 0.5}


def cell(labels):
    """Sharpness, not stiffness, costs AUPRC; one run is at chance."""
    arm, shift = labels["arm"], 0.002 * labels["seed"] * (1 + len(labels["arm"]) % 3)
    lost = (labels["corpus"], arm, labels["seed"]) == ("yelphat", "sharp", 2)
    if labels["part"] == "gauge":  # the penalty adds a constant; stiffening does more
        left = {"plain": 0.1, "sharp": 0.11, "held": 0.1, "stiff": 0.3}[arm] + shift
        numbers = {"key": 0.5, "key_centred": 0.02 + shift, "value": SIM[arm] + shift, "value_centred": left}
        return {"accuracy": {"test": 0.5 if lost else 0.85}, **numbers}
    return {
        "accuracy": {"test": 0.5 if lost else 0.85 + shift, "train": 0.9},
        "epochs": 8,
        "best": 3,
        "value": SIM[arm] + shift,
        "value_without_bias": SIM[arm] + shift,
        "key": 0.5,
        "entropy": H[arm] - shift,
        "auprc": AUPRC[arm] + shift,
        "auroc": 0.6,
        "comprehensiveness": 0.1,
        "flipped": {"uniform": 0.4 - 0.3 * SIM[arm] + shift, "permuted": 0.3},
    }


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, cell)


def test_sharpness_and_stiffness_are_told_apart(cells):
    verdicts = {claim.id: claim.verdict for claim in claims(cells)}
    assert set(STUDY.headline) <= set(verdicts)
    checks = ("sharpens", "sharpens-held", "stays", "stiffens", "stays-sharp", "placebo")
    for id in (*checks, "penalty", "lost", "needed", "stiffness-auprc", "stiffness-flips"):
        assert verdicts[f"{id}-hatexplain"] == "holds", id
    assert verdicts["sharpness-auprc-hatexplain"] == "does not hold"


def test_a_rise_that_is_a_constant_is_told_from_one_that_is_not(cells):
    verdicts = {claim.id: claim.verdict for claim in claims(cells)}
    assert verdicts["centred-keys-hatexplain"] == "holds"
    assert verdicts["gauge-penalty-hatexplain"] == "holds"
    assert verdicts["gauge-stiffening-hatexplain"] == "does not hold"


def test_a_run_at_chance_is_counted_and_left_out_of_one_estimate(cells):
    by_id = {claim.id: claim for claim in claims(cells)}
    claim = by_id["penalty-yelphat"]
    assert (claim.estimate.n, claim.also[0].n) == (5, 4)
    assert Runs(cells).at_chance("yelphat", "sharp") == 1


def test_the_page_of_made_up_cells(cells):
    outcome = Outcome.of(STUDY, cells)
    assert len(outcome.page("README.md").split()) < 2000
    assert outcome.page("APPENDIX.md")
    assert len({table.id: table.frame for table in outcome.tables}["effects"]) == 12


def test_the_penalty_is_the_squared_gap_of_the_mean_cosine():
    torch.manual_seed(0)
    model = SelfAttentionClassifier(preset("pure-attention", width=8, vocab_size=20, num_labels=2, layers=1)).eval()
    ids = torch.tensor([[2, 5, 6, 7, 8], [2, 9, 10, 0, 0]])
    penalty = measure.SimilarityPenalty(1.0, target=0.2)
    penalty.begin(ids != 0, {})
    with tapped(model, penalty):
        states = model(input_ids=ids, attention_mask=ids != 0, output_hidden_states=True).hidden_states[0]
    values = model.encoder.layers[0].attention.value(states).double()
    sims = []
    for row, length in zip(values, (5, 3), strict=True):
        pairs = list(itertools.combinations(row[:length], 2))
        sims.append(sum(torch.cosine_similarity(a, b, dim=0) for a, b in pairs) / len(pairs))
    gap = (sum(sims) / 2 - 0.2).square()
    assert penalty.value.item() == pytest.approx(gap.item(), abs=1e-7)
    penalty.value.backward()
    assert model.encoder.layers[0].attention.value.weight.grad.abs().sum() > 0


def test_a_cell_can_be_run(tmp_path):
    write_hatexplain(tmp_path, {"train": 60, "val": 30, "test": 30})
    write_vectors(tmp_path)
    machine = Machine(data=str(tmp_path), scratch=tmp_path / "scratch")
    wanted = dict([grid._cell("hatexplain", "sharp-held", 0, {"epochs": 1, "batch_size": 16})])
    grid.prepare(machine, wanted)
    found = measure.trained(machine=machine, **next(iter(wanted.values())).arguments)
    assert set(found["flipped"]) == {"uniform", "permuted"}
    assert found["marked_texts"] == 20
    again = measure.trained_for_gauge(machine=machine, **next(iter(wanted.values())).arguments)
    assert again["value"] == pytest.approx(found["value"], abs=1e-5)
    assert again["value_centred"] < again["value"]
