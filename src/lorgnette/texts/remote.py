"""Files behind an address (s3://, gs://, hf://, memory:// …), which fsspec opens."""

import io
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lorgnette.errors import UserError, optional, outside, reason
from lorgnette.types import FileSystem, RemoteFile

BLOCK = 4 << 20
"""Bytes that are fetched at a time: what is held of a file, whatever its size."""
REACHED = "Is the address right, and may you read it?"


@dataclass(frozen=True)
class Remote:
    """A file that is not on this machine. It has what the readers use of a `Path`."""

    address: str
    filesystem: FileSystem
    path: str
    size: int | None  # where the server tells it

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    @property
    def stem(self) -> str:
        return PurePosixPath(self.path).stem

    def open(self, mode: str = "rb") -> io.BufferedReader:
        with outside(f"{self.address} cannot be opened", REACHED):
            return io.BufferedReader(_Fetched(self.filesystem.open(self.path, mode, block_size=BLOCK), self.address))


class _Fetched(io.RawIOBase):
    """A remote file as it is read. Every protocol has errors of its own: all become one line here."""

    def __init__(self, file: RemoteFile, address: str) -> None:
        self.file, self.address = file, address

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self.file.seekable())

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        with outside(f"{self.address} cannot be read", REACHED):
            block = self.file.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = 0) -> int:
        with outside(f"{self.address} cannot be read", REACHED):
            return int(self.file.seek(offset, whence))

    def tell(self) -> int:
        return int(self.file.tell())

    def close(self) -> None:
        self.file.close()
        super().close()


def is_address(name: str) -> bool:
    """Whether a name is an address, such as s3://bucket/texts.jsonl, and not a path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.:-]*://", name) is not None


def at_address(address: str) -> "Path | Remote":
    """The file at an address; a plain path if it is on this machine."""
    filesystem, path = _reached(address)
    if _is_local(filesystem):
        return Path(path)
    with outside(f"{address} cannot be reached", REACHED):
        try:
            info = filesystem.info(path)
        except FileNotFoundError:
            raise UserError(f"there is no file {address!r}. Give the address of a file that exists.") from None
    if info.get("type") == "directory":
        raise UserError(f"{address} is a folder; give a file, or a pattern such as {address.rstrip('/')}/*.parquet.")
    return Remote(address, filesystem, path, info.get("size"))


def addresses(pattern: str) -> list[str]:
    """The addresses that a pattern with * stands for, sorted."""
    filesystem, path = _reached(pattern)
    with outside(f"{pattern} cannot be reached", REACHED):
        found = sorted(filesystem.glob(path))
    return [one if _is_local(filesystem) else filesystem.unstrip_protocol(one) for one in found]


def _is_local(filesystem: FileSystem) -> bool:
    return "file" in (filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,))


def _reached(address: str) -> tuple[FileSystem, str]:
    """The file system that an address names, and the path on it."""
    fsspec = optional("fsspec", "corpora")
    if "::" in address:
        raise UserError(f"{address} is a chain of addresses; give that of the file itself.")
    protocol = address.partition("://")[0]
    try:
        filesystem, path = fsspec.core.url_to_fs(address)
    except ImportError as missing:
        raise UserError(f"{protocol}:// needs a package that is not installed ({reason(missing)}).") from missing
    except ValueError as unknown:
        raise UserError(
            f"{address} cannot be opened ({reason(unknown)}). Give a path, or an address such as s3://bucket/texts.jsonl."
        ) from unknown
    return filesystem, path
