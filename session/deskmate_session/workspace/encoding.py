"""Bytes to text and back, exactly.

What is neither UTF-8 nor carries a byte-order mark becomes Latin-1: every byte has a character there, so
the bytes come back as they were, and the name tells the reader not to trust the letters.
"""

import codecs
import hashlib
import re
from dataclasses import dataclass

from deskmate_session.core.lines import newline_of
from deskmate_session.errors import ToolFailure
from deskmate_session.model.edits import Newline

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_CONTROLS = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MAX_CONTROLS = 0.05
"""Share of control characters from which bytes that are not UTF-8 count as binary."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A text and how it was written; `encode` with the same three gives the bytes back."""

    text: str
    encoding: str
    """`utf-8`, `utf-16-le`, `utf-16-be` or `latin-1`."""
    bom: bytes
    newline: Newline


def decode(data: bytes) -> Decoded:
    """Decode a text file. Raises `ToolFailure` (`failed`) for what is binary."""
    for bom, encoding in _MARKS:
        if data.startswith(bom):
            text = _strict(data[len(bom) :], encoding)
            if text is not None and "\0" not in text:
                return Decoded(text, encoding, bom, newline_of(text))
    if b"\0" in data:
        raise ToolFailure("failed", "it is a binary file (it holds NUL bytes), not text")
    text = _strict(data, "utf-8")
    if text is not None:
        return Decoded(text, "utf-8", b"", newline_of(text))
    if len(_CONTROLS.findall(data)) > _MAX_CONTROLS * len(data):
        raise ToolFailure("failed", "it is a binary file (not UTF-8, many control characters), not text")
    text = data.decode("latin-1")
    return Decoded(text, "latin-1", b"", newline_of(text))


def encode(text: str, encoding: str = "utf-8", bom: bytes = b"") -> bytes:
    """The bytes of a file. Raises `ToolFailure` (`failed`) for a character that the encoding lacks."""
    try:
        return bom + text.encode(encoding)
    except UnicodeEncodeError as error:
        character = text[error.start]
        raise ToolFailure(
            "failed",
            f"the file is {encoding}, which has no {character!r} (U+{ord(character):04X}): "
            "use characters that it has, or convert the file first",
        ) from None


def text_hash(text: str) -> str:
    """SHA-256 (hex) of the text in UTF-8: how the whole kernel names a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return None
    return text if text.encode(encoding, "surrogatepass") == data else None
