"""TP 9 on a handful of made-up reviews: the whole way, and what its parts promise."""

import json
import math

import numpy as np
import pytest
import torch
from made_cells import finished
from made_up import write_imdb, write_vectors

from lorgnette.errors import UserError
from lorgnette.models.classifier.config import SelfAttentionClassifierConfig
from lorgnette.models.classifier.layers import SelfAttention
from lorgnette.training import prepare
from reproductions.frame.page import Outcome, published
from reproductions.frame.settings import Machine, Settings
from reproductions.frame.tokens import place, store, stored
from reproductions.tp9 import STUDY, diagnosis, facts, grid, measure
from reproductions.tp9.grid import SCALED_WIDTHS
from reproductions.tp9.position_map import analytic_position_similarity, position_similarity
from reproductions.tp9.runs import Runs
from reproductions.tp9.scaling import DIVIDED, UNDIVIDED, gradients

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
    ordered=(),
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
    outcome = STUDY.reproduce(settings)
    folder = outcome.write(settings.out)
    assert "Do not quote these numbers" in (folder / "README.md").read_text()
    document = json.loads((folder / "results.json").read_text())
    assert document["provenance"]["cells"] == (len(grid.models(TINY)) + 1) * 2 + len(grid.searches(TINY, 0)) + 2
    assert not settings.scratch.exists()
    # The cells are there, so the page is made again from them, the same to the letter.
    assert STUDY.measure(settings) == 0
    assert STUDY.reproduce(settings).results() == outcome.results()


def fake(validation: float, test: float | None, train: float) -> dict:
    """A cell's result, as training leaves it."""
    entry = {"epoch": 1.0, "step": 9, "train": {"accuracy": train}, "validation": {"accuracy": validation}}
    return {
        "metrics": {"validation": {"accuracy": validation}, "test": None if test is None else {"accuracy": test}},
        "best": {"epoch": 1.0, "step": 9},
        "parameters": {"trained": 200, "total": 1000},
        "seconds": {"training": 2.0},
        "texts": {"train": 22500, "validation": 2500, "test": 25000},
        "curve": [{**entry, "seconds": 1.0}],
    }


PLACES = {"denied_first": 0.9, "denied_last": 0.3, "balanced": 0.6}


def in_order(labels: dict) -> dict:
    """Positions let a model read word order: it loses by shuffling, tells pairs apart, and gains on negations."""
    sees, noise = labels["positions"] != "none", 0.001 * labels["seed"]
    return {
        **fake(0.8, 0.8, 0.9),
        "shuffled": {"whole": 0.8, "accuracy": 0.75 + noise if sees else 0.8, "changed": 0.1 * sees, "texts": 9},
        "pairs": {"pairs": 4, "right": 0.7 + noise if sees else 0.5, "gap": 0.1, **PLACES},
        "negation": {"with": 0.75 + noise if sees else 0.7, "without": 0.8, "sentences": {"with": 2, "without": 7}},
    }


OTHERS = {
    "tfidf": {"metrics": {p: {"accuracy": 0.9} for p in ("test", "validation")}, "parameters": {"trained": 9}},
    "vectors": {"norm": 5.0, "without_vector": 0.1},
}


def scaled(seed: int) -> dict:
    """Divided, the gradient is the same at all widths; undivided, it grows with √d."""
    noise = 1 + 0.001 * seed
    return {
        way: {str(d): {"gradient": (1.0 if way == DIVIDED else d**0.5) * noise, "entropy": 0.9} for d in SCALED_WIDTHS}
        for way in (DIVIDED, UNDIVIDED)
    }


def made_up(labels: dict) -> dict:
    """Deep bare models fail, trained vectors are better, literal sinusoidal positions hurt, those × 0.3 do not."""
    if labels["step"] in OTHERS:
        return OTHERS[labels["step"]]
    if labels["step"] in ("order", "pairs"):
        return in_order(labels)
    if labels["step"] == "scaling":
        return scaled(labels["seed"])
    if labels["step"] == "search":
        return fake(0.9 if labels["positions"] == "scaled" and labels["scale"] == 0.3 else 0.8, None, 0.85)
    loud = labels["positions"] == "sinusoidal"
    value = 0.86 + 0.02 * (labels["embeddings"] == "trained") - 0.04 * loud
    if labels["family"] == "base" and (labels["layers"] or 0) >= 7:
        value = 0.5
    return fake(value, value + 0.001 * labels["seed"], 0.99 if loud else 0.9)


def test_the_page_of_the_whole_grid():
    outcome = Outcome.of(STUDY, finished(STUDY, made_up))
    judged = {claim.id: claim for claim in outcome.claims}
    assert judged["target-residual-frozen"].verdict == "holds"
    assert judged["depth-hurts-base"].verdict == "holds"
    assert judged["depth-fails-base"].estimate.value == 1.0
    assert judged["order-blind-sst2-base"].verdict == "holds"
    assert judged["order-shuffled-imdb-base-relative"].estimate.value == pytest.approx(0.049)
    assert judged["order-pairs-sst2-residual-learnt"].verdict == "holds"
    assert judged["order-negation-sst2-base-sinusoidal"].verdict == "holds"
    assert judged["positions-sinusoidal-base-frozen"].verdict == "does not hold"
    assert judged["positions-sinusoidal-base-frozen"].estimate.value == pytest.approx(-0.04)
    assert judged["residual-beats-base-frozen"].undecided  # other rates of dropout were tried
    assert not judged["residual-beats-base-trained"].undecided
    assert "3 of the runs at chance" in judged["depth-hurts-base"].note
    assert judged["scaling-divided"].verdict == judged["scaling-undivided"].verdict == "holds"
    assert judged["scaling-undivided"].estimate.value == pytest.approx(np.log(8))
    assert {figure.name for figure in outcome.figures} == {
        "steps",
        "models",
        "curves",
        "depth",
        "positions",
        "order",
    }
    assert [(one["family"], one["layers"], one["seeds"]) for one in outcome.facts["dead"]] == [
        ("base", layers, 3) for layers in (7, 8, 12, 16)
    ]
    assert {one["factor"] for one in outcome.facts["cured"]} == {0.3}
    assert len(outcome.facts["losses"]["over-fitted"]) == 4  # sinusoidal positions: train higher, test lower
    assert outcome.page("README.md").startswith("# TP 9")


def test_a_dead_seed_decides_nothing_alone():
    """One of three seeds of eight layers is dead; the others are as good as those of one layer."""

    def one_dead(labels: dict) -> dict:
        one = made_up(labels)
        if labels["step"] == "final" and labels["family"] == "base" and (labels["layers"] or 0) >= 7:
            accuracy = 0.5 if labels["seed"] == 0 else 0.86 + 0.001 * labels["seed"]
            return fake(accuracy, accuracy, 0.9)
        return one

    judged = {claim.id: claim for claim in Outcome.of(STUDY, finished(STUDY, one_dead)).claims}
    claim = judged["depth-hurts-base"]
    assert claim.estimate.value == pytest.approx(0.12, abs=0.01)
    assert len(claim.also) == 1
    assert claim.also[0].value == pytest.approx(0.0, abs=0.002)
    assert claim.verdict == "cannot tell"


def test_an_unknown_part_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no parts"):
        STUDY.reproduce(Settings(out=tmp_path, only="pages"))


def test_test_reviews_are_not_read_while_settings_are_chosen(data, tmp_path):
    for key, one in grid.searches(TINY, 0).items():
        assert key.startswith("search-")
        assert one.arguments["test"] is False
    machine = Machine(data=str(data), scratch=tmp_path)
    cell = grid.plain("mean", "frozen").cell(TINY, grid.Choice(0.01, 0.0), 1.0, 0, test=False)
    measure.prepare_texts(cell.arguments, machine)
    assert measure.trained(**cell.arguments, machine=machine)["metrics"]["test"] is None


def test_the_choice_is_the_best_on_validation():
    size = grid.FULL
    cells = grid.searches(size, 0)
    results = {key: {"metrics": {"validation": {"accuracy": 0.5}}} for key in cells}
    results["search-residual-frozen-lr0.0003-dropout0.3"] = {"metrics": {"validation": {"accuracy": 0.8}}}
    results["search-base-trained-scale0.3"] = {"metrics": {"validation": {"accuracy": 0.9}}}
    assert grid.choices(size, results)["residual", "frozen"] == grid.Choice(3e-4, 0.3)
    assert grid.choices(size, results)["base", "frozen"] == grid.Choice(1e-3, 0.0)
    assert grid.scales(size, results)["base", "trained"] == 0.3
    finals = grid.finals(size, grid.choices(size, results), grid.scales(size, results), (0, 1, 2))
    assert len(finals) == len(grid.models(size)) * 3
    scaled = finals["base-L3-scaled-mean-trained-seed1"].arguments["overrides"]
    assert (scaled["positions"], scaled["position_scale"]) == ("sinusoidal", 0.3)
    assert finals["base-L3-sinusoidal-mean-trained-seed1"].arguments["overrides"]["position_scale"] == 1.0


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_stored_ids_are_those_that_would_be_read(data, tmp_path, pooling):
    cell = grid.Model("base", "trained", "none", pooling, 3).cell(TINY, grid.Choice(0.01, 0.0), 1.0, 0)
    measure.prepare_texts(cell.arguments, Machine(data=str(data), scratch=tmp_path))
    told = {key: value for key, value in cell.arguments.items() if key != "test"}
    settings = measure.settings_of(**told, data=str(data), out=tmp_path / "run")
    fresh, kept = prepare(settings), stored(settings, tmp_path)
    pairs = [(fresh.train, kept.train), (fresh.validation, kept.validation), (fresh.test, kept.test)]
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
    assert max(facts.position_check().values()) < 1e-10


def test_the_published_numbers_say_where_they_come_from():
    printed = published("tp9")
    assert all("status" in one for one in printed["expectations"])
    assert set(printed["targets"]) == {"residual, frozen vectors", "best model"}


def test_a_page_of_what_is_there(tiny):
    """Of the depth study one seed without residuals is there, of the three-layer models all but one residual run."""

    def some(labels):
        if labels["step"] in ("tfidf", "search", "scaling"):
            return made_up(labels) if labels["step"] == "search" else None
        lone = (labels.get("family"), labels.get("layers"), labels.get("seed"))
        if labels["step"] == "final" and ((lone[1] == 1 and lone != ("base", 1, 0)) or lone == ("residual", 3, 1)):
            return None
        return made_up(labels)

    cells = finished(STUDY, some, quick=True, seeds=(0, 1))
    outcome = Outcome.of(STUDY, cells)
    # Only what two seeds stand behind is claimed; a mean of one seed has no deviation.
    assert [claim.id for claim in outcome.claims] == ["target-best", "attention-beats-mean-frozen"]
    main = outcome.tables[0].frame
    assert main["seeds"].tolist() == ["2", "2", "1", "not run"]
    assert main["± sd"].isna().tolist() == [False, False, True, True]
    assert "tfidf" in cells.missing
    assert "residual-L1-none-mean-frozen-seed0" in cells.missing
    assert "Not all of it was run" in outcome.page("README.md")
    with pytest.raises(UserError, match="choose the settings"):
        Runs(finished(STUDY, lambda labels: OTHERS.get(labels["step"]), quick=True, seeds=(0, 1)))
    with pytest.raises(UserError, match="for every seed"):
        Runs(finished(STUDY, lambda labels: made_up(labels) if labels["step"] == "search" else None, quick=True))


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
def test_why_a_richer_model_is_worse(richer, reading, monkeypatch):
    size = grid.Size({"frozen": 2}, positions=("none", "learnt"), embeddings=("frozen",), poolings=("mean",),
                     depths=(3,), baselines=(), search=False, ordered=())  # fmt: skip
    monkeypatch.setattr(grid, "QUICK", size)

    def result(labels):
        if labels["step"] != "final":
            return made_up(labels)
        worse = (labels["family"], labels["positions"]) == ("base", "learnt")
        one = fitted(*(richer if worse else (0.90, 0.90, 0.88, 0.88, 0.88)))
        one["metrics"]["test"]["accuracy"] += 0.0001 * labels["seed"]  # a little noise, or there is no interval
        return one

    runs = Runs(finished(STUDY, result, quick=True, seeds=(0, 1)))
    monkeypatch.setattr(runs, "chosen", dict.fromkeys(runs.chosen, grid.Choice(1e-3, 0.1)))
    assert [loss.reading for loss in diagnosis.losses(runs)] == ([] if reading is None else [reading])


@pytest.mark.parametrize(("width", "length"), [(2, 5), (16, 40), (100, 64)])
def test_the_position_map_is_toeplitz_with_half_the_width_on_its_diagonal(width, length):
    found = position_similarity(width, length)
    torch.testing.assert_close(found, analytic_position_similarity(width, length), rtol=0, atol=1e-10)
    torch.testing.assert_close(found.diagonal(), torch.full((length,), width / 2, dtype=torch.float64))
    torch.testing.assert_close(found[1:, 1:], found[:-1, :-1], rtol=0, atol=1e-10)
    for i, j in ((0, 1), (3, 1), (4, 0)):
        by_hand = sum(math.cos((i - j) / 10000 ** (2 * k / width)) for k in range(width // 2))
        assert found[i, j].item() == pytest.approx(by_hand, abs=1e-10)
    with pytest.raises(UserError, match="even"):
        analytic_position_similarity(3, 4)


def test_the_gradient_at_a_query_is_the_sum_over_keys(tmp_path):
    """∂L/∂q_i = s Σ_j α_ij (g_i·v_j − g_i·y_i) k_j, in loops."""
    found = gradients(machine=Machine(), widths=[8], texts=2, tokens=5, seed=0)
    torch.manual_seed(0)
    layer = SelfAttention(SelfAttentionClassifierConfig(width=8, heads=1), 0).double()
    states = torch.randn(2, 5, 8, dtype=torch.float64)
    above = torch.randn_like(states) / 8**0.5
    for way, scale in ((DIVIDED, 8**-0.5), (UNDIVIDED, 1.0)):
        lengths = []
        for x, g in zip(states, above, strict=True):
            q, k, v = (getattr(layer, name)(x).detach() for name in ("query", "key", "value"))
            for i in range(5):
                e = [float(torch.exp(scale * q[i] @ k[j])) for j in range(5)]
                a = [one / sum(e) for one in e]
                y = sum(a[j] * v[j] for j in range(5))
                lengths.append(float((scale * sum(a[j] * (g[i] @ (v[j] - y)) * k[j] for j in range(5))).norm()))
        assert found[way]["8"]["gradient"] == pytest.approx(np.mean(lengths), abs=1e-6)
