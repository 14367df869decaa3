"""Norms against weights for alignment: the reader, the counts against loops and the lens, choices held out."""

import lzma

import numpy as np
import pytest
import torch
import xarray as xr
from made_cells import finished
from tiny import marian

from lorgnette.errors import UserError
from lorgnette.lens.alignment.lens import Alignment
from lorgnette.looking.look import look
from lorgnette.texts.example import Example
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Machine, Settings
from reproductions.norms_align import STUDY, measure
from reproductions.norms_align.hansards import pairs
from reproductions.norms_align.measure import COUNTS, MEASURES, READINGS, RULES, counted, error_rate, linked, measured
from reproductions.norms_align.readings import Readings, gap, rate

TEXTS = ["the cat sat ||| le chat sat", "a dog ||| a dog ran", "it was good ||| it was", "the mat ||| mat the"]
GOLD = ["1-1 2-2 3p3 3p2", "1-1 2-2 2p3", "1-1 2-2 3p2", "1-2 2-1"]
SYSTEM = ["0-0 1-1", "0-0 1-1 1-2", "0-0 2-1", "0-1 1-0"]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "hansards_en_fr"
    folder.mkdir()
    for name, rows in (("src-tgt", TEXTS), ("gold", GOLD), ("awesome-align.out", SYSTEM)):
        (folder / f"enfr.{name}.xz").write_bytes(lzma.compress("\n".join(rows * 6).encode() + b"\n"))
    return str(tmp_path)


def test_pairs_are_read_both_ways(data):
    forth, back = pairs(data, "en-fr"), pairs(data, "fr-en")
    assert len(forth) == 24
    assert forth[0].source == ("the", "cat", "sat")
    assert forth[0].gold.sure == {(0, 0), (1, 1)}
    assert forth[0].gold.possible == {(0, 0), (1, 1), (2, 2), (2, 1)}
    assert back[0].target == forth[0].source
    assert back[0].gold.possible == {(j, i) for i, j in forth[0].gold.possible}
    assert back[2].system == {(0, 0), (1, 2)}


def test_what_is_wrong_with_the_files_is_said(data, tmp_path):
    with pytest.raises(UserError, match=r"comes from github.com/neulab/awesome-align"):
        pairs(str(tmp_path / "nowhere"), "en-fr")
    with pytest.raises(UserError, match="give --data"):
        pairs(None, "en-fr")
    gold = tmp_path / "hansards_en_fr" / "enfr.gold"
    for text, said in (("1-1\n", "24, 1 and 24 lines"), ("1:1\n" * 24, "'1:1' is no link"), ("9-1\n" * 24, "word 8")):
        gold.write_text(text)
        with pytest.raises(UserError, match=said):
            pairs(data, "en-fr")


def test_links_and_counts_are_those_of_loops(data):
    pair = pairs(data, "en-fr")[0]
    dice = np.random.default_rng(0)
    scores = torch.from_numpy(dice.normal(size=(5, 3, 3)))
    scores[:, :, 1] = -torch.inf  # a source word without a piece
    for place, found in enumerate(counted(linked(scores), pair).movedim(0, 1)):
        rows = scores[place].tolist()
        by_target = {(row.index(max(row)), t) for t, row in enumerate(rows)}
        by_source = {(s, max(range(3), key=lambda t, s=s: rows[t][s])) for s in (0, 2)}
        for links, counts in zip((by_target, by_source, by_target & by_source), found.tolist(), strict=True):
            assert counts == [len(links & pair.gold.sure), len(links & pair.gold.possible), len(links)]


def test_rates_are_those_of_the_lens(data, monkeypatch):
    tiny = marian()
    monkeypatch.setattr(measure, "opened", lambda *told: tiny)
    told = {"model": "tiny", "direction": "en-fr", "condition": "trained", "every": 1, "blocks": 3, "seed": 0}
    found = measured(machine=Machine(data=data), limit=None, **told).sel(rule="target")
    texts = [
        Example(p.id, " ".join(p.source), target=" ".join(p.target), extra={"alignment": p.gold})
        for p in pairs(data, "en-fr")
    ]
    lens = look(tiny, texts, [Alignment()], progress=False)["alignment"].data.sel(stack="cross", drop=True)
    sure = int(found["sure"].sum())
    for ours, theirs in (("heads", "aer"), ("layers", "layer_aer")):
        for way in ("weights", "norms"):
            rates = error_rate(found[ours].sum("block").sel(measure=way).transpose(..., "count").to_numpy(), sure)
            expected = lens[theirs].sel(measure=way).transpose("layer", ..., "reading")
            expected = expected.sel(reading=list(READINGS)).dropna("layer", how="all").to_numpy()
            assert rates == pytest.approx(expected.reshape(rates.shape), abs=1e-6)
    assert found["baselines"].sel(baseline="system", count="links").sum() == 6 * (2 + 3 + 2 + 2)


def made(labels):
    """Head 2 of layer 1 is best by weights and perfect in even blocks; by norms all are equal, and worse."""
    trained, dice = labels["condition"] == "trained", np.random.default_rng(len(str(labels)))
    shape = (24, 2, 2, len(MEASURES), len(READINGS), len(RULES), len(COUNTS))
    heads = np.zeros(shape, dtype=int)
    heads[..., 2] = 100
    heads[..., :2] = 30 if trained else 5
    heads[:, 0, 1, 0, 1, :, :2] += 50 if trained else 0
    heads[..., :2] += dice.integers(0, 5, (*shape[:-1], 1))
    dims = ("block", "layer", "head", "measure", "reading", "rule", "count")
    baselines = np.array([[20, 20, 100], [96, 96, 100]]) + np.zeros((24, 1, 1), dtype=int)
    coords = {"measure": list(MEASURES), "reading": list(READINGS), "rule": list(RULES), "count": list(COUNTS)}
    data = {
        "heads": (dims, heads),
        "layers": ((dims[0], dims[1], *dims[3:]), heads.max(2)),
        "baselines": (("block", "baseline", "count"), baselines),
        "sure": ("block", np.full(24, 100)),
        "pairs": ("block", np.full(24, 19)),
    }
    return xr.Dataset(data, {**coords, "baseline": ["diagonal", "system"], "layer": [1, 2]})


def test_planted_verdicts_and_what_was_chosen():
    outcome = Outcome.of(STUDY, finished(STUDY, made))
    verdicts = {claim.id: claim.verdict for claim in outcome.claims}
    for direction in ("en-fr", "fr-en"):
        assert verdicts[f"best-head-input-{direction}"] == "does not hold"
        assert verdicts[f"best-way-{direction}"] == "does not hold"
        assert verdicts[f"input-better-{direction}"] == "holds"
        assert verdicts[f"over-diagonal-{direction}"] == "holds"
        assert verdicts[f"random-{direction}"] == "holds"
        assert verdicts[f"best-head-output-{direction}"] == "cannot tell"
        assert verdicts[f"centred-norms-{direction}"] == "cannot tell"
    readings = Readings(outcome.cells)
    assert [place for _, place in readings.chosen("en-fr", "heads", "weights", [("input", "target")])] == [1, 1]
    assert "by norms" in outcome.page("README.md")
    assert "diagonal" in outcome.page("APPENDIX.md")


def test_a_place_is_chosen_on_the_other_half():
    def one_sided(labels):
        data = made(labels)
        data["heads"].values[0::2, 1, 0, 0, 1, :, :2] = 100  # perfect in half 0 alone
        data["heads"].values[1::2, 1, 0, 0, 1, :, :2] = 0
        return data

    readings = Readings(finished(STUDY, one_sided))
    way = [("input", "target")]
    assert [place for _, place in readings.chosen("en-fr", "heads", "weights", way)] == [1, 2]
    held = readings.held_out("en-fr", "heads", "weights", way)
    assert held[1::2, 0].sum() == 0  # chosen where it is perfect, judged where it is not
    assert rate(held.sum(0)) > rate(readings.counts("en-fr", "heads", "weights", way[0])[:, 1].sum(0))


def test_union_and_gap():
    readings = Readings(finished(STUDY, made))
    union = readings.counts("en-fr", "heads", "weights", ("input", "either"))
    assert (union[..., 2] == 100).all()  # all rules have the same links here
    counts = readings.baseline("en-fr", "system")
    assert gap(counts, counts).value == 0


def test_quick_end_to_end(data, tmp_path, monkeypatch):
    tiny = marian()
    monkeypatch.setattr(measure, "opened", lambda *told: tiny)
    monkeypatch.setattr(Machine, "require", lambda *told: None)
    settings = Settings(quick=True, out=tmp_path / "norms_align", data=data)
    outcome = STUDY.reproduce(settings)
    assert len(outcome.cells) == 4
    assert not outcome.cells.missing
    page = outcome.page("README.md")
    assert "24 sentence pairs" in page
    assert len(page.split()) <= 1500
