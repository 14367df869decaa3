"""The reproduction of Clark et al., end to end on a tiny model, and its parts by oracles."""

import json
import math

import numpy as np
import pytest
import scipy.stats
import torch
import xarray as xr
from subjects import EXAMPLES, bert
from typer.testing import CliRunner

from lorgnette.attention import Tap
from lorgnette.cli.app import app
from lorgnette.errors import UserError
from lorgnette.looking.look import look
from reproductions.clark2019.cell import SpecialRows, within_and_between
from reproductions.frame.conditions import Settings, there, with_random_weights
from reproductions.frame.readings import claim, interval, plain

NAMES = ("clark2019",)


@pytest.mark.parametrize("name", NAMES)
def test_quick_end_to_end(name, tiny_shelf, tmp_path):
    options = ["--data", str(tiny_shelf / "data"), "--models", str(tiny_shelf / "models"), "--device", "cpu"]
    arguments = ["reproduce", name, "--quick", "--out", str(tmp_path / name), *options]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    document = json.loads((tmp_path / name / "results.json").read_text())
    readme = (tmp_path / name / "README.md").read_text()
    assert "Do not quote" in readme
    assert "None of the numbers below is the published quantity" in readme
    assert str(tiny_shelf) not in readme + json.dumps(document)
    assert "unbelievably" not in readme + json.dumps(document)  # no text of the data
    assert all(figure["caption"] for figure in document["figures"])
    for claimed in document["claims"]:
        assert claimed["ours"] is not None or claimed["verdict"] == "cannot tell"
        if claimed["interval"] is not None and isinstance(claimed["ours"], float):
            assert claimed["interval"][0] <= claimed["ours"] <= claimed["interval"][1]
    conditions = document["provenance"]["conditions"]
    assert set(conditions) == {f"minilm, {c}" for c in ("trained", "random weights", "shuffled words")}
    trained, shuffled = conditions["minilm, trained"], conditions["minilm, shuffled words"]
    assert trained["segments"] == 24
    assert trained["tokens"] == shuffled["tokens"]
    assert trained["segments_fingerprint"] != shuffled["segments_fingerprint"]
    before = (tmp_path / name / "results.json").read_bytes()
    again = CliRunner().invoke(app, arguments)  # every cell is there already
    assert again.exit_code == 0
    assert (tmp_path / name / "results.json").read_bytes() == before


def test_a_model_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setattr("reproductions.frame.conditions.find", lambda name: None)
    with pytest.raises(UserError, match="None of the models minilm is here"):
        there(Settings(out=tmp_path, quick=True, models=str(tmp_path)))


class Rows(Tap):
    """Keeps the matrices."""

    def __init__(self):
        self.kept = []

    def see(self, call):
        self.kept.append(call.weights.double())


def test_special_rows_by_loops():
    subject = bert()
    found = look(subject, EXAMPLES, [SpecialRows()], progress=False)["special_rows"].data.isel(stack=0)
    for name, pick in (("cls_entropy", "cls"), ("sep_to_sep", "sep")):
        sums = np.zeros(found[name].shape)
        for example in EXAMPLES:
            rows = Rows()
            batch = subject.encode([example])
            with torch.no_grad(), subject.tapped(rows):
                subject.run(batch)
            asked = batch.source.categories[pick][0].nonzero()[:, 0].tolist()
            for layer, weights in enumerate(rows.kept):
                for head in range(weights.shape[1]):
                    for query in asked:
                        row = weights[0, head, query].tolist()
                        value = (
                            -sum(w * math.log(w) for w in row if w > 0)
                            if pick == "cls"
                            else sum(w for w, sep in zip(row, batch.source.categories["sep"][0], strict=True) if sep)
                        )
                        sums[layer, head] += value / len(asked)
        np.testing.assert_allclose(found[name].values, sums / len(EXAMPLES), rtol=1e-5)


def test_random_weights_are_seeded_and_random():
    subject = bert()
    one, same, other = (with_random_weights(subject, seed) for seed in (0, 0, 1))
    assert one.weights_hash == same.weights_hash
    assert len({subject.weights_hash, one.weights_hash, other.weights_hash}) == 3
    assert one.name.endswith("random weights")


def test_within_and_between_layers():
    labels = ["1-1", "1-2", "2-1", "2-2"]
    values = np.array([[0, 1, 5, 6], [1, 0, 7, 8], [5, 7, 0, 3], [6, 8, 3, 0]], dtype=float)
    data = xr.Dataset(
        {"divergence": (("stack", "head_a", "head_b"), values[None])}, {"head_a": labels, "head_b": labels}
    )
    assert within_and_between(data) == (2.0, 6.5)


def test_intervals_are_those_of_a_t_test():
    values = [0.1, 0.4, 0.35, 0.2]
    mean, low, high = interval(values)
    expected = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (mean, low, high) == pytest.approx((np.mean(values), expected.low, expected.high))
    assert math.isnan(interval([0.3])[1])
    assert interval([None, 0.3, 0.3])[0] == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("estimate", "above", "said"),
    [
        ((-0.4, -0.5, -0.3), False, "holds"),
        ((-0.4, -0.5, -0.3), True, "does not hold"),
        ((-0.1, -0.3, 0.1), False, "cannot tell"),
        ((0.4, None, None), True, "cannot tell"),
    ],
)
def test_a_verdict_needs_the_whole_interval(estimate, above, said):
    assert claim("ρ", estimate, 0.0, above=above).verdict == said


def test_what_is_missing_is_none():
    assert plain([[1.0, math.nan], [0.5, 2.0]]) == [[1.0, None], [0.5, 2.0]]
