"""Corpora, treebanks and results as they should not be; sizes that are bounded."""

import contextlib
import csv
import gzip
import json
import lzma

import pytest
from tiny import EXAMPLES, bert

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.results import Result, Results
from lorgnette.texts import files, tables
from lorgnette.texts.treebank import entity_spans


@pytest.mark.parametrize(("name", "opener"), [("a.txt.gz", gzip.open), ("a.txt.xz", lzma.open)])
@pytest.mark.parametrize("what", [b"\0", b"a", b"\n", b"a\n"])
def test_a_file_that_unpacks_to_gigabytes_is_refused_at_once(tmp_path, monkeypatch, name, opener, what):
    monkeypatch.setattr(files, "FREE", 1 << 12)
    monkeypatch.setattr(files, "MOST_UNPACKED", 2)
    monkeypatch.setattr(files, "MOST_BLANK", 1000)
    path = tmp_path / name
    with opener(path, "wb") as file:
        file.write(what * ((2 << 20) // len(what)))
    with pytest.raises(UserError, match=r"longer than|times its size|blank lines"):
        list(lo.corpus(path))


@pytest.fixture
def short_lines(monkeypatch):
    """The bound at an eighth, and so the files."""
    for module in (files, tables):
        monkeypatch.setattr(module, "LONGEST_LINE", 1 << 17)
    before = csv.field_size_limit(1 << 17)
    yield
    csv.field_size_limit(before)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"a" * (2 << 17)),
        ("a.csv", b'text\n"' + b"a\n" * (1 << 17) + b'"\n'),
        ("a.tsv", b"text\n" + b"a" * (2 << 17)),
        ("a.jsonl", b'{"text": "' + b"a" * (2 << 17) + b'"}'),
        ("a.conllu", b"# x\n" * (1 << 16)),
    ],
    ids=["txt", "csv", "tsv", "jsonl", "conllu"],
)
def test_a_line_has_an_end(tmp_path, short_lines, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=r"longer than|field larger"):
        list(lo.corpus(tmp_path / name))


def test_a_paragraph_has_an_end(tmp_path, short_lines):
    (tmp_path / "a.txt").write_text("a b\n" * (1 << 16))
    with pytest.raises(UserError, match="longer than"):
        list(lo.corpus(tmp_path / "a.txt", paragraphs=True))


ROWS = ['{"text": "a", "n": ' + "9" * 5000 + "}", "[" * 100_000, '{"text": "a", "label": 1' + "0" * 4000 + "}", "nope"]


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_rows_that_no_table_has(tmp_path, row):
    (tmp_path / "a.jsonl").write_text(row + "\n")
    with contextlib.suppress(UserError):
        assert list(lo.corpus(tmp_path / "a.jsonl", label_column="label" if "label" in row else None))


def sentence(*changes):
    row = ["1", "cat", "cat", "NOUN", "NN", "_", "0", "root", "_", "_"]
    for place, value in changes:
        row[place] = value
    return "# global.Entity = eid-etype-head-other\n" + "\t".join(row) + "\n\n"


@pytest.mark.parametrize("changes", [[(6, "")], [(9, "")], [(1, "")], [(6, "x")], [(0, "x")], [(6, "9" * 5000)]])
def test_treebanks_with_columns_that_say_nothing(tmp_path, changes):
    (tmp_path / "a.conllu").write_text(sentence() + sentence(*changes))
    with pytest.raises(UserError, match="line"):
        list(lo.corpus(tmp_path / "a.conllu"))


def test_entities_that_do_not_say_their_type(tmp_path):
    (tmp_path / "a.conllu").write_text(sentence((9, "Entity=(e1)")))
    [example] = lo.corpus(tmp_path / "a.conllu")
    assert example.extra["entities"] == ((0, 1, "_"),)
    assert entity_spans(["Entity=(e1-person)"], "eid-other") == ((0, 1, "_"),)
    assert entity_spans(["Entity=(e1-person)"], "eid-etype") == ((0, 1, "person"),)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results") / "run"
    lo.look(bert(), EXAMPLES, ["weights"], progress=False, out=folder)
    return (folder / "weights.json").read_text()


def changed(text, *path, value):
    document = json.loads(text)
    at = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value(at[path[-1]]) if callable(value) else value
    return json.dumps(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("data", "variables", "entropy", "dims"), lambda dims: dims[::-1]),
        (("data", "sizes", "layer"), -1),
        (("data", "sizes", "layer"), 10**30),
        (("data", "sizes", "layer"), "3"),
        (("data", "coords", "layer", "values"), lambda values: [1] * len(values)),
        (("data", "variables", "entropy", "values"), 10**400),
        (("data", "variables", "entropy_count", "values"), lambda values: [[[10**30]]]),
        (("data", "variables", "entropy", "dtype"), "object_"),
        (("data", "variables", "entropy", "dtype"), "M8[s]"),
        (("data", "attrs"), []),
        (("provenance", "texts"), "many"),
        (("provenance", "model"), None),
        (("provenance", "versions"), 7),
        (("provenance", "notes"), "abc"),
    ],
    ids=lambda part: ".".join(part) if isinstance(part, tuple) else type(part).__name__,
)
def test_results_that_were_edited_are_refused(saved, path, value):
    with pytest.raises(UserError):
        Result.from_json(changed(saved, *path, value=value))
    assert Result.from_json(saved).lens == "weights"


def test_layers_without_numbers_are_refused(saved, tmp_path):
    (tmp_path / "lorgnette.json").write_text('{"format": "lorgnette-results", "schema": 1, "results": ["weights"]}')
    (tmp_path / "weights.json").write_text(changed(saved, "data", "coords", value={}))
    with pytest.raises(UserError, match="has no labels"):
        Results.load(tmp_path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": 1' + "0" * 5000 + "}", ""])
def test_results_that_are_not_json(tmp_path, text):
    with pytest.raises(UserError, match="not JSON"):
        Result.from_json(text)
    (tmp_path / "lorgnette.json").write_text(text)
    with pytest.raises(UserError):
        Results.load(tmp_path)


def test_a_tiny_treebank_has_a_whole_report(tmp_path):
    from lorgnette.reporting import Report

    rows = [["1", "cat", "cat", "NOUN", "NN", "_", "2", "nsubj", "_", "_"],
            ["2", "sat", "sit", "VERB", "VB", "_", "0", "root", "_", "_"]]  # fmt: skip
    (tmp_path / "a.conllu").write_text("\n".join("\t".join(row) for row in rows) + "\n\n")
    lo.look(bert(), lo.corpus(tmp_path / "a.conllu"), ["relations"], progress=False, out=tmp_path / "run")
    assert Report(tmp_path / "run").write(tmp_path / "run" / "report.html").stat().st_size > 1000
