"""Between positions (line, character in the client's units) and offsets (code points). Pure.

A line ends at `\\n`, `\\r\\n` or `\\r` and nowhere else: form feeds and U+2028 are ordinary characters to an
editor. What lies outside the text clamps to it, as LSP asks; what lies inside a character rounds down to its
start.
"""

import bisect
import itertools
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")


class Encoding(StrEnum):
    """The unit in which the client counts `character`."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


class Position(NamedTuple):
    """A place in a text; both numbers count from 0, `character` in the client's units."""

    line: int
    character: int


class Range(NamedTuple):
    """From `start` up to, not including, `end`."""

    start: Position
    end: Position


def line_starts(text: str) -> list[int]:
    """The offset of each line's first character; a text has at least one line."""
    if "\r" not in text:
        lengths = [len(line) + 1 for line in text.split("\n")]
        lengths.pop()
        return list(itertools.accumulate(lengths, initial=0))
    return [0, *(end.end() for end in _LINE_END.finditer(text))]


def line_end(text: str, starts: Sequence[int], line: int) -> int:
    """The offset of a line's end, before its line break."""
    if line + 1 >= len(starts):
        return len(text)
    end = starts[line + 1] - 1
    return end - 1 if text[end] == "\n" and end > starts[line] and text[end - 1] == "\r" else end


def offset_at(text: str, starts: Sequence[int], at: Position, encoding: Encoding) -> int:
    """The offset of a position. `starts` are the `line_starts` of the text."""
    if at.line < 0:
        return 0
    if at.line >= len(starts):
        return len(text)
    start, end = starts[at.line], line_end(text, starts, at.line)
    wanted = max(0, at.character)
    if encoding is Encoding.UTF32 or text.isascii():
        return min(start + wanted, end)
    line = text[start:end]
    if line.isascii():
        return min(start + wanted, end)
    return start + _code_points(line, wanted, encoding)


def position_at(text: str, starts: Sequence[int], offset: int, encoding: Encoding) -> Position:
    """The position of an offset. Between the halves of `\\r\\n` it is the line's end."""
    offset = min(max(0, offset), len(text))
    line = bisect.bisect_right(starts, offset) - 1
    before = text[starts[line] : min(offset, line_end(text, starts, line))]
    return Position(line, units(before, encoding))


def units(text: str, encoding: Encoding) -> int:
    """The length of a text in the client's units."""
    if encoding is Encoding.UTF32 or text.isascii():
        return len(text)
    if encoding is Encoding.UTF16:
        return len(text.encode("utf-16-le", "replace")) // 2
    return len(text.encode("utf-8", "replace"))


def _code_points(line: str, wanted: int, encoding: Encoding) -> int:
    """How many whole characters of `line` fit in `wanted` units."""
    # "replace" keeps a lone surrogate one unit long in UTF-16; "ignore" drops a character that the cut
    # splits.
    codec, size = ("utf-16-le", 2) if encoding is Encoding.UTF16 else ("utf-8", 1)
    return len(line.encode(codec, "replace")[: wanted * size].decode(codec, "ignore"))
