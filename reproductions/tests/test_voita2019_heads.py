"""Voita et al. 2019, heads: claims from made-up cells whose truth is known, and the cells on a tiny Marian."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import xarray as xr
from made_cells import with_results
from tiny import examples
from tiny import subject as made_subject

from lorgnette.lens.losses import text_losses
from lorgnette.lens.relevance.lens import Relevance
from lorgnette.looking.look import look
from lorgnette.subject.knockout import Knockout
from lorgnette.texts import Corpus
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Machine
from reproductions.frame.statistics import bootstrap
from reproductions.voita2019 import STUDY, measure_heads
from reproductions.voita2019.claims import claims
from reproductions.voita2019.figures import functions
from reproductions.voita2019.heads import excess, place_in_layer, roles, signal, top_shares, with_a_role

STACKS = ["encoder", "decoder", "cross"]
ROLES = ["positional", "syntactic", "rare", "special", "broad"]
RARE, POSITIONAL, SYNTACTIC = (0, 2), (1, 4), (3, 3)
HERE = Machine()


def origin(name, texts=8):
    return {"model": "made up", "weights_sha256": "0", "corpus": name, "texts": texts, "corpus_fingerprint": name,
            "device": "cpu"}  # fmt: skip


def noisy(values, blocks=8, seed=0, size=0.01):
    noise = np.random.default_rng(seed).normal(0, size, (blocks, *values.shape))
    return (values + noise).tolist()


def maps_cell(name, values, blocks=8, seed=0):
    return {"maps": {name: noisy(values, blocks, seed)}, "stacks": STACKS, **origin("captions")}


def roles_cell(labels, trees):
    """`labels`: role → encoder heads that have it, clearly; all other numbers are low."""
    number = np.full((3, 6, 8, len(ROLES), 2), 0.05)
    label = np.zeros((3, 6, 8, len(ROLES)), dtype=bool)
    for role, place in labels.items():
        number[0, *place, ROLES.index(role)] = 0.95
        label[0, *place, ROLES.index(role)] = True
    words = [[["none"] * 8 for _ in range(6)] for _ in range(3)]
    cell = {"stacks": STACKS, "roles": ROLES, "parts": ["development", "held_out"], "label": label.tolist(),
            "words": words, "offset": np.ones((3, 6, 8), int).tolist(), "number": number.tolist(),
            "number_low": (number - 0.02).tolist(), "number_high": (number + 0.02).tolist(),
            "rare_chance": [0.2, 0.2], **origin("texts")}  # fmt: skip
    if trees:
        cell["relations"] = [relation("nsubj", "to_head", 0.6, 0.3), relation("obj", "to_head", 0.42, 0.41),
                             relation("case", "to_head", 0.7, 0.4)]  # fmt: skip
    return cell


def relation(name, way, accuracy, baseline):
    ends = {"low": accuracy - 0.03, "high": accuracy + 0.03, "baseline_low": baseline - 0.03}
    return {"relation": name, "way": way, "layer": 4, "head": 4, "accuracy": accuracy, "pairs": 500, "offset": 1,
            "baseline": baseline, "baseline_high": baseline + 0.03, **ends}  # fmt: skip


@pytest.fixture
def results():
    """The rare-word head is first by attnlrp and voita2021, last by confidence; attnlrp says what matters, ah lies."""
    dice = np.random.default_rng(1)
    matters = dice.permuted(np.tile(np.arange(8.0) / 10, (3, 6, 1)), axis=-1)
    matters[0][RARE[0]] = [0.1, 0.2, 0.9, 0.3, 0.4, 0.5, 0.0, 0.05]
    for place in (POSITIONAL, SYNTACTIC):
        matters[0][place] = 2.0
    confidence = dice.permuted(np.tile(np.arange(8.0) / 10, (3, 6, 1)), axis=-1)
    confidence[0][RARE] = -1.0
    signals = {"attnlrp": matters, "voita2021": matters, "ah": -matters, "voita2019": confidence}
    made = {f"maps-multi30k-trained-{name}": maps_cell(name, values, seed=n)
            for n, (name, values) in enumerate(signals.items())}  # fmt: skip
    made["maps-multi30k-trained-confidence"] = maps_cell("confidence", confidence, seed=7)
    even = np.ones((3, 6, 8))
    for condition in ("random", "shuffled"):
        made[f"maps-multi30k-{condition}-attnlrp"] = maps_cell("attnlrp", even, 4, seed=8)
    other = {name: noisy(values, 4, 9) for name, values in {**signals, "confidence": confidence}.items()}
    made["maps-pud-trained"] = {"maps": other, "stacks": STACKS, **origin("treebank")}
    labels = {"positional": POSITIONAL, "syntactic": SYNTACTIC, "rare": RARE}
    for corpus in ("multi30k", "pud"):
        made[f"roles-{corpus}-trained"] = roles_cell(labels, corpus == "pud")
        for condition in ("random", "shuffled"):
            made[f"roles-{corpus}-{condition}"] = roles_cell({}, corpus == "pud")
    for number in range(2):
        noise = np.random.default_rng(20 + number).normal(0, 0.01, matters.shape)
        made[f"without-multi30k-{number}"] = {"stacks": STACKS, "change": (matters + noise).tolist(), "loss": 1.0,
                                              "gradient": np.abs(matters + noise).tolist(),
                                              **origin(f"block {number}", 6)}  # fmt: skip
    return {f"heads-{key}": cell for key, cell in made.items()}


def test_the_claims_say_what_was_planted(results):
    expected = {
        "rare-first-attnlrp": "holds",
        "rare-first-ah": "does not hold",
        "rare-not-confident": "holds",
        "rare-needed": "holds",
        "needed-attnlrp": "holds",
        "needed-ah": "does not hold",
        "confident-voita2019": "holds",
        "uneven-attnlrp": "holds",
        "positional-multi30k": "holds",
        "syntax-nsubj-to-head": "holds",
        "syntax-obj-to-head": "does not hold",
        "stable-confidence": "holds",
        "roles-needed": "cannot tell",  # pools layers
        "roles-needed-in-layers": "holds",
        "gradient-over-confidence": "holds",
    }
    verdicts = {claim.id: claim.verdict for claim in claims(with_results(STUDY, results))}
    assert {name: verdicts[name] for name in expected} == expected


def test_heads_with_a_role_and_functions_are_read_off_both_texts(results):
    cells = with_results(STUDY, results)
    assert with_a_role(cells).sum() == 3
    given = functions(cells, "encoder")
    assert given[RARE[0]][RARE[1]] == "rare"
    assert given[SYNTACTIC[0]][SYNTACTIC[1]] == "syntactic"
    assert sum(row.count("none") for row in given) == 45


def test_a_head_that_is_now_first_now_second_cannot_be_told():
    blocks = np.zeros((8, 1, 8))
    blocks[::2, 0, 0], blocks[1::2, 0, 1] = 1.0, 1.0
    place = bootstrap(lambda draw: place_in_layer(draw.mean(axis=0), (0, 0)), blocks, over="blocks")
    assert place.interval == (1, 2)


def test_the_first_two_are_chosen_on_the_other_half():
    dice = np.random.default_rng(0)
    blocks = dice.normal(size=(6, 3, 8))
    expected = np.zeros(6)
    for block in range(6):
        others = [b for b in range(6) if b % 2 != block % 2]
        for layer in range(3):
            mean = [abs(sum(blocks[b, layer, h] for b in others) / 3) for h in range(8)]
            first = sorted(range(8), key=lambda h: -mean[h])[:2]
            sizes = [abs(blocks[block, layer, h]) for h in range(8)]
            expected[block] += sum(sizes[h] for h in first) / sum(sizes) / 3
    np.testing.assert_allclose(top_shares(xr.DataArray(blocks)), expected)
    # What is nothing but noise gives a quarter.
    assert top_shares(xr.DataArray(dice.normal(size=(200, 6, 8)))).mean() == pytest.approx(0.25, abs=0.02)


def test_the_excess_over_an_offset_has_both_errors():
    over = excess(relation("nsubj", "to_head", 0.6, 0.3))
    assert over.value == pytest.approx(0.3)
    assert over.high - over.value == pytest.approx(0.03 * np.sqrt(2), rel=1e-3)


@pytest.mark.parametrize("kept", ["maps", "roles", "without", "maps-multi30k-trained-confidence"])
def test_a_page_of_some_cells(results, kept):
    some = {key: cell for key, cell in results.items() if key.startswith(f"heads-{kept}")}
    outcome = Outcome.of(STUDY, with_results(STUDY, some))
    json.loads(outcome.results())
    for name in ("README.md", "APPENDIX.md"):
        assert outcome.page(name)
    assert not outcome.facts["as_read"]


@pytest.fixture
def tiny(monkeypatch):
    """A tiny Marian, and texts in its words: captions with references, a treebank with trees."""
    subject = made_subject("marian", dtype=torch.float32)
    pairs = examples((9, 4, 5, 6, 12, 7, 3, 8) * 3)
    pairs = [replace(example, id=f"text {number}") for number, example in enumerate(pairs)]
    trees = [replace(e, target=None, words=tuple(e.text.split()), heads=(0, *range(1, len(e.text.split()))),
                     relations=("root", *["nsubj"] * (len(e.text.split()) - 1))) for e in pairs]  # fmt: skip

    def corpus(name, split=None, data=None):
        return Corpus.of(trees if name.startswith("ud_") else pairs, name=name)

    monkeypatch.setattr(measure_heads, "corpus", corpus)
    monkeypatch.setattr(measure_heads, "opened", lambda model, condition, seed, machine: subject)
    return subject, pairs


def test_maps_are_means_over_blocks_of_texts(tiny):
    subject, pairs = tiny
    cell = measure_heads.maps(
        model="tiny", corpus="multi30k", condition="trained", maps=["ah"], block=4, blocks=2, seed=0, machine=HERE
    )
    assert cell["stacks"] == STACKS
    whole = look(subject, pairs[:8], [Relevance("ah")], progress=False)["relevance"].data["relevance"].values
    np.testing.assert_allclose(np.mean(np.array(cell["maps"]["ah"], dtype=float), axis=0), whole, atol=1e-5)
    json.dumps(cell, allow_nan=False)


def test_texts_without_a_reference_get_the_models_own_translation(tiny):
    told = {"model": "tiny", "corpus": "pud", "condition": "shuffled", "block": 2, "blocks": 2, "seed": 0}
    cell = measure_heads.maps(maps=["confidence", "voita2021"], machine=HERE, **told)
    assert np.shape(cell["maps"]["voita2021"]) == (2, 3, 3, 4)
    for name in ("confidence", "voita2021"):
        values = np.array(cell["maps"][name], dtype=float)
        assert np.isfinite(values[:, 1:]).all()  # decoder and cross
        assert np.isnan(values[:, 0, 2]).all()  # the encoder has two layers, the decoder three


def test_what_is_lost_without_a_head_is_the_loss_without_it(tiny):
    subject, pairs = tiny
    cell = measure_heads.without(model="tiny", corpus="multi30k", texts=3, number=1, seed=0, machine=HERE)
    batch = subject.encode(pairs[3:6])
    losses = []
    with torch.no_grad():
        for taps in ((), (Knockout.of(subject, ["cross.2.3"]),)):
            with subject.tapped(*taps):
                outputs = subject.run(batch, return_dict=True)
            losses.append(float(text_losses(subject, "translation", batch, outputs)[0].mean()))
    assert cell["loss"] == pytest.approx(losses[0], rel=1e-4)
    assert cell["change"][2][1][2] == pytest.approx(losses[1] - losses[0], abs=1e-5)
    assert cell["texts"] == 3


@pytest.mark.parametrize("corpus", ["multi30k", "pud"])
def test_roles_and_relations_of_a_tiny_model(tiny, corpus):
    told = {"model": "tiny", "corpus": corpus, "condition": "trained", "texts": 24, "counted": 24, "seed": 0}
    cell = measure_heads.roles(machine=HERE, **told)
    assert np.shape(cell["label"])[:3] == (3, 3, 4)  # layers of the decoder; the encoder has two
    assert ("relations" in cell) is (corpus == "pud")
    key = f"heads-roles-{corpus}-trained"
    data = roles(with_results(STUDY, {key: json.loads(json.dumps(cell, allow_nan=False))}), corpus)
    assert data["label"].sel(stack="encoder", role="positional").shape == (3, 4)
    if corpus == "pud":
        [row] = [row for row in data.attrs["relations"] if (row["relation"], row["way"]) == ("nsubj", "to_head")]
        assert (row["offset"], row["baseline"]) == (-1, 1.0)  # every word hangs on the one before


def test_pieces_are_counted_on_each_side(tiny):
    subject, pairs = tiny
    source, target = measure_heads.piece_ranks(subject, "multi30k", 24, HERE)
    counts = torch.zeros(2, len(source))
    for pair in pairs:
        for side, text in enumerate((pair.text, pair.target)):
            for piece in subject.tokenizer(text)["input_ids"][:-1]:
                counts[side, piece] += 1
    for table, count in ((source, counts[0]), (target, counts[1])):
        assert table[count.argmax()] == 1
        one, other = (int(count.argmax()), int(count.argmin()))
        assert table[one] < table[other]
        assert table[other] == 1 + int((count > count[other]).sum())


def test_one_stack_alone_gives_the_same_and_leaves_the_others_open(tiny):
    told = {"model": "tiny", "corpus": "multi30k", "texts": 3, "seed": 0, "machine": HERE}
    whole = measure_heads.without(number=1, **told)
    part = measure_heads.without(number=0, after=3, only="encoder", **told)
    assert part["corpus_fingerprint"] == whole["corpus_fingerprint"]
    np.testing.assert_allclose(part["change"][0][:2], whole["change"][0][:2], atol=1e-6)
    both = {"heads-without-multi30k-1": whole, "heads-without-encoder-multi30k-0": part}
    cells = with_results(STUDY, both)
    assert len(signal(cells, "loss without", "encoder")) == 2
    assert len(signal(cells, "gradient", "cross")) == 1
