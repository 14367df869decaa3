"""Fosse et al. 2023: the page from made-up runs that say one thing or the other, and the whole way on made-up posts."""

import json
from pathlib import Path

import pytest
import torch
from made_up import write_hatexplain, write_vectors

from lorgnette.corpora.annotated import YELP_TESTS
from lorgnette.errors import UserError
from lorgnette.statistics.spearman import spearman
from reproductions.fosse2023 import WHOLE, attention, grid, reproduce
from reproductions.fosse2023.attention_claims import claims, remarks
from reproductions.fosse2023.attention_page import part_of
from reproductions.fosse2023.outcome import Outcome
from reproductions.frame import cells as cells_module
from reproductions.frame.cells import Cells
from reproductions.frame.estimates import Estimate, rank_correlation, slope, verdict_below
from reproductions.frame.record import Settings, published

SEEDS = (0, 1, 2)
SIZE = grid.Size()


def result(run: grid.Run, stiffens: bool) -> dict:
    """A run that builds up anisotropy, stiffens by λ and then needs no weights; or one that does the opposite."""
    sign = 1 if stiffens else -1
    noise = 0.004 * run.seed
    level = 0.5 + sign * 0.5 * run.strength + noise
    sims = [level + sign * 0.09 * layer for layer in range(run.layers)]
    last = sims[-1]
    part = {"texts": 999, "key": sims, "value": sims, "state": [0.3, *sims], "entropy": [0.9 - 8 * run.strength]}
    part |= {"entropy_without_cls": [0.9], "cone_widest": [1 - last], "rank_value": [9.0] * run.layers, "accuracy": 0.6}
    pooled = {"auprc": 0.9 - last, "auroc": 1.0 - last, "iou": 0.1}
    maps = {"all": {"texts": 50, "pooled": pooled}, YELP_TESTS["test50"]: {"texts": 9, "pooled": pooled}}
    better = {"all": {"texts": 50, "pooled": {**pooled, "auroc": pooled["auroc"] + (0.1 if run.layers > 1 else -0.1)}}}
    changed = {"accuracy": 0.6 - (1 - last) / 4, "flipped": 1 - last, "cosine": last, "lost": 0.1}
    weights = {"texts": 2000, "trained": {"accuracy": 0.6}, "uniform": changed, "permuted": changed}
    metrics = {"accuracy": 0.6 + noise, "macro_f1": 0.5}
    return {
        "metrics": {"test": metrics, "validation": metrics},
        "epochs": 5,
        "curve": [{"train": {"accuracy": 0.7}}],
        "parameters": {},
        "seconds": {},
        "device": "cpu",
        "versions": {},
        "corpus_fingerprint": "0",
        "texts": {"train": 10, "validation": 5, "test": 5},
        "groups": {"published": part, "regularisation": part, "whole": part},
        "plausibility": {"attention": maps, "rollout": maps, "cosine": better},
        "faithfulness": {
            order: {"comprehensiveness": 0.9 - last, "sufficiency": last} for order in ("attention", "random")
        },
        "replaced": {**weights, "adversarial": {**changed, "flipped": 1.0}},
    }


def made_up(stiffens: bool) -> dict[str, dict]:
    return {run.key: result(run, stiffens) for run in grid.runs(SIZE, SEEDS)}


@pytest.mark.parametrize("stiffens", [True, False])
def test_claims_go_with_the_runs(stiffens):
    outcome = Outcome(SIZE, SEEDS, made_up(stiffens))
    made = list(claims(outcome, published("fosse2023")))
    yes = "holds" if stiffens else "does not hold"

    def verdicts(what: str) -> set[str]:
        found = {claim.verdict for claim in made if what in claim.text}
        assert found, what
        return found

    assert verdicts("rises through the layers") == {yes}
    assert verdicts("is higher for L = 5 than for L = 1") == {yes}
    assert verdicts("From random-300 vectors, L = 5: SIM of the values is above") == {"does not hold"}  # 0.86 at most
    assert verdicts("is higher from random-300 than from random-100 vectors") == {"cannot tell"}  # made the same
    assert verdicts("From random-100 vectors, L = 5: SIM of the keys rises") == {yes}
    assert verdicts("λ = 0.1 raises SIM of the values") == {yes}
    assert verdicts("the sharper the attention") == {yes}
    # However SIM moves, these made-up maps are worse and these flips fewer where values are stiffer.
    assert verdicts("the lower the pooled AUPRC") == {"holds"}
    assert verdicts("the higher the sufficiency") == {"holds"}
    assert verdicts("the cosine map is more plausible") == {"holds"}
    assert verdicts("fewer predictions change with uniform") == {"holds"}
    assert verdicts("fewer predictions change with adversarial") == {"cannot tell"}  # all of them, always
    slopes = [claim for claim in made if claim.text.startswith("HateXplain, L = 5: SIM of the values rises")]
    assert slopes[0].ours == pytest.approx(0.09 if stiffens else -0.09)
    assert slopes[0].published == pytest.approx(slope([0.606, 0.673, 0.858, 0.958, 0.992]))
    beyond = [claim for claim in made if claim.text.startswith("e-SNLI, L = 5: SIM of the values rises")]
    assert beyond[0].published is None


def test_the_page_of_all_runs(tmp_path):
    settings = Settings(out=tmp_path / "x", seeds=SEEDS)
    part = part_of(settings, SIZE, made_up(True))
    titles = [table.title for table in part.tables]
    assert "e-SNLI: SIM of keys and values by depth" in titles
    assert "YelpHat, glove-100: the entropy penalty" in titles
    late = next(
        table for table in part.tables if table.title == "The same models with the weights of a late epoch"
    ).frame
    assert list(late["seeds"]) == [len(SEEDS)] * (3 * 3 * 2)
    said = " ".join(part.summary)
    assert "“holds” 8, “does not hold” 0, “cannot tell” 0" in said  # keys and values at four depths
    assert "HateXplain: SIM of the last layer's values (L = 5) 0.86 → 0.86" in said
    assert "L = 5: 0.86 from glove-100 (0.604), 0.86 from random-300 (0.604), 0.86 from random-100 (0.604)" in said
    frame = next(table for table in part.tables if table.title.startswith("Weights replaced")).frame
    assert len(frame) == 3 * 9
    assert [figure.name for figure in part.figures] == ["layers", "vectors", "penalty", "replaced"]
    json.dumps(part.provenance, allow_nan=False)


def test_a_page_from_some_of_the_runs(tmp_path):
    few = {key: one for key, one in made_up(True).items() if "hatexplain-glove-100-L" in key and "seed2" not in key}
    del few["attention-hatexplain-glove-100-L5-lambda0-seed1"]
    part = part_of(Settings(out=tmp_path / "x", seeds=SEEDS, partial=True), SIZE, few)
    assert all("HateXplain" in claim.text for claim in part.claims)
    deepest = [claim for claim in part.claims if "L = 5: SIM of the values rises" in claim.text]
    assert deepest[0].verdict == "cannot tell"  # one seed


def test_an_idle_penalty_and_a_model_that_learnt_nothing_are_told():
    results = made_up(True)
    for key, one in results.items():
        if "esnli" in key:
            one["groups"]["regularisation"] = {**one["groups"]["regularisation"], "entropy": [0.9]}
            if "lambda0.1" in key:
                one["metrics"] = {"test": {"accuracy": 0.33}}
    said = " ".join(remarks(Outcome(SIZE, SEEDS, results), "esnli"))
    assert "hardly sharpened" in said
    assert "λ = 0.1 learnt nothing" in said
    assert remarks(Outcome(SIZE, SEEDS, results), "hatexplain") == []


def test_wide_models_that_learnt_less_are_told(tmp_path):
    results, settings = made_up(True), Settings(out=tmp_path / "x", seeds=SEEDS)
    assert "learnt less" not in " ".join(part_of(settings, SIZE, results).summary)
    for seed in SEEDS:
        results[f"attention-yelphat-random-300-L5-lambda0-seed{seed}"]["metrics"] = {"test": {"accuracy": 0.4}}
    said = " ".join(part_of(settings, SIZE, results).summary)
    assert "The deepest wide models also learnt less than narrow ones (YelpHat):" in said


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
    out = tmp_path / "fosse2023"
    arguments = ["fosse2023", "--quick", "--part", "attention", "--out", str(out), "--data", str(data), "--seeds", "0"]
    with pytest.raises(UserError, match="no finished cell"):
        reproduce(Settings(quick=True, partial=True, out=out, data=str(data), seeds=(0,), only="attention"))
    assert cells_module.main(arguments) == 0
    assert len(list((out / "cells").glob("attention-*.json"))) == 3
    settings = Settings(quick=True, out=out, data=str(data), seeds=(0,), only="attention")
    folder = reproduce(settings).write(out)
    document = json.loads((folder / "results.json").read_text())
    assert set(document["provenance"]["attention"]["runs"]) == {f.stem for f in (out / "cells").iterdir()}
    assert "does geometry replace attention" in (folder / "README.md").read_text().lower()
    next((out / "cells").glob("*L2*")).unlink()
    early = reproduce(Settings(**{**vars(settings), "partial": True}))
    assert "1 of the 3 runs of *attention* are missing" in early.summary[0]


def test_parts_are_known_by_name(tmp_path):
    with pytest.raises(UserError, match=r"There is no part 'atention'.*attention"):
        reproduce(Settings(out=tmp_path, only="atention"))
    with pytest.raises(SystemExit):
        cells_module.main(["tp9", "--part", "attention"])


def test_what_is_beside_the_point_runs_last(tmp_path):
    settings = Settings(out=tmp_path, seeds=(0, 1, 2, 3, 4))
    wanted = WHOLE.cells(settings)
    keys = list(WHOLE.in_order(settings, wanted))
    assert len(keys) == sum(map(len, wanted.values()))
    assert all(attention.later(key) for key in keys[-81:])
    assert not any(attention.later(key) for key in keys[:-81])
    assert all(key.startswith(f"{name}-") for name, part in wanted.items() for key in part)
    Cells(Path(tmp_path)).done(WHOLE.in_order(settings, wanted))  # every key can be a file


def test_published_tables_are_whole():
    told = published("fosse2023")
    for what in ("key", "value"):
        for corpus in grid.CORPORA:
            assert all(len(row) == int(layers) for layers, row in told[what][corpus].items())
    table = told["regularisation"]
    assert all(len(row) == 5 for corpus in grid.CORPORA for row in table[corpus].values())
    assert told["value"]["yelphat"]["5"][3] == 0.9023


def test_slopes_and_correlations():
    assert slope([1.0, 3.0, 5.0]) == pytest.approx(2.0)
    assert slope([0.2, 0.1]) == pytest.approx(-0.1)
    line = [[(x + 0.1 * s, -x - 0.1 * s) for s in range(3)] for x in range(4)]
    found = rank_correlation(line)
    assert (found.mean, *found.interval) == pytest.approx((-1.0, -1.0, -1.0))
    assert verdict_below(found) == "holds"
    assert rank_correlation([[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0)]]) is None
    assert rank_correlation([[(1.0, 1.0)], [(2.0, 3.0)], [(3.0, 2.0)]]).interval is None
    assert rank_correlation([*line, [(9.0, 9.0), (9.5, 9.0)]]).interval is None  # two runs are no sample
    noise = [[(float(x), float((x * 7 + s * 3) % 5)) for s in range(5)] for x in range(5)]
    one, other = (torch.tensor(side) for side in zip(*(pair for group in noise for pair in group), strict=True))
    assert rank_correlation(noise).mean == pytest.approx(spearman(one, other))
    low, high = rank_correlation(noise).interval
    assert low < 0 < high
    assert verdict_below(Estimate(-0.1, 0.1, (-0.3, 0.1))) == "cannot tell"
