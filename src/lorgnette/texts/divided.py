"""Parts of one large file, each of which can be read, and known by a hash, without the others."""

import hashlib
from itertools import pairwise

from lorgnette.errors import outside
from lorgnette.texts.files import COMPRESSED, File, Stretch, size_of

LARGE = 256 << 20
"""Bytes from which a file is read in parts; a smaller one takes less time to read than a model to load."""
LEAST, MOST = 1 << 20, 15 << 10
"""Bytes of a part, at least, and how many parts there are, at most."""
_SAMPLES, _SAMPLE = 16, 4096
"""Blocks of a file that are compared before it is read, and their bytes."""


def number_of_parts(most: int) -> int:
    """The largest number up to this one that is a power of two, or 3, 5 or 15 times one.

    The more a number of shards has in common with it, the fewer parts each of them reads.
    """
    return max(odd << (most // odd).bit_length() - 1 for odd in (1, 3, 5, 15) if odd <= most)


def is_large(file: File) -> bool:
    """Whether a file is read in parts."""
    return (size_of(file) or 0) >= LARGE and not isinstance(file, Stretch)


def stretches(file: File) -> list[Stretch]:
    """The lines of a large plain file in parts of about the same length; none if the file stays whole."""
    if isinstance(file, Stretch) or file.suffix.lower() in COMPRESSED or not is_large(file):
        return []
    size = size_of(file) or 0
    count = number_of_parts(min(MOST, max(1, size // LEAST)))
    bounds = [size * number // count for number in range(count + 1)]
    return [Stretch(file, start, stop) for start, stop in pairwise(bounds)]


def mark_of(file: File) -> str:
    """A hash of the size and of a few blocks: most changes of a file show in it, and it is soon read."""
    size, digest = size_of(file) or 0, hashlib.sha256()
    with outside(f"The file {str(file)!r} cannot be read", "Is it still there?"), file.open("rb") as opened:
        for number in range(_SAMPLES):
            opened.seek((size - _SAMPLE) * number // (_SAMPLES - 1) if size > _SAMPLE else 0)
            digest.update(opened.read(_SAMPLE))
    return f"{size} {digest.hexdigest()[:16]}"
