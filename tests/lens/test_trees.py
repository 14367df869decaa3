"""Trees: planted heads, the definitions by hand, recomputed baselines of a real treebank, bad input."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from test_relations import word_level
from tiny import TREEBANK, bert, gpt2, planted, subject

from benchmarks.planted_heads import HEADS
from lorgnette import texts as corpora
from lorgnette.errors import UserError
from lorgnette.lens.trees.lens import Trees
from lorgnette.looking.look import look
from lorgnette.statistics.hashing import text_key
from lorgnette.syntax.arborescence import free_trees, rooted_trees
from lorgnette.syntax.attachment import BASELINES, UNKNOWN, agreement, baseline_trees
from lorgnette.testing import check_lens
from lorgnette.texts.example import Example


def found(lens, subject, texts, **options):
    return look(subject, texts, [lens], progress=False, **options)["trees"].data


def test_the_planted_tree_is_found_whole_and_the_control_is_at_its_baseline():
    heads, texts = planted()
    for root in ("gold", "free"):
        data = found(Trees(root=root), heads, texts)
        tree = data.sel(stack="encoder", layer=1, head=HEADS.index("tree") + 1, way="to_head")
        for name in ("uas", "uas_nonroot", "uas_words", "uas_words_nonroot", "undirected", "undirected_words"):
            assert tree[name].item() == 1.0, (root, name)
        # A free root leaves the tree to choose, and the root's own word, which reads [CLS], must not mislead it.
        assert tree.recall.sel(relation="nsubj").item() == 1.0
    # The head that reads the next word is head_is_next, but for the last word, which must hang somewhere.
    data = found(Trees(), heads, texts)
    following = data.uas.sel(stack="encoder", layer=1, head=HEADS.index("next") + 1, way="to_head")
    base = data.baseline_uas.sel(baseline="head_is_next")
    assert base <= following <= base + len(list(texts)) / data.attrs["words"] + 1e-9
    control, texts = planted(control=True)
    data = found(Trees(), control, texts)
    chance = data.baseline_uas.sel(baseline="random_tree").item()
    assert data.uas.max() < chance + 0.12
    assert abs(data.uas.mean().item() - chance) < 0.06


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("way", ["to_head", "read_by_head"])
def test_against_the_definitions(make, way):
    """Right heads of the trees of each text's own matrix, counted one by one."""
    tiny = make()
    data = found(Trees(), tiny, TREEBANK)
    stack = str(data["stack"].values[0])
    right = np.zeros((5, 4))
    totals = np.zeros(4)
    for example in TREEBANK:
        alpha = word_level(tiny, example, f"{stack}.2")
        scores = torch.cat([alpha, alpha.mean(0, keepdim=True)]).numpy()
        scores = scores if way == "to_head" else scores.transpose(0, 2, 1)
        root = example.heads.index(0)
        for g, tree in enumerate(rooted_trees(scores, root)):
            for d, (h, label) in enumerate(zip(example.heads, example.relations, strict=True)):
                good = tree[d] == h - 1
                right[g] += [good, good and d != root, good and label != "punct", good and label.startswith("nsubj")]
        totals += [
            len(example.words),
            len(example.words) - 1,
            sum(label != "punct" for label in example.relations),
            sum(label.startswith("nsubj") for label in example.relations),
        ]
    cell = data.sel(stack=stack, layer=2, way=way)
    for number, name in enumerate(("uas", "uas_nonroot", "uas_words")):
        assert cell[name].values == pytest.approx(right[:4, number] / totals[number])
        assert cell[f"layer_{name}"].item() == pytest.approx(right[4, number] / totals[number])
    assert cell.recall.sel(relation="nsubj").values == pytest.approx(right[:4, 3] / totals[3])


def test_norms_are_other_edges():
    """α‖f(x)‖: the tree of one text from the trace's own vectors."""
    tiny, example = bert(), TREEBANK[0]
    data = found(Trees("norms"), tiny, [example])
    trace = tiny.trace(example)
    weights, value = trace["encoder.2.weights"], trace["encoder.2.value"]
    output = tiny.anatomy.sites[1].head_weights().output
    length = torch.stack([(value[h] @ output[h]).norm(dim=-1) for h in range(4)])
    inner = (weights * length[:, None])[:, 1:-1, 1:-1].detach().numpy()  # every word of this text is one piece
    trees = rooted_trees(inner, example.heads.index(0))
    expected = (trees == np.array(example.heads) - 1).mean(-1)
    assert data.uas.sel(stack="encoder", layer=2, way="to_head").values == pytest.approx(expected)


def test_agreement_by_hand():
    """the ← cat ← sat → . with one right head, one turned round, and the root given."""
    gold = np.array([1, 2, -1, 2])
    tree = np.array([[1, 0, -1, 1]])
    right, counted = agreement(tree, gold, np.array([False, False, False, True]))
    assert right.sum(1).tolist() == [[2, 1, 2, 1, 2, 2]]
    assert counted.sum(0).tolist() == [4, 3, 3, 2, 3, 2]
    # A gold head that the model does not see is not scored.
    right, counted = agreement(tree, np.array([UNKNOWN, 2, -1, 2]), np.zeros(4, dtype=bool))
    assert counted.sum(0).tolist() == [3, 2, 3, 2, 2, 2]


def test_baselines_by_hand():
    trees = baseline_trees(4, 1, seed=0, draws=3)
    assert trees["head_is_next"].tolist() == [[1, -1, 3, UNKNOWN]]
    assert trees["head_is_previous"].tolist() == [[UNKNOWN, -1, 1, 2]]
    assert trees["star"].tolist() == [[1, -1, 1, 1]]
    drawn = trees["random_word"]
    assert drawn.shape == (3, 4)
    assert (drawn[:, 1] == -1).all()
    assert (drawn != np.arange(4)).all()
    assert set(baseline_trees(1, 0, seed=0, draws=2)) == set(BASELINES)


def test_random_words_are_uniform():
    drawn = baseline_trees(5, 0, seed=1, draws=20000)["random_word"]
    for word in range(1, 5):
        counts = np.bincount(drawn[:, word], minlength=5)
        assert counts[word] == 0
        assert np.abs(np.delete(counts, word) / 20000 - 0.25).max() < 0.015


def pud():
    folder = os.environ.get("LORGNETTE_DATA")
    for place in filter(None, (folder, Path(__file__).parents[3] / "shared" / "data")):
        if (Path(place) / "ud_en_pud").is_dir():
            return corpora.corpus("ud_en_pud", data=str(place))
    pytest.skip("UD_English-PUD is not there: set LORGNETTE_DATA to the folder that holds ud_en_pud")


def test_recomputed_baselines_of_pud():
    """Raganato & Tiedemann's positional baselines, on the treebank they used, to two digits."""
    totals = {name: np.zeros((2, 6)) for name in BASELINES}
    for example in pud():
        gold = np.array(example.heads) - 1
        marks = np.array([label == "punct" for label in example.relations])
        for name, trees in baseline_trees(len(gold), int(gold.argmin()), text_key(example.id, 0), 2).items():
            right, counted = agreement(trees, gold, marks)
            totals[name] += np.stack([right.mean(0).sum(0), counted.sum(0)])
    assert totals["star"][1, 0] == 21180
    shares = {name: np.round(100 * right / counted, 2).tolist() for name, (right, counted) in totals.items()}
    assert shares["head_is_next"][:3] == [35.30, 32.10, 38.68]
    assert shares["head_is_previous"][:3] == [10.65, 6.22, 10.71]
    assert shares["star"][0] == 29.34
    # 2 of n words are right on average (the root and one in n − 1 of the others): 2000 / 21180 = 9.44.
    assert shares["random_word"][0] == pytest.approx(9.44, abs=0.4)
    assert shares["random_word"][2] == pytest.approx(9.9, abs=0.5)
    assert shares["random_tree"][0] == pytest.approx(10.1, abs=0.4)  # the published random baseline


@pytest.mark.parametrize("options", [{"root": "free"}, {"scores": "norms"}])
def test_laws(options):
    check_lens(lambda: Trees(**options), bert(), TREEBANK, tolerance=1e-9)


def test_broken_trees_cut_texts_and_lost_roots_are_counted():
    chain = Example("cut", "", words=("w7",) * 80, heads=(0, *range(1, 80)), relations=("root",) + ("dep",) * 79)
    rootless = Example("late", "", words=("w7",) * 80, heads=(*range(2, 81), 0), relations=("dep",) * 79 + ("root",))
    loop = Example("loop", "", words=("w7", "w8"), heads=(2, 1), relations=("dep", "dep"))
    one = Example("one", "", words=("w9",), heads=(0,), relations=("root",))
    data = found(Trees(), subject("bert"), [chain, rootless, loop, one], truncate=True)
    assert data.attrs["skipped"] == "late, loop"
    assert data.attrs["words"] == 63
    assert data.attrs["words_without_a_piece"] == 36
    assert data.attrs["words_in_broken_trees"] == 2
    assert data.attrs["words_in_texts_without_their_root"] == 62
    assert data.baseline_uas.sel(baseline="head_is_previous").item() == 1.0
    assert (data.uas_count.sel(stack="encoder") == 2).all()


def test_nothing_but_broken_trees():
    loop = Example("loop", "", words=("w7", "w8"), heads=(2, 1), relations=("dep", "dep"))
    data = found(Trees(), subject("bert"), [loop])
    assert (data.uas_count == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "weight"}, "must be 'weights', 'norms' or 'relevance'"),
        ({"root": "any"}, "must be 'gold' or 'free'"),
        ({"draws": 0}, "at least 1"),
        ({}, "'text 1' has no gold tree"),
    ],
)
def test_bad_input_is_one_line(options, message):
    with pytest.raises(UserError, match=message) as caught:
        found(Trees(**options), bert(), ["plain text"])
    assert "\n" not in str(caught.value)


def test_free_trees_choose_their_root():
    scores = np.array([[[0.0, 0.9, 0.1], [0.2, 0.0, 0.3], [0.1, 0.8, 0.0]]])
    assert free_trees(scores).tolist() == [[1, -1, 1]]
    assert free_trees(scores, np.array([[9.0, 0.0, 0.0]])).tolist() == [[-1, 0, 1]]


def test_relevance_of_edges_is_the_head_s_relevance_key_by_key():
    from tiny import classifier

    from lorgnette.explaining import edge_relevance, explain

    tiny = classifier()
    batch = tiny.encode(list(TREEBANK))
    for method in ("ah", "attnlrp", "gradient_x_input"):
        edges, whole = edge_relevance(tiny, batch, method), explain(tiny, batch, method)
        for site, heads in whole.heads.items():
            torch.testing.assert_close(edges[site].sum((-2, -1)), heads, rtol=1e-9, atol=1e-12)
            padding = ~batch.source.mask
            assert float(edges[site].abs().transpose(1, 3)[padding].sum()) == 0.0
    with pytest.raises(UserError, match="Relevance of edges"):
        edge_relevance(tiny, batch, "voita2021")


def test_trees_of_relevance_by_the_definition():
    from tiny import classifier

    from lorgnette.attending.words import between_words
    from lorgnette.explaining import edge_relevance

    tiny = classifier()
    data = found(Trees("relevance"), tiny, TREEBANK)
    example = TREEBANK[0]
    only = found(Trees("relevance"), tiny, [example])
    batch = tiny.encode([example])
    words = len(example.words)
    gold = np.array(example.heads) - 1
    for site in tiny.sites:
        scores = between_words(edge_relevance(tiny, batch)[site], batch.source.word, words)[0][0].numpy()
        for head in range(tiny.heads):
            tree = rooted_trees(scores[head : head + 1], int(np.flatnonzero(gold < 0)[0]))[0]
            uas = float((tree == gold).mean())
            where = {"stack": "encoder", "layer": site.layer + 1, "head": head + 1, "way": "to_head"}
            assert only.uas.sel(where).item() == pytest.approx(uas)
    assert data.attrs["scores"] == "relevance"
    assert ((data.uas >= 0) & (data.uas <= 1)).all()
    check_lens(lambda: Trees("relevance"), tiny, list(TREEBANK), tolerance=1e-9)


def test_relevance_needs_a_head():
    with pytest.raises(UserError):
        found(Trees("relevance"), bert(), TREEBANK)
