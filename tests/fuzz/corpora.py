"""Corpora: the same texts in every format, damaged files, rows that no table has, odd paths."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path

from hypothesis import strategies as st

from fuzz.damage import HOSTILE, damaged_bytes, document, values
from fuzz.place import WORD, Place
from fuzz.trial import Answer, Case, difference, numbers
from lorgnette.errors import UserError

FORMATS = ("txt", "csv", "tsv", "jsonl")
PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda content: content,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
NOT_TEXTS = ("json", "arrow", "pkl", "zip", "xlsx", "pdf", "npz", "pt")

_WORDS = st.sampled_from([*WORD, ",", ".", "!", "é", "猫", "🙂", "unbelievably"])
plain_texts = st.lists(
    st.one_of(
        st.lists(_WORDS, min_size=1, max_size=9).map(" ".join),
        st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp", "Zs")), min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=5,
)


def cases(place: Place) -> st.SearchStrategy[Case]:
    return st.one_of(
        _the_same(place), _the_same(place), _damaged(place), _damaged(place), _odd_rows(place), _odd_paths(place)
    )


def _look(place: Place, corpus: str, *more: str) -> tuple[str, ...]:
    return ("look", place.model(), "-c", corpus, "-l", "weights", "--dtype", "float64", *more)


def written(draw: st.DrawFn, texts: list[str], kind: str) -> tuple[bytes, list[str]]:
    """The texts as a file of that format, in one of the ways in which it can be written, and the options it needs."""
    end = draw(st.sampled_from(("\n", "\n", "\r\n")))
    blank = end if draw(st.booleans()) else ""
    column = draw(st.sampled_from(("text", "text", "review", "ein Text")))
    more = [] if kind == "txt" or column == "text" else ["--text-column", column]
    rows = [{"n": number, column: text, "label": "ab"[number % 2]} for number, text in enumerate(texts)]
    rows = [dict(draw(st.permutations(list(row.items())))) if kind == "jsonl" else row for row in rows]
    if kind == "txt":
        content = (end + blank).join(texts) + draw(st.sampled_from(("", end)))
    elif kind == "jsonl":
        content = (end + blank).join(json.dumps(row, ensure_ascii=draw(st.booleans())) for row in rows)
    else:
        buffer = io.StringIO()
        quoting = draw(st.sampled_from((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)))
        if kind == "csv":
            table = csv.DictWriter(buffer, list(rows[0]), lineterminator=end, quoting=quoting)
            table.writeheader()
            table.writerows(rows)
        else:
            buffer.write(end.join("\t".join(map(str, row)) for row in ([*rows[0]], *(row.values() for row in rows))))
        content = buffer.getvalue()
    return draw(st.sampled_from((b"", b"\xef\xbb\xbf"))) + content.encode(), more


@st.composite
def _the_same(draw: st.DrawFn, place: Place) -> Case:
    """Numbers do not depend on the format of the file, on how it is written or packed, or on the size of batches."""
    texts, kind, packed = draw(plain_texts), draw(st.sampled_from(FORMATS)), draw(st.sampled_from(sorted(PACKED)))
    content, more = written(draw, texts, kind)
    more += ["--batch-tokens", str(draw(st.sampled_from((1, 10, 4096, 10**9))))]
    name = f"texts.{kind}{packed}"

    def judge(answer: Answer, folder: Path) -> str | None:
        return difference(numbers(answer.results[-1]), place.expected([text for text in texts if text.strip()]))

    return Case(f"{texts!r} as {name}", _look(place, f"@/{name}", *more), {name: PACKED[packed](content)}, judge=judge)


def read_simply(content: bytes, kind: str) -> list[str] | None:
    """What a few lines of Python read there; None if they cannot say."""
    try:
        text = content.decode("utf-8-sig")
        lines = [line.removesuffix("\n").rstrip("\r") for line in text.split("\n")]
        if kind == "txt":
            return [line for line in lines if line.strip()]
        if kind == "jsonl":
            return [json.loads(line)["text"] for line in lines if line.strip()]
        if kind == "csv":
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        else:
            rows = [line.split("\t") for line in lines if line]
        return [row[rows[0].index("text")] for row in rows[1:]]
    except (ValueError, KeyError, IndexError, TypeError, csv.Error):
        return None


@st.composite
def _damaged(draw: st.DrawFn, place: Place) -> Case:
    """A damaged file is one line or what it now says; a packed one has a checksum, so it is one line or the same."""
    texts, kind, packed = draw(plain_texts), draw(st.sampled_from(FORMATS)), draw(st.sampled_from(sorted(PACKED)))
    content, _ = written(draw, texts, kind)
    content = content.replace(b"review", b"text").replace(b"ein Text", b"text")
    now = draw(damaged_bytes(PACKED[packed](content)))
    name = f"texts.{kind}{packed}"

    def judge(answer: Answer, folder: Path) -> str | None:
        says = read_simply(content if packed else now, kind)
        if says is None:
            return "an answer for a file that a simple reader cannot read"
        try:
            expected = place.expected(says)
        except UserError:
            return None
        return difference(numbers(answer.results[-1]), expected)

    return Case(f"{name} damaged, {now[:300]!r}", _look(place, f"@/{name}"), {name: now}, judge=judge)


@st.composite
def _odd_rows(draw: st.DrawFn, place: Place) -> Case:
    """Tables with values of every kind, read with labels, words and marks."""
    columns = ("text", "label", "words", "marks", "id")
    count = draw(st.integers(1, 4))
    rows = []
    for _ in range(count):
        whole = {"text": "the cat sat", "label": draw(st.sampled_from((0, 1, "a", "b"))), "words": ["the", "cat"]}
        row = {**whole, "marks": [0, 1], "id": 1}
        for column in draw(st.lists(st.sampled_from(columns), max_size=2)):
            row[column] = draw(values)
        if draw(st.integers(0, 9)) == 0:
            row.pop(draw(st.sampled_from(columns)))
        rows.append(row)
    files = {"rows.jsonl": b"\n".join(map(document, rows))}
    if draw(st.booleans()):
        more = draw(st.sampled_from((["--label-column", "label"], ["--text-column", "words"], [], ["--limit", "1"])))
        lens = draw(st.sampled_from(("weights", "importance")))
        return Case(f"rows {rows!r}"[:600], _look(place, "@/rows.jsonl", "-l", lens, *more), files)
    marked = ("--words-column", "words", "--rationale-column", "marks", "--dtype", "float64", "-m", "random")
    return Case(f"marks {rows!r}"[:600], ("rationales", place.model(), "-c", "@/rows.jsonl", *marked), files)


@st.composite
def _odd_paths(draw: st.DrawFn, place: Place) -> Case:
    """Files that are not texts, or not files."""
    what = draw(
        st.sampled_from(("missing", "folder", "empty", "pipe", "device", "loop", "name", "other", "blank", "split"))
    )
    named = draw(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/\0"), min_size=1, max_size=60))
    suffix = draw(st.sampled_from((".txt", ".csv", ".conllu", ".jsonl", ".gz", ".txt.gz", ".txt.xz", "")))
    content = draw(st.binary(max_size=60))

    def prepare(folder: Path) -> None:
        target = folder / f"x{suffix}"
        if what == "folder":
            target.mkdir()
        elif what == "pipe":
            os.mkfifo(target)
        elif what == "device":
            target.symlink_to(draw_device)
        elif what == "loop":
            target.symlink_to(target.name)
        elif what in ("empty", "blank"):
            target.write_bytes(b"" if what == "empty" else b" \n\t\n\n")

    draw_device = draw(st.sampled_from(("/dev/zero", "/dev/null", "/dev/full", "/proc/self/mem")))
    path, files, more = f"@/x{suffix}", {}, []
    if what == "name":
        path = draw(
            st.sampled_from(
                (named, f"@/{named}", f"./{named}.txt", f"hub:{named}", str(draw(st.sampled_from(HOSTILE))))
            )
        )
    elif what == "other":
        path = f"@/x.{draw(st.sampled_from(NOT_TEXTS))}"
        files = {path.removeprefix("@/"): content}
    elif what == "split":
        stem = draw(st.sampled_from(("train", "test", "x", "dataset_info", "state")))
        files = {f"data/{stem}.{draw(st.sampled_from(('txt', 'json', 'csv')))}": content}
        path, more = "@/data", ["--split", draw(st.sampled_from(("train", "x", "", named)))]
    path = path.replace("\0", "0").encode("utf-8", "replace").decode()
    return Case(
        f"{what} {path!r} {content!r}", _look(place, path, *(m.replace("\0", "0") for m in more)), files, prepare
    )
