"""WebDataset shards: tar files whose members of one key (KEY.txt, KEY.json, KEY.cls, KEY.jpg) are one sample.

Members are read one after another and nothing is unpacked to the disk. Text is read, and nothing else: pictures,
arrays and pickles are passed over, and so are links and devices.
"""

import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator

from lorgnette.errors import UserError, reason
from lorgnette.texts.columns import Columns
from lorgnette.texts.corpus import Skipped
from lorgnette.texts.files import File, Unpacked, decoded, open_bytes, refuse_long
from lorgnette.types import Json, Row

TEXTS = ("txt", "text", "transcript")
VALUES = ("cls", "cls2", "class", "count", "index", "inx", "id")
OBJECTS = ("json", "jsn")
Member = tuple[str, str, str | None]  # key, suffix, text; None if it is not text


def tar_rows(file: File, columns: Columns, skipped: Skipped) -> Iterator[tuple[str, Row]]:
    """Samples with their keys, as rows: the fields of the JSON object, and every other text by its suffix.

    The column `text` is that of the JSON object, else the member KEY.txt. Samples without any text are skipped.
    """
    skipped.clear()
    others: set[str] = set()
    any_yet = False
    for key, members in _samples(file):
        row = _row(f"{file}, sample {key!r}", members, columns)
        if row:
            any_yet = True
            yield key, row
        else:
            skipped.add(key)
            others |= set(members) if len(others) < 10 else set()
    if not any_yet:
        there = ", ".join(f".{suffix}" for suffix in sorted(others)[:10]) or "no files"
        raise UserError(f"{file}: no texts; expected KEY.txt or KEY.json for each sample, and there are {there}.")


def _row(where: str, members: dict[str, str | None], columns: Columns) -> Json:
    row: Json = {}
    for suffix, text in members.items():
        if text is None:
            continue
        if suffix.rpartition(".")[2] not in OBJECTS:
            row[suffix] = text
            continue
        value = _json(text, f"{where} (.{suffix})")
        row.update(value if isinstance(value, dict) else {suffix: value})
    if columns.text == "text" and "txt" in row:
        if row.setdefault("text", row["txt"]) != row["txt"]:
            raise UserError(
                f"{where} has two texts, .txt and 'text' in .json. For the first, name the text column txt."
            )
        del row["txt"]
    return row


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as broken:
        raise UserError(f"{where}: malformed JSON ({reason(broken)}).") from broken


def _samples(file: File) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Members that follow each other under one key."""
    held: dict[str, str | None] = {}
    last: str | None = None
    for key, suffix, text in _members(file):
        if key != last and last is not None:
            yield last, held
            held = {}
        if suffix in held:
            raise UserError(f"{file}, sample {key!r}: two members are called .{suffix}; expected one of each.")
        held[suffix], last = text, key
    if last is not None:
        yield last, held


def _members(file: File) -> Iterator[Member]:
    with open_bytes(file) as stream:
        watched = _Watched(stream, file)
        last = ""
        try:
            with tarfile.open(fileobj=watched, mode="r|") as tar:  # type: ignore[call-overload]
                while (member := tar.next()) is not None:
                    last = member.name
                    if member.isreg():
                        yield from _member(tar, member, file)
                    tar.members.clear()  # which would otherwise hold every member that was read
                watched.refuse_no_end(tar.offset)
        except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, OSError, ValueError) as broken:
            after = f" after {last!r}" if last else ""
            raise UserError(f"{file}: damaged{after} ({reason(broken)}). Fetch it again.") from broken


def _member(tar: tarfile.TarFile, member: tarfile.TarInfo, file: File) -> Iterator[Member]:
    folder, _, base = member.name.rpartition("/")
    stem, dot, suffix = base.partition(".")
    if not stem or not dot or not suffix:
        return  # no sample: a file without a suffix, or a hidden one
    key, suffix = f"{folder}/{stem}" if folder else stem, suffix.lower()
    kind = suffix.rpartition(".")[2]
    if kind not in (*TEXTS, *VALUES, *OBJECTS):
        yield key, suffix, None
        return
    where = f"{file}, {member.name!r}"
    refuse_long(member.size, where, "Divide it into texts.")
    content = tar.extractfile(member)
    raw = b"" if content is None else content.read()
    if len(raw) < member.size:
        raise tarfile.ReadError("unexpected end of data")
    text = decoded(raw, where, first=True)
    yield key, suffix, text.strip() if kind in VALUES else text.rstrip("\r\n")


class _Watched:
    """The bytes of a tar as it is read, of which the last block is kept.

    Where a header is damaged, or the file was cut off before one, `tarfile` ends without a word. An end is zeros.
    """

    def __init__(self, stream: io.BufferedIOBase, file: File) -> None:
        self.stream, self.bound, self.last, self.position = stream, Unpacked(file), b"", 0

    def read(self, size: int) -> bytes:
        block = self.stream.read(size)
        self.bound.add(len(block))
        if block:
            self.last, self.position = block, self.position + len(block)
        return block

    def refuse_no_end(self, offset: int) -> None:
        """Refuse a tar without zeros where `tarfile` stopped, or with anything but zeros from there to its end."""
        rest = self.last[offset - (self.position - len(self.last)) :]
        if len(rest) < tarfile.BLOCKSIZE:
            raise tarfile.ReadError("unexpected end of data")
        while rest:
            if rest.strip(b"\0"):
                raise tarfile.ReadError("not the header of a member")
            rest = self.read(tarfile.RECORDSIZE)  # to the end, where the checksum of a compressed file is compared
