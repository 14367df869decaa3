"""One large file in parts: its texts are those of the whole, and whoever wants some of the parts reads no others."""

import gzip
import json
import random
import re
from math import gcd

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from tiny.subjects import subject

import lorgnette as lo
from lorgnette.errors import UserError
from lorgnette.looking.texts import Share
from lorgnette.texts import divided, files, tables
from lorgnette.texts.corpus import SizedCorpus
from lorgnette.texts.labels import matched

ROWS = [{"id": f"r{n}", "text": f"w{n % 40} " * (1 + n % 7), "y": "ab"[n % 2]} for n in range(150)]
LARGE = divided.LARGE


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Files that are large here."""
    monkeypatch.setattr(divided, "LARGE", 1)
    monkeypatch.setattr(divided, "LEAST", 200)


def whole(path, **options):
    """The same corpus, in one piece."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(divided, "LARGE", LARGE)
        return lo.corpus(path, **options)


def as_jsonl(path, rows=ROWS):
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    return path


def as_txt(path, rows=ROWS):
    path.write_text("".join(f"{row['text']}\n" for row in rows))
    return path


def as_parquet(path, rows=ROWS, size=7):
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=size)
    return path


MAKERS = {"a.jsonl": as_jsonl, "a.txt": as_txt, "a.parquet": as_parquet}


def test_the_number_of_parts():
    """By brute force; three quarters of what was asked for, at least."""
    good = {odd * 2**power for odd in (1, 3, 5, 15) for power in range(12)}
    for most in range(1, 3000):
        assert divided.number_of_parts(most) == max(number for number in good if number <= most) >= 0.75 * most


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_those_of_the_whole(tmp_path, seed):
    """Of any length, blank, with a mark at the beginning of the file or line ends of Windows, wherever parts end."""
    draw = random.Random(seed)
    kinds = ["", "  ", "\ufeffz", "vier\u2028fünf", "é" * 60, "a", "b" * 199, "c" * 200, "d" * 450, "x\r"]
    lines = draw.choices(kinds, k=draw.randint(5, 60))
    path = tmp_path / "a.txt"
    path.write_bytes(draw.choice(["\ufeff", ""]).encode() + "\n".join(lines).encode() + draw.choice([b"", b"\n"]))
    found = list(lo.corpus(path))
    assert [text.text for text in found] == [text.text for text in whole(path)]
    assert len({text.id for text in found}) == len(found)
    content = path.read_bytes()
    for text in found:  # the byte and the line that the id names
        start, number = map(int, text.id.split(":"))
        first = 0 if start == 0 else content.index(b"\n", start - 1) + 1
        line = content[first:].split(b"\n")[number - 1].decode("utf-8-sig" if (start, number) == (0, 1) else "utf-8")
        assert line.rstrip("\r") == text.text


@pytest.mark.parametrize("name", MAKERS)
def test_shares_of_a_divided_file(tmp_path, name):
    columns = {} if name == "a.txt" else {"label_column": "y", "id_column": "id"}
    path = MAKERS[name](tmp_path / name)
    corpus, one = lo.corpus(path, **columns), whole(path, **columns)
    assert len(corpus.parts) >= 10
    assert len(one.parts) == 1
    assert (corpus.labels, corpus.name) == (one.labels, one.name)
    assert isinstance(corpus, SizedCorpus) == isinstance(one, SizedCorpus) == (name == "a.parquet")
    given, expected = list(corpus), list(one)
    assert [(text.text, text.label) for text in given] == [(text.text, text.label) for text in expected]
    if name != "a.txt":
        assert [text.id for text in given] == [row["id"] for row in ROWS]
    assert [text.text for text in corpus.take(9)] == [row["text"].rstrip("\n") for row in ROWS[:9]]
    for share in (Share(1, 2), Share(3, 64), Share(150, 150)):
        some = list(corpus.some(share.turns()))
        assert [text for text in some if text is not None] == given[share.number - 1 :: share.of]
    if columns:
        turned = matched(corpus, ("B", "A"), model="m")
        assert [text.label for text in turned] == [1 - text.label for text in given]
        assert (len(turned.parts), turned.mark()) == (len(corpus.parts), corpus.mark())


def test_the_rows_of_parquet_keep_their_numbers(tmp_path):
    path = as_parquet(tmp_path / "a.parquet")
    assert [text.id for text in lo.corpus(path)] == [str(n) for n in range(150)]
    assert len(lo.corpus(path)) == 150
    assert len(lo.corpus(path).parts) == 20  # of 22 groups
    assert len(lo.corpus(as_parquet(path, size=1000)).parts) == 1


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("of", [1, 3, 4])
def test_a_shard_reads_its_parts(tmp_path, monkeypatch, name, of):
    """And hashes no others; merged, the shards are one run."""
    path, model, read = MAKERS[name](tmp_path / name), subject(), set()
    opening, content, rows = files.Stretch.open, tables.content, tables.parquet_rows
    monkeypatch.setattr(files.Stretch, "open", lambda self, mode: read.add(self.start) or opening(self))
    if name == "a.parquet":
        hashed = lambda file, how, start, stop: read.add(start) or content(file, how, start, stop)  # noqa: E731
        monkeypatch.setattr(tables, "content", hashed)
        monkeypatch.setattr(tables, "parquet_rows", lambda *given: read.add(given[-1].start) or rows(*given))
    one = lo.look(model, lo.corpus(path), "weights,norms:sample=16", progress=False)
    shards, read_by = [], []
    for number in range(1, of + 1):
        given = lo.corpus(path)
        starts = [int(part.name.partition("-")[0]) for part in given.parts]
        read.clear()
        shards.append(lo.look(model, given, "weights,norms:sample=16", shard=(number, of), progress=False))
        own = {start for n, start in enumerate(starts) if Share(number, of).within(n, len(starts)) is not None}
        assert read == own
        read_by.append(len(own))
    assert sum(read_by) == len(starts) * (of // gcd(of, len(starts)))
    merged = lo.merge(reversed(shards), subject=model)
    for lens in one:
        xr.testing.assert_allclose(one[lens].data, merged[lens].data, rtol=1e-9, atol=1e-12)
        assert one[lens].provenance.corpus_fingerprint == merged[lens].provenance.corpus_fingerprint
        assert one[lens].provenance.texts == merged[lens].provenance.texts == 150


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("marked", [True, False])
def test_a_file_that_changed_is_another_corpus(tmp_path, monkeypatch, name, marked):
    """By blocks that every shard reads; were they the same, by the hashes of the parts that two shards have read."""
    if not marked:
        for place in ("text", "tables"):
            monkeypatch.setattr(f"lorgnette.texts.{place}.mark_of", lambda file: "")
    path, model = MAKERS[name](tmp_path / name), subject()
    options = {"progress": False}
    shards = [lo.look(model, lo.corpus(path), "weights", shard=(n, 7), **options) for n in range(1, 7)]
    MAKERS[name](path, [*ROWS[:70], {**ROWS[70], "text": ROWS[70]["text"].replace("w30", "w31")}, *ROWS[71:]])
    last = lo.look(model, lo.corpus(path), "weights", shard=(7, 7), **options)
    with pytest.raises(UserError, match="it has other texts"):
        lo.merge([*shards, last], subject=model)
    MAKERS[name](path, ROWS[:-1])
    last = lo.look(model, lo.corpus(path), "weights", shard=(7, 7), **options)
    with pytest.raises(UserError, match="it has other texts"):
        lo.merge([*shards, last], subject=model)


def test_what_stays_whole(tmp_path, monkeypatch):
    path = as_jsonl(tmp_path / "a.jsonl")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    text = as_txt(tmp_path / "a.txt")
    for corpus in (lo.corpus(tmp_path / "a.jsonl.gz"), lo.corpus(text, paragraphs=True)):
        assert corpus.parts == (corpus,)
    monkeypatch.setattr(divided, "LARGE", path.stat().st_size + 1)
    assert len(lo.corpus(path).parts) == 1
    assert [text.id for text in lo.corpus(path)][:2] == ["1", "3"]


def test_an_address_is_divided_too(tmp_path):
    files = fsspec.filesystem("memory")
    try:
        for name, make in MAKERS.items():
            path = make(tmp_path / name)
            files.pipe(f"/bucket/{name}", path.read_bytes())
            here, there = lo.corpus(path), lo.corpus(f"memory://bucket/{name}")
            assert list(here) == list(there)
            assert (here.fingerprint(), here.mark(), len(here.parts)) == (
                there.fingerprint(),
                there.mark(),
                len(there.parts),
            )
    finally:
        files.store.clear()


def test_what_is_wrong_is_named_by_byte_and_line(tmp_path):
    lines = [json.dumps({"text": f"w{n}"}) for n in range(150)]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([*lines[:100], "{", *lines[101:]]))
    with pytest.raises(UserError, match=r"a.jsonl from byte \d+, line \d+: malformed JSON") as error:
        list(lo.corpus(path))
    start, line = map(int, re.search(r"from byte (\d+), line (\d+)", str(error.value)).groups())
    content = path.read_bytes()
    assert content[content.index(b"\n", start - 1) + 1 :].split(b"\n")[line - 1] == b"{"
    (tmp_path / "b.txt").write_bytes(b"a\n" * 200 + b"b" * (files.LONGEST_LINE + 9))
    with pytest.raises(UserError, match="a line is longer than"):
        list(lo.corpus(tmp_path / "b.txt"))
    (tmp_path / "c.txt").write_text("\n" * 4000)
    with pytest.raises(UserError, match="has no texts to analyse"):
        lo.look(subject(), lo.corpus(tmp_path / "c.txt"), "weights", progress=False)
