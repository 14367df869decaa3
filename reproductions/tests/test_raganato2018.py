"""Raganato & Tiedemann 2018: cells on a tiny translation model, and the page from cells whose truth is known."""

import json

import numpy as np
import pytest
import scipy.stats
from subjects import marian
from typer.testing import CliRunner

from lorgnette.cli.app import app
from lorgnette.corpora.example import Example
from lorgnette.errors import UserError
from reproductions.frame.cells import Cells
from reproductions.frame.conditions import RANDOM, SHUFFLED, TRAINED
from reproductions.frame.record import Settings, published
from reproductions.raganato2018 import cell, reproduce
from reproductions.raganato2018.claims import _apart, claims
from reproductions.raganato2018.grid import ENGLISH, FRENCH, TASKS, cells
from reproductions.raganato2018.reading import Outcome, best_head, followers, inside_less_outside, within
from reproductions.raganato2018.semantics import with_semantics

BLOCKS, LAYERS, HEADS = 10, 6, 8
NEXT, PREVIOUS, RANDOM_TREE = 0.35, 0.107, 0.1
WORDS = ("the", "cat", "sat", "on", "mat", "dog", "ran")


def trees_cell(best=(1, 4), height=0.36, seed=0):
    """All heads at the previous-word baseline, but for one."""
    draw = np.random.default_rng(seed)
    uas = PREVIOUS + draw.normal(0, 0.002, (BLOCKS, LAYERS, HEADS, 2))
    uas[:, best[0], best[1], 0] += height - PREVIOUS
    scores = ("uas", "uas_nonroot", "uas_words", "uas_words_nonroot", "undirected", "undirected_words")
    baseline = np.tile([NEXT, PREVIOUS, 0.095, RANDOM_TREE, 0.29], (BLOCKS, 1))
    baseline = baseline + draw.normal(0, 0.001, baseline.shape)
    whole = {name: uas.mean(0).tolist() for name in scores}
    whole |= {f"layer_{name}": uas.mean((0, 2)).tolist() for name in scores}
    whole |= {f"baseline_{name}": baseline.mean(0).tolist() for name in scores}
    by_block = {"uas": uas.tolist(), "layer_uas": uas.mean(2).tolist(), "baseline_uas": baseline.tolist()}
    return {"sentences": 1000, "words": 21180, "corpus": "ud_en_pud:test", "by_block": by_block, "whole": whole}


def patterns_cell(following):
    """`following`: pattern → heads that follow it, counted from 0."""
    by_block = {"confidence": np.full((BLOCKS, LAYERS, HEADS), 0.4).tolist()}
    for pattern in ("self", "previous", "next", "last"):
        shares = np.full((BLOCKS, LAYERS, HEADS), 0.1) + np.random.default_rng(1).normal(0, 0.01, (BLOCKS, 1, 1))
        for layer, head in following.get(pattern, ()):
            shares[:, layer, head] += 0.7
        by_block[f"peak_{pattern}"] = shares.tolist()
    return {"sentences": 1000, "corpus": "ud_en_pud:test", "by_block": by_block}


def probe_cell(accuracy, error=0.005):
    return {
        "accuracy": accuracy,
        "accuracy_se": [error] * len(accuracy),
        "selectivity": [value - 0.5 for value in accuracy],
        **dict.fromkeys(("majority", "type_majority", "embedding_accuracy"), 0.3),
        **dict.fromkeys(("labels", "train_items", "test_items"), 17),
        "trained_on": "x:dev",
        "corpus": "x:test",
    }


def fabricated():
    curve = [0.7, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6]
    probes = {
        "upos": {TRAINED: probe_cell(curve), RANDOM: probe_cell([0.5] * 7)},
        "infstat": {TRAINED: probe_cell(curve)},
        "chunk": {TRAINED: probe_cell([0.7, 0.8, 0.8, 0.8, 0.8, 0.801, 0.8])},
    }
    following = {"previous": [(0, 1)], "next": [(2, 3), (1, 1)], "last": [(5, 5)]}
    conditions = {TRAINED: trees_cell(), RANDOM: trees_cell(height=0.11, seed=1)}
    return Outcome(
        trees={ENGLISH: conditions},
        patterns={ENGLISH: {TRAINED: patterns_cell(following), SHUFFLED: patterns_cell({})}},
        probes=probes,
        small={
            "en-fr": {f"peak_{p}": [[0.9 if p == "next" else 0.1]] for p in ("self", "previous", "next", "last")},
            "en-de": {f"peak_{p}": [[0.6 if p == "next" else 0.1]] for p in ("self", "previous", "next", "last")},
        },
    )


def test_verdicts_on_a_known_truth():
    said = {c.text: c for c in claims(fabricated(), published("raganato2018")["numbers"])}

    def verdict(*parts):
        [one] = [c for text, c in said.items() if all(part in text for part in parts)]
        return one.verdict

    assert verdict("the average head is like") == "holds"
    assert verdict("the best head is like") == "holds"
    assert verdict("first 3 layers is better") == "holds"  # it was put into layer 2
    assert verdict("best with random weights", "ud_en_pud") == "holds"
    assert verdict(ENGLISH, "mostly on the next token") == "holds"
    assert verdict(ENGLISH, "mostly on the word itself") == "does not hold"
    assert verdict("small translation models", "the next token") == "holds"
    assert verdict("small translation models", "the last token") == "does not hold"
    assert verdict("parts of speech: best in the first three") == "holds"
    assert verdict("information status", "best in the last three") == "does not hold"
    assert verdict("chunks: best in") == "cannot tell"
    assert verdict("parts of speech: the best layer knows more") == "holds"


def test_a_head_is_not_told_where_it_was_chosen():
    made = trees_cell(height=PREVIOUS)
    values = np.array(made["by_block"]["uas"])
    values[::2, 3, 3, 0] = 0.9  # lucky in the half that chooses
    values[1::2, 3, 3, 0] = 0.2
    made["by_block"]["uas"] = values.tolist()
    best = best_head(made)
    assert best.name == "4-4"
    np.testing.assert_allclose(best.told, 0.2)
    assert best_head(made, layers=slice(3, None)).name == "4-4"
    assert best_head(made, layers=slice(0, 3)).layer <= 3


@pytest.mark.parametrize(
    ("estimate", "said"),
    [
        ((0.0, -0.01, 0.01), "holds"),
        ((0.1, 0.08, 0.12), "does not hold"),
        ((-0.1, -0.12, -0.08), "does not hold"),
        ((0.04, 0.02, 0.06), "cannot tell"),
        ((0.04, float("nan"), float("nan")), "cannot tell"),
    ],
)
def test_similar(estimate, said):
    assert within(estimate, 0.05) == said


def test_a_difference_of_other_blocks_is_welchs():
    draw = np.random.default_rng(3)
    one, other = draw.normal(0.4, 0.1, 5), draw.normal(0.3, 0.02, 8)
    expected = scipy.stats.ttest_ind(one, other, equal_var=False).confidence_interval(0.95)
    assert _apart(one, other)[1:] == pytest.approx((expected.low, expected.high))
    assert _apart(np.full(4, 0.5), np.full(4, 0.25)) == (0.25, 0.25, 0.25)


def test_inside_less_outside_leaves_the_embeddings_out():
    mean, low, high = inside_less_outside(probe_cell([0.99, 0.5, 0.7, 0.6], error=0.01), [1, 2])
    assert mean == pytest.approx(0.1)
    assert high - mean == pytest.approx(mean - low) == pytest.approx(1.96 * 0.01 * 2**0.5)


def test_heads_that_follow_a_pattern_by_hand():
    named, sure, perhaps = followers(patterns_cell({"last": [(0, 0), (5, 7)]}), "last")
    assert named == ["1-1", "6-8"]
    assert sure == perhaps == 2


def test_semantic_stand_ins():
    misc = ("Entity=(1-person-new-x", "Entity=1)(2-place-giv:act-x)", "_", "Entity=(3[1/2]-time-new", "Entity=4)")
    example = Example("a", "a b c d e", words=tuple("abcde"), heads=(2, 3, 0, 3, 3), extra={"misc": misc})
    tagged = with_semantics(example)
    # The larger mention's head, b, heads a smaller one too, which is told.
    assert tagged.tags["etype"] == ("O", "place", "O", "O", "O")
    assert tagged.tags["infstat"] == ("O", "giv:act", "O", "O", "O")
    with pytest.raises(UserError, match="no Entity brackets"):
        with_semantics(Example("b", "a", words=("a",), heads=(0,)))


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A tiny translation model in place of the published ones, and tiny corpora."""
    monkeypatch.setattr(cell, "load", lambda *_, **__: marian())
    draw = np.random.default_rng(0)
    data = tmp_path / "data"

    def treebank(count):
        out = ["# newdoc id = d\n# global.Entity = GRP-etype-infstat"]
        for _ in range(count):
            words = draw.choice(WORDS, 5)
            rows = [
                f"{k + 1}\t{word}\t_\t{'NOUN' if word in ('cat', 'dog', 'mat') else 'X'}\t_\t_\t{k}\t"
                f"{'dep' if k else 'root'}\t_\t{'Entity=(1-person-new)' if word == 'cat' else '_'}"
                for k, word in enumerate(words)
            ]
            out.append(f"# text = {' '.join(words)}\n" + "\n".join(rows) + "\n")
        return "\n".join(out) + "\n"

    for name, prefix in (("ud_en_pud", "en_pud"), ("ud_fr_sequoia", "fr_sequoia"), ("ud_en_ewt", "en_ewt"),
                         ("ud_en_gum", "en_gum")):  # fmt: skip
        (data / name).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (data / name / f"{prefix}-ud-{split}.conllu").write_text(treebank(24))
    (data / "conll2000").mkdir()
    for split in ("train", "test"):
        text = "\n".join("the DT B-NP\ncat NN I-NP\nsat VBD B-VP\n" for _ in range(30))
        (data / "conll2000" / f"{split}.txt").write_text(text)
    (data / "multi30k").mkdir()
    for language in ("en", "fr"):
        (data / "multi30k" / f"val.{language}").write_text("the cat sat\n" * 20)
    for name in (ENGLISH, FRENCH):
        (tmp_path / "models" / name).mkdir(parents=True)
    return Settings(out=tmp_path / "raganato2018", quick=True, data=str(data), models=str(tmp_path / "models"))


def test_quick_end_to_end(shelf):
    outcome = reproduce(shelf)
    document = json.loads(outcome.to_json())
    names = {table["title"] for table in document["tables"]}
    assert any(name.startswith("UAS of every head: opus-mt-fr-en") for name in names)
    patterns = next(t for t in document["tables"] if t["title"].startswith("The four patterns"))
    assert sum("not run" in row for row in patterns["rows"]) == 3  # no small models here
    probes = next(t for t in document["tables"] if t["title"].startswith("Linear probes"))
    assert len(probes["rows"]) == len(TASKS) * 3 * 2
    done = Cells(shelf.out / "cells").done(cells(shelf))
    assert done.keys() == cells(shelf).keys()
    # In these treebanks every word hangs on the one before.
    trained = done[f"trees-{ENGLISH}.trained"]
    assert trained["whole"]["baseline_uas"][1] == 1.0
    assert np.shape(trained["by_block"]["uas"])[0] == 4
    assert done[f"trees-{ENGLISH}.shuffled-words"]["whole"]["baseline_uas"][1] < 0.6
    for claimed in document["claims"]:
        if claimed["interval"] is not None and isinstance(claimed["ours"], float):
            assert claimed["interval"][0] <= claimed["ours"] <= claimed["interval"][1]


def test_a_page_from_what_is_there(shelf):
    partial = Settings(**{**vars(shelf), "partial": True})
    with pytest.raises(UserError, match="Nothing has been measured"):
        reproduce(partial)
    some = {key: one for key, one in cells(shelf).items() if key == f"trees-{ENGLISH}.trained"}
    Cells(shelf.out / "cells", local={"data": shelf.data, "models": shelf.models}).run(some)
    outcome = reproduce(partial)
    assert any("probes of parts of speech" in paragraph for paragraph in outcome.summary)
    assert len(outcome.figures) == 1


def test_semantic_tags_are_asked_for_where_they_are(shelf, tmp_path):
    folder = tmp_path / "data" / "semtags"
    folder.mkdir()
    assert "probe-sem.trained" not in cells(shelf)
    for part in ("train", "test"):
        (folder / f"{part}.txt").write_text("the\tDEF\ncat\tCON\nsat\tEPS\n\n" * 20)
    some = {"probe-sem.trained": cells(shelf)["probe-sem.trained"]}
    done = Cells(shelf.out / "cells", local={"data": shelf.data, "models": shelf.models}).run(some)
    assert done["probe-sem.trained"]["labels"] == 3
    assert "semantic tags in layer" in "".join(reproduce(Settings(**{**vars(shelf), "partial": True})).summary)


def test_no_model(tmp_path):
    done = CliRunner().invoke(app, ["reproduce", "raganato2018", "--quick", "--out", str(tmp_path / "x"),
                                    "--models", str(tmp_path)])  # fmt: skip
    assert done.exit_code != 0
    assert "None of opus-mt-en-fr" in done.output + str(done.exception)
