"""A share of a corpus: its texts are the same as in the whole, and those of others are not even parsed."""

import gzip
import json
from itertools import chain, repeat

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.looking.texts import Share
from lorgnette.texts.labels import matched
from lorgnette.texts.webdataset import TEXTS as TAR_TEXTS

ROWS = [{"id": f"r{n}", "text": f"text {n} naïve 😀", "y": "ab"[n % 2]} for n in range(150)]
LINES = [
    "\ufefffirst",
    "",
    "  two",
    "\u3000",
    "\u3000three",
    "\x0c",
    "vier\u2028fünf",
    "\t",
    "~",
    " \x1c ",
    "é",
    "last",
]


def as_txt(folder):
    path = folder / "a.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return lo.corpus(path)


def as_jsonl(folder, name="a.jsonl"):
    path = folder / name
    path.write_text("\n\n".join(json.dumps(row) for row in ROWS))
    return lo.corpus(path, id_column="id", label_column="y")


def as_gz(folder):
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode()))
    return lo.corpus(path)


def as_table(separator, suffix):
    def made(folder):
        path = folder / f"a{suffix}"
        path.write_text("\n".join(separator.join(row.values()) for row in [{name: name for name in ROWS[0]}, *ROWS]))
        return lo.corpus(path, label_column="y")

    return made


def as_parquet(folder):
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "a.parquet", row_group_size=40)
    return lo.corpus(folder / "a.parquet", id_column="id")


def as_several(folder):
    for name in ("b", "c", "d"):
        as_jsonl(folder, f"{name}.jsonl")
    return lo.corpus(f"{folder}/*.jsonl", label_column="y")


def as_tar(folder):
    import io
    import tarfile

    with tarfile.open(folder / "a.tar", "w") as tar:
        for row in ROWS[:9]:
            content = row["text"].encode()
            info = tarfile.TarInfo(f"{row['id']}.{TAR_TEXTS[0]}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return lo.corpus(folder / "a.tar")


KINDS = {
    "txt": as_txt,
    "paragraphs": lambda folder: lo.corpus(str(as_txt(folder) and folder / "a.txt"), paragraphs=True),
    "jsonl": as_jsonl,
    "gz": as_gz,
    "csv": as_table(",", ".csv"),
    "tsv": as_table("\t", ".tsv"),
    "parquet": as_parquet,
    "several": as_several,
    "tar": as_tar,
    "dataset": lambda folder: lo.corpus(datasets.Dataset.from_list(ROWS), label_column="y"),
    "stream": lambda folder: lo.corpus(datasets.Dataset.from_list(ROWS).to_iterable_dataset(num_shards=3)),
    "rows": lambda folder: lo.corpus(ROWS, id_column="id"),
    "examples": lambda folder: lo.Corpus.of(lo.as_examples([row["text"] for row in ROWS])),
    "limit": lambda folder: as_jsonl(folder).take(7),
    "limit of a sized one": lambda folder: as_parquet(folder).take(70),
    "another name": lambda folder: as_parquet(folder).named("b"),
    "shuffled": lambda folder: as_jsonl(folder).shuffled(0),
    "labels of a model": lambda folder: matched(as_jsonl(folder), ("B", "A"), model="m"),
    "planted": lambda folder: lo.corpus("planted", split="test"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_share_has_the_texts_of_the_whole(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("lorgnette.texts.hub.TOGETHER", 64)
    corpus = KINDS[kind](tmp_path)
    whole = list(corpus)
    assert len(whole) > 3
    for share in (Share(1, 1), Share(1, 2), Share(2, 2), Share(3, 64), Share(150, 150), Share(500, 500)):
        found = list(corpus.some(share.turns()))
        own = [number - 1 for number in share.numbers(len(whole))]
        assert len(found) == len(whole)
        assert [found[number] for number in own] == [whole[number] for number in own]
        assert [number for number, text in enumerate(found) if text is not None] == own


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv", "tsv", "parquet", "several", "tar", "dataset", "rows"])
def test_each_text_takes_one_turn(tmp_path, kind):
    """So that the texts of several files are counted through."""
    corpus = KINDS[kind](tmp_path)
    size = sum(1 for _ in corpus)
    turns = chain(repeat(False, size), ["the next"])
    assert set(corpus.some(turns)) == {None}
    assert list(turns) == ["the next"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"one\ntwo \xff\xfe\nthree\n", "not UTF-8"),
        ("a.jsonl", b'{"text": "a"}\n{"te\n{"text": "b"}\n', "malformed"),
    ],
)
def test_what_nobody_wants_is_not_parsed(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    corpus = lo.corpus(path)
    assert [text is not None for text in corpus.some(Share(1, 2).turns())] == [True, False, True]
    with pytest.raises(UserError, match=f"line 2: {message}"):
        list(corpus.some(Share(2, 2).turns()))


def test_a_data_set_is_asked_for_the_rows_of_a_share_only():
    read = []
    rows = datasets.Dataset.from_list(ROWS)
    rows.set_transform(lambda batch: read.extend(batch["text"]) or batch)
    list(lo.corpus(rows).some(Share(3, 50).turns()))
    assert set(read) == {ROWS[number]["text"] for number in (2, 52, 102)}
