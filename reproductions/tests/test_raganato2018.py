"""Raganato & Tiedemann 2018: cells on a tiny translation model, and claims from cells whose truth is known."""

import json

import numpy as np
import pytest
import scipy.stats
import tiny
import torch
import xarray as xr
from made_cells import with_results
from tiny import marian

from lorgnette.attending import Tap
from lorgnette.errors import UserError
from lorgnette.texts.example import Example
from reproductions.frame.cells import Cells
from reproductions.frame.page import Outcome
from reproductions.frame.settings import Machine, Settings
from reproductions.frame.statistics import welch
from reproductions.raganato2018 import STUDY, measure
from reproductions.raganato2018 import grid as plan
from reproductions.raganato2018.claims import claims
from reproductions.raganato2018.grid import ENGLISH, FRENCH, TASKS, grid, reachable
from reproductions.raganato2018.patterns import patterns
from reproductions.raganato2018.readings import (
    best_head,
    best_layer,
    certain_followers,
    followers,
    inside_less_outside,
    less,
    probe,
    trees,
)
from reproductions.raganato2018.readings import patterns as read_patterns
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
        "converged": [1.0] * len(accuracy),
        **dict.fromkeys(("majority", "type_majority", "embedding_accuracy"), 0.3),
        **dict.fromkeys(("labels", "train_items", "test_items"), 17),
        "trained_on": "x:dev",
        "corpus": "x:test",
    }


def compared_cell(accuracy, texts=200, words=20):
    """Every text is right about as often; what makes a text hard makes it so for all layers."""
    draw = np.random.default_rng(0)
    hard = draw.normal(0, 0.1, texts)
    right = np.round(words * np.clip(np.array(accuracy)[:, None] + hard, 0, 1)).astype(int)
    data = {"right": (("layer", "text"), right), "words": ("text", np.full(texts, words))}
    return xr.Dataset(data, {"layer": list(range(len(accuracy)))})


@pytest.fixture
def results():
    curve = [0.7, 0.9, 0.8, 0.7, 0.6, 0.6, 0.6]
    following = {"previous": [(0, 1)], "next": [(2, 3), (1, 1)], "last": [(5, 5)]}
    small = {pair: {f"peak_{p}": [[share if p == "next" else 0.1]] for p in ("self", "previous", "next", "last")}
             for pair, share in (("en-fr", 0.9), ("en-de", 0.6))}  # fmt: skip
    return {
        f"trees-{ENGLISH}.trained": trees_cell(),
        f"trees-{ENGLISH}.random-weights": trees_cell(height=0.11, seed=1),
        f"patterns-{ENGLISH}.trained": patterns_cell(following),
        f"patterns-{ENGLISH}.shuffled-words": patterns_cell({}),
        "compared-upos": compared_cell(curve),
        "compared-infstat": compared_cell(curve),
        "compared-chunk": compared_cell([0.7, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8]),
        "probe-upos.trained": probe_cell(curve),
        "probe-upos.random-weights": probe_cell([0.5] * 7),
        "probe-infstat.trained": probe_cell(curve),
        "probe-chunk.trained": probe_cell([0.7, 0.8, 0.8, 0.8, 0.8, 0.801, 0.8]),
        **{f"small-{pair}": {"patterns": shares} for pair, shares in small.items()},
    }


def test_layers_are_compared_text_by_text_and_chosen_on_others():
    """What all layers find hard cancels; of many equal layers the best is no better than the only one beside them."""
    cells = with_results(STUDY, {"compared-upos": compared_cell([0.0, 0.8, 0.85, 0.8])})
    found = inside_less_outside(cells, "upos", [2], [1, 3])
    assert found.value == pytest.approx(0.05, abs=0.01)
    assert found.high - found.low < 0.01
    draw = np.random.default_rng(1)
    same = compared_cell([0.0] + [0.5] * 12)
    same["right"] = (same["right"].dims, draw.binomial(20, 0.5, same["right"].shape))
    cells = with_results(STUDY, {"compared-upos": same})
    found = inside_less_outside(cells, "upos", range(1, 12), [12])
    assert found.low < 0 < found.high


def test_verdicts_on_a_known_truth(results):
    expected = {
        "trees-en-average-like-previous": "holds",
        "trees-en-best-like-next": "holds",
        "trees-en-early-layers": "holds",  # it was put into layer 2
        "trees-en-over-random": "holds",
        "pattern-en-next": "holds",
        "pattern-en-self": "does not hold",
        "small-next": "cannot tell",  # one run for each language
        "small-last": "cannot tell",
        "probe-upos-layers": "holds",
        "probe-infstat-layers": "does not hold",
        "probe-chunk-layers": "cannot tell",
        "probe-upos-over-random": "holds",
    }
    verdicts = {claim.id: claim.verdict for claim in claims(with_results(STUDY, results))}
    assert {name: verdicts[name] for name in expected} == expected


def test_a_page_of_some_cells(results):
    for kept in ("trees", "patterns", "probe", "small"):
        some = {key: cell for key, cell in results.items() if key.startswith(kept)}
        outcome = Outcome.of(STUDY, with_results(STUDY, some))
        assert json.loads(outcome.results())["tables"]
        assert outcome.page("README.md")
        assert outcome.page("APPENDIX.md")


def test_a_head_is_not_scored_where_it_was_chosen(results):
    made = trees_cell(height=PREVIOUS)
    values = np.array(made["by_block"]["uas"])
    values[::2, 3, 3, 0] = 0.9  # lucky in the half that chooses
    values[1::2, 3, 3, 0] = 0.2
    made["by_block"]["uas"] = values.tolist()
    data = trees(with_results(STUDY, {f"trees-{ENGLISH}.trained": made}), ENGLISH)
    best = best_head(data)
    assert best.name == "4-4"
    np.testing.assert_allclose(best.uas, 0.2)
    assert best_head(data, layers=slice(3, None)).name == "4-4"
    assert best_head(data, layers=slice(0, 3)).layer <= 3


def test_a_difference_of_other_blocks_is_welchs():
    draw = np.random.default_rng(3)
    one, other = draw.normal(0.4, 0.1, 5), draw.normal(0.3, 0.02, 8)
    errors = np.array([one.var(ddof=1) / 5, other.var(ddof=1) / 8])
    freedom = errors.sum() ** 2 / (errors**2 / np.array([4, 7])).sum()
    half = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(errors.sum())
    gap = one.mean() - other.mean()
    assert welch(one, other).interval == pytest.approx((gap - half, gap + half))
    assert welch(np.full(4, 0.5), np.full(4, 0.25)).interval == (0.25, 0.25)
    assert welch([0.5], [0.25, 0.3]).interval is None


def test_layers_leave_the_embeddings_out():
    cells = with_results(STUDY, {"probe-upos.trained": probe_cell([0.99, 0.5, 0.7, 0.6], error=0.01)})
    data = probe(cells, "upos")
    gap = less(best_layer(data, [1, 2]), best_layer(data, [3]))
    assert gap.value == pytest.approx(0.1)
    assert (
        gap.high - gap.value
        == pytest.approx(gap.value - gap.low)
        == pytest.approx(scipy.stats.norm.ppf(0.975) * 0.01 * 2**0.5)
    )


def test_heads_that_follow_a_pattern_by_hand():
    cell = patterns_cell({"last": [(0, 0), (5, 7)]})
    shares = read_patterns(with_results(STUDY, {f"patterns-{ENGLISH}.trained": cell}), ENGLISH)
    assert followers(shares, "last") == ["1-1", "6-8"]
    sure = certain_followers(shares, "last")
    assert (sure.value, sure.interval) == (2, (2, 2))


class Matrices(Tap):
    """The weights of every encoder layer, one text at a time."""

    def __init__(self):
        self.layers = []

    def see(self, call):
        if call.site.stack == "encoder":
            self.layers.append(call.weights[0].double())


def test_patterns_against_loops():
    subject = tiny.subject("marian", dtype=torch.float64)
    texts = tiny.examples((9, 4, 12))
    counts = {piece: 3 * piece + 1 for piece in range(40)}
    totals: dict[str, np.ndarray] = {}
    words = 0
    for text in texts:
        tap = Matrices()
        plain = Example(text.id, text.text)
        with torch.no_grad(), subject.tapped(tap):
            subject.run(subject.encode([plain]))
        ids = subject.tokenizer(text.text)["input_ids"]
        last = len(ids) - 1
        words += last
        rare = [1 / (1 + counts[piece]) if piece in counts else 1.0 for piece in ids[:last]]
        for layer, weights in enumerate(tap.layers):
            for head, rows in enumerate(weights):
                for query in range(last):
                    row = rows[query]
                    goals = {"self": query, "previous": query - 1, "next": query + 1, "last": last}
                    numbers = {f"peak_{name}": float(int(row.argmax()) == goal) for name, goal in goals.items()}
                    numbers |= {f"mass_{name}": float(row[goal]) if goal >= 0 else 0.0 for name, goal in goals.items()}
                    numbers["confidence"] = float(row[:last].max())
                    numbers["rarest"] = float(int(row[:last].argmax()) == int(np.argmax(rare)))
                    for name, value in numbers.items():
                        totals.setdefault(name, np.zeros((2, 4)))[layer, head] += value
    measured = patterns(subject, texts, counts)
    assert measured["words"] == words
    for name, total in totals.items():
        np.testing.assert_allclose(measured[name], total / words, atol=5.1e-5, err_msg=name)


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
    model = marian()
    monkeypatch.setattr(measure, "load", lambda *_, **__: model)
    monkeypatch.setattr("lorgnette.lens.probes.probe.LEAST_STEPS", 20)  # no probe needs to be good here
    monkeypatch.setattr(plan, "_small", lambda settings: {})  # voita2019's tests train one
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
    return Settings(
        out=tmp_path / "raganato2018", quick=True, data=str(data), models=str(tmp_path / "models"), seeds=(0,)
    )


def test_quick_end_to_end(shelf):
    outcome = STUDY.reproduce(shelf)
    tables = {table.id: table.frame for table in outcome.tables}
    assert f"heads-{FRENCH}" in tables
    assert len(tables["probes"]) == len(TASKS) * 3 * 2
    assert not outcome.cells.missing
    for task in TASKS:
        both = outcome.cells.one(kind="compared", task=task)
        linear = outcome.cells.one(kind="probe", task=task, condition="trained")["accuracy"]
        assert (both["right"].sum("text") / both["words"].sum()).values == pytest.approx(linear, abs=1e-6)
    # In these treebanks every word hangs on the one before.
    trained = outcome.cells.one(kind="trees", model=ENGLISH, condition="trained")
    assert trained["whole"]["baseline_uas"][1] == 1.0
    assert np.shape(trained["by_block"]["uas"])[0] == 4
    mixed = outcome.cells.one(kind="trees", model=ENGLISH, condition="shuffled words")
    assert mixed["whole"]["baseline_uas"][1] < 0.6
    for claim in outcome.claims:
        if claim.estimate.interval is not None:
            assert claim.estimate.low <= claim.estimate.value <= claim.estimate.high
    assert (outcome.write(shelf.out) / "APPENDIX.md").is_file()


def test_semantic_tags_are_asked_for_where_they_are(shelf, tmp_path):
    folder = tmp_path / "data" / "semtags"
    folder.mkdir()
    key = "probe-sem.trained"
    assert not reachable(shelf, grid(shelf, {})[key])
    for part in ("train", "test"):
        (folder / f"{part}.txt").write_text("the\tDEF\ncat\tCON\nsat\tEPS\n\n" * 20)
    assert reachable(shelf, grid(shelf, {})[key])
    some = {key: grid(shelf, {})[key]}
    machine = Machine(data=shelf.data, models=shelf.models)
    done = Cells(shelf.out / "cells", local={"machine": machine}).run(some)
    assert done[key]["labels"] == 3


def test_no_model(tmp_path, monkeypatch):
    monkeypatch.delenv("LORGNETTE_MODELS", raising=False)
    settings = Settings(out=tmp_path / "x", quick=True, models=str(tmp_path), only=ENGLISH)
    with pytest.raises(UserError, match="The model opus-mt-en-fr is not here"):
        STUDY.reproduce(settings)
