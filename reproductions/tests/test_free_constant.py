"""The free constant: SIM against loops over pairs, constants of other texts, a constant moved without any effect."""

from zlib import crc32

import numpy as np
import pytest
import torch
import xarray as xr
from made_cells import finished
from tiny import EXAMPLES, bert, marian

from lorgnette.attending import Tap
from reproductions.cancellation_by_layer.measure import final_states, first_stack, run
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.free_constant import STUDY
from reproductions.free_constant.grid import FAST, LAYERS, PLAIN, SHARP
from reproductions.free_constant.measure import similarity


class Vectors(Tap):
    def __init__(self):
        self.call = {}

    def see(self, call):
        self.call[call.site] = {"key": call.key.double(), "value": call.value.double()}


def kept(subject, part):
    batch, tap = subject.encode(part), Vectors()
    run(subject, batch, tap)
    return tap.call, batch.source.mask


def cosine_of_pairs(vectors, mask, constant):
    """[text head token dim], one pair after the other."""
    every = []
    for text, there in enumerate(mask):
        for head in range(vectors.shape[1]):
            rows = vectors[text, head, there] - constant[head]
            pairs = [
                float(torch.nn.functional.cosine_similarity(rows[i], rows[j], dim=0))
                for i in range(len(rows))
                for j in range(i)
            ]
            every.append(np.mean(pairs))
    return np.mean(every)


@pytest.mark.parametrize("make", [bert, marian])
def test_sim_is_that_of_all_pairs_less_the_mean_over_the_other_half(make):
    subject = make()
    parts = [EXAMPLES[:2], EXAMPLES[2:4], EXAMPLES[1:3], EXAMPLES[3:]]
    data = similarity(subject, parts)
    found = [kept(subject, part) for part in parts]
    for layer, site in enumerate(first_stack(subject), 1):
        for name in ("key", "value"):
            for block, (calls, mask) in enumerate(found):
                others = [found[k] for k in range(len(parts)) if k % 2 != block % 2]
                rows = torch.cat([c[site][name].transpose(1, 2)[m] for c, m in others])  # [token head dim]
                zero = torch.zeros_like(rows.mean(0))
                at = {"block": block}
                for kind, constant in (("raw", zero), ("centred", rows.mean(0))):
                    one = float(data["sim"].sel(vector=name, kind=kind, layer=layer).isel(at))
                    assert one == pytest.approx(cosine_of_pairs(calls[site][name], mask, constant), abs=1e-6)
            rows = torch.cat([c[site][name].transpose(1, 2)[m] for c, m in found])
            share = (rows.mean(0).square().sum(-1) / rows.square().sum(-1).mean(0)).mean()
            assert float(data["share"].sel(vector=name, layer=layer)) == pytest.approx(float(share), abs=1e-6)


def test_a_constant_moves_raw_sim_and_nothing_else():
    """Planted in the biases of keys and values, and taken out of that of the output."""
    subject, parts = bert(), [EXAMPLES[:2], EXAMPLES[2:4], EXAMPLES[3:5]]
    before, batch = similarity(subject, parts), subject.encode(EXAMPLES)
    states = final_states(run(subject, batch))
    with torch.no_grad():
        for layer in subject.model.encoder.layer:
            bias, dice = layer.attention.self.value.bias, torch.Generator().manual_seed(0)
            constant = 3 * torch.randn(bias.shape, generator=dice, dtype=bias.dtype)
            layer.attention.self.key.bias += constant
            layer.attention.self.value.bias += constant
            layer.attention.output.dense.bias -= layer.attention.output.dense.weight @ constant
    after = similarity(subject, parts)
    assert torch.allclose(final_states(run(subject, batch)), states, atol=1e-4)
    raw, centred = (after["sim"].sel(kind=kind) - before["sim"].sel(kind=kind) for kind in ("raw", "centred"))
    assert float(after["sim"].sel(kind="raw").min()) > 0.9
    assert float(raw.mean()) > 0.3
    assert float(np.abs(centred).max()) < 1e-4


def test_quick_end_to_end(tiny_shelf, tmp_path):
    folders = {"data": str(tiny_shelf / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    settings = Settings(quick=True, only="encoders", out=tmp_path / "free_constant", **folders)
    outcome = STUDY.reproduce(settings)
    assert len(outcome.cells) == 2
    assert "Do not quote" in outcome.page("README.md")


def cell(labels, left=0.1):
    """Similarity that is mostly a constant; the step size alone leaves much behind. `left` of it stays."""
    dice = np.random.default_rng(crc32(str(labels).encode()))
    if labels["part"] == "encoders":
        raw = 0.3 + 0.02 * np.arange(4) + dice.normal(0, 0.01, (8, 2, 1, 4))
        rest = left * 0.3 * np.array([1.2, 0.8, 1.1, 0.9]) + dice.normal(0, 0.001, (8, 2, 1, 4))
        sim = np.concatenate([raw, rest], 2) * (1 if labels["condition"] == "trained" else 0.2)
        coords = {"vector": ["key", "value"], "kind": ["raw", "centred"], "layer": [1, 2, 3, 4]}
        data = {
            "sim": (("block", "vector", "kind", "layer"), sim),
            "share": (("vector", "layer"), np.full((2, 4), 0.3)),
        }
        return xr.Dataset(data, coords, {"texts": 96})
    up = {PLAIN: 0.0, SHARP: 0.2, FAST: 0.4}[labels["arm"]]
    raw = 0.2 + 0.08 * np.arange(LAYERS) + up + dice.normal(0, 0.005, LAYERS)
    rest = left * (raw - 0.2) + (0.5 if labels["arm"] == FAST else 0.0)
    return {
        "accuracy": {"test": 0.6, "train": 0.7},
        "epochs": 9,
        "entropy": [0.5] * LAYERS,
        "key": raw.tolist(),
        "value": raw.tolist(),
        "key_centred": (left * raw / 2).tolist(),
        "value_centred": rest.tolist(),
        "device": "cpu",
    }


def verdicts(made):
    return {claim.id: claim.verdict for claim in Outcome.of(STUDY, finished(STUDY, made)).claims}


def test_what_was_planted_is_judged_as_planted():
    found = verdicts(cell)
    assert set(STUDY.headline) <= set(found)
    assert {id: found[id] for id in STUDY.headline if found[id] != "holds"} == {}


def test_what_is_no_constant_is_not_taken_for_one():
    found = verdicts(lambda labels: cell(labels, left=1.0))
    assert {found[id] for id in ("kept-values", "kept-keys", "deep-penalty-kept", "deep-kept-rise")} == {
        "does not hold"
    }
    assert found["minilm-kept-values"] == "does not hold"
