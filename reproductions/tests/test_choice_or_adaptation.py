"""Choice or adaptation: sets of one size, every length from the same weights, claims on planted differences."""

import pytest
from made_cells import finished
from tiny import marian

from lorgnette.models.families import anatomy_of
from reproductions.choice_or_adaptation import STUDY
from reproductions.choice_or_adaptation.claims import claims
from reproductions.choice_or_adaptation.grid import ADAPTING
from reproductions.choice_or_adaptation.measure import by_site, chosen
from reproductions.frame.page import Outcome


def test_random_sets_have_the_gates_number_of_heads_in_every_layer_and_differ():
    network = marian().model
    sites = anatomy_of(network).sites
    table = {each.site.name: [[0] for other in sites if other.site.name == each.site.name] for each in sites}
    kept = by_site(table, network)
    assert chosen("gates", 0, kept, network, None, 0) is kept
    sets = [chosen(f"random{number}", 0, kept, network, None, 0) for number in range(5)]
    assert all({site: len(heads) for site, heads in one.items()} == dict.fromkeys(kept, 1) for one in sets)
    assert len({str(one) for one in sets}) > 1
    assert chosen("random1", 0, kept, network, None, 0) == sets[1], "a set does not depend on who draws it"


def made(labels, apart=2.0, late=0.0):
    """The gates' heads are `apart` BLEU ahead at first and `late` at last; from scratch all are at 30."""
    dice = (int(labels["seed"]) % 4 - 1.5) * 0.02
    if labels["kind"] == "gates":
        return {"kept": {"encoder": [[0], [1], [2]], "decoder": [[0], [1], [2]], "cross": [[0], [1], [2]]}}
    ahead = {"gates": (apart, late, late)}.get(labels.get("choice", ""), (0.0, 0.0, 0.0))
    level = (25.0, 28.0, 30.0) if labels["kind"] == "pruned" else (30.0, 30.0, 30.0)
    gain = ahead if labels["kind"] == "pruned" else (0.0, 0.0, 0.0)
    return {
        "after": [
            {"steps": steps, "bleu": base + more + dice, "loss": 1.0, "brevity": 1.0}
            for steps, base, more in zip(ADAPTING, level, gain, strict=True)
        ]
    }


def test_an_advantage_that_adaptation_undoes_is_found():
    found = {claim.id: claim for claim in claims(finished(STUDY, lambda labels: made(labels, late=0.01)))}
    assert {found[id].verdict for id in STUDY.headline} == {"holds"}
    assert found["chosen-at-once"].estimate.value == pytest.approx(2.0)


def test_an_advantage_that_stays_is_found_too():
    found = {claim.id: claim.verdict for claim in claims(finished(STUDY, lambda labels: made(labels, late=2.0)))}
    assert found["chosen-at-last"] == found["pruned-equals-scratch"] == "does not hold"
    assert found["gradient-at-last"] == "holds"


def test_random_sets_count_when_all_of_a_seed_are_there(tmp_path):
    gone = {"random3"}
    cells = finished(STUDY, lambda labels: None if labels.get("choice") in gone else made(labels), out=tmp_path)
    found = {claim.id: claim for claim in claims(cells)}
    assert found["chosen-at-once"].estimate.n == 0
    assert "Incomplete" in Outcome.of(STUDY, cells).page("README.md")
