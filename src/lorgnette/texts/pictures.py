"""Pictures of a corpus: files below its folder, opened when a model is to see them."""

import base64
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lorgnette.errors import UserError, optional, outside, shown

LARGEST = 2048
"""Pixels of the longer side of a picture that the live page takes."""


@dataclass(frozen=True)
class Picture:
    """A picture by its path below a folder, or one in memory."""

    name: str
    folder: Path | None = None
    image: Any = None
    """a picture of Pillow"""

    @staticmethod
    def of(value: object, where: str) -> "Picture":
        """From a path, or a picture of Pillow."""
        if isinstance(value, Picture):
            return value
        if isinstance(value, str | Path) and str(value):
            path = Path(value).expanduser()
            return Picture(path.name, path.parent)
        if hasattr(value, "convert") and hasattr(value, "size"):
            return Picture("picture", image=value)
        raise UserError(f"The image of {where!r} must be a path or a picture of Pillow. Got {shown(value)} instead.")

    @staticmethod
    def sent(address: str) -> "Picture":
        """From a data URL, which a stranger may have written: PNG or JPEG, of a modest size."""
        pillow = optional("PIL.Image", "pictures")
        with outside("The picture that was sent cannot be read", "Send a PNG or JPEG file."):
            data = base64.b64decode(address.partition(",")[2], validate=True)
            image = pillow.open(io.BytesIO(data), formats=("PNG", "JPEG"))
            if max(image.size) <= LARGEST:
                image.load()
        if max(image.size) > LARGEST:
            raise UserError(f"The picture that was sent has {image.width} × {image.height} pixels: send one of at most "
                            f"{LARGEST} × {LARGEST}.")  # fmt: skip
        return Picture("picture", image=image)

    def open(self) -> Any:
        """The picture in colours, as Pillow has it; one line if it lies elsewhere, is missing, or is no picture."""
        pillow = optional("PIL.Image", "pictures")
        if self.image is not None:
            return self.image.convert("RGB")
        with (
            warnings.catch_warnings(),
            outside(f"The picture {self.name!r} cannot be read", "Give a PNG or JPEG file."),
        ):
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(self.path) as opened:
                return opened.convert("RGB")

    @property
    def path(self) -> Path:
        """The path of the file, which must be below the folder."""
        assert self.folder is not None
        with outside(f"The picture {self.name!r} cannot be looked for", "Give the path of a file."):
            folder = self.folder.resolve()
            path = (folder / self.name).resolve()
            exists = path.is_file()
        if not path.is_relative_to(folder):
            raise UserError(
                f"The picture {self.name!r} lies outside {self.folder}: a corpus may only name pictures in its own "
                "folder or below. Put it there."
            )
        if not exists:
            raise UserError(f"There is no picture {self.name!r} in {self.folder}. Put it there, or correct its path.")
        return path
