"""Voita et al. 2019, heads: the page from made-up cells whose truth is known, and the cells on a tiny Marian."""

import json
from dataclasses import replace

import numpy as np
import pytest
import tiny_subjects
import torch

from lorgnette.corpora import Corpus
from lorgnette.errors import UserError
from lorgnette.lenses.losses import text_losses
from lorgnette.lenses.relevance.lens import Relevance
from lorgnette.looking.look import look
from lorgnette.subject.knockout import Knockout
from reproductions.frame.record import Settings, published
from reproductions.voita2019 import WHOLE, heads, heads_cells
from reproductions.voita2019.heads_claims import claims, with_a_role
from reproductions.voita2019.heads_figures import functions
from reproductions.voita2019.heads_page import part_of
from reproductions.voita2019.heads_reading import Looked, excess, over_blocks, place_in_layer, top_shares

STACKS = ["encoder", "decoder", "cross"]
ROLES = ["positional", "syntactic", "rare", "special", "broad"]
RARE, POSITIONAL, SYNTACTIC = (0, 2), (1, 4), (3, 3)


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
            "number_count": np.full(number.shape, 100).tolist(), "rare_chance": [0.2, 0.2],
            **origin("texts")}  # fmt: skip
    if trees:
        cell["relations"] = [relation("nsubj", "to_head", 0.6, 0.3), relation("obj", "to_head", 0.42, 0.41),
                             relation("case", "to_head", 0.7, 0.4)]  # fmt: skip
    return cell


def relation(name, way, accuracy, baseline):
    ends = {"low": accuracy - 0.03, "high": accuracy + 0.03, "baseline_low": baseline - 0.03}
    return {"relation": name, "way": way, "stack": "encoder", "layer": 4, "head": 4, "development": accuracy,
            "accuracy": accuracy, "pairs": 500, "offset": 1, "baseline": baseline,
            "baseline_high": baseline + 0.03, **ends}  # fmt: skip


@pytest.fixture
def cells():
    """The rare-word head is first by attnlrp and voita2021, last by confidence; attnlrp says what matters, ah lies."""
    dice = np.random.default_rng(1)
    matters = dice.permuted(np.tile(np.arange(8.0) / 10, (3, 6, 1)), axis=-1)
    matters[0][RARE[0]] = [0.1, 0.2, 0.9, 0.3, 0.4, 0.5, 0.0, 0.05]
    for place in (POSITIONAL, SYNTACTIC):
        matters[0][place] = 2.0
    confidence = dice.permuted(np.tile(np.arange(8.0) / 10, (3, 6, 1)), axis=-1)
    confidence[0][RARE] = -1.0
    signals = {"attnlrp": matters, "voita2021": matters, "ah": -matters, "voita2019": confidence}
    found = {f"maps-multi30k-trained-{name}": maps_cell(name, values, seed=n)
             for n, (name, values) in enumerate(signals.items())}  # fmt: skip
    found["maps-multi30k-trained-confidence"] = maps_cell("confidence", confidence, seed=7)
    even = np.ones((3, 6, 8))
    for condition in ("random", "shuffled"):
        found[f"maps-multi30k-{condition}-attnlrp"] = maps_cell("attnlrp", even, 4, seed=8)
    other = {name: noisy(values, 4, 9) for name, values in {**signals, "confidence": confidence}.items()}
    found["maps-pud-trained"] = {"maps": other, "stacks": STACKS, **origin("treebank")}
    labels = {"positional": POSITIONAL, "syntactic": SYNTACTIC, "rare": RARE}
    for corpus in ("multi30k", "pud"):
        found[f"roles-{corpus}-trained"] = roles_cell(labels, corpus == "pud")
        for condition in ("random", "shuffled"):
            found[f"roles-{corpus}-{condition}"] = roles_cell({}, corpus == "pud")
    for number in range(4):
        noise = np.random.default_rng(20 + number).normal(0, 0.01, matters.shape)
        found[f"without-multi30k-{number}"] = {"stacks": STACKS, "change": (matters + noise).tolist(), "loss": 1.0,
                                               "gradient": np.abs(matters + noise).tolist(),
                                               **origin(f"block {number}", 6)}  # fmt: skip
    return {f"heads-{key}": cell for key, cell in found.items()}


def verdicts(cells):
    return {claim.text: claim for claim in claims(Looked(cells), published("voita2019"))}


def test_the_claims_say_what_was_planted(cells):
    found = {text: claim.verdict for text, claim in verdicts(cells).items()}
    assert found["the rare-word head is the most relevant of its layer (attnlrp)"] == "holds"
    assert found["the rare-word head is the most relevant of its layer (ah)"] == "does not hold"
    assert found["the rare-word head is not among the two most confident of its layer"] == "holds"
    assert found["the rare-word head matters: its layer loses most without it"] == "holds"
    assert found["relevance (attnlrp) says which encoder heads the translation needs"] == "holds"
    assert found["relevance (ah) says which encoder heads the translation needs"] == "does not hold"
    assert found["encoder heads that are relevant (voita2019) are confident"] == "holds"
    assert found["relevance (attnlrp): it is more uneven than with random weights"] == "holds"
    assert found["Multi30k: an encoder head reads at one offset for at least 90 % of the words"] == "holds"
    text = "PUD: an encoder head finds {} 10 points better than an offset"
    assert found[text.format("nsubj (subject → verb)")] == "holds"
    assert found[text.format("obj (object → verb)")] == "does not hold"
    assert found["confidence ranks the encoder heads on PUD as on Multi30k"] == "holds"
    needed = "encoder heads with a function (positional, syntactic, rare words) are needed more than the others"
    assert found[needed] == "holds"
    assert with_a_role(Looked(cells)).sum() == 3


def test_a_head_that_is_now_first_now_second_cannot_be_told(cells):
    blocks = np.zeros((8, 1, 8))
    blocks[::2, 0, 0], blocks[1::2, 0, 1] = 1.0, 1.0
    found = over_blocks(lambda values: place_in_layer(values, (0, 0)), blocks)
    assert found.interval == (1, 2)


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
    np.testing.assert_allclose(top_shares(blocks), expected)
    # What is nothing but noise gives a quarter.
    assert top_shares(dice.normal(size=(200, 6, 8))).mean() == pytest.approx(0.25, abs=0.02)


def test_the_excess_over_an_offset_has_both_errors():
    found = excess(relation("nsubj", "to_head", 0.6, 0.3))
    assert found.value == pytest.approx(0.3)
    assert found.interval[1] - found.value == pytest.approx(0.03 * np.sqrt(2), rel=1e-3)


def test_functions_are_read_off_both_texts(cells):
    given = functions(Looked(cells), "encoder")
    assert given[RARE[0]][RARE[1]] == "rare"
    assert given[SYNTACTIC[0]][SYNTACTIC[1]] == "syntactic"
    assert sum(row.count("none") for row in given) == 45


def test_the_page_is_made_whole_and_in_part(cells, tmp_path):
    settings = Settings(out=tmp_path / "voita2019", partial=True)
    for kept in ("maps", "roles", "without", "maps-multi30k-trained-confidence"):
        some = {key: cell for key, cell in cells.items() if key.startswith(f"heads-{kept}")}
        json.loads(WHOLE.page(settings, {"heads": part_of(settings, some)}, {"heads": (1, 30)}).to_json())
    whole = WHOLE.page(settings, {"heads": part_of(settings, cells)}, {})
    names = ["heads_encoder", "heads_decoder", "heads_cross", "heads_relevance_confidence", "heads_agreement"]
    assert [figure.name for figure in whole.figures] == names
    text = (whole.write(settings.out) / "README.md").read_text(encoding="utf-8")
    assert "Here head 1.3 reads one of the two rarest pieces most in 95%" in text
    assert "first of its layer by attnlrp, voita2021" in text


def test_every_planned_cell_can_be_read_back():
    full = heads.cells(False, (0, 1, 2))
    assert list(full) == list(dict.fromkeys(full))
    looked = Looked(dict.fromkeys(full))
    assert {"maps-multi30k-random-ah", "maps-pud-trained", "roles-pud-shuffled", "without-multi30k-0"} <= set(
        looked.found
    )
    for cell in full.values():
        assert cell.function.rpartition(":")[2] in heads.SECONDS
        json.dumps(cell.record())


def test_a_model_that_is_not_here_is_one_line(tmp_path):
    with pytest.raises(UserError, match="--only pruning"):
        heads_cells.require("no-such-model", str(tmp_path))


@pytest.fixture
def tiny(monkeypatch):
    """A tiny Marian, and texts in its words: captions with references, a treebank with trees."""
    subject = tiny_subjects.subject("marian", dtype=torch.float32)
    pairs = tiny_subjects.examples((9, 4, 5, 6, 12, 7, 3, 8) * 3)
    pairs = [replace(example, id=f"text {number}") for number, example in enumerate(pairs)]
    trees = [replace(e, target=None, words=tuple(e.text.split()), heads=(0, *range(1, len(e.text.split()))),
                     relations=("root", *["nsubj"] * (len(e.text.split()) - 1))) for e in pairs]  # fmt: skip

    def corpus(name, split=None, data=None):
        return Corpus.of(trees if name.startswith("ud_") else pairs, name=name)

    monkeypatch.setattr(heads_cells, "corpus", corpus)
    monkeypatch.setattr(heads_cells, "opened", lambda model, condition, seed, models: subject)
    return subject, pairs


def test_maps_are_means_over_blocks_of_texts(tiny):
    subject, pairs = tiny
    found = heads_cells.maps(
        model="tiny", corpus="multi30k", condition="trained", maps=["ah"], block=4, blocks=2, seed=0
    )
    assert found["stacks"] == STACKS
    whole = look(subject, pairs[:8], [Relevance("ah")], progress=False)["relevance"].data["relevance"].values
    np.testing.assert_allclose(np.mean(np.array(found["maps"]["ah"], dtype=float), axis=0), whole, atol=1e-5)
    json.dumps(found, allow_nan=False)


def test_texts_without_a_reference_get_the_models_own_translation(tiny):
    told = {"model": "tiny", "corpus": "pud", "condition": "shuffled", "block": 2, "blocks": 2, "seed": 0}
    found = heads_cells.maps(maps=["confidence", "voita2021"], **told)
    assert np.shape(found["maps"]["voita2021"]) == (2, 3, 3, 4)
    for name in ("confidence", "voita2021"):
        values = np.array(found["maps"][name], dtype=float)
        assert np.isfinite(values[:, 1:]).all()  # decoder and cross
        assert np.isnan(values[:, 0, 2]).all()  # the encoder has two layers, the decoder three


def test_what_is_lost_without_a_head_is_the_loss_without_it(tiny):
    subject, pairs = tiny
    found = heads_cells.without(model="tiny", corpus="multi30k", texts=3, number=1, seed=0)
    batch = subject.encode(pairs[3:6])
    losses = []
    with torch.no_grad():
        for taps in ((), (Knockout.of(subject, ["cross.2.3"]),)):
            with subject.tapped(*taps):
                outputs = subject.run(batch, return_dict=True)
            losses.append(float(text_losses(subject, "translation", batch, outputs)[0].mean()))
    assert found["loss"] == pytest.approx(losses[0], rel=1e-4)
    assert found["change"][2][1][2] == pytest.approx(losses[1] - losses[0], abs=1e-5)
    assert found["texts"] == 3


@pytest.mark.parametrize("corpus", ["multi30k", "pud"])
def test_roles_and_relations_of_a_tiny_model(tiny, corpus):
    found = heads_cells.roles(model="tiny", corpus=corpus, condition="trained", texts=24, counted=24, seed=0)
    assert np.shape(found["label"])[:3] == (3, 3, 4)  # layers of the decoder; the encoder has two
    assert ("relations" in found) is (corpus == "pud")
    looked = Looked({f"heads-roles-{corpus}-trained": json.loads(json.dumps(found, allow_nan=False))})
    assert looked.roles(corpus).label("positional").shape == (3, 4)
    if corpus == "pud":
        row = looked.roles(corpus).relation("nsubj", "to_head")
        assert (row["offset"], row["baseline"]) == (-1, 1.0)  # every word hangs on the one before


def test_pieces_are_counted_on_each_side(tiny):
    subject, pairs = tiny
    source, target = heads_cells.piece_ranks(subject, "multi30k", 24, None)
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
    told = {"model": "tiny", "corpus": "multi30k", "texts": 3, "seed": 0}
    whole, part = heads_cells.without(number=1, **told), heads_cells.without(number=0, after=3, only="encoder", **told)
    assert part["corpus_fingerprint"] == whole["corpus_fingerprint"]
    np.testing.assert_allclose(part["change"][0][:2], whole["change"][0][:2], atol=1e-6)
    looked = Looked({"heads-without-multi30k-1": whole, "heads-without-encoder-multi30k-0": part})
    assert len(looked.without("change", "encoder")) == 2
    assert len(looked.without("gradient", "cross")) == 1
    assert Looked({}).without("change", "cross") is None
