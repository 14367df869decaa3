"""Open files, plain, .gz or .xz, and read them line by line as UTF-8."""

import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path

from lorgnette.errors import UserError, near, outside

COMPRESSED = (".gz", ".xz")


def inner_suffix(path: Path) -> str:
    """The suffix that says what is in the file, below any compression: ".csv" of "reviews.csv.gz"."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()


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


def open_bytes(path: Path) -> io.BufferedIOBase:
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.GzipFile(path, "rb")
    if suffix == ".xz":
        return lzma.LZMAFile(path, "rb")
    return path.open("rb")


def content(path: Path, how: str = "") -> Iterator[bytes]:
    """How the file is read, then its bytes as they lie on the disk, in blocks: what a fingerprint hashes."""
    yield how.encode()
    with outside(f"The file {str(path)!r} cannot be read", "Is it still there?"), path.open("rb") as file:
        while block := file.read(1 << 20):
            yield block


LONGEST_LINE = 1 << 20
"""Bytes of a line, of a paragraph, of a field of a table and of a sentence of a treebank: no model reads as much."""
MOST_BLANK = 1_000_000
"""Blank lines in a row."""
MOST_UNPACKED, FREE = 200, 64 << 20
"""How many times its size a compressed file may unpack to, once it has unpacked to so many bytes; text does to ten."""


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Each line with its number from 1, line end kept; bytes that are not UTF-8 text are a `UserError` naming the line.

    Lines end at "\\n" only: text may hold U+2028, form feeds and other characters that `str.splitlines` cuts at.
    """
    number = 0
    try:
        for number, raw in enumerate(_bounded(path), 1):
            yield number, _decoded(raw, path, number)
    except (gzip.BadGzipFile, lzma.LZMAError, EOFError, zlib.error) as broken:
        raise UserError(
            f"{path}: damaged after line {number} ({broken}): it is not a whole {path.suffix} file. Fetch it again."
        ) from broken
    except OSError as broken:
        raise UserError(f"{path}: cannot be read ({broken.strerror or broken}).") from broken
    if number == 0:
        raise UserError(f"{path}: the file is empty; expected at least one text.")


def _bounded(path: Path) -> Iterator[bytes]:
    """The lines of a file: none too long, not too many blank, and not more than texts can unpack to."""
    unpacked = blank = 0
    most = max(FREE, MOST_UNPACKED * path.stat().st_size)
    with open_bytes(path) as file:
        while raw := file.readline(LONGEST_LINE + 1):
            refuse_long(len(raw), f"{path}: a line")
            unpacked += len(raw)
            if unpacked > most and path.suffix.lower() in COMPRESSED:
                raise UserError(f"{path}: unpacks to more than {MOST_UNPACKED} times its size, which no text does.")
            blank = 0 if raw.strip() else blank + 1
            if blank > MOST_BLANK:
                raise UserError(f"{path}: more than {MOST_BLANK:,} blank lines in a row; expected texts.")
            yield raw


def refuse_long(length: int, what: str) -> None:
    """Raise a UserError if one text, or its line, is longer than any model reads."""
    if length > LONGEST_LINE:
        raise UserError(f"{what} is longer than {LONGEST_LINE:,} bytes. Put one text on each line.")


def _decoded(raw: bytes, path: Path, number: int) -> str:
    try:
        line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as broken:
        raise UserError(
            f"{path}, line {number}: not UTF-8 (byte 0x{broken.object[broken.start]:02x} at position {broken.start}). "
            f"Convert the file to UTF-8."
        ) from None
    if "\0" in line:
        raise UserError(f"{path}, line {number}: not text (it contains a zero byte). Use a UTF-8 text file.")
    return line
