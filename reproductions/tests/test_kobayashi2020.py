"""Kobayashi et al. 2020 on a tiny model: the whole way, its parts by oracles, and what it makes of planted numbers."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
import xarray as xr
from made_cells import finished
from tiny import EXAMPLES, bert

from lorgnette.lens.norms.lens import RATIOS, Norms
from lorgnette.looking.look import look
from lorgnette.statistics.spearman import rounded
from lorgnette.texts.frequency import FrequencyRanks
from reproductions.cancellation_by_layer.measure import mean_values, run
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Settings
from reproductions.kobayashi2020 import STUDY
from reproductions.kobayashi2020.measure import KINDS, MEASURES, F
from reproductions.kobayashi2020.ranked_norms import Occurrences, RankedNorms, TokenNorms


def test_quick_end_to_end(tiny_shelf, tmp_path):
    folders = {"data": str(tiny_shelf / "data"), "models": str(tiny_shelf / "models"), "device": "cpu"}
    settings = Settings(quick=True, out=tmp_path / "kobayashi2020", **folders)
    outcome = STUDY.reproduce(settings)
    readme, results = outcome.page("README.md"), outcome.results()
    assert "Do not quote" in readme
    assert "No number here is the published quantity" in readme
    assert str(tiny_shelf) not in readme + results
    assert "unbelievably" not in readme + results + outcome.page("APPENDIX.md")  # no text of the data
    assert [claim.id for claim in outcome.claims if claim.estimate.value is None] == []
    trained, shuffled = (outcome.cells.one(condition=name).attrs for name in ("trained", "shuffled words"))
    assert trained["segments"] == 24
    assert trained["tokens"] == shuffled["tokens"]
    assert trained["segments_fingerprint"] != shuffled["segments_fingerprint"]
    assert STUDY.measure(settings) == 0  # every cell is there already


def test_mixing_ratios_of_tokens_are_those_of_the_lens():
    occurrences = Occurrences()
    lens = RankedNorms(occurrences, by="token", sample=0)
    data = look(bert(), EXAMPLES, [lens], progress=False)["norms"].data.isel(stack=0)
    tokens = sum(len(part) for part in occurrences.pieces)
    assert tokens == data["f_mean_count"].max()
    for name, parts in occurrences.ratios.items():
        mean = float(torch.cat(parts).mean())
        assert mean == pytest.approx(float(data["mixing"].sel(ratio=name).mean()), rel=1e-6)


def test_centred_numbers_are_those_of_the_lens_over_the_whole_corpus():
    """The constants are those of all texts, in whatever blocks they are read."""
    subject = bert()
    constants = mean_values(subject, [EXAMPLES[:1], EXAMPLES[1:]])
    lens = RankedNorms(Occurrences(), constants, by="token", sample=2**16)
    data = look(subject, EXAMPLES, [lens], progress=False)["norms"].data
    expected = look(subject, EXAMPLES, [Norms(by="token", sample=2**16, centred=True)], progress=False)["norms"].data
    for name in ("norm", "norm_share", "spearman_all", "mixing", "f_mean"):
        assert np.allclose(data[name], expected[name], atol=1e-6, equal_nan=True), name
    reader = TokenNorms(subject, constants)
    batch = subject.encode(EXAMPLES)
    run(subject, batch, reader)
    mean = reader.mean()[batch.source.mask.cpu()].mean()
    assert float(mean) == pytest.approx(float(expected["f_mean"].mean()), rel=1e-6)


def test_correlations_with_frequency_rank():
    occurrences = Occurrences()
    look(bert(), EXAMPLES, [RankedNorms(occurrences, sample=0)], progress=False)
    ranks = FrequencyRanks({piece: 1 + (7 * piece) % 40 for piece in range(40)}, "made up")
    data = occurrences.correlations(ranks)
    rank = [ranks[piece] for piece in torch.cat(occurrences.pieces).tolist()]
    for name, parts in occurrences.ratios.items():
        expected = scipy.stats.spearmanr(rank, rounded(torch.cat(parts))).statistic
        rho, low, high = (float(data[f"frequency_of_mixing{end}"].sel(ratio=name)) for end in ("", "_low", "_high"))
        assert rho == pytest.approx(expected, abs=1e-6)
        assert low < rho < high
    assert set(occurrences.correlations(None)["ratio"].values) == set(occurrences.ratios)


def cell(labels) -> xr.Dataset:
    """[SEP] is the sink; its weight and norm cancel between layers in the trained model, also on shuffled words."""
    blocks, layers, heads = 4, 3, 2
    noise = np.random.default_rng(0).normal(0, 0.001, blocks)
    learnt = labels.get("condition") != "random weights"
    by_kind = np.ones((blocks, layers, 4)) * noise[:, None, None]
    early = np.zeros((blocks, layers, 4))
    early[:, 0, :2] = 0.03 + noise[:, None] / 2  # [CLS] and [SEP] get more weight in the first third
    within = by_kind.copy()
    within[:, :, 1] += np.array([-0.3, 0.1, -0.3])
    data = xr.Dataset(
        {
            "weight": (("block", "layer", "kind"), by_kind + early + np.array([0.1, 0.4, 0.1, 0.4])),
            "norm": (("block", "layer", "kind"), by_kind + 1.0),
            "norm_share": (("block", "layer", "kind"), by_kind + np.array([0.05, 0.05, 0.1, 0.8])),
            "spearman": (("block", "layer", "kind"), within),
            "spearman_all": (("block", "kind"), np.array([0.0, -0.6 * learnt, 0.0, 0.1]) + noise[:, None]),
            "mixing": (("block", "layer", "ratio"), np.full((blocks, layers, 5), 0.2) + noise[:, None, None]),
            "expansion": (("block", "layer"), np.ones((blocks, layers))),
            **{name: (("layer", "head"), np.arange(6.0).reshape(layers, heads)) for name in F},
            **{name: (("layer", "ratio"), np.full((layers, 5), 0.5)) for name in ("mixing_min", "mixing_max")},
            "frequency": ("measure", [0.3, 0.7]),
            "frequency_low": ("measure", [0.25, 0.65]),
            "frequency_high": ("measure", [0.35, 0.75]),
            "frequency_by_layer": (("layer", "measure"), np.arange(6.0).reshape(layers, 2) / 10),
            "frequency_of_mixing": ("ratio", [0.1] * 5),
            "frequency_of_mixing_low": ("ratio", [-0.1] * 5),
            "frequency_of_mixing_high": ("ratio", [0.3] * 5),
        },
        {
            "layer": [1, 2, 3],
            "head": [1, 2],
            "kind": list(KINDS),
            "ratio": list(RATIOS),
            "measure": list(MEASURES),
        },
    )
    counts = {"segments": 100, "tokens": 10_000, "squared_tokens": 10**6}
    return data.assign_attrs(corpus="ud_en_gum", **counts)


def centred(labels) -> xr.Dataset:
    """The same where the constant is free: [SEP] no longer cancels, and its share of the norm is near its weight."""
    data = cell(labels)
    noise = np.random.default_rng(1).normal(0, 0.001, data.sizes["block"])
    data["spearman_all"] = (("block", "kind"), np.array([0.3, 0.0, -0.2, 0.1]) + noise[:, None])
    data["norm_share"] = data["weight"]
    for end, value in (("", 0.2), ("_low", 0.1), ("_high", 0.3)):
        data[f"frequency_of_norms{end}"] = value
    return data


def planted(labels):
    return None if labels["model"] != "minilm" else centred(labels) if "centred" in labels.values() else cell(labels)


def test_what_is_planted_is_claimed():
    outcome = Outcome.of(STUDY, finished(STUDY, planted))
    judged = {claim.id.removeprefix("minilm-"): claim for claim in outcome.claims}
    # Norms move with a free constant: only weights and what is centred is judged.
    of_weights = {
        "special-weight",
        "cls-early",
        "sep-middle",
        "punctuation-deep",
        "not-by-weights",
        "words-not-by-weights",
    }
    assert {id for id, one in judged.items() if one.verdict != "not identified"} == of_weights | {
        id for id in judged if id.endswith("-centred")
    }
    assert {id: replace(one, identified=True).verdict for id, one in judged.items()} == {
        "special-weight": "holds",
        "special-norm": "holds",
        "punctuation-norm": "does not hold",  # as much norm as weight
        "cls-early": "holds",
        "sep-middle": "does not hold",
        "punctuation-deep": "cannot tell",
        "cls-cancels": "does not hold",  # about 0, where −.1 is asked for
        "cls-cancels-more": "holds",
        "cls-cancels-within-layers": "cannot tell",
        "sep-cancels": "holds",
        "sep-cancels-more": "holds",
        "sep-cancels-within-layers": "does not hold",  # negative in the mean, positive in the second layer
        "punctuation-cancels": "does not hold",
        "punctuation-cancels-more": "holds",
        "punctuation-cancels-within-layers": "cannot tell",
        "frequent-discounted": "holds",
        "discounted-by-vectors": "holds",
        "not-by-weights": "does not hold",
        "keeps-more-than-it-mixes": "holds",
        "frequent-mixed-more": "cannot tell",
        "cls-cancelling-learnt": "cannot tell",
        "cls-cancelling-needs-order": "cannot tell",
        "sep-cancelling-learnt": "holds",
        "sep-cancelling-needs-order": "cannot tell",
        "words-discounted": "holds",
        "words-not-by-weights": "does not hold",
        "special-norm-centred": "does not hold",
        "punctuation-norm-centred": "does not hold",
        "cls-cancels-centred": "does not hold",
        "sep-cancels-centred": "does not hold",
        "punctuation-cancels-centred": "holds",
        "frequent-discounted-centred": "holds",
        "keeps-more-than-it-mixes-centred": "holds",
    }
    estimates = {claim.id: claim.estimate.value for claim in outcome.claims}
    assert estimates["minilm-special-weight"] == pytest.approx(0.5 + 2 * 0.03 / 3, abs=0.01)
    assert estimates["minilm-special-norm"] == pytest.approx(0.2, abs=0.01)
    assert outcome.facts["models"]["minilm"]["sink"] == "[SEP]"
    assert outcome.facts["models"]["minilm"]["between_layers"]
    assert len(outcome.tables) == 11
    assert {figure.name for figure in outcome.figures} == {"weights-and-norms-minilm", "mixing-ratios", "cancelling"}
    assert len([key for key in outcome.cells.missing if key.startswith("bert-base")]) == 7


def test_without_the_trained_model_nothing_is_said():
    cells = finished(STUDY, lambda one: None if one.get("condition") == "trained" else cell(one))
    assert STUDY.module("claims").claims(cells) == []
