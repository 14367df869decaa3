"""Relations: the papers' definitions word by word, planted heads, what counts as which relation, bad input."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import TREEBANK, bert, gpt2, marian, planted, subject

from benchmarks.planted_heads import HEADS
from lorgnette.attending.words import between_words, to_words
from lorgnette.errors import UserError
from lorgnette.lens.relations.lens import Relations, best_heads
from lorgnette.looking.look import look
from lorgnette.reporting.contents import findings_of
from lorgnette.results import Result
from lorgnette.statistics.estimate import Estimate, paired_error
from lorgnette.syntax.relation_names import UNIVERSAL
from lorgnette.syntax.relations import WAYS
from lorgnette.texts.annotated import share
from lorgnette.texts.batch import spans
from lorgnette.texts.example import Example


def word_level(tiny, example, site):
    """α between words of one text from its trace: to a word the sum, from a word the mean, piece by piece."""
    batch = tiny.encode([example])
    weights = tiny.trace(example)[f"{site}.weights"]
    word = batch.source.word[0].tolist()
    count = len(example.words)
    out = torch.zeros(weights.shape[0], count, count, dtype=torch.float64)
    for i in range(count):
        rows = [t for t, w in enumerate(word) if w == i]
        for j in range(count):
            columns = [t for t, w in enumerate(word) if w == j]
            for h in range(weights.shape[0]):
                out[h, i, j] = sum(weights[h, r, c].item() for r in rows for c in columns) / len(rows)
    return out


def argmax_of_others(scores, i):
    candidates = [(s, -j) for j, s in enumerate(scores) if j != i and s > 0]
    return -max(candidates)[1] if candidates else None


def oracle(attention, examples, relation, way, part, head):
    """(hits, pairs) over all texts of a part."""
    hits = pairs = 0
    for example in examples:
        if (share(f"part/{example.id}") < 0.5) != (part == "development"):
            continue
        alpha = attention[example.id][head]
        for d, (h, label) in enumerate(zip(example.heads, example.relations, strict=True)):
            bare = label.split(":")[0]
            if h == 0 or (bare == "punct" if relation == "all" else relation not in (label, bare)):
                continue
            h -= 1
            pairs += 1
            if way == "to_head":
                hits += argmax_of_others(alpha[d], d) == h
            elif way == "to_dependent":
                hits += argmax_of_others(alpha[h], h) == d
            else:
                hits += argmax_of_others([row[d] for row in alpha], d) == h
    return hits, pairs


@pytest.mark.parametrize("make", [bert, gpt2, marian])
def test_against_the_definitions(make):
    tiny = make()
    lens = Relations(["nsubj", "punct", "nsubj:pass"])
    data = look(tiny, TREEBANK, [lens], progress=False)["relations"].data
    stack = str(data["stack"].values[0])
    attention = {example.id: word_level(tiny, example, f"{stack}.2").tolist() for example in TREEBANK}
    compared = 0
    for part in ("development", "held_out"):
        for relation in ("all", "nsubj", "punct"):
            for way in WAYS:
                for head in range(4):
                    hits, pairs = oracle(attention, TREEBANK, relation, way, part, head)
                    cell = data.sel(stack=stack, layer=2, head=head + 1, relation=relation, way=way, part=part)
                    assert cell.pairs.item() == pairs
                    if pairs:
                        assert cell.accuracy.item() == pytest.approx(hits / pairs)
                        compared += 1
    assert compared > 40
    if make is marian:  # the decoder reads another text, of which the treebank knows nothing
        assert (data.accuracy_count.sel(stack=["decoder", "cross"]) == 0).all()


def test_between_words_is_to_words_for_a_batch():
    generator = torch.Generator().manual_seed(0)
    word = torch.tensor([[-1, 0, 0, 1, 2, 2, 2, -1], [-1, 0, 1, 3, 3, -1, -1, -1]])
    weights = torch.rand(2, 3, 8, 8, generator=generator, dtype=torch.float64)
    found, there = between_words(weights, word, 4)
    assert there.tolist() == [[True, True, True, False], [True, True, False, True]]
    number = spans(word[0])
    whole = to_words(weights[0], number, number)
    assert torch.allclose(found[0, :, :3, :3], whole[:, 1:4, 1:4])
    assert (found[0, :, 3] == 0).all()
    assert (found[1, :, :, 2] == 0).all()


def test_planted_heads_are_found_and_the_control_is_not():
    heads, texts = planted()
    data = look(heads, texts, [Relations()], progress=False)["relations"]
    table = best_heads(data).set_index(["relation", "way"])
    tree = HEADS.index("tree") + 1
    assert table.loc[("all", "to_head"), "head"] == tree
    assert table.loc[("all", "to_head"), "accuracy"] == 1.0
    assert (table.xs("to_head", level="way").accuracy == 1.0).all()
    # "the" is nearly always before a noun, and the head that reads the next word finds what the offset finds.
    next_ = data.data.sel(stack="encoder", layer=1, head=HEADS.index("next") + 1, relation="det", way="to_head")
    offset = data.data.offset_accuracy.sel(relation="det", offset=1)
    assert (next_.accuracy == offset).all()
    control, texts = planted(control=True)
    table = best_heads(look(control, texts, [Relations()], progress=False)["relations"]).set_index(["relation", "way"])
    assert table.loc[("all", "to_head"), "accuracy"] < table.loc[("all", "to_head"), "baseline"]


def test_best_is_chosen_on_one_part_and_tested_on_the_other():
    result = look(bert(), TREEBANK, [Relations()], progress=False)["relations"]
    for row in best_heads(result, least=1).itertuples():
        cell = result.data.sel(relation=row.relation, way=row.way, stack=row.stack, layer=row.layer, head=row.head)
        everywhere = result.data.accuracy.sel(relation=row.relation, way=row.way, part="development")
        assert row.development == everywhere.max().item() == cell.accuracy.sel(part="development").item()
        assert row.accuracy == cell.accuracy.sel(part="held_out").item()
        offsets = result.data.offset_accuracy.sel(relation=row.relation)
        at = offsets.sel(offset=-row.offset if row.way == "to_dependent" else row.offset)
        assert at.sel(part="development") == offsets.sel(part="development").max()
        assert row.baseline == at.sel(part="held_out").item()
        assert row.low <= row.accuracy <= row.high if row.texts > 1 else math.isnan(row.low)


def test_offsets_by_hand():
    """a ← b, c → b: of two dependents one has its head at +1, the other at −1."""
    text = Example("x", "the cat sat", words=("the", "cat", "sat"), heads=(2, 0, 2), relations=("det", "root", "det"))
    data = look(bert(), [text], [Relations(["det"])], progress=False)["relations"].data
    part = "development" if share("part/x") < 0.5 else "held_out"
    here = data.sel(relation="det", part=part)
    assert here.offset_accuracy.sel(offset=1) == 0.5
    assert here.offset_accuracy.sel(offset=-1) == 0.5
    assert here.offset_accuracy.sum() == 1.0
    assert here.pairs == 2
    other = data.sel(part="held_out" if part == "development" else "development")
    assert (other.pairs == 0).all()
    assert other.accuracy.isnull().all()


def test_subtypes():
    assert len(set(UNIVERSAL)) == 36  # 37 with root
    data = look(bert(), TREEBANK, [Relations(subtypes=True)], progress=False)["relations"].data
    of = lambda name: int(data.pairs.sel(relation=name).sum())  # noqa: E731
    labels = [label for example in TREEBANK for label in example.relations]
    assert of("nsubj:pass") == labels.count("nsubj:pass") > 0
    assert of("nsubj") == labels.count("nsubj") + labels.count("nsubj:pass")
    assert of("all") == sum(label not in ("root", "punct") for label in labels)


def test_interval():
    assert all(math.isnan(bound) for bound in Estimate(0.5, 0.0, 9).wilson(0))
    assert all(math.isnan(bound) for bound in Estimate(0.5, math.nan, 1).wilson(10))
    low, high = Estimate(0.5, math.sqrt(0.25 / 100), math.inf).wilson(1000)
    assert (low, high) == pytest.approx((0.4038, 0.5962), abs=1e-4)  # Wilson's, 50 of 100
    low, high = Estimate(1.0, 0.0, math.inf).wilson(10)
    assert low == pytest.approx(0.7225, abs=1e-4)
    assert high == 1.0
    few, many = (Estimate(0.5, 0.05, texts).wilson(1000) for texts in (4, 400))
    assert few[0] < many[0] < many[1] < few[1]


def test_words_without_a_piece_and_broken_trees_are_counted():
    cut = Example("long", "", words=("w7",) * 80, heads=(0, *range(1, 80)), relations=("root",) + ("dep",) * 79)
    loop = Example("loop", "", words=("w7", "w8"), heads=(2, 1), relations=("dep", "dep"))
    two = Example("two", "", words=("w7", "w8", "w9"), heads=(0, 0, 1), relations=("root", "root", "dep"))
    data = look(subject("bert"), [cut, loop, two], [Relations()], truncate=True, progress=False)["relations"].data
    assert data.attrs["skipped"] == "loop, two"
    assert data.attrs["words"] == 62
    assert data.attrs["words_without_a_piece"] == 18
    assert data.attrs["words_in_broken_trees"] == 5
    assert int(data.pairs.sel(relation="dep").sum()) == 61


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (["plain text"], {}, "'text 1' has no gold tree"),
        ([], {"relations": "nsubj"}, "must be a list of words"),
        ([], {"development": 1.0}, "above 0 and below 1"),
    ],
)
def test_bad_input_is_one_line(texts, options, message):
    with pytest.raises(UserError, match=message) as caught:
        look(bert(), texts, [Relations(**options)], progress=False)
    assert "\n" not in str(caught.value)


def test_stacks_that_read_another_text_say_nothing():
    """Enough pairs for a best head in the encoder; a decoder has none, and the page is written all the same."""
    many = [replace(example, id=f"{example.id} {copy}") for copy in range(12) for example in TREEBANK]
    result = look(marian(), many, [Relations(["nsubj"])], progress=False)["relations"]
    table = best_heads(result)
    assert set(table["stack"]) == {"encoder"}
    decoder = result.data.sel(stack=["decoder"])
    assert not len(best_heads(Result("relations", decoder, result.provenance)))
    assert [finding.numbers["relations"] for finding in findings_of(result)] == [1]


def test_gains_over_the_best_offset_are_paired_by_text():
    results = look(bert(), TREEBANK, [Relations()], progress=False, keep="texts")
    data, texts = results["relations"].data, results.text_numbers["relations"]
    for relation in ("all", "nsubj", "det"):
        offsets = texts.sel(relation=relation, part="held_out")
        best = int(np.argmax(data.offset_accuracy.sel(relation=relation, part="development").fillna(-1.0).values))
        for way in WAYS:
            for layer, head in ((1, 1), (2, 3)):
                at = {"relation": relation, "way": way, "stack": "encoder", "layer": layer, "head": head}
                numbers = [offsets["offset_accuracy"][..., best], offsets["offset_accuracy_weight"][..., best]]
                mine = texts.sel(at).sel(part="held_out")
                numbers += [mine["accuracy"], mine["accuracy_weight"]]
                error, count = paired_error(*(np.nan_to_num(part.values)[:, None] for part in numbers))
                cell = data.sel(at)
                assert int(cell.gain_count) == count[0]
                assert float(cell.gain_se) == pytest.approx(error[0], abs=1e-6, nan_ok=True)
                base = data.offset_accuracy.sel(relation=relation, part="held_out")[best]
                wanted = float(cell.accuracy.sel(part="held_out") - base)
                assert float(cell.gain) == pytest.approx(wanted, nan_ok=True)
    table = best_heads(results["relations"], least=1)
    assert (table.gain_se.notnull() == (table.texts > 1)).all()
