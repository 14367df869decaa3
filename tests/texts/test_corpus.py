"""Corpora as streams, `datasets` objects, and names that are not known."""

import os

import datasets
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.texts import Corpus, Example, hub

EXAMPLES = [Example(str(i), f"text {i}", label=i % 2) for i in range(20)]


def corpus() -> Corpus:
    return Corpus("twenty", lambda: iter(EXAMPLES), labels=("even", "odd"))


def ids(corpus) -> list[str]:
    return [example.id for example in corpus]


def test_take_and_limit():
    assert ids(corpus().take(3)) == ["0", "1", "2"]
    assert ids(corpus().take(0)) == []
    assert ids(corpus().take(99)) == ids(EXAMPLES)
    assert ids(lo.corpus(corpus(), limit=2)) == ["0", "1"]
    with pytest.raises(UserError, match="cannot take -1"):
        list(corpus().take(-1))


@given(st.integers(), st.integers(0, 25))
def test_shuffled_is_a_permutation_by_seed_and_take_is_its_beginning(seed, n):
    order = ids(corpus().shuffled(seed))
    assert sorted(order, key=int) == ids(EXAMPLES)
    assert order == ids(corpus().shuffled(seed))
    assert ids(corpus().shuffled(seed).take(n)) == order[:n]


def test_another_seed_is_another_order():
    assert ids(corpus().shuffled(0)) != ids(corpus().shuffled(1))


def test_len_only_where_it_is_known():
    with pytest.raises(TypeError):
        len(corpus())
    assert len(Corpus.of(EXAMPLES)) == 20
    assert len(Corpus.of(EXAMPLES).take(5)) == 5


def test_what_is_derived_keeps_labels_and_split():
    renamed = corpus().shuffled(1).take(2).named("two")
    assert (renamed.name, renamed.labels) == ("two", ("even", "odd"))


def test_fingerprints_tell_content_name_and_number_apart(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    first = lo.corpus(path)
    prints = {first.fingerprint(), first.take(1).fingerprint(), first.shuffled(1).fingerprint()}
    prints.add(lo.corpus(path, paragraphs=True).fingerprint())
    path.write_text("one\ntvo\n")
    prints.add(lo.corpus(path).fingerprint())
    assert len(prints) == 5
    assert all(len(value) == 16 for value in prints)
    path.write_text("one\ntwo\n")
    assert lo.corpus(path).fingerprint() == first.fingerprint()
    assert corpus().fingerprint() == corpus().fingerprint() != corpus().take(3).fingerprint()


def test_a_dataset_with_class_names():
    features = datasets.Features({"text": datasets.Value("string"), "y": datasets.ClassLabel(names=["no", "yes"])})
    data = datasets.Dataset.from_dict({"text": ["a", "b"], "y": [1, -1]}, features=features)
    made = Corpus.from_dataset(data, label_column="y")
    assert made.labels == ("no", "yes")
    assert [(e.text, e.label) for e in made] == [("a", 1), ("b", None)]
    assert len(made) == 2
    streamed = Corpus.from_dataset(data.to_iterable_dataset(), label_column="y")
    assert [(e.text, e.label) for e in streamed] == [("a", 1), ("b", None)]


def test_a_saved_dataset_is_a_folder(tmp_path):
    both = datasets.DatasetDict({split: datasets.Dataset.from_dict({"text": [split]}) for split in ("train", "test")})
    both.save_to_disk(tmp_path / "saved")
    assert [e.text for e in lo.corpus(tmp_path / "saved", split="test")] == ["test"]
    with pytest.raises(UserError, match="no split 'dev'; there are train, test"):
        lo.corpus(tmp_path / "saved", split="dev")


def test_lists_are_corpora_and_iterators_are_not():
    assert [e.text for e in lo.corpus(["a", "ב"])] == ["a", "ב"]
    assert [e.label for e in lo.corpus([{"text": "a", "y": "up"}], label_column="y")] == [0]
    assert list(lo.corpus(EXAMPLES)) == EXAMPLES
    with pytest.raises(UserError, match="only once"):
        lo.corpus(iter(["a"]))
    with pytest.raises(UserError, match="row 1: column 'text' is not text but 3"):
        list(lo.corpus(["a", 3]))
    with pytest.raises(UserError, match="a int is not a data set"):
        lo.corpus(3)


def test_a_dict_of_splits_may_hold_whatever_a_corpus_may_be():
    """Iterating a data frame or a dict of columns would give the names of the columns as texts."""
    frame = pd.DataFrame({"text": ["a", "b"], "y": ["up", "down"]})
    for made in (frame, frame.to_dict("list"), frame.to_dict("records"), datasets.Dataset.from_pandas(frame)):
        found = lo.corpus({"train": made, "test": frame[:1]}, label_column="y")
        assert [(e.text, e.label) for e in found] == [("a", 1), ("b", 0)]
    assert [e.text for e in lo.corpus({"train": frame["text"]})] == ["a", "b"]
    for wrong, said in (("a text", "a str is"), ({"a": 1}, "a dict is"), (iter(["a"]), "only once")):
        with pytest.raises(UserError, match=said):
            lo.corpus({"train": wrong})


def test_unknown_names_suggest_near_ones():
    with pytest.raises(UserError, match=r"no corpus or file 'imbd'\. Did you mean 'imdb'"):
        lo.corpus("imbd")
    with pytest.raises(UserError, match="Named corpora: imdb, "):
        lo.corpus("no such thing")


def test_a_pipe_is_named_whatever_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("incoming")
    with pytest.raises(UserError, match=r"^incoming is a pipe or a device; a file is needed"):
        lo.corpus("incoming")


@pytest.mark.parametrize("name", ["someone/something", "hub:sst", "imdb"])
def test_without_the_hub_the_message_says_what_to_do(monkeypatch, name):
    monkeypatch.delenv("LORGNETTE_DATA", raising=False)
    with pytest.raises(UserError, match=r"hub cannot be reached.*(path of a file|LORGNETTE_DATA)"):
        lo.corpus(name)
    monkeypatch.setattr(hub, "_reachable", lambda: False)
    with pytest.raises(UserError, match="hub cannot be reached"):
        lo.corpus(name)


def test_hub_rows_become_examples(monkeypatch):
    monkeypatch.delenv("LORGNETTE_DATA", raising=False)
    asked = []
    rows: list[dict] = []

    def load_dataset(name, config, **options):
        asked.append((name, config, options))
        return list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    rows[:] = [{"text": "a", "label": 0}, {"text": "b", "label": 0}, {"text": "c", "label": 1}]
    assert [(e.text, e.label) for e in lo.corpus("imdb:test")] == [("a", 0), ("c", 1), ("b", 0)]
    assert asked[-1][0] == "stanfordnlp/imdb"
    assert asked[-1][2]["streaming"] is True

    votes = {"label": [0, 0, 2], "annotator_id": [1, 2, 3], "target": [[], [], []]}
    rows[:] = [
        {"id": "p", "annotators": votes, "rationales": [[1, 0], [1, 1]], "post_tokens": ["x", "y"]},
        {"id": "q", "annotators": {**votes, "label": [0, 1, 2]}, "rationales": [], "post_tokens": ["x"]},
    ]
    [post] = lo.corpus("hatexplain", split="val")
    assert asked[-1][2]["split"] == "validation"
    assert (post.label, post.words, post.rationale) == (1, ("x", "y"), (1.0, 1.0))

    rows[:] = [{"premise": "A cat .", "hypothesis": "An animal .", "label": 0, "explanation_1": "because"}]
    [pair] = lo.corpus("esnli:test")
    assert (pair.text, pair.pair, pair.label, pair.extra["pair_start"]) == ("A cat .", "An animal .", 0, 3)

    rows[:] = [{"sentence": "fine film ", "label": -1, "idx": 7}]
    [sentence] = lo.corpus("sst2:test")
    assert (sentence.id, sentence.words, sentence.label) == ("7", ("fine", "film"), None)

    rows[:] = [{"text": " = Title = \n"}, {"text": ""}, {"text": " Some words . \n"}]
    [paragraph] = lo.corpus("wikitext2", split="train")
    assert (paragraph.text, paragraph.extra["title"]) == ("Some words .", "Title")

    rows[:] = [{"body": "a"}]
    assert [e.text for e in lo.corpus("owner/name", text_column="body", split="test")] == ["a"]


def test_importing_corpora_is_light():
    import subprocess
    import sys

    code = "import sys, lorgnette.texts; print([m for m in ('torch', 'datasets', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
