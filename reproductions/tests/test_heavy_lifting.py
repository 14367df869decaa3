"""Do specialised heads do the heavy lifting, on made-up cells: what was planted is judged as planted."""

import pytest
import torch
import xarray as xr
from made_cells import finished

from lorgnette.attending import Site
from reproductions.frame.page import Outcome
from reproductions.heavy_lifting import STUDY
from reproductions.heavy_lifting.claims import claims
from reproductions.heavy_lifting.measure import highest
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
    kept = {"encoder": ENCODER, "decoder": ENCODER, "cross": ENCODER}
    random = [arm("random", more) for more in (-1.0, 0.0, 1.0)]
    sets = {name: arm(name) | {"kept": kept} for name in ("gates", "confidence", "gradient")}
    return {"kept": kept, "open": 20, "tied": 0, "own": arm("own"), "sets": sets, "random": random,
            "untrained": [1.9, 2.1 + shift], "free": [3.0, 3.2]}  # fmt: skip


@pytest.fixture(scope="module")
def cells():
    return finished(STUDY, cell)


def test_what_was_planted_is_judged_as_planted(cells):
    verdicts = {claim.id: claim.verdict for claim in claims(cells)}
    assert set(STUDY.headline) <= set(verdicts)
    assert {verdicts[id] for id in STUDY.headline} == {"holds"}


def test_the_second_round_is_named_when_the_first_is_there(cells):
    assert len(cells) == 4 * (4 + 1 + 2)
    first = finished(STUDY, lambda labels: None if labels["seed"] == 3 else cell(labels))
    assert sorted(first.labels("left")) == [12, 24]
    assert not first.of(kind="scratch")


def test_seeds_are_the_sample_and_random_sets_are_not(cells):
    readings = Readings(cells)
    gap = next(claim for claim in claims(cells) if claim.id == "chance-24").estimate
    assert gap.n == 4
    assert gap.value == pytest.approx(1.5 - 0.015)
    assert readings.beaten(24) == (12, 12)
    assert readings.over("gates", "random", 24, "loss")[0] == pytest.approx(1.5 / 20)
    assert readings.layers(12)[0] == pytest.approx(1.1)


def test_roles_are_compared_within_layers(cells):
    readings = Readings(cells)
    assert readings.role_gaps("remain") == [1.0] * 4
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
    assert "It matters which heads remain" in page
    assert len(page.split()) < 2000
    tables = {table.id: table.frame.set_index("heads") for table in outcome.tables if "heads" in table.frame}
    assert tables["bleu"].loc["24", "random heads of the same layers"] == pytest.approx(43.09)
    assert tables["cut"].loc[12, "random heads of all layers"] == pytest.approx(3.1)
    assert outcome.page("APPENDIX.md")
