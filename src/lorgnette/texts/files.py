"""Open files, plain or compressed, here or behind an address, and read them line by line as UTF-8."""

import bz2
import gzip
import io
import lzma
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from lorgnette.errors import UserError, near, optional, outside
from lorgnette.texts.remote import Remote

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
KINDS = ".txt, .csv, .tsv, .jsonl, .parquet, .tar (WebDataset) or .conllu, also .gz, .bz2, .xz or .zst"


@dataclass(frozen=True)
class Stretch:
    """Some lines of a plain file, those that begin at byte `start` or later, and before byte `stop`, as a file."""

    file: Path | Remote
    start: int
    stop: int

    def __str__(self) -> str:
        return str(self.file) if self.start == 0 else f"{self.file} from byte {self.start}"

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def suffix(self) -> str:
        return self.file.suffix

    @property
    def stem(self) -> str:
        return self.file.stem

    def open(self, mode: str = "rb") -> io.BufferedReader:
        return io.BufferedReader(_Lines(self), 1 << 20)


class _Lines(io.RawIOBase):
    """The bytes of these lines, of a file that is read from the first of them."""

    def __init__(self, stretch: Stretch) -> None:
        self.file = stretch.file.open("rb")
        try:
            self.stop = _line_from(self.file, stretch.stop, str(stretch))
            self.at = _line_from(self.file, stretch.start, str(stretch))
            self.file.seek(self.at)
        except BaseException:
            self.file.close()
            raise

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        found = self.file.readinto(memoryview(buffer)[: self.stop - self.at])
        self.at += found
        return found

    def close(self) -> None:
        self.file.close()
        super().close()


def _line_from(file: io.BufferedIOBase, at: int, where: str) -> int:
    """Where the first line begins that begins at this byte or later."""
    if at == 0:
        return 0
    file.seek(at - 1)
    rest = file.readline(LONGEST_LINE + 1)
    refuse_long(len(rest), f"{where}: a line")
    return at - 1 + len(rest)


File = Path | Remote | Stretch


def inner_suffix(path: File) -> str:
    """The suffix that says what is in the file, below any compression: ".csv" of "reviews.csv.gz"."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()


def existing(file: str | File) -> File:
    """The same check for a path behind an address, which was already looked up there."""
    return file if isinstance(file, Remote | Stretch) else existing_file(file)


def existing_file(path: str | Path) -> Path:
    """The path, if there is a file; else a `UserError` that names the nearest file beside it."""
    with outside(f"The file {str(path)[:80]!r} cannot be looked for", "Give the path of a file that exists."):
        path = Path(path).expanduser()
        if path.is_file():
            return path
        if path.exists():
            kind = "a folder" if path.is_dir() else "a pipe or a device"
            raise UserError(f"{path} is {kind}; a file is needed.")
        beside = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise UserError(f"there is no file {str(path)!r}.{near(path.name, beside)} Give the path of a file that exists.")


@contextmanager
def open_bytes(file: File) -> Iterator[io.BufferedIOBase]:
    """The bytes of a file, unpacked, from front to back."""
    with file.open("rb") as packed, _unpacking(packed, file.suffix.lower()) as unpacked:
        yield unpacked


def _unpacking(packed: io.BufferedIOBase, suffix: str) -> AbstractContextManager[io.BufferedIOBase]:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=packed, mode="rb")
    if suffix == ".bz2":
        return bz2.BZ2File(packed)
    if suffix == ".xz":
        return lzma.LZMAFile(packed)  # type: ignore[arg-type]
    if suffix == ".zst":
        arrow = optional("pyarrow", "corpora")
        return io.BufferedReader(arrow.CompressedInputStream(arrow.PythonFile(packed, "r"), "zstd"))
    return nullcontext(packed)


def content(file: File, how: str = "", start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """How the file is read, then its bytes as they are stored, in blocks: what a fingerprint hashes."""
    yield how.encode()
    with outside(f"The file {str(file)!r} cannot be read", "Is it still there?"), file.open("rb") as opened:
        if start:
            opened.seek(start)
        left = sys.maxsize if stop is None else stop - start
        while block := opened.read(min(1 << 20, left)):
            left -= len(block)
            yield block


def size_of(file: File) -> int | None:
    """The bytes of a file as it is stored; None where nobody says."""
    if isinstance(file, Stretch):
        return file.stop - file.start
    return file.size if isinstance(file, Remote) else file.stat().st_size


LONGEST_LINE = 1 << 20
"""Bytes of a line, of a paragraph, of a field of a table and of a sentence of a treebank: no model reads as much."""
MOST_BLANK = 1_000_000
"""Blank lines in a row."""
MOST_UNPACKED, FREE = 200, 64 << 20
"""How many times its size a compressed file may unpack to, once it has unpacked to so many bytes; text does to ten."""


def lines(file: File) -> Iterator[tuple[int, str]]:
    """Each line with its number from 1, line end kept; bytes that are not UTF-8 text are a `UserError` naming the line.

    Lines end at "\\n" only: text may hold U+2028, form feeds and other characters that `str.splitlines` cuts at.
    """
    for number, raw in _numbered(file):
        yield number, decoded(raw, f"{file}, line {number}", first=number == 1 and _from_start(file))


def filled_lines(file: File, wanted: Iterator[bool]) -> Iterator[tuple[int, str | None]]:
    """The lines that are not blank, None for each that is not wanted: it is not decoded."""
    begins = _from_start(file)
    for number, raw in _numbered(file):
        line = None if _SHOWS.match(raw) else decoded(raw, f"{file}, line {number}", first=begins and number == 1)
        if line is not None and not line.strip():
            continue
        if not next(wanted):
            yield number, None
        else:
            yield number, decoded(raw, f"{file}, line {number}", first=begins and number == 1) if line is None else line


def id_in(file: File, number: int | str) -> str:
    """The id of a text that has none of its own: its number, behind the byte where it begins to count."""
    return f"{file.start}:{number}" if isinstance(file, Stretch) else str(number)


def _from_start(file: File) -> bool:
    return not isinstance(file, Stretch) or file.start == 0


_SHOWS = re.compile(rb"[ \t]*[!-~]")
"""The beginning of a line that is not blank, whatever follows; what begins otherwise is decoded to know."""


def _numbered(file: File) -> Iterator[tuple[int, bytes]]:
    """Each line with its number, as it is stored."""
    number = 0
    try:
        for number, raw in enumerate(_bounded(file), 1):
            yield number, raw
    except OSError as broken:
        if broken.errno is None and file.suffix.lower() in COMPRESSED:
            raise _damaged(file, number, broken) from broken
        raise UserError(f"{file}: cannot be read ({broken.strerror or broken}).") from broken
    except (lzma.LZMAError, EOFError, zlib.error) as broken:
        raise _damaged(file, number, broken) from broken
    if number == 0 and not isinstance(file, Stretch):
        raise UserError(f"{file}: the file is empty; expected at least one text.")


def _damaged(file: File, number: int, broken: Exception) -> UserError:
    return UserError(
        f"{file}: damaged after line {number} ({broken}): it is not a whole {file.suffix} file. Fetch it again."
    )


def _bounded(file: File) -> Iterator[bytes]:
    """The lines of a file: none too long, not too many blank, and not more than texts can unpack to."""
    blank, unpacked = 0, Unpacked(file)
    packed = file.suffix.lower() in COMPRESSED
    with open_bytes(file) as opened:
        while raw := opened.readline(LONGEST_LINE + 1):
            if len(raw) > LONGEST_LINE:
                refuse_long(len(raw), f"{file}: a line")
            if packed:
                unpacked.add(len(raw))
            blank = blank + 1 if raw.isspace() else 0
            if blank > MOST_BLANK:
                raise UserError(f"{file}: more than {MOST_BLANK:,} blank lines in a row; expected texts.")
            yield raw


class Unpacked:
    """Counts what a compressed file has unpacked to, and refuses more than texts can."""

    def __init__(self, file: File) -> None:
        self.file, self.bytes = file, 0
        size = size_of(file)
        packed = file.suffix.lower() in COMPRESSED and size is not None
        self.most: float = max(FREE, MOST_UNPACKED * (size or 0)) if packed else float("inf")

    def add(self, count: int) -> None:
        self.bytes += count
        if self.bytes > self.most:
            raise UserError(f"{self.file}: unpacks to more than {MOST_UNPACKED} times its size, which no text does.")


def refuse_long(length: int, what: str, to_do: str = "Put one text on each line.") -> None:
    """Raise a UserError if one text, or its line, is longer than any model reads."""
    if length > LONGEST_LINE:
        raise UserError(f"{what} is longer than {LONGEST_LINE:,} bytes. {to_do}")


def decoded(raw: bytes, where: str, *, first: bool = False) -> str:
    """Bytes as UTF-8 text; those at the beginning of a file may have a mark that says so."""
    try:
        text = raw.decode("utf-8-sig" if first else "utf-8")
    except UnicodeDecodeError as broken:
        raise UserError(
            f"{where}: not UTF-8 (byte 0x{broken.object[broken.start]:02x} at position {broken.start}). "
            f"Convert the file to UTF-8."
        ) from None
    if "\0" in text:
        raise UserError(f"{where}: not text (it contains a zero byte). Use a UTF-8 text file.")
    return text
