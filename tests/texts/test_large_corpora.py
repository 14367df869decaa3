"""Corpora of any size: Parquet, WebDataset, compressed files, shards, addresses. Memory does not grow with them."""

import bz2
import gc
import gzip
import io
import json
import lzma
import os
import tarfile
import tracemalloc
from itertools import count, islice

import datasets
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.registry import known_implementations
from tiny import bert

import lorgnette.looking.texts as looking
import lorgnette.texts as lo
from lorgnette.errors import UserError
from lorgnette.looking.texts import TokenizedTexts
from lorgnette.texts.corpus import SizedCorpus

ROWS = [{"text": "the cat", "y": "b"}, {"text": "a dog", "y": "a"}, {"text": "naïve 😀", "y": None}]


def texts(corpus):
    return [example.text for example in corpus]


def as_parquet(path, rows, schema=None, **options):
    pq.write_table(pa.Table.from_pylist(rows, schema), path, **options)
    return path


def as_tar(path, members, mode="w"):
    with tarfile.open(path, mode) as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def refused(message, path, **options):
    with pytest.raises(UserError, match=message) as error:
        list(lo.corpus(path, **options))
    assert "\n" not in str(error.value)


# Parquet


def test_parquet_has_rows_classes_and_a_size(tmp_path):
    path = as_parquet(tmp_path / "a.parquet", ROWS)
    corpus = lo.corpus(path, label_column="y")
    assert (texts(corpus), len(corpus)) == ([row["text"] for row in ROWS], 3)
    assert [(example.id, example.label) for example in corpus] == [("0", 1), ("1", 0), ("2", None)]
    assert texts(corpus.take(2)) == ["the cat", "a dog"]
    again = as_parquet(tmp_path / "b.parquet", ROWS)
    assert lo.corpus(again, label_column="y").named("x").labels == ("a", "b")


def test_parquet_columns_of_bytes_are_not_read(tmp_path):
    rows = [{"text": "a", "picture": {"bytes": b"\0", "path": "a.png"}, "raw": b"\0", "n": 3, "words": ["a"]}]
    [example] = lo.corpus(as_parquet(tmp_path / "a.parquet", rows))
    assert example.extra == {"n": 3, "words": ["a"]}
    [example] = lo.corpus(tmp_path / "a.parquet", words_column="words")
    assert example.words == ("a",)


def test_bad_parquet_is_one_line(tmp_path):
    path = as_parquet(tmp_path / "a.parquet", [{"texts": "a", "raw": b"b", "n": 1}])
    refused("no column 'text'; the columns are 'texts', 'raw', 'n'. Did you mean 'texts'", path)
    refused("column 'raw' holds bytes, not text", path, text_column="raw")
    refused("row 0: column 'n' is not text but 1", path, text_column="n")
    whole = as_parquet(tmp_path / "b.parquet", ROWS).read_bytes()
    for content in (whole[:-20], whole[: len(whole) // 2], b"PAR1", b"", b"plain"):
        path.write_bytes(content)
        refused("cannot be read", path)
    (tmp_path / "a.parquet.gz").write_bytes(gzip.compress(whole))
    refused("Parquet is compressed inside", tmp_path / "a.parquet.gz")
    refused("no rows", as_parquet(tmp_path / "c.parquet", ROWS[:0], schema=pa.schema({"text": pa.string()})))
    refused("row 1: column 'text' is longer than", as_parquet(path, [{"text": "a"}, {"text": "a" * (1 << 21)}]))


def test_a_damaged_page_names_the_row(tmp_path):
    rows = [{"text": os.urandom(64).hex()} for _ in range(4000)]
    options = {"use_dictionary": False, "data_page_size": 1 << 14, "write_page_checksum": True}
    path = as_parquet(tmp_path / "a.parquet", rows, **options)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(r"damaged after row [1-9]\d+: .*CRC", path)


def test_a_group_of_rows_is_not_held_whole(tmp_path):
    highest = {}
    for rows in (1500, 6000):  # 12 MB and 48 MB, each in one group
        table = pa.table({"text": [os.urandom(4096).hex() for _ in range(rows)]})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows, use_dictionary=False)
        del table
        before = pa.total_allocated_bytes()
        held = [pa.total_allocated_bytes() - before for _ in lo.corpus(tmp_path / "a.parquet")]
        assert len(held) == rows
        highest[rows] = max(held)
    assert highest[6000] < highest[1500] + 1_000_000


# WebDataset


def samples(count=3):
    for number in range(count):
        yield f"s/{number:03d}.txt", f"text {number}\n".encode()
        yield f"s/{number:03d}.json", json.dumps({"lang": "en", "n": number}).encode()
        yield f"s/{number:03d}.cls", b"1\n" if number % 2 else b"0"
        yield f"s/{number:03d}.npy", b"\x93NUMPY"
        yield f"s/{number:03d}.pyd", b"\x80\x04."


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_samples_of_a_tar(tmp_path, mode):
    path = tmp_path / f"a.tar{mode[1:].replace(':', '.')}"
    corpus = lo.corpus(as_tar(path, samples(), mode), label_column="cls")
    assert [(example.id, example.text, example.label) for example in corpus] == [
        (f"s/{n:03d}", f"text {n}", n % 2) for n in range(3)
    ]
    assert [dict(example.extra) for example in corpus][1] == {"lang": "en", "n": 1}
    assert corpus.skipped.count == 0
    assert texts(lo.corpus(path, text_column="lang")) == ["en"] * 3
    assert texts(lo.corpus(path, text_column="txt")) == texts(corpus)


def test_text_and_nothing_else_is_read_of_a_tar(tmp_path):
    class Boom:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "was run"),))

    import pickle

    members = [("a.pyd", pickle.dumps(Boom())), ("a.pth", pickle.dumps(Boom())), ("a.txt", b"one"),
               ("../../up.txt", b"two"), ("b.jpg", b"\xff\xd8"), ("README", b"none"), ("._c.txt", b"\0"),
               ("d.en.txt", b"three")]  # fmt: skip
    path = as_tar(tmp_path / "a.tar", members)
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("link.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    here = sorted(tmp_path.iterdir())
    refused("no column 'text'; the columns are 'en.txt'", path)
    corpus = lo.corpus(as_tar(path, members[:-1]))
    assert [(example.id, example.text) for example in corpus] == [("a", "one"), ("../../up", "two")]
    assert corpus.skipped.first == ["b"]
    assert sorted(tmp_path.iterdir()) == here


BAD_MEMBERS = {
    "no texts": ([("a.jpg", b"x"), ("b.npy", b"x")], r"no texts; expected KEY.txt or KEY.json .* there are .jpg, .npy"),
    "nothing": ([], "no texts; .* there are no files"),
    "twice": ([("a.txt", b"x"), ("a.txt", b"y")], "two members are called .txt"),
    "two texts": ([("a.txt", b"x"), ("a.json", b'{"text": "y"}')], "sample 'a' has two texts"),
    "json": ([("a.json", b"{")], r"sample 'a' \(.json\): malformed JSON"),
    "no column": ([("a.json", b'{"caption": "x"}')], "no column 'text'; the columns are 'caption'"),
    "bytes": ([("a.txt", b"caf\xe9")], "'a.txt': not UTF-8"),
    "long": ([("a.txt", b"x" * ((1 << 20) + 1))], "'a.txt' is longer than"),
}


@pytest.mark.parametrize("case", BAD_MEMBERS)
def test_bad_samples_are_one_line(tmp_path, case):
    members, message = BAD_MEMBERS[case]
    refused(message, as_tar(tmp_path / "a.tar", members))


def test_a_tar_that_was_cut_off_is_refused_wherever_it_ends(tmp_path):
    """`tarfile` takes the end of the file between two members for the end of the tar."""
    members = [(f"{n}.txt", b"x" * 700) for n in range(4)]
    whole = as_tar(tmp_path / "whole.tar", members).read_bytes()
    end = 4 * (512 + 1024)
    assert whole[end : end + 512] == bytes(512)
    path = tmp_path / "a.tar"
    for cut in (*range(512, end + 512, 256), 100, 1700):
        path.write_bytes(whole[:cut])
        refused("damaged", path)
    for place in (512 + 1024, 2 * (512 + 1024)):  # the header of the second member, of the third
        path.write_bytes(whole[:place] + b"\xff" * 512 + whole[place + 512 :])
        refused(f"damaged after '{place // 1536 - 1}.txt'", path)
    path.write_bytes(whole[:1536] + bytes(512) + whole[2048:])  # a header of zeros, and members after it
    refused("damaged after '0.txt'", path)
    path.write_bytes(b"this is no tar\n" * 100)
    refused("damaged", path)
    packed = gzip.compress(whole)
    (tmp_path / "a.tar.gz").write_bytes(packed[: len(packed) // 2])
    refused("damaged", tmp_path / "a.tar.gz")
    (tmp_path / "a.tar.gz").write_bytes(packed[:-8] + bytes(8))  # its checksum
    refused("damaged after '3.txt'.*CRC", tmp_path / "a.tar.gz")


# Compressed files


PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": None}


def packed(suffix, content, folder):
    if PACKED[suffix] is not None:
        return PACKED[suffix](content)
    with pa.OSFile(str(folder / "packed"), "wb") as out, pa.CompressedOutputStream(out, "zstd") as file:
        file.write(content)
    return (folder / "packed").read_bytes()


@pytest.mark.parametrize("suffix", PACKED)
def test_compressed_files(tmp_path, suffix):
    lines = [f"line {n} of {os.urandom(8).hex()}" for n in range(4_000)]
    whole = packed(suffix, "\n".join(lines).encode(), tmp_path)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(whole)
    assert texts(lo.corpus(path)) == lines
    path.write_bytes(whole + whole)  # as `cat` joins them
    assert len(texts(lo.corpus(path))) == 7_999
    path.write_bytes(whole[: len(whole) // 2])
    refused(rf"damaged after line \d+ \(.*\): it is not a whole {suffix} file", path)
    path.write_bytes(b"plain text\n")
    refused("damaged after line 0", path)


# Several files


def test_shards_are_one_corpus(tmp_path):
    for n, label in enumerate("ba"):
        as_parquet(tmp_path / f"part-{n}.parquet", [{"text": f"{n} {i}", "y": label} for i in range(2)])
    corpus = lo.corpus(f"{tmp_path}/part-*.parquet", label_column="y")
    assert isinstance(corpus, SizedCorpus)
    assert (len(corpus), corpus.labels, corpus.name) == (4, ("a", "b"), "part-*.parquet")
    assert [(example.id, example.text, example.label) for example in corpus][1:3] == [
        ("part-0.parquet:1", "0 1", 1),
        ("part-1.parquet:0", "1 0", 0),
    ]
    as_parquet(tmp_path / "part-2.parquet", [], pa.schema({"text": pa.string(), "y": pa.string()}))
    assert texts(lo.corpus(f"{tmp_path}/part-{{0..2}}.parquet")) == texts(corpus)
    assert lo.corpus(f"{tmp_path}/part-*.parquet", label_column="y").fingerprint() != corpus.fingerprint()


def test_ranges_count_in_order_and_keep_their_zeros(tmp_path):
    for n in (8, 9, 10):
        as_tar(tmp_path / f"s-{n:03d}.tar", [("k.txt", str(n).encode()), ("p.jpg", b"")])
    corpus = lo.corpus(f"{tmp_path}/s-{{008..010}}.tar")
    assert [(example.id, example.text) for example in corpus] == [(f"s-{n:03d}.tar:k", str(n)) for n in (8, 9, 10)]
    assert corpus.skipped.first == ["s-008.tar:p", "s-009.tar:p", "s-010.tar:p"]
    refused(r"no file .*s-011.tar'. Did you mean", f"{tmp_path}/s-{{008..011}}.tar")
    refused("is no range of files", f"{tmp_path}/s-{{010..008}}.tar")
    refused("no file matches", f"{tmp_path}/t-*.tar")


def test_files_of_one_name_in_several_folders(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    assert [example.id for example in lo.corpus(f"{tmp_path}/*/a.txt")] == ["one/a.txt:1", "two/a.txt:1"]


def test_a_split_in_shards(tmp_path):
    for n in range(2):
        as_parquet(tmp_path / f"train-0000{n}-of-00002.parquet", [{"text": str(n)}])
    as_parquet(tmp_path / "test-00000-of-00001.parquet", [{"text": "t"}])
    assert texts(lo.corpus(tmp_path)) == ["0", "1"]
    assert texts(lo.corpus(tmp_path, split="test")) == ["t"]
    (tmp_path / "train-00001-of-00002.parquet").unlink()
    refused(r"1 files for split 'train', .* are not the shards that their names promise \(2\)", tmp_path)


def test_a_shard_is_opened_when_its_turn_comes(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("")
    assert texts(lo.corpus(f"{tmp_path}/*.txt", limit=2)) == ["one", "two"]
    refused("b.txt: the file is empty", f"{tmp_path}/*.txt")


# Addresses


@pytest.fixture
def bucket():
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()


def test_addresses_are_read_like_paths(tmp_path, bucket):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    as_parquet(tmp_path / "a.parquet", ROWS)
    as_tar(tmp_path / "a.tar.gz", [(f"{n}.json", json.dumps(row).encode()) for n, row in enumerate(ROWS)], "w:gz")
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress("\n".join(row["text"] for row in ROWS).encode()))
    for name in ("a.jsonl", "a.parquet", "a.tar.gz", "a.txt.xz"):
        bucket.pipe(f"/bucket/{name}", (tmp_path / name).read_bytes())
        here, there = lo.corpus(tmp_path / name), lo.corpus(f"memory://bucket/{name}")
        assert texts(here) == texts(there) == texts(lo.corpus(f"file://{tmp_path}/{name}")) == [r["text"] for r in ROWS]
        assert here.fingerprint() == there.fingerprint()
    assert len(lo.corpus("memory://bucket/a.parquet")) == 3


def test_shards_at_addresses(bucket):
    for n in range(3):
        bucket.pipe(f"/bucket/s-{n}.txt.gz", gzip.compress(f"{n}\n".encode()))
    for pattern in ("memory://bucket/s-*.txt.gz", "memory://bucket/s-{0..2}.txt.gz"):
        corpus = lo.corpus(pattern)
        assert [(example.id, example.text) for example in corpus] == [(f"s-{n}.txt.gz:1", str(n)) for n in range(3)]


def test_an_address_that_is_wrong_is_one_line(bucket, monkeypatch):
    missing = {"class": "no_such_package.S3", "err": "Install no_such_package to access S3"}
    monkeypatch.setitem(known_implementations, "far", missing)
    bucket.pipe("/bucket/a.txt.gz", gzip.compress(b"one\ntwo\n")[:-9])
    refused("there is no file 'memory://bucket/b.txt'", "memory://bucket/b.txt")
    refused("memory://bucket is a folder; give a file, or a pattern", "memory://bucket")
    refused(r"far:// needs a package that is not installed \(.*Install no_such_package", "far://bucket/a.txt")
    refused("Protocol not known: nope", "nope://bucket/a.txt")
    refused("is a chain of addresses", "simplecache::memory://bucket/a.txt")
    refused("damaged after line", "memory://bucket/a.txt.gz")
    refused("no file matches 'memory://bucket/c-", "memory://bucket/c-*.txt")
    refused(".pkl files are not read", _pickle(bucket))


def _pickle(bucket):
    bucket.pipe("/bucket/a.pkl", b"\x80\x04.")
    return "memory://bucket/a.pkl"


class Failing(io.BytesIO):
    def read(self, *size):
        raise RuntimeError("the connection was reset")

    readline = read


def test_a_connection_that_breaks_is_one_line(bucket, monkeypatch):
    for name in ("a.txt", "a.tar", "a.parquet"):
        bucket.pipe(f"/bucket/{name}", b"one\n" * 100)
        monkeypatch.setattr(type(bucket), "_open", lambda *_, **__: Failing(b"one\n" * 100))
        refused("cannot be read.*the connection was reset", f"memory://bucket/{name}")
        monkeypatch.undo()


# Streams


class Source:
    """Rows without end, which know how far they were read and how many of them are held."""

    def __init__(self):
        self.read = self.held = self.most = 0

    def texts(self):
        source = self

        class Text(str):
            def __new__(cls, value):
                source.held += 1
                source.most = max(source.most, source.held)
                return super().__new__(cls, value)

            def __del__(self):
                source.held -= 1

        while True:
            self.read += 1
            yield Text(f"text {self.read}")


def test_a_streamed_data_set_without_end_is_read_as_far_as_it_is_needed():
    def rows():
        for number in count():
            assert number < 12, "read too far"
            yield {"text": f"text {number}"}

    stream = datasets.IterableDataset.from_generator(rows)
    corpus = lo.corpus(stream, limit=10)
    assert texts(corpus) == texts(corpus) == [f"text {number}" for number in range(10)]
    assert corpus.most == 10


def test_a_data_set_on_the_disk_is_a_corpus_with_a_size(tmp_path):
    made = datasets.Dataset.from_list(ROWS)
    made.save_to_disk(tmp_path / "saved")
    for corpus in (lo.corpus(made), lo.corpus(tmp_path / "saved"), lo.corpus(made.with_format("numpy"))):
        assert len(corpus) == 3
        assert texts(corpus) == [row["text"] for row in ROWS]


def test_a_look_at_a_stream_holds_some_of_its_texts(monkeypatch):
    """Five thousand texts of a source of unknown length, of which a few windows are in memory at any time."""
    monkeypatch.setattr(looking, "WINDOW", 64)
    source = Source()
    stream = TokenizedTexts(bert(), islice(source.texts(), 5_000), keep=64)
    counts = looking.Counts()
    for batch in looking.batches(stream, 256):
        counts.add(batch)
    assert counts.texts == source.read == 5_000
    assert source.most < 64 + 3 * 64 + looking.TOGETHER


# Memory


def filled(path, content):
    path.write_bytes(content)
    return path


def written(kind, folder, bucket, count):
    """That many short texts, as a corpus."""
    members = ((f"{n}.txt" if n == 0 or kind == "tar" else f"{n}.jpg", b"a text") for n in range(count))
    lines = "".join(f'{{"text": "a text {n}"}}\n' for n in range(count)).encode()
    rows = [{"text": f"a text {n}"} for n in range(count if kind in ("map-style", "iterable", "parquet") else 0)]
    if kind == "address":
        bucket.pipe("/bucket/a.jsonl", lines)
    made = {
        "jsonl": lambda: filled(folder / "a.jsonl", lines),
        "gz": lambda: filled(folder / "a.jsonl.gz", gzip.compress(lines)),
        "zst": lambda: filled(folder / "a.jsonl.zst", packed(".zst", lines, folder)),
        "parquet": lambda: as_parquet(folder / "a.parquet", rows),
        "tar": lambda: as_tar(folder / "a.tar", members),
        "tar of pictures": lambda: as_tar(folder / "a.tar", members),
        "map-style": lambda: datasets.Dataset.from_list(rows),
        "iterable": lambda: datasets.Dataset.from_list(rows).to_iterable_dataset(num_shards=2),
        "address": lambda: "memory://bucket/a.jsonl",
    }  # fmt: skip
    return lo.corpus(made[kind]())


KINDS = ("jsonl", "gz", "zst", "parquet", "tar", "tar of pictures", "map-style", "iterable", "address")


@pytest.mark.parametrize("kind", KINDS)
def test_memory_does_not_grow_with_the_corpus(tmp_path, bucket, monkeypatch, kind):
    """What reading ten times as many texts holds at its highest, and at its end."""
    monkeypatch.setattr("lorgnette.texts.hub.TOGETHER", 256)
    corpora, held = [], []
    gc.freeze()  # so that what reading leaves in cycles is soon found
    try:
        for size in (500, 5_000):
            corpora.append(corpus := written(kind, tmp_path, bucket, size))
            next(iter(corpus))  # what is imported and cached on the way
            tracemalloc.start()
            read = sum(1 for number, _ in enumerate(corpus) if number % 250 or gc.collect() >= 0)
            gc.collect()
            held.append(tracemalloc.get_traced_memory())
            tracemalloc.stop()
            assert read + corpus.skipped.count == size
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    assert held[1][0] < held[0][0] + 20_000
    assert held[1][1] < held[0][1] + 100_000
