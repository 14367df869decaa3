"""Is a sink a bias: replacing against hooks, numbers over texts against loops, the whole way, planted verdicts."""

from zlib import crc32

import numpy as np
import pytest
import scipy.stats
import torch
import xarray as xr
from made_cells import finished
from tiny import EXAMPLES, bert, gpt2, marian

from lorgnette.attending import Tap
from lorgnette.contributions.head_weights import SiteWeights
from reproductions.cancellation_by_layer.measure import Replaced, final_states, first_stack, run
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.sink_as_bias import STUDY
from reproductions.sink_as_bias.grid import SINKS
from reproductions.sink_as_bias.measure import (
    REPLACEMENTS,
    Values,
    _over_texts,
    _replaced,
    places,
    replacements,
)


class Contexts(Tap):
    def __init__(self):
        self.context, self.call = {}, {}

    def see(self, call):
        self.context[call.site], self.call[call.site] = call.context.clone(), call


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_a_replaced_value_is_read_in_place_of_the_old_one(make):
    subject = make()
    batch = subject.encode(EXAMPLES)
    place = places(batch, ["middle"])["middle"]
    sites, dice = first_stack(subject), torch.Generator().manual_seed(0)
    intact, changed = Contexts(), Contexts()
    run(subject, batch, intact)
    new = {}
    for site in sites:
        heads, dim = intact.call[site].value.shape[1], intact.call[site].value.shape[-1]
        new[site] = torch.randn(len(batch), heads, dim, generator=dice, dtype=torch.float64)
    run(subject, batch, Replaced(place, new), changed)
    for site in sites:
        call = changed.call[site]  # later layers start from changed states
        value = call.value.clone()
        value[torch.arange(len(batch)), :, place] = new[site].to(value)
        assert torch.allclose(changed.context[site], call.weights @ value, atol=1e-5)
    assert not torch.allclose(changed.context[sites[0]], intact.context[sites[0]])


def test_a_token_that_sends_the_same_everywhere_is_its_mean():
    """In a first layer [CLS] has one value whatever the text; with one layer the states do not move at all."""
    subject = bert()
    values = Values.of(subject, EXAMPLES, ["cls", "middle"])
    first = first_stack(subject)[0]
    mean = replacements("mean", "cls", values, values, len(EXAMPLES))[first]
    assert torch.allclose(mean, values.value["cls"][first], atol=1e-6)
    batch = subject.encode(EXAMPLES)
    with_mean, with_zero = (
        final_states(run(subject, batch, Replaced(places(batch, ["cls"])["cls"], {first: each})))
        for each in (mean, torch.zeros_like(mean))
    )
    states = final_states(run(subject, batch))
    assert torch.allclose(states[batch.source.mask], with_mean[batch.source.mask], atol=1e-5)
    assert not torch.allclose(states[batch.source.mask], with_zero[batch.source.mask], atol=1e-3)
    data = _over_texts(subject, values, 0).sel(kind="cls", layer=1)
    assert data["constancy"].to_numpy() == pytest.approx(1)
    assert np.isnan(data["rho"]).all()


def test_numbers_over_texts_are_those_of_loops():
    subject = bert()
    values = Values.of(subject, EXAMPLES, ["cls", "middle"])
    data = _over_texts(subject, values, 0)
    sites, weights = first_stack(subject), SiteWeights(subject, layer_norm=False)
    for layer, site in enumerate(sites, 1):
        output = weights[site].output.double()
        for head in range(output.shape[0]):
            value = values.value["middle"][site][:, head]
            sent = (value - values.average(site)[head]) @ output[head]
            expected = sent.mean(0).square().sum() / sent.square().sum(-1).mean()
            one = data.sel(kind="middle", layer=layer).isel(head=head)
            assert float(one["constancy"]) == pytest.approx(float(expected), abs=1e-6)
            for norm, vectors in (("norm", value @ output[head]), ("centred", sent)):
                weight = values.weight["middle"][site][:, head]
                rho = scipy.stats.spearmanr(weight, vectors.norm(dim=-1)).statistic
                assert float(one["rho"].sel(norm=norm)) == pytest.approx(rho, abs=1e-6)
    total = sum(int(mask.sum()) for mask in subject.encode(EXAMPLES).source.mask)
    assert values.tokens == total


def test_halves_and_neighbours():
    subject = gpt2()
    one, other = (Values.of(subject, EXAMPLES[k : k + 2], ["first", "middle"]) for k in (0, 3))
    both = Values.joined([one, other])
    site = first_stack(subject)[-1]
    assert both.tokens == one.tokens + other.tokens
    assert both.value["first"][site].shape[0] == 4
    swap = replacements("swap", "middle", both, other, 2)[site]
    assert torch.equal(swap, other.value["middle"][site])
    data = _replaced(subject, EXAMPLES[:2], ["first", "middle"], both, other)
    assert set(data["replacement"].values) == set(REPLACEMENTS)
    assert np.isfinite(data["loss_change"]).all()


def test_quick_end_to_end(tiny_shelf, tmp_path):
    folders = {"data": str(tiny_shelf / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    settings = Settings(quick=True, out=tmp_path / "sink_as_bias", **folders)
    outcome = STUDY.reproduce(settings)
    assert len(outcome.cells) == 2
    page = outcome.page("README.md") + outcome.page("APPENDIX.md")
    assert "Do not quote" in page
    assert STUDY.measure(settings) == 0


def cell(labels):
    """Sinks are constant, words are not."""
    model, dice = labels["model"], np.random.default_rng(crc32(str(labels).encode()))
    kinds = [*SINKS[model], "middle"]
    sink = np.array([kind != "middle" for kind in kinds])[:, None]
    change = np.where(sink, [0.5, 0.4, 0.03, 0.05], [0.2, 0.19, 0.17, 0.25]) * np.exp(dice.normal(0, 0.05, (8, 1, 1)))
    heads, share = (len(kinds), 2, 3, 4), np.where(sink[:, 0], 0.97, 0.1)
    data = {
        "change": (("block", "kind", "replacement"), change),
        "rho": (("kind", "norm", "layer", "head"), dice.normal(0, 0.03, heads)),
        "rho_draws": (("kind", "norm", "draw"), dice.normal(0, 0.02, (len(kinds), 2, 200))),
        "size": (("kind", "norm"), np.full((len(kinds), 2), 0.06)),
        "size_by_chance": (("kind", "norm"), np.full((len(kinds), 2), 0.055)),
        "constancy": (("kind", "layer", "head"), share[:, None, None] + dice.normal(0, 0.005, heads[:1] + heads[2:])),
        "weight": (("kind", "layer", "head"), dice.random(heads[:1] + heads[2:])),
    }
    if model == "smollm2":
        data["loss_change"] = (("block", "kind", "replacement"), change)
    coords = {"kind": kinds, "replacement": list(REPLACEMENTS), "norm": ["norm", "centred"], "layer": [1, 2, 3]}
    return xr.Dataset(data, coords, {"texts": 200})


def test_what_was_planted_is_judged_as_planted():
    outcome = Outcome.of(STUDY, finished(STUDY, cell))
    verdicts = {claim.id: claim.verdict for claim in outcome.claims}
    assert set(STUDY.headline) <= set(verdicts)
    assert {id: verdicts[id] for id in STUDY.headline if verdicts[id] != "holds"} == {"fifth": "not identified"}
    page = outcome.page("README.md")
    assert "Largely" in page
    assert len(page.split()) <= 1500


def test_what_was_not_planted_is_not_found():
    def even(labels):
        data = cell(labels)
        dice = np.random.default_rng(crc32(str(labels).encode()))
        data["change"][:] = 0.2 * np.exp(dice.normal(0, 0.05, data["change"].shape))
        return data

    verdicts = {claim.id: claim.verdict for claim in Outcome.of(STUDY, finished(STUDY, even)).claims}
    assert verdicts["fifth-average"] == "does not hold"
    assert verdicts["sink-over-word-average"] != "holds"
