"""Tokens and words as a person can read them: white space has a sign of its own."""

import re

_SIGNS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "⍽"}
_SPACE = re.compile(r"\s")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def readable(text: str) -> str:
    """A word or a decoded token with visible white space: ␣ space, ⏎ newline, ⇥ tab, ∅ nothing at all.

    >>> readable(" the"), readable("\\n\\n"), readable("")
    ('␣the', '⏎⏎', '∅')
    """
    return _SPACE.sub(lambda found: _SIGNS.get(found[0], "␣"), text) or "∅"


def readable_piece(piece: str) -> str:
    """A token as its tokenizer spells it ("Ġthe", "▁the", "Ċ", "<0x0A>", "Ã©"), as readable text.

    A token that is only part of a character stays as it is.

    >>> [readable_piece(piece) for piece in ("Ġthe", "▁the", "ĊĊ", "<0x09>", "Ã©", "##é", "[SEP]")]
    ['␣the', '␣the', '⏎⏎', '⇥', 'é', '##é', '[SEP]']
    """
    byte = _BYTE.fullmatch(piece)
    text = from_bytes(piece) if byte is None else bytes([int(byte[1], 16)]).decode(errors="replace")
    if "\ufffd" in text or not all(character.isprintable() or character.isspace() for character in text):
        text = piece
    return readable(text.replace("▁", " "))


def from_bytes(piece: str) -> str:
    """The text of a byte-level piece; a piece that is part of a character is not text, and an added token is as is."""
    if any(character not in _BYTES for character in piece):
        return piece
    return bytes(_BYTES[character] for character in piece).decode("utf-8", errors="replace")


def _byte_characters() -> dict[str, int]:
    """The character that byte-level tokenizers write for each byte: itself if it prints, else one behind 255."""
    printing = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + n): byte for n, byte in enumerate(others)}


_BYTES = _byte_characters()
