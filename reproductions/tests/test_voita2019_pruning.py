"""Voita et al. 2019, pruning: the page from made-up cells whose truth is known, and the cells on a tiny Marian."""

import gzip
import json
import random

import numpy as np
import pytest

from lorgnette.attention import Site
from reproductions.frame.record import Settings, published
from reproductions.voita2019 import WHOLE, pruning
from reproductions.voita2019.pruning_between import bleu_at
from reproductions.voita2019.pruning_cells import chosen_at_random, pruned, small, table_of
from reproductions.voita2019.pruning_claims import claims
from reproductions.voita2019.pruning_page import part_of
from reproductions.voita2019.pruning_reading import Outcome, change, over_heads, roles, survival

STACKS = ("encoder", "decoder", "cross")
SIGNATURE = "nrefs:1|made up"


def score(bleu, seed=0):
    noise = np.random.default_rng(seed).normal(0, 0.5, 200)
    return {
        "bleu": bleu,
        "brevity": 1.0,
        "signature": SIGNATURE,
        "texts": 3071,
        "beams": 1,
        "draws": list(bleu + noise),
    }


def scores(bleu):
    return {"validation": score(bleu), "test": score(bleu), "mscoco": score(bleu - 5)}


def kept(counts, stacks=STACKS):
    """The first heads of each layer; of cross-attention the upper layers keep more, of the decoder the lower."""
    out = {}
    for stack in stacks:
        number = counts[STACKS.index(stack)]
        layers = [[] for _ in range(6)]
        order = range(6) if stack == "decoder" else range(5, -1, -1)
        for place in [layer for layer in order for _ in range(8)][:number]:
            layers[place].append(len(layers[place]))
        out[stack] = layers
    return out


def point(counts, bleu, stacks=STACKS, control=None):
    made = {"kept": kept(counts, stacks), "scores": scores(bleu), "corpus_fingerprint": "f", "device": "cpu"}
    made["fitted"] = {"steps": 20.0}
    made["gates"] = {"kept_by": {"code": sum(counts), "paper": sum(counts)}}
    if control is not None:
        made["control"] = {"kept": made["kept"], "scores": scores(control)}
    return made


@pytest.fixture
def cells():
    """Pruning all of opus-mt costs little, that of the encoder alone a lot; gates beat chance."""
    whole = [[0.05] * 8 for _ in range(6)]
    patterns = {f"{how}_{name}": [list(row) for row in whole] for how in ("peak", "mass")
                for name in ("self", "previous", "next", "last")}  # fmt: skip
    patterns |= {"confidence": [[0.5] * 8 for _ in range(6)], "rarest": [list(row) for row in whole], "words": 9.0}
    for head in range(8):  # what stays in the encoder is its last layer: heads with a clear role
        patterns["peak_previous"][5][head] = 0.91 + head / 100
    all_scores = scores(60.0)
    found = {"opus-tuned": {"scores": {"before": all_scores, "after": all_scores, "beam 4": {"test": score(61.0)}},
                            "patterns": patterns}}  # fmt: skip
    found["opus-all-lambda0"] = point((48, 48, 48), 60.0)
    for strength, counts, bleu in ((0.03, (30, 36, 40), 60.1), (0.3, (8, 13, 20), 59.8), (3.0, (2, 3, 5), 50.0)):
        found[f"opus-all-lambda{strength:g}"] = point(counts, bleu, control=bleu - 3)
    found["opus-all-empty"] = point((0, 48, 48), 40.0)
    found["opus-encoder-lambda0"] = point((48, 48, 48), 60.0)
    for strength, number, bleu in ((0.03, 30, 58.0), (0.3, 10, 55.0)):
        found[f"opus-encoder-lambda{strength:g}"] = point((number, 48, 48), bleu, ("encoder",), control=bleu + 1)
    found["opus-encoder-long-lambda0"] = point((48, 48, 48), 61.0)
    found["opus-encoder-long-lambda0.03"] = point((20, 48, 48), 60.5, ("encoder",))
    found["small-all-lambda0"] = point((48, 48, 48), 40.0)
    found["small-all-lambda0.3"] = point((20, 20, 20), 38.0)
    found["small-scratch-lambda0.3"] = point((20, 20, 20), 36.0)
    for mode, bleu in (("scratch", 20.0), ("frozen", 18.0), ("tuned", 23.0)):
        found[f"transfer-small-{mode}"] = {"scores": {"test": score(bleu)}, "best": {"epoch": 3.0}, "epochs": 4.0}
    found["small-en-fr"] = {"scores": {"test": score(40.0)}, "patterns": patterns}
    found["small-en-ru"] = {"scores": {"tatoeba": score(20.0), "subtitles": score(3.0)}}
    for seed in range(3):
        right = {"test": 0.9 + seed / 1000}
        points = [{"lambda": 0.0, "heads": 72, "gates": right}]
        other = {"importance": 0.88, "random": 0.8, "importance_untrained": 0.7, "random_untrained": 0.6}
        ways = {name: {"test": value} for name, value in other.items()}
        points.append({"lambda": 0.1, "heads": 20, "gates": right, **ways})
        found[f"classes-minilm-sst2-seed{seed}"] = {"points": points}
    return {f"pruning-{key}": value for key, value in found.items()}


def verdicts(cells):
    return {claim.text: claim for claim in claims(Outcome(cells), published("voita2019"))}


def test_the_claims_say_what_was_planted(cells):
    found = {text: claim.verdict for text, claim in verdicts(cells).items()}
    assert found["opus-mt, all attentions: with at most a third of the heads, at most 1 BLEU is lost"] == "holds"
    assert found["opus-mt, encoder alone: with at most a third of the heads, at most 1 BLEU is lost"] == "does not hold"
    serve = "heads chosen by gates serve better than as many chosen at random"
    assert found[f"opus-mt, all attentions: {serve}"] == "holds"
    assert found[f"opus-mt, encoder alone: {serve}"] == "does not hold"
    keeps = "opus-mt, all attentions: decoder-encoder attention keeps a larger share of its heads than"
    assert found[f"{keeps} encoder self-attention"] == "holds"
    higher = "in the decoder, decoder-encoder heads stay in higher layers than self-attention heads"
    assert found[f"opus-mt, all attentions: {higher}"] == "holds"
    role = "encoder heads with a clear role (neighbour, itself, rarest word) go last"
    assert found[f"opus-mt, encoder alone: {role}"] == "holds"
    assert sum(text.startswith("the encoder of marian-small") and v == "holds" for text, v in found.items()) == 1
    assert found["minilm, sst2: accuracy with heads kept by gates is above that with as many by random"] == "holds"


def test_numbers_are_those_of_the_cells(cells):
    found = verdicts(cells)
    lost = found["opus-mt, all attentions: with at most a third of the heads, at most 1 BLEU is lost"]
    assert lost.ours == pytest.approx(-0.2)
    assert lost.interval == pytest.approx((-0.2, -0.2))  # the same noise in both, so nothing but the difference
    scratch = found[
        "marian-small: at the same number of heads, pruning a trained model is better than training with gates"
    ]
    assert scratch.ours == pytest.approx(2.0)
    outcome = Outcome(cells)
    assert outcome.within("opus-all").left == 41
    assert outcome.chosen("opus-all").strength == 0.3
    assert outcome.within("opus-encoder") is None
    assert bleu_at(outcome.curve("small-all"), 102) == pytest.approx(39)  # halfway between 60 and 144 heads


def test_gates_from_scratch_are_compared_only_where_the_other_curve_is(cells):
    cells["pruning-small-scratch-lambda3"] = point((1, 1, 1), 10.0)  # far below the sparsest trained model
    found = verdicts(cells)
    scratch = found[
        "marian-small: at the same number of heads, pruning a trained model is better than training with gates"
    ]
    assert scratch.ours == pytest.approx(2.0)
    del cells["pruning-small-scratch-lambda0.3"]
    assert not [text for text in verdicts(cells) if text.startswith("marian-small: at the same number")]


def test_longer_training_is_compared_at_the_same_number_of_heads(cells):
    name = "opus-mt, encoder alone"
    found = verdicts(cells)
    less = found[f"{name}: at the same number of heads, less is lost if gates and weights are trained longer"]
    assert less.ours == pytest.approx(-0.5 - (56.5 - 60.0))  # 20 heads: halfway between 30 and 10
    assert less.verdict == "holds"
    third = found[f"{name}, trained longer: with at most a third of the heads, at most 1 BLEU is lost"]
    assert third.verdict == "cannot tell"
    assert "the sparsest has 20 (42%), -0.50 BLEU" in third.why


def test_a_run_that_was_still_learning_is_named(cells):
    def said():
        found = verdicts(cells).items()
        return next(
            claim for text, claim in found if text.startswith("the encoder of marian-small") and "tuned" in text
        )

    assert said().verdict == "holds"
    assert "still learning" not in said().why
    cells["pruning-transfer-small-tuned"]["epochs"] = 3.0
    assert said().verdict == "holds"
    assert said().why.endswith("still learning at the end: tuned")
    cells["pruning-transfer-small-scratch"]["epochs"] = 3.0
    assert said().verdict == "cannot tell"  # nothing to compare with
    assert said().why.endswith("still learning at the end: scratch, tuned")


def test_runs_that_were_not_trained_alike_are_not_judged(cells):
    name = "marian-small: at the same number of heads, pruning a trained model is better than training with gates"
    assert verdicts(cells)[name].verdict == "holds"
    cells["pruning-small-scratch-lambda0.3"]["fitted"] = {"steps": 200.0}
    assert verdicts(cells)[name].verdict == "cannot tell"
    assert "20 steps with gates on the trained model, 200 from scratch" in verdicts(cells)[name].why


def test_chance_is_compared_at_every_weight(cells):
    claim = verdicts(cells)["opus-mt, all attentions: heads chosen by gates serve better than as many chosen at random"]
    assert claim.ours == pytest.approx(3.0)
    assert "+3.00 (106), +3.00 (41), +3.00 (10)" in claim.why


def test_points_know_what_was_not_pruned(cells):
    outcome = Outcome(cells)
    last = outcome.curve("opus-encoder")[-1]
    assert (last.heads("encoder"), last.heads("cross"), last.left) == (10, 48, 10)
    assert [point.left for point in outcome.curve("opus-encoder")] == [48, 30, 10]
    assert outcome.curve("opus-all")[-1].strength is None
    assert change(outcome.curve("opus-all")[-1], outcome.curve("opus-all")[0]).value == pytest.approx(-20)
    alive = survival(outcome.gated("opus-all"), "cross")
    assert alive.sum(axis=(1, 2)).tolist() == [40, 20, 5]
    given = roles(outcome.found["opus-tuned"]["patterns"])
    assert given[5] == ["positional"] * 8
    assert given[0] == ["none of these"] * 8


def test_the_page_is_made_whole_and_in_part(cells, tmp_path):
    settings = Settings(out=tmp_path / "voita2019", partial=True)
    for some in (
        cells,
        {key: cells[key] for key in list(cells)[:5]},
        {"pruning-small-en-ru": cells["pruning-small-en-ru"]},
    ):
        outcome = WHOLE.page(settings, {"pruning": part_of(settings, some)}, {"pruning": (1, 47)})
        document = json.loads(outcome.to_json())
        assert document["tables"]
        assert "Not all of it was run" in outcome.summary[0]
    whole = WHOLE.page(settings, {"pruning": part_of(settings, cells)}, {})
    assert [figure.name for figure in whole.figures] == ["bleu", "roles", "types", "layers", "classes"]
    said = "\n".join(whole.summary)
    assert "minilm, sst2: 20 of 72 heads, 0.901 by gates, 0.880 by importance, 0.800 by random, 0.901 with all" in said
    assert "BLEU: scratch 20.0, frozen 18.0, tuned 23.0." in said
    folder = whole.write(settings.out)
    assert "48/48/48" in (folder / "README.md").read_text(encoding="utf-8")


def test_every_planned_cell_can_be_read_back():
    """Keys that the grid gives are those that the page looks for."""
    full = pruning.cells(False, (0, 1, 2))
    names = {key.removeprefix("pruning-") for key in full}
    assert {"opus-tuned", "small-en-fr", "small-en-ru", "opus-encoder-empty", "transfer-opus-frozen"} <= names
    assert sum(key.startswith("opus-encoder-lambda") for key in names) == 7
    assert {"opus-encoder-long-lambda0.06", "opus-all-long-lambda0", "classes-e5-small-sst2-seed2"} <= names
    assert next(iter(full)) == "pruning-opus-tuned"
    assert set(pruning.cells(True, (0, 1))) <= set(full) | set(pruning.cells(True, (0,)))
    for cell in full.values():
        assert cell.function.rpartition(":")[2] in pruning.SECONDS
        json.dumps(cell.record())


def test_random_heads_are_as_many_of_each_stack():
    sites = {Site("encoder", "self", layer): [0, 1] if layer else [] for layer in range(3)}
    sites |= {Site("decoder", "cross", 0): [0, 1, 2]}
    heads = dict.fromkeys(sites, 4)
    drawn = chosen_at_random(sites, heads, seed=1)
    table = table_of(drawn)
    assert sum(map(len, table["encoder"])) == 4
    assert sum(map(len, table["cross"])) == 3
    assert drawn == chosen_at_random(sites, heads, seed=1)
    assert drawn != chosen_at_random(sites, heads, seed=2)


def test_an_interval_over_heads_is_a_bootstrap_over_heads():
    values = np.arange(40.0)[:, None]
    found = over_heads(lambda group: float(group.mean()), values)
    assert found.value == pytest.approx(19.5)
    half = 1.96 * values.std() / np.sqrt(40)
    assert found.interval == pytest.approx((19.5 - half, 19.5 + half), rel=0.1)
    assert over_heads(lambda group: float("nan"), values) is None


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Multi30k of made-up words: each English word has one French word."""
    folder = tmp_path_factory.mktemp("data") / "multi30k"
    folder.mkdir()
    draw = random.Random(0)
    words = [f"{a}{b}" for a in ("ba", "do", "ki", "lu", "me") for b in ("ta", "ro", "si", "nu")]
    sizes = {"train": 60, "val": 20}
    sizes |= dict.fromkeys(("test_2016_flickr", "test_2017_flickr", "test_2018_flickr", "test_2017_mscoco"), 4)
    for split, count in sizes.items():
        sentences = [[draw.choice(words) for _ in range(draw.randint(3, 7))] for _ in range(count)]
        for language, turn in (("en", lambda word: word), ("fr", lambda word: word[::-1])):
            text = "".join(" ".join(map(turn, words)) + "\n" for words in sentences)
            with gzip.open(folder / f"{split}.{language}.gz", "wt", encoding="utf-8") as stream:
                stream.write(text)
    return folder.parent


def test_a_tiny_marian_is_trained_gated_and_pruned(data, tmp_path):
    told = pruning.cells(True, (0,))["pruning-small-all-lambda1"].arguments["sizes"]
    told = {**told, "small": 1, "gates": 2, "pieces": 60, "limit": 40, "batch": 20, "draws": 20}
    places = {"data": str(data), "models": None, "scratch": str(tmp_path)}
    first = small(languages="en-fr", sizes=told, **places)
    assert np.shape(first["patterns"]["peak_previous"]) == (2, 4)
    assert first["scores"]["test"]["texts"] == 12
    shares = np.array([first["patterns"][f"mass_{name}"] for name in ("self", "previous", "last")])
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    result = pruned(model="small", where="encoder", strength=50.0, control=True, sizes=told, **places)
    json.dumps(result, allow_nan=False)
    assert set(result["kept"]) == {"encoder"}
    left = sum(map(len, result["kept"]["encoder"]))
    assert left == result["gates"]["kept_by"]["code"]
    assert sum(map(len, result["control"]["kept"]["encoder"])) == left
    assert len(result["scores"]["test"]["draws"]) == 20
