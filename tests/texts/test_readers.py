"""Files, good and bad."""

import csv
import gzip
import io
import json
import lzma
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.texts.text import text_corpus

WEIRD = [
    "",
    " ",
    "naïve café 😀👩‍👩‍👧",
    "مرحبا بالعالم",
    "שלום",
    'say "hi", she\nsaid',
    "line\u2028separator\x0cfeed",
    "x" * 200_000,
]
text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def written(path, content: str | bytes):
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def texts(corpus) -> list[str]:
    return [example.text for example in corpus]


def test_a_line_is_a_text_and_blank_lines_are_none(tmp_path):
    path = written(tmp_path / "a.txt", "\ufeffone\r\n\n  two 😀\nשלום")
    corpus = lo.corpus(path)
    assert texts(corpus) == ["one", "  two 😀", "שלום"]
    assert [example.id for example in corpus] == ["1", "3", "4"]


def test_paragraphs_end_at_blank_lines(tmp_path):
    path = written(tmp_path / "a.txt", "one\ntwo\n\n\n three \n")
    assert texts(lo.corpus(path, paragraphs=True)) == ["one two", "three"]


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
@pytest.mark.parametrize("kind", ["a.txt", "a.csv", "a.tsv", "a.jsonl"])
def test_compressed_files_read_the_same(tmp_path, kind, suffix, opener):
    content = {"a.txt": "one\ntwo\n", "a.jsonl": '{"text": "one"}\n{"text": "two"}\n'}.get(kind, "text\none\ntwo\n")
    with opener(tmp_path / (kind + suffix), "wt", encoding="utf-8") as file:
        file.write(content)
    assert texts(lo.corpus(tmp_path / (kind + suffix))) == ["one", "two"]


@given(st.lists(text, min_size=1))
def test_csv_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["text", "n"], *([row, str(i)] for i, row in enumerate(rows))])
    # CSV has no way to tell "\r\n" inside a quoted field from the writer's own: it comes back as it was.
    assert texts(lo.corpus(path)) == rows


@given(st.lists(text, min_size=1))
def test_jsonl_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": row}) for row in rows), encoding="utf-8")
    assert texts(lo.corpus(path)) == rows


def test_weird_texts_survive(tmp_path):
    path = written(tmp_path / "a.jsonl", "\n".join(json.dumps({"text": t}, ensure_ascii=False) for t in WEIRD))
    assert texts(lo.corpus(path)) == WEIRD
    out = io.StringIO()
    csv.writer(out).writerows([["text", "n"], *([t, "1"] for t in WEIRD)])
    assert texts(lo.corpus(written(tmp_path / "a.csv", out.getvalue()))) == WEIRD


def test_columns_by_name(tmp_path):
    path = written(tmp_path / "a.csv", "key,review,second,stars\nk1,good,more,5\nk2,bad,less,1\nk3,meh,none,\n")
    corpus = lo.corpus(path, text_column="review", label_column="stars", pair_column="second", id_column="key")
    assert corpus.labels == ("1", "5")
    assert [(e.id, e.text, e.pair, e.label) for e in corpus] == [
        ("k1", "good", "more", 1),
        ("k2", "bad", "less", 0),
        ("k3", "meh", "none", None),
    ]


def test_numeric_classes_are_in_the_order_of_numbers(tmp_path):
    path = written(tmp_path / "a.jsonl", "".join(f'{{"text": "t", "y": {y}}}\n' for y in (10, 9, 2)))
    assert lo.corpus(path, label_column="y").labels == ("2", "9", "10")


def test_words_and_rationale_of_jsonl(tmp_path):
    path = written(tmp_path / "a.jsonl", '{"w": ["not", "bad"], "r": [1, 0.5], "more": 3}\n')
    [example] = lo.corpus(path, words_column="w", rationale_column="r")
    assert (example.text, example.words, example.rationale) == ("not bad", ("not", "bad"), (1.0, 0.5))
    assert example.extra == {"more": 3}


def test_tsv_keeps_quotes(tmp_path):
    path = written(tmp_path / "a.tsv", 'text\tn\n"so" he\t1\n')
    assert texts(lo.corpus(path)) == ['"so" he']


BAD = {
    "empty": ("a.txt", "", {}, "the file is empty"),
    "blank": ("a.txt", "\n \n", {}, "only blank lines"),
    "no rows": ("a.csv", "text,label\n", {}, "no rows"),
    "not utf-8": ("a.txt", b"fine\ncaf\xe9\n", {}, r"line 2: not UTF-8 \(byte 0xe9 at position 3\)"),
    "binary": ("a.txt", b"\x00\x01", {}, "line 1: not text"),
    "column": ("a.csv", "review,label\nx,1\n", {}, "no column 'text'; the columns are 'review', 'label'"),
    "near column": ("a.csv", "texts,label\nx,1\n", {}, "Did you mean 'texts'"),
    "json column": ("a.jsonl", '{"text": "x"}\n{"t": "x"}\n', {}, "line 2: no column 'text'; the columns are 't'"),
    "not text": ("a.jsonl", '{"text": "x"}\n\n{"text": 12}\n', {}, "line 3: column 'text' is not text but 12"),
    "null": ("a.jsonl", '{"text": null}\n', {}, "line 1: column 'text' is not text but null"),
    "json": ("a.jsonl", '{"text": "x"}\n{"text": \n', {}, "line 2: malformed JSON"),
    "json kind": ("a.jsonl", "[1]\n", {}, "line 1: a JSON list"),
    "ragged": ("a.csv", 'text,n\n"two\nlines",1\nx\n', {}, "line 4: 1 fields, but the header has 2"),
    "ragged tsv": ("a.tsv", "text\tn\nx\t1\t2\n", {}, "line 2: 3 fields"),
    "quotes": ("a.csv", 'text,n\n"a"b,1\n', {}, "line 2: malformed CSV"),
    "open quote": ("a.csv", 'text,n\n"a,1\n', {}, "line 2: malformed CSV"),
    "twins": ("a.csv", "text,text\nx,y\n", {}, "two columns are called 'text'"),
    "suffix": ("a.arrow", b"ARROW1", {}, ".arrow files are not read"),
    "split": ("a.txt", "x", {"split": "test"}, "has no split 'test'"),
    "paragraphs": ("a.csv", "text\nx\n", {"paragraphs": True}, "for plain text"),
    "damaged": ("a.txt.gz", b"\x1f\x8b\x08\x00garbage", {}, "damaged|not a whole"),
    "not compressed": ("a.txt.xz", b"plain", {}, "damaged after line 0"),
    "no words": ("a.jsonl", '{"text": "x", "r": [1]}\n', {"rationale_column": "r"}, "no column gives the words"),
    "marks": (
        "a.jsonl",
        '{"w": ["x"], "r": [1, 0]}\n',
        {"words_column": "w", "rationale_column": "r"},
        "marks 2 words, but the row has 1",
    ),
    "classes": ("a.jsonl", '{"text": "x", "y": [1]}\n', {"label_column": "y"}, "expected a class name or number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(tmp_path, case):
    name, content, options, message = BAD[case]
    path = written(tmp_path / name, content)
    with pytest.raises(UserError, match=message) as error:
        list(lo.corpus(path, **options))
    assert "\n" not in str(error.value)


def test_truncated_gzip(tmp_path):
    whole = gzip.compress("\n".join(f"line {i} of the file" for i in range(20_000)).encode())
    path = written(tmp_path / "a.txt.gz", whole[: len(whole) // 2])
    with pytest.raises(UserError, match="damaged after line"):
        list(lo.corpus(path))


def test_a_file_that_is_not_there(tmp_path):
    written(tmp_path / "reviews.csv", "text\nx\n")
    with pytest.raises(UserError, match=r"no file .*Did you mean 'reviews.csv'"):
        lo.corpus(tmp_path / "revews.csv")


def test_a_folder_with_a_file_per_split(tmp_path):
    written(tmp_path / "train.txt", "x\n")
    written(tmp_path / "dev.csv", "text\ny\n")
    assert texts(lo.corpus(tmp_path)) == ["x"]
    assert texts(lo.corpus(tmp_path, split="val")) == ["y"]
    with pytest.raises(UserError, match=r"no file for split 'test'; there is dev.csv, train.txt"):
        lo.corpus(tmp_path, split="test")


def test_memory_does_not_grow_with_the_file(tmp_path):
    row = json.dumps({"text": "a review of some length " * 2000, "y": "good"}) + "\n"
    path = tmp_path / "big.jsonl"
    with path.open("w") as file:
        for _ in range(50_000_000 // len(row)):
            file.write(row)
    tracemalloc.start()
    try:
        corpus = lo.corpus(path, label_column="y")
        count = sum(1 for _ in corpus)
        corpus.fingerprint()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 50_000_000 // len(row)
    assert peak < 4_000_000


def test_text_corpus_reads_again_each_time(tmp_path):
    path = written(tmp_path / "a.txt", "one\n")
    corpus = text_corpus(path)
    assert texts(corpus) == texts(corpus) == ["one"]
    written(path, "two\n")
    assert texts(corpus) == ["two"]
