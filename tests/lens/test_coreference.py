"""Coreference: the definition mention by mention, planted heads, the reader of chains, bad input."""

from dataclasses import replace

import pytest
import torch
from test_relations import word_level
from tiny import TREEBANK, bert, planted

from benchmarks.planted_heads import HEADS
from lorgnette import texts as corpora
from lorgnette.errors import UserError
from lorgnette.lens.coreference.lens import Coreference, best_antecedents
from lorgnette.looking.look import look
from lorgnette.texts.annotated import share
from lorgnette.texts.coreference import Mention, gap, mentions_of, passages, subjects_of
from lorgnette.texts.corpus import Corpus
from lorgnette.texts.example import Example

HEAD = "# newdoc id = doc\n# global.Entity = GRP-etype-infstat\n"


def told(id, text, *mentions):
    return Example(id, text, words=tuple(text.split()), extra={"mentions": mentions})


TEXTS = [
    told("a", "the cat ran and it sat on the dog and it was good", (0, 2, 1, "c", "nominal"),
         (4, 5, 4, "c", "pronoun"), (7, 9, 8, "d", "nominal"), (10, 11, 10, "c", "pronoun")),
    told("b", "cat dog cat dog", (0, 1, 0, "c", "proper"), (1, 2, 1, "d", "proper"),
         (2, 3, 2, "c", "proper"), (3, 4, 3, "d", "proper")),
    told("c", "unbelievably good dog sat and the cat sat on it", (0, 3, 2, "d", "nominal"),
         (5, 7, 6, "c", "nominal"), (9, 10, 9, "d", "pronoun")),
    told("d", "good"),
    told("e", "the dog ran on the dog", (0, 2, 1, "x", "nominal"), (4, 6, 5, "x", "nominal")),
]  # fmt: skip


def oracle(attention, kind, candidates, part, head):
    hits = count = 0
    for example in TEXTS:
        if (share(f"part/{example.id}") < 0.5) != (part == "development"):
            continue
        alpha = attention[example.id][head]
        mentions = [Mention(*m) for m in example.extra["mentions"]]
        for mention in mentions:
            gold = [m.head for m in mentions if m.chain == mention.chain and m.head < mention.head]
            if not gold or kind not in ("all", mention.kind):
                continue
            if candidates == "mentions":
                places = [m.head for m in mentions if m.head < mention.head]
            else:
                places = [w for w in range(len(example.words)) if w != mention.head]
            hits += max(places, key=lambda j: alpha[mention.head, j].item()) in gold
            count += 1
    return hits, count


def test_against_the_definition():
    tiny = bert()
    data = look(tiny, TEXTS, [Coreference()], progress=False)["coreference"].data
    attention = {example.id: word_level(tiny, example, "encoder.2") for example in TEXTS}
    for part in ("development", "held_out"):
        for kind in ("all", "pronoun", "proper", "nominal"):
            for candidates in ("mentions", "words"):
                for head in range(4):
                    hits, count = oracle(attention, kind, candidates, part, head)
                    cell = data.sel(
                        layer=2, stack="encoder", head=head + 1, kind=kind, candidates=candidates, part=part
                    )
                    assert cell.pairs == count
                    if count:
                        assert cell.accuracy.item() == pytest.approx(hits / count)
    assert data.attrs["mentions"] == 13
    assert data.attrs["with_antecedent"] == 6
    assert int(data.pairs.sel(kind="all").sum()) == 6


def test_rules_by_hand():
    """Text b: the nearest is always the other animal, the same word always the right one."""
    data = look(bert(), [TEXTS[1]], [Coreference()], progress=False)["coreference"].data
    rules = data.baseline_accuracy.sel(kind="all").sum("part")  # one part is empty
    assert rules.sel(baseline="nearest") == 0.0
    assert rules.sel(baseline="head_match") == 1.0
    data = look(bert(), [TEXTS[0]], [Coreference()], progress=False)["coreference"].data
    rules = data.baseline_accuracy.sel(kind="pronoun").sum("part")
    assert rules.sel(baseline="nearest") == 0.5  # the first "it": the cat; the second: the dog is nearer
    assert rules.sel(baseline="head_match") == 0.5  # the second "it" has the first


def test_the_nearest_subject_counts_where_subjects_are_known():
    """ "it" of text a: its nearest subject is the cat, and behind the dog still the cat's pronoun."""
    known = replace(TEXTS[0], extra={**TEXTS[0].extra, "subjects": (1, 4)})
    data = look(bert(), [known, TEXTS[1]], [Coreference()], progress=False)["coreference"].data
    rules = data.baseline_accuracy.sel(kind="all", baseline="subject").sum("part")
    assert rules == 1.0
    counts = data.baseline_accuracy_count.sel(kind="all").sum("part")
    assert counts.sel(baseline="subject") == 1
    assert counts.sel(baseline="nearest") == 2
    assert (data.over_baseline_count.sel(kind="all", baseline="subject").sum("part") == 1).all()
    data = look(bert(), [TEXTS[1]], [Coreference()], progress=False)["coreference"].data
    assert data.baseline_accuracy.sel(baseline="subject").isnull().all()


def test_subjects_of_a_passage_come_from_its_trees(tmp_path):
    subject = row(1, "He", 2, "Entity=(1-person-giv)", upos="PRON").replace("\tdep\t", "\tnsubj:pass\t")
    sentence = f"{subject}\n{row(2, 'left', 0)}\n\n"
    text = f"{HEAD}# sent_id = s1\n{sentence}# sent_id = s2\n{sentence}"
    path = tmp_path / "gum.conllu"
    path.write_text(text)
    (passage,) = passages(corpora.corpus(path))
    assert subjects_of(passage) == {0, 2}
    assert subjects_of(Example("x", "a b", words=("a", "b"))) is None


GAP = "ID\tText\tPronoun\tPronoun-offset\tA\tA-offset\tA-coref\tB\tB-offset\tB-coref\tURL\n"
ANN = "Ann Lee met J. Bo. Then Cy met Di's son, and he left"


def gap_row(id, one, other, right, text=ANN):
    where = [str(text.index(name)) for name in ("he left", one, other)]
    coref = [str(right == name).upper() for name in (one, other)]
    return "\t".join([id, text, "he", where[0], one, where[1], coref[0], other, where[2], coref[1], "page"]) + "\n"


def test_gap_asks_for_one_of_two_names(tmp_path):
    path = tmp_path / "gap.tsv"
    behind = "he left Ann for Bo"
    path.write_text(
        GAP + gap_row("1", "Ann Lee", "Di", "Ann Lee") + gap_row("2", "Ann Lee", "J. Bo", "neither")
        + gap_row("3", "Ann", "Bo", "Bo", behind) + gap_row("4", "Cy", "Di", "Di")
    )  # fmt: skip
    one, other = gap(path)
    assert (one.id, other.id) == ("1", "4")
    assert [(one.words[m.head], m.chain, m.kind) for m in mentions_of(one)] == [
        ("Lee", "A", "proper"), ("Di", "B", "proper"), ("he", "A", "pronoun")]  # fmt: skip
    # An initial ends no sentence: Ann is the first name of the first, Di of the second. Cy comes before Di.
    assert [one.words[at] for at in one.extra["subjects"]] == ["Lee", "Di"]
    assert [other.words[at] for at in other.extra["subjects"]] == ["Cy"]
    path.write_text(GAP + gap_row("1", "Ann Lee", "Di", "Di").replace("\tDi\t", "\tDo\t1"))
    with pytest.raises(UserError, match=r"gap\.tsv, line 2: no words 'Do' at character"):
        list(gap(path))


def test_the_planted_head_finds_its_antecedents_and_the_control_does_not():
    """Every noun's antecedent is the word before: the head that reads the previous word finds them all."""
    heads, texts = planted()
    chains = [
        Example(e.id, e.text, words=e.words, extra={"mentions": tuple(
            (at, at + 1, at, f"{at // 2}", "nominal") for at in range(len(e.words)))})
        for e in texts
    ]  # fmt: skip
    result = look(heads, chains, [Coreference()], progress=False)["coreference"]
    data = result.data
    assert (data.baseline_accuracy.sel(baseline="nearest", kind="all") == 1.0).all()
    previous = data.accuracy.sel(stack="encoder", layer=1, head=HEADS.index("previous") + 1, kind="all")
    assert (previous == 1.0).all()
    following = data.accuracy.sel(
        stack="encoder", layer=1, head=HEADS.index("next") + 1, candidates="words", kind="all"
    )
    assert (following == 0.0).all()
    table = best_antecedents(result).set_index(["kind", "candidates"])
    assert table.loc[("all", "words"), "accuracy"] == 1.0
    assert HEADS[table.loc[("all", "words"), "head"] - 1] in ("previous", "dead")
    control, texts = planted(control=True)
    data = look(control, chains, [Coreference()], progress=False)["coreference"].data
    assert data.accuracy.sel(candidates="words", kind="all").max() < 0.5


def row(id, form, head, misc="_", upos="NOUN"):
    return "\t".join([str(id), form, form.lower(), upos, "NN", "_", str(head), "dep", "_", misc])


def treebank(tmp_path):
    first = [
        row(1, "The", 2, "Entity=(1-person-new", upos="DET"),
        row(2, "king", 5),
        row(3, "of", 4),
        row(4, "Spain", 2, "Entity=(2-place-new)1)", upos="PROPN"),
        row(5, "sang", 0, "Entity=(9[1/2]-abstract-new)"),
    ]
    second = [row(1, "He", 2, "Entity=(1-person-giv)", upos="PRON"), row(2, "left", 0, "Entity=(7-event-new")]
    other = [row(1, "Who", 0, "Entity=(1-person-new)", upos="PRON")]
    text = HEAD + "# sent_id = s1\n" + "\n".join(first) + "\n\n# sent_id = s2\n" + "\n".join(second) + "\n\n"
    text += "# newdoc id = next\n# sent_id = t1\n" + "\n".join(other) + "\n\n"
    path = tmp_path / "gum.conllu"
    path.write_text(text)
    return corpora.corpus(path)


def test_chains_are_read_from_brackets(tmp_path):
    one, two, _ = treebank(tmp_path)
    # The king hangs on "sang"; Spain on the king; what comes in pieces or does not end is left out.
    assert mentions_of(one) == (Mention(0, 4, 1, "1", "nominal"), Mention(3, 4, 3, "2", "proper"))
    assert mentions_of(two) == (Mention(0, 1, 0, "1", "pronoun"),)


def test_passages_stay_within_documents(tmp_path):
    first, second = passages(treebank(tmp_path))
    assert first.words == ("The", "king", "of", "Spain", "sang", "He", "left")
    assert first.id == "s1"
    assert mentions_of(first)[-1] == Mention(5, 6, 5, "1", "pronoun")
    assert second.words == ("Who",)
    cut = list(passages(treebank(tmp_path), words=5))
    assert [len(e.words) for e in cut] == [5, 2, 1]


def test_bad_input_is_one_line():
    for texts in (["plain text"], [Example("x", "a b", words=("a", "b"), heads=(0, 1), relations=("root", "dep"))]):
        with pytest.raises(UserError, match="has no coreference chains") as caught:
            look(bert(), texts, [Coreference()], progress=False)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="above 0 and below 1"):
        Coreference(development=0.0)


def test_no_mention_with_an_antecedent():
    data = look(bert(), [TEXTS[3]], [Coreference()], progress=False)["coreference"].data
    assert (data.accuracy_count == 0).all()


def test_passages_are_a_variant_of_gum():
    corpus = Corpus.of(TREEBANK, name="trees")
    joined = list(passages(corpus, words=20))
    assert sum(len(e.words) for e in joined) == sum(len(e.words) for e in TREEBANK)
    assert torch.tensor([len(e.words) for e in joined]).max() <= 20
    from lorgnette.texts.named import NAMED

    assert "passages" in NAMED["ud_en_gum"].variants
