"""Do specialised heads do the heavy lifting, on made-up cells: what was planted is judged as planted."""

import pytest
import torch
import xarray as xr
from made_cells import finished

from lorgnette.attending import Site
from lorgnette.errors import UserError
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.heavy_lifting import STUDY
from reproductions.heavy_lifting.claims import claims
from reproductions.heavy_lifting.measure import draws, highest
from reproductions.heavy_lifting.readings import Readings

ENCODER = [[0, 1], [2], []]
BLEU = {"own": 44.8, "gates": 44.5, "confidence": 44.1, "gradient": 44.2, "random": 43.0, "scratch": 43.5}


def cell(labels):
    """Every arm a little different for every seed; heads 0 and 1 of the first layer have roles, and remain."""
    shift = 0.01 * labels["seed"]

    def arm(name, more=0.0):
        bleu = BLEU[name] + shift * len(name) + more
        return {"bleu": bleu, "loss": 3 - bleu / 20, "brevity": 1.0, "untrained": 4 - bleu / 20}

    if labels["kind"] == "scratch":
        return arm("scratch")
    heads = [[0] * 4 for _ in range(3)]
    if labels["kind"] == "whole":
        roles = {name: [row[:] for row in heads] for name in ("positional", "syntactic", "rare")}
        roles["positional"][0][0] = roles["syntactic"][0][1] = 1
        change = [[0.2 + shift, 0.1, 0.0, 0.0], [0.0] * 4, [0.0] * 4]
        losses = {"trained": 0.9, "longer": 0.89}
        return {"whole": {"bleu": 45.0, "loss": 0.88}, "losses": losses, "change": change, "roles": roles}
    if labels["kind"] == "random":
        return {"random": [arm("random", more) for more in ((-1.0, 0.0), (1.0,))[labels["part"]]], "before": 0.89}
    kept = {"encoder": ENCODER, "decoder": ENCODER, "cross": ENCODER}
    if labels["kind"] == "gates":
        return {"kept": kept, "open": 20, "tied": 0, "before": 0.9, **arm("own")}
    sets = {name: arm(name) | {"kept": kept} for name in ("gates", "confidence", "gradient")}
    if labels["kind"] == "after":
        return {**sets, "random": [1.9, 2.1 + shift], "free": [3.0, 3.2], "before": 0.89}
    return {**sets, "before": 0.89}


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, cell)


def test_what_was_planted_is_judged_as_planted(cells):
    judged = {claim.id: claim for claim in claims(cells)}
    assert set(STUDY.headline) <= set(judged)
    unlike = {id for id in judged if id.startswith(("as-trained", "trained-over-scratch"))}
    assert all(judged[id].undecided.startswith("unequal adaptation") for id in unlike)
    assert all(judged[id].verdict == "cannot tell" for id in unlike)
    assert {judged[id].verdict for id in set(STUDY.headline) - unlike} == {"holds"}


def test_what_is_cut_is_named_when_its_gates_are_there(cells):
    assert len(cells) == 3 * (1 + 2 * (1 + 1 + 1 + 1 + 2))
    first = finished(STUDY, lambda labels: None if labels["kind"] == "gates" and labels["seed"] == 2 else cell(labels))
    assert {one.labels["seed"] for one in first.of(kind="scratch")} == {0, 1}
    assert {one.labels["seed"] for one in first.of(kind="whole")} == {0, 1, 2}


@pytest.mark.parametrize(
    ("kind", "stage"), [("gates", "T is"), ("whole", "T \\+ G is"), ("random", "T \\+ G is"), ("after", "sentences is")]
)
def test_cells_of_two_models_are_refused(kind, stage):
    """One cell of seed 1 comes from a model that was trained again, and has another loss before its heads go."""

    def mixed(labels):
        found = cell(labels)
        other = labels["kind"] == kind and labels["seed"] == 1 and labels.get("left", 24) == 24
        if other and kind == "whole":
            return found | {"losses": {"trained": 0.9, "longer": 0.891}}
        return found | {"before": found["before"] + 0.001} if other and labels.get("part") != 1 else found

    with pytest.raises(UserError, match=rf"seed 1 come from different models: .* after .*{stage}"):
        Readings(finished(STUDY, mixed))


def test_committed_cells_of_a_seed_come_from_one_model():
    committed = STUDY.finished(Settings(out=STUDY.home, partial=True, seeds=STUDY.seeds))
    assert len(committed) == 39
    trained = {c.labels["seed"]: c.result["losses"]["trained"] for c in committed.of(kind="whole")}
    assert len(set(trained.values())) == 3  # seeds do differ
    for each in committed.of(kind="gates"):
        assert each.result["before"] == pytest.approx(trained[each.labels["seed"]], abs=1e-4)


def test_half_of_the_random_sets_are_no_mean_over_them():
    some = finished(STUDY, lambda labels: None if labels.get("part") == 1 and labels["seed"] == 2 else cell(labels))
    assert list(Readings(some).arm("random", 24)) == [0, 1]


def test_random_sets_have_as_many_heads_in_every_layer():
    layers = [Site("encoder", "self", layer) for layer in (0, 1)]
    kept = {layers[0]: [0, 3], layers[1]: []}
    matched, free = draws("0 2", kept, dict.fromkeys(layers, 8), 30)
    assert {(len(one[layers[0]]), len(one[layers[1]])) for one in matched} == {(2, 0)}
    assert {sum(map(len, one.values())) for one in free} == {2}
    assert any(one[layers[1]] for one in free)
    assert draws("0 2", kept, dict.fromkeys(layers, 8), 30) == (matched, free)


def test_seeds_are_the_sample_and_random_sets_are_not(cells):
    readings = Readings(cells)
    gap = next(claim for claim in claims(cells) if claim.id == "chance-24").estimate
    assert gap.n == 3
    assert gap.value == pytest.approx(1.5 - 0.01)
    assert readings.beaten("gates", 24) == (9, 9)
    assert readings.beaten_after(24) == (6, 6)
    assert readings.over("gates", "random", 24, "loss")[0] == pytest.approx(1.5 / 20)
    assert readings.cut_over("random", "free", 12)[1] == pytest.approx(3.1 - 2.005)
    assert readings.cut_over("gates", "random")[0] == pytest.approx(2.0 - (3 - 44.5 / 20))


def test_roles_are_compared_within_layers(cells):
    readings = Readings(cells)
    assert readings.role_gaps("remain") == [1.0] * 3
    assert readings.role_gaps("needed")[1] == pytest.approx(0.155)


def test_highest_keeps_as_many_of_every_layer():
    layers = [Site("encoder", "self", layer) for layer in (0, 1)]
    values = torch.tensor([[[0.1, 0.4, 0.3, 0.2], [0.9, 0.8, 0.7, 0.6]]]).numpy()
    places = {"stack": ["encoder"], "layer": [1, 2], "head": [1, 2, 3, 4]}
    scores = xr.DataArray(values, dims=("stack", "layer", "head"), coords=places)
    kept = {layers[0]: [0, 3], layers[1]: [2]}
    assert highest(scores, kept, dict.fromkeys(layers, 4)) == {layers[0]: [1, 2], layers[1]: [0]}


def test_the_page_of_made_up_cells(cells):
    outcome = Outcome.of(STUDY, cells)
    page = outcome.page("README.md")
    assert "written for other verdicts" in page  # gates are better in these cells
    assert len(page.split()) < 2000
    tables = {table.id: table.frame.set_index("heads") for table in outcome.tables if "heads" in table.frame}
    assert tables["bleu"].loc["24", "random heads of the same layers"] == pytest.approx(43.06)
    assert tables["cut"].loc[12, "random heads of all layers"] == pytest.approx(3.1)
    assert outcome.page("APPENDIX.md")
