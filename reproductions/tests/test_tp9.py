"""TP 9 on a handful of made-up reviews: the whole way, and what its parts promise."""

import json

import pytest
import torch
from made_up import write_imdb, write_vectors

from lorgnette.errors import UserError
from lorgnette.training import prepare
from reproductions.frame import record
from reproductions.frame.cells import main
from reproductions.frame.estimates import difference, estimate, verdict_above
from reproductions.frame.record import Settings
from reproductions.frame.tokens import place, store, stored
from reproductions.tp9 import cell, diagnosis, grid, page, reproduce, runs, train_cells

TINY = grid.Size(
    {"frozen": 1, "trained": 1},
    batch_size=16,
    max_length=10,
    depths=(1, 3),
    embeddings=("frozen",),
    positions=("none",),
    poolings=("mean",),
    baselines=("mean",),
    search=False,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_imdb(folder, {"train": 100, "test": 30})
    write_vectors(folder)
    return folder


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(grid, "QUICK", TINY)


def test_the_whole_way(data, tmp_path, tiny):
    settings = Settings(quick=True, out=tmp_path / "tp9", data=str(data), seeds=(0, 1))
    outcome = reproduce(settings)
    folder = outcome.write(settings.out)
    readme = (folder / "README.md").read_text()
    assert "| mean of the words (TP 8) | frozen |" in readme
    assert "Do not quote these numbers" in readme
    document = json.loads((folder / "results.json").read_text())
    assert len(document["provenance"]["runs"]) == len(grid.models(TINY)) * 2
    assert not runs.scratch_of(settings).exists()
    # The cells are there, so the page is made again from them, the same to the letter.
    assert train_cells(settings) == 0
    assert reproduce(settings).to_json() == outcome.to_json()


def fake(validation: float, test: float | None, train: float) -> dict:
    """A cell's result, as training leaves it."""
    entry = {"epoch": 1.0, "step": 9, "train": {"accuracy": train}, "validation": {"accuracy": validation}}
    return {
        "metrics": {"validation": {"accuracy": validation}, "test": None if test is None else {"accuracy": test}},
        "best": {"epoch": 1.0, "step": 9},
        "parameters": {"trained": 200, "total": 1000},
        "seconds": {"training": 2.0},
        "texts": {"train": 22500, "validation": 2500, "test": 25000},
        "device": "cpu",
        "versions": {},
        "corpus_fingerprint": "0",
        "curve": [{**entry, "seconds": 1.0}],
    }


def accuracy_of(key: str, seed: int) -> float:
    """Made up: deep bare models fail, trained vectors are better, literal sinusoidal positions hurt."""
    value = 0.86 + 0.02 * ("trained" in key) - 0.04 * ("-sinusoidal-" in key) + 0.001 * seed
    return 0.5 + 0.001 * seed if key.startswith(("base-L7", "base-L8")) else value


def test_the_page_of_the_whole_grid(data, tmp_path):
    seeds = (0, 1, 2)
    searches = {key: fake(0.8, None, 0.85) for key in grid.searches(grid.FULL, 0)}
    searches |= {key: fake(0.9, None, 0.85) for key in searches if key.endswith("scale0.3")}
    chosen, scales = grid.choices(grid.FULL, searches), grid.scales(grid.FULL, searches)
    finals = {
        key: fake(accuracy_of(key, 0), accuracy_of(key, int(key[-1])), 0.99 if "sinusoidal" in key else 0.9)
        for key in grid.finals(grid.FULL, chosen, scales, seeds)
    }
    words = {"metrics": {"test": {"accuracy": 0.9}, "validation": {"accuracy": 0.9}}, "parameters": {"trained": 9}}
    outcome = runs.Outcome(grid.FULL, seeds, searches, chosen, scales, finals, words)
    made = page.page_of(Settings(out=tmp_path / "tp9", data=str(data), seeds=seeds), outcome)
    readme = (made.write(tmp_path / "tp9") / "README.md").read_text()
    for text in (
        "**Question 1: the base model",
        "**Question 4: `<cls>` or mean?**",
        "the diagonal is d/2 = 50 everywhere",
        "runs that learnt nothing: 3 of 3 seeds at 7, 3 of 3 seeds at 8.",
        "sinusoidal × 0.3 0.0*",
        "sinusoidal −4.0",
        "- *Over-fitted*: ",
        "TF-IDF (1, 2 words) + logistic regression",
    ):
        assert text in readme, text
    verdicts = {claim.text: claim.verdict for claim in made.claims}
    assert verdicts["residual, frozen vectors: test accuracy, mean of 3 seeds, at least 0.85"] == "holds"
    assert verdicts["without residuals 8 layers are worse than 1"] == "holds"
    assert verdicts["3, frozen vectors, base: sinusoidal positions help"] == "does not hold"
    assert verdicts["2, frozen vectors: the residual model is better than the base model"] == "cannot tell"
    assert {figure.name for figure in made.figures} == {"models", "curves", "depth", "positions"}


def test_the_command_trains_and_stops_in_time(data, tmp_path, tiny, capsys):
    out = tmp_path / "tp9"
    given = ["tp9", "--quick", "--data", str(data), "--out", str(out), "--seeds", "0"]
    assert main([*given, "--budget-seconds", "-1"]) == 0
    assert "cells are left" in capsys.readouterr().err
    assert not list((out / "cells").glob("*.json")) if (out / "cells").exists() else True


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no parts"):
        reproduce(Settings(out=tmp_path, only="pages"))


def test_test_reviews_are_not_read_while_settings_are_chosen(data, tmp_path):
    for key, one in grid.searches(TINY, 0).items():
        assert key.startswith("search-")
        assert one.arguments["test"] is False
    found = grid.plain("mean", "frozen").cell(TINY, grid.Choice(0.01, 0.0), 1.0, 0, test=False)
    cell.prepare_texts(found.arguments, str(data), tmp_path)
    told = {**found.arguments, "test": False}
    assert cell.trained(**told, data=str(data), scratch=str(tmp_path))["metrics"]["test"] is None


def test_the_choice_is_the_best_on_validation():
    size = grid.FULL
    cells = grid.searches(size, 0)
    found = {key: {"metrics": {"validation": {"accuracy": 0.5}}} for key in cells}
    found["search-residual-frozen-lr0.0003-dropout0.3"] = {"metrics": {"validation": {"accuracy": 0.8}}}
    found["search-base-trained-scale0.3"] = {"metrics": {"validation": {"accuracy": 0.9}}}
    assert grid.choices(size, found)["residual", "frozen"] == grid.Choice(3e-4, 0.3)
    assert grid.choices(size, found)["base", "frozen"] == grid.Choice(1e-3, 0.0)
    assert grid.scales(size, found)["base", "trained"] == 0.3
    finals = grid.finals(size, grid.choices(size, found), grid.scales(size, found), (0, 1, 2))
    assert len(finals) == len(grid.models(size)) * 3
    scaled = finals["base-L3-scaled-mean-trained-seed1"].arguments["overrides"]
    assert (scaled["positions"], scaled["position_scale"]) == ("sinusoidal", 0.3)
    assert finals["base-L3-sinusoidal-mean-trained-seed1"].arguments["overrides"]["position_scale"] == 1.0
    assert len({json.dumps(one.arguments) for one in finals.values()}) <= len(finals)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_stored_ids_are_those_that_would_be_read(data, tmp_path, pooling):
    found = grid.Model("base", "trained", "none", pooling, 3).cell(TINY, grid.Choice(0.01, 0.0), 1.0, 0)
    cell.prepare_texts(found.arguments, str(data), tmp_path)
    told = {key: value for key, value in found.arguments.items() if key != "test"}
    settings = cell.settings_of(**told, data=str(data), out=tmp_path / "run")
    fresh, kept = prepare(settings), stored(settings, tmp_path)
    pairs = [(fresh.train, kept.train), (fresh.validation, kept.validation), (fresh.test(), kept.test())]
    for expected, items in pairs:
        expected_items = sorted((one["input_ids"].tolist(), one["labels"]) for one in expected.items)
        assert sorted((one["input_ids"].tolist(), one["labels"]) for one in items.items) == expected_items
        assert items.cut == expected.cut
    torch.manual_seed(0)
    first = fresh.builder.model()
    torch.manual_seed(0)
    second = kept.builder.model()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    before = place(settings, tmp_path)
    assert place(settings.replace(max_length=9), tmp_path) != before
    store(settings.replace(model="mean", overrides={}), tmp_path)  # is there: nothing happens


def test_positions_have_their_analytic_form():
    check = page.position_check()
    assert check["diagonal"] == 50
    assert max(check["difference"], check["toeplitz"], check["diagonal_spread"]) < 1e-10


def test_the_published_numbers_say_where_they_come_from():
    told = record.published("tp9")
    assert all("status" in one for one in told["expectations"])
    assert set(told["targets"]) == {"residual, frozen vectors", "best model"}


def test_estimates():
    values = [0.80, 0.82, 0.84]
    found = estimate(values)
    half = 4.302652729911275 * 0.02 / 3**0.5  # t of two degrees of freedom
    assert found.interval == pytest.approx((0.82 - half, 0.82 + half))
    step = difference(values, [0.70, 0.72, 0.74])
    half = 2.7764451051977987 * 0.02 * (2 / 3) ** 0.5
    assert step.interval == pytest.approx((0.1 - half, 0.1 + half))
    assert verdict_above(step) == "holds"
    assert verdict_above(difference([0.70, 0.72, 0.74], values)) == "does not hold"
    assert verdict_above(difference(values, values)) == "cannot tell"
    assert verdict_above(estimate([0.5])) == "cannot tell"


def test_a_page_of_what_is_there(data, tmp_path, tiny, monkeypatch):
    settings = Settings(quick=True, partial=True, out=tmp_path / "tp9", data=str(data), seeds=(0, 1))
    with pytest.raises(UserError, match="holds 0 of the 3 runs that choose the settings"):
        reproduce(settings)
    cells = runs.cells_of(settings)
    searches = grid.searches(TINY, 0)
    made_up = {key: fake(0.8, None, 0.85) for key in searches}
    chosen, scales = grid.choices(TINY, made_up), grid.scales(TINY, made_up)
    finals = grid.finals(TINY, chosen, scales, (0, 1))
    # Of the depth study one seed without residuals is there, of the three-layer models all but one residual run.
    there = [key for key in finals if "-L1-" not in key and key != "residual-L3-none-mean-frozen-seed1"]
    there.append("base-L1-none-mean-frozen-seed0")
    cells.folder.mkdir(parents=True)
    write_cells(cells.folder, searches, made_up)
    with pytest.raises(UserError, match="no model that was run for every seed"):
        reproduce(settings)
    write_cells(cells.folder, finals, {key: fake(0.86, 0.85 + 0.001 * int(key[-1]), 0.9) for key in there})
    monkeypatch.setattr(cell, "trained", None)  # nothing may be trained
    monkeypatch.setattr(cell, "tfidf", None)
    before = sorted(path.name for path in cells.folder.iterdir())
    made = reproduce(settings)
    readme = (made.write(settings.out) / "README.md").read_text()
    assert sorted(path.name for path in cells.folder.iterdir()) == before
    for text in (
        "**Not all of it was run: 6 of the 10 trainings are there.**",
        "mean with frozen vectors: residual, none positions (1 of 2 seeds)",
        "depth, base: 1 of 2 seeds at 1 layers",
        "depth, residual: 0 of 2 seeds at 1 layers",
        "; TF-IDF.",
        "Base, test accuracy and number of seeds: 1 layer 0.850 (1), 3 layers 0.851 (2)",
        "That is no answer yet",
        "**Question 2: residual connections at three layers.** Not run.",
        "| 1 | 1 | 0.850 | – | 0.900 | 0.850 | not run | – | – | – | – |",
        "lorgnette reproduce tp9 --quick --partial --seeds 0,1",
    ):
        assert text in readme, text
    # Only what two seeds stand behind is claimed; a mean of one seed has no deviation.
    assert [claim.text[:2] for claim in made.claims] == ["be", "1,"]
    main = next(table for table in made.tables if table.title == "Accuracy").frame
    assert main["seeds"].tolist() == ["2", "2", "1", "not run"]
    assert main["± sd"].isna().tolist() == [False, False, True, True]
    document = json.loads((settings.out / "results.json").read_text())
    assert document["provenance"]["partial"] is True
    assert len(document["provenance"]["runs"]) == 6


def write_cells(folder, cells, results):
    """As if they had been run."""
    for key, result in results.items():
        record = {"cell": cells[key].record(), "result": result, "seconds": 1.0}
        (folder / f"{key}.json").write_text(json.dumps(record))


def fitted(train: float, last_train: float, validation: float, last_validation: float, test: float) -> dict:
    """A run that went on for an epoch after the one that was kept."""
    one = fake(validation, test, train)
    later = {"epoch": 2.0, "train": {"accuracy": last_train}, "validation": {"accuracy": last_validation}}
    return {**one, "curve": [*one["curve"], later]}


@pytest.mark.parametrize(
    ("richer", "reading"),
    [
        ((0.90, 0.97, 0.85, 0.83, 0.82), "over-fitted"),  # goes on learning the training reviews only
        ((0.92, 0.92, 0.85, 0.85, 0.82), "over-fitted"),  # knows the training reviews better from the start
        ((0.86, 0.86, 0.85, 0.85, 0.82), "harder to train"),
        ((0.90, 0.90, 0.88, 0.88, 0.82), "test only"),
        ((0.90, 0.90, 0.85, 0.85, 0.82), "open"),
        ((0.90, 0.90, 0.85, 0.85, 0.878), None),  # hardly worse
    ],
)
def test_why_a_richer_model_is_worse(richer, reading):
    size = grid.Size({"frozen": 2}, positions=("none", "learnt"), embeddings=("frozen",), poolings=("mean",),
                     depths=(3,), baselines=())  # fmt: skip
    chosen = {(family, "frozen"): grid.Choice(1e-3, 0.1) for family in grid.BLOCKS}
    simple = (0.90, 0.90, 0.88, 0.88, 0.88)
    finals = {
        f"{model.key}-seed{seed}": fitted(
            *(richer if (model.family, model.positions) == ("base", "learnt") else simple)
        )
        for model in grid.models(size)
        for seed in (0, 1)
    }
    for key, one in finals.items():  # a little noise, or there is no interval
        one["metrics"]["test"]["accuracy"] += 0.0001 * int(key[-1])
    outcome = runs.Outcome(size, (0, 1), {}, chosen, {}, finals, None)
    assert [loss.reading for loss in diagnosis.losses(outcome)] == ([] if reading is None else [reading])
    text = " ".join(diagnosis.worse(outcome))
    assert ("No model is clearly worse" in text) == (reading is None)
    assert ("Maas et al. 2011" in text) == (reading == "test only")


def test_partial_is_refused_where_it_means_nothing(tmp_path):
    from lorgnette.cli.reproduce import reproduce as command

    with pytest.raises(UserError, match="--partial is for "):
        command("nguyen2022", partial=True, out=tmp_path)


def test_partial_of_nothing_is_told(tmp_path):
    from lorgnette.cli.reproduce import reproduce as command

    with pytest.raises(UserError, match="no finished cell"):
        command("clark2019", partial=True, out=tmp_path / "clark2019")
