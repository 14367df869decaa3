"""CoNLL-U: what is a word, what is a tree, what is left out."""

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.texts.treebank import entity_spans, is_tree, outermost


def row(id, form, head, relation="dep", misc="_", upos="NOUN"):
    return "\t".join([str(id), form, form.lower(), upos, "NN", "Number=Sing", str(head), relation, "_", misc])


def sentence(name, *rows, text=None):
    comments = [f"# sent_id = {name}", *([f"# text = {text}"] if text else [])]
    return "\n".join([*comments, *rows]) + "\n\n"


FRENCH = sentence(
    "fr-1",
    row("1-2", "du", "_", "_"),
    row(1, "de", 3, "case", upos="ADP"),
    row(2, "le", 3, "det", upos="DET"),
    row(3, "pain", 0, "root"),
    row("3.1", "mangé", "_", "_"),
    text="du pain",
)


def corpus(tmp_path, content):
    path = tmp_path / "a.conllu"
    path.write_text(content, encoding="utf-8")
    return lo.corpus(path)


def test_words_are_the_syntactic_words(tmp_path):
    [example] = corpus(tmp_path, FRENCH)
    assert example.id == "fr-1"
    assert example.text == "du pain"
    assert example.words == ("de", "le", "pain")
    assert example.heads == (3, 3, 0)
    assert example.relations == ("case", "det", "root")
    assert example.tags["upos"] == ("ADP", "DET", "NOUN")
    assert example.tags["feats"] == ("Number=Sing",) * 3
    assert example.tags["lemma"] == ("de", "le", "pain")


def test_what_is_no_tree_is_skipped_counted_and_named(tmp_path):
    read = corpus(
        tmp_path,
        sentence("cycle", row(1, "a", 2), row(2, "b", 1), row(3, "c", 0))
        + sentence("two roots", row(1, "a", 0), row(2, "b", 0))
        + FRENCH
        + sentence("no root", row(1, "a", 1))
        + sentence("far head", row(1, "a", 0), row(2, "b", 9))
        + sentence("gap", row(1, "a", 0), row(3, "b", 1)),
    )
    assert [example.id for example in read] == ["fr-1"]
    assert read.skipped.first == ["cycle", "two roots", "no root", "far head", "gap"]
    list(read)  # a second reading counts anew
    assert read.skipped.count == 5


def test_documents_and_entities(tmp_path):
    head = "# newdoc id = doc\n# global.Entity = GRP-etype-infstat\n"
    rows = [
        row(1, "the", 2, misc="Entity=(1-person-new"),
        row(2, "king", 0, misc="_"),
        row(3, "of", 4),
        row(4, "Spain", 2, misc="Entity=(2-place-new)1)"),
        row(5, "sang", 2),
    ]
    first, second = corpus(tmp_path, head + sentence("a", *rows) + sentence("b", row(1, "x", 0)))
    assert first.tags["entity"] == ("B-person", "I-person", "I-person", "I-person", "O")
    assert first.extra["entities"] == ((0, 4, "person"), (3, 4, "place"))
    assert second.tags["entity"] == ("O",)
    assert first.extra["document"] == second.extra["document"] == "doc"


def test_an_entity_left_open_ends_with_the_sentence():
    assert entity_spans(("Entity=(1-person-x", "_"), "GRP-etype-infstat") == ((0, 2, "person"),)
    assert outermost(((0, 3, "a"), (1, 2, "b"), (3, 4, "c")), 5) == ("B-a", "I-a", "I-a", "B-c", "O")


def test_without_heads_there_is_no_tree_but_there_are_tags(tmp_path):
    [example] = corpus(tmp_path, sentence("a", row(1, "x", "_", "_"), row(2, "y", "_", "_")))
    assert example.heads is None
    assert example.tags["upos"] == ("NOUN", "NOUN")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("#\tx\tx\tX\t_\t_\t0\troot\t_\t_\n", "line 1: a word behind a #"),
        ("_\tx\tx\tX\t_\t_\t0\troot\t_\t_\n", "line 1: the first column is _"),
        ("1 the the DET\n", "line 1: 1 columns; CoNLL-U has ten"),
        (FRENCH + "# c\n1\tx\n", r"line 10: 2 columns"),
        (sentence("a", row("one", "x", 0)), "the sentence at line 1: not CoNLL-U"),
        ("\n\n", "no sentence"),
        ("", "empty"),
    ],
)
def test_bad_files(tmp_path, content, message):
    with pytest.raises(UserError, match=message) as error:
        list(corpus(tmp_path, content))
    assert "\n" not in str(error.value)


def reaches_root(heads, word) -> bool:
    for _ in heads:
        if word == 0:
            return True
        word = heads[word - 1]
    return word == 0


@given(st.lists(st.integers(0, 6), max_size=6))
def test_is_tree_agrees_with_walking_up_from_every_word(heads):
    inside = all(head <= len(heads) for head in heads)
    slow = inside and heads.count(0) == 1 and all(reaches_root(heads, word) for word in range(1, len(heads) + 1))
    assert is_tree(heads) == slow


@pytest.mark.parametrize(
    ("name", "split", "sentences", "words"),
    [
        ("ud_en_ewt", "dev", 2001, 25147),
        ("ud_en_gum", "test", 1464, 28397),
        ("ud_en_pud", "test", 1000, 21180),
        ("ud_fr_sequoia", "validation", 412, 9999),
    ],
)
def test_real_treebanks_have_the_published_counts(data, name, split, sentences, words):
    read = lo.corpus(name, split=split, data=data)
    examples = list(read)
    assert (len(examples), sum(len(e.words) for e in examples), read.skipped.count) == (sentences, words, 0)
    assert all(is_tree(e.heads) for e in examples)
    assert ("entity" in examples[0].tags) == (name == "ud_en_gum")


def test_entity_brackets_of_gum_all_close(data):
    with lzma.open(data / "ud_en_gum" / "en_gum-ud-test.conllu.xz", "rt", encoding="utf-8") as file:
        brackets = sum(line.rsplit("\t", 1)[1].count("(") for line in file if "Entity=" in line and line[0] != "#")
    spans = sum(len(e.extra["entities"]) for e in lo.corpus("ud_en_gum:test", data=data))
    assert 0.99 * brackets < spans <= brackets
