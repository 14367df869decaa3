"""Fosse et al. 2023: claims from made-up runs that say one thing or the other, and the whole way on made-up posts."""

import pytest
from made_cells import finished
from made_up import write_hatexplain, write_vectors

from lorgnette.errors import UserError
from lorgnette.texts.annotated import YELP_TESTS
from reproductions.fosse2023 import STUDY, grid
from reproductions.fosse2023.attention.penalty_claims import remarks
from reproductions.fosse2023.attention.runs import Runs
from reproductions.frame import rows
from reproductions.frame.cells import Cells
from reproductions.frame.page import Outcome, published
from reproductions.frame.settings import Settings
from reproductions.frame.statistics import slope

SEEDS = (0, 1, 2)


def result(labels, stiffens=True):
    """A run that builds up anisotropy, stiffens by λ and then needs no weights; or one that does the opposite."""
    if labels["part"] != "attention":
        return None
    sign, layers, strength = 1 if stiffens else -1, labels["layers"], labels["strength"]
    noise = 0.004 * labels["seed"]
    sims = [0.5 + sign * 0.5 * strength + noise + sign * 0.09 * layer for layer in range(layers)]
    last = sims[-1]
    part = {"texts": 999, "key": sims, "value": sims, "state": [0.3, *sims], "entropy": [0.9 - 8 * strength]}
    part |= {"entropy_without_cls": [0.9], "cone_widest": [1 - last], "rank_value": [9.0] * layers, "accuracy": 0.6}
    pooled = {"auprc": 0.9 - last, "auroc": 1.0 - last, "iou": 0.1}
    better = {**pooled, "auroc": pooled["auroc"] + (0.1 if layers > 1 else -0.1)}
    maps, cosine = (
        {"all": {"texts": 50, "pooled": one}, YELP_TESTS["test50"]: {"texts": 9, "pooled": one}}
        for one in (pooled, better)
    )
    changed = {"accuracy": 0.6 - (1 - last) / 4, "flipped": 1 - last, "cosine": last, "lost": 0.1}
    weights = {"texts": 2000, "trained": {"accuracy": 0.6}, "uniform": changed, "permuted": changed}
    return {
        "metrics": {"test": {"accuracy": 0.6 + noise}},
        "curve": [{"train": {"accuracy": 0.7}}],
        "texts": {"train": 10, "validation": 5, "test": 5},
        "groups": {"published": part, "regularisation": part, "whole": part},
        "plausibility": {"attention": maps, "rollout": maps, "cosine": cosine},
        "faithfulness": {
            order: {"comprehensiveness": 0.9 - last, "sufficiency": last} for order in ("attention", "random")
        },
        "replaced": {**weights, "adversarial": {**changed, "flipped": 1.0}},
    }


def made(stiffens=True, change=lambda labels, one: one):
    def changed(labels):
        one = result(labels, stiffens)
        return None if one is None else change(labels, one)

    return finished(STUDY, changed, seeds=SEEDS)


@pytest.mark.parametrize("stiffens", [True, False])
def test_claims_go_with_the_runs(stiffens):
    outcome = Outcome.of(STUDY, made(stiffens))
    judged = {claim.id: claim for claim in outcome.claims}
    yes, free = "holds" if stiffens else "does not hold", "not identified"

    def verdicts(start, end=""):
        """Of the sentences themselves: where the printed number contradicts one, its opposite is tested."""
        other = {"holds": "does not hold", "does not hold": "holds", "cannot tell": "cannot tell", free: free}
        named = [claim for id, claim in judged.items() if id.startswith(start) and id.endswith(end)]
        assert named, start
        return {other[claim.verdict] if claim.opposed else claim.verdict for claim in named}

    for levels in ("rise-", "deeper-", "few-", "last-", "wider-"):
        assert verdicts(levels) == {free}, levels  # SIM of keys and values: a constant moves it anywhere
    assert {claim.estimate.value > 0 for id, claim in judged.items() if id.startswith("rise-")} == {stiffens}
    assert judged["last-hatexplain-values-random-300"].published.value == 0.992
    assert all(claim.ours for id, claim in judged.items() if id.startswith("last-") and id.endswith("-l5"))
    assert verdicts("penalty-", "-values-1e-1") == {yes}
    assert verdicts("sharper-") == {yes}
    # These made-up maps are worse where values are stiffer; where they are not made stiffer, no loss is theirs.
    lost = {"holds" if stiffens else "cannot tell"}
    assert verdicts("explains-", "-auprc") == verdicts("explains-", "-sufficiency") == lost
    assert judged["explains-hatexplain-auprc"].estimate.value == pytest.approx(-0.05 if stiffens else 0.05)
    # However SIM moves, these flips are fewer where values are stiffer.
    assert verdicts("map-") == {"holds"}
    assert verdicts("protects-", "-uniform") == {"holds"}
    assert verdicts("protects-", "-adversarial") == {"cannot tell"}  # all of them, always
    rise = judged["rise-hatexplain-values-l5"]
    assert rise.estimate.value == pytest.approx(0.09 if stiffens else -0.09)
    assert rise.published.value == pytest.approx(slope([0.606, 0.673, 0.858, 0.958, 0.992]))
    assert judged["rise-esnli-values-l5"].published is None
    frames = {table.id: table.frame for table in outcome.tables}
    assert list(frames["late"]["seeds"]) == [len(SEEDS)] * (3 * 3 * 2)
    assert len(frames["replaced"]) == 3 * 9
    assert {"sim-esnli", "penalty-yelphat", "states", "maps", "explained"} <= set(frames)
    assert [figure.name for figure in outcome.figures] == ["layers", "vectors", "penalty", "replaced"]
    assert len(outcome.page("README.md").split()) < 2000


def test_a_page_from_some_of_the_runs():
    def few(labels, one):
        late = labels["corpus"] != "hatexplain" or labels["vectors"] != "glove-100" or labels["seed"] == 2
        return None if late or (labels["layers"], labels["seed"]) == (5, 1) else one

    judged = {claim.id: claim for claim in Outcome.of(STUDY, made(change=few)).claims}
    assert all("hatexplain" in id for id in judged)
    assert judged["rise-hatexplain-values-l5"].estimate.interval is None  # one seed


def test_runs_at_chance_are_counted_and_left_out():
    """Two seeds of three collapse at the strongest λ, and only in them SIM rises."""

    def collapsed(labels, one):
        if labels["strength"] != 0.1 or labels["vectors"] != "glove-100":
            return one
        rise = 0.3 if labels["seed"] else -0.01 * labels["strength"]
        part = {**one["groups"]["regularisation"], "value": [0.5 + rise + 0.004 * labels["seed"]]}
        accuracy = 0.33 if labels["seed"] else 0.6
        groups = {**one["groups"], "regularisation": part}
        return {**one, "groups": groups, "metrics": {"test": {"accuracy": accuracy}}}

    judged = {claim.id: claim for claim in STUDY.module("claims").claims(made(change=collapsed))}
    claim = judged["penalty-hatexplain-values-1e-1"]
    assert claim.estimate.value == pytest.approx(0.2, abs=0.01)
    assert claim.verdict == "cannot tell"  # one seed is left
    assert "2 of 3 seeds at chance" in claim.note


def test_copies_of_a_model_are_no_further_runs():
    """λ = 1e-4 and 1e-3 leave the models as they are: correlations are over what differs, one for each seed."""
    runs = Runs(made().where(part="attention"))
    assert runs.different("hatexplain", runs.by_strength("hatexplain")) == [(1, 0.0), (1, 0.01), (1, 0.1)]
    judged = {claim.id: claim for claim in STUDY.module("claims").claims(made())}
    assert judged["explains-hatexplain-auprc"].estimate.n == len(SEEDS)
    assert judged["protects-hatexplain-adversarial"].undecided  # every prediction changes in every run


def test_an_idle_penalty_and_a_model_that_learnt_nothing_are_told():
    def idle(labels, one):
        if labels["corpus"] != "esnli":
            return one
        groups = {**one["groups"], "regularisation": {**one["groups"]["regularisation"], "entropy": [0.9]}}
        metrics = {"test": {"accuracy": 0.33}} if labels["strength"] == 0.1 else one["metrics"]
        return {**one, "groups": groups, "metrics": metrics}

    runs = Runs(made(change=idle).where(part="attention"))
    assert len(remarks(runs, "esnli")) == 2
    assert "0.1" in remarks(runs, "esnli")[1]
    assert remarks(runs, "hatexplain") == []
    assert runs.at_chance("esnli", runs.points("esnli")) == 3


TINY = grid.Size(
    late=False,
    epochs=1,
    batch_size=16,
    depths=(1, 2),
    strengths=(0.0, 0.1),
    corpora=("hatexplain",),
    vectors={"glove-100": 100},
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fosse-data")
    write_hatexplain(folder, {"train": 60, "val": 30, "test": 30})
    write_vectors(folder)
    return folder


def test_the_whole_way(data, tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "QUICK", TINY)
    settings = Settings(quick=True, out=tmp_path / "fosse2023", data=str(data), seeds=(0,), only="attention")
    with pytest.raises(UserError, match="no finished cell"):
        STUDY.reproduce(Settings(**{**vars(settings), "partial": True}))
    outcome = STUDY.reproduce(settings)
    assert len(outcome.cells) == 3
    assert outcome.write(settings.out) == settings.out
    kept = rows.read(settings.out / "cells.csv")
    rows.write(settings.out / "cells.csv", {key: document for key, document in kept.items() if "L2" not in key})
    early = STUDY.reproduce(Settings(**{**vars(settings), "partial": True}))
    assert len(early.cells) == 2
    assert "attention-hatexplain-glove-100-L2-lambda0-seed0" in early.cells.missing


def test_parts_are_known_by_name(tmp_path):
    with pytest.raises(UserError, match=r"There is no part 'atention'.*attention"):
        STUDY.reproduce(Settings(out=tmp_path, only="atention"))


def test_what_is_beside_the_point_runs_last(tmp_path):
    wanted = STUDY.grid(Settings(out=tmp_path, seeds=(0, 1, 2, 3, 4)), {})
    beside = [cell.labels.get("weights") == "late" or str(cell.labels.get("vectors")) in grid.OTHERS
              for cell in wanted.values() if cell.labels["part"] == "attention"]  # fmt: skip
    assert sum(beside) == 81
    assert [cell.labels["part"] for cell in list(wanted.values())[-81:]] == ["attention"] * 81
    assert all(beside[-81:])
    Cells(tmp_path).done(wanted)  # every key can be a file


def test_published_tables_are_whole():
    printed = published("fosse2023")
    for of in ("key", "value"):
        for corpus in grid.CORPORA:
            assert all(len(row) == int(layers) for layers, row in printed[of][corpus].items())
    table = printed["regularisation"]
    assert all(len(row) == 5 for corpus in grid.CORPORA for row in table[corpus].values())
    assert printed["value"]["yelphat"]["5"][3] == 0.9023
