"""Exact replacement in a text, and the ways to show and send what changed. Pure.

The model writes `\\n`; a file keeps the line ends it has. So texts are compared with line ends made equal,
and what is written takes the ends of the lines that it replaces.
"""

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from deskmate_session.core.lines import diff_lines, is_mac, line_end, newline_of, split_lines
from deskmate_session.core.nearest import nearest_lines
from deskmate_session.errors import ToolFailure
from deskmate_session.model.edits import TextChange

_SHOWN_LINES = 10


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `new` in place of `old`, which stands once in the text unless `all`."""

    old: str
    new: str
    all: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text after replacement."""

    text: str
    count: int
    """Places that were replaced."""
    ranges: tuple[tuple[int, int], ...]
    """Where what was written stands in `text`: offsets in code points, half-open, in order."""


def replace(text: str, old: str, new: str, all: bool = False) -> Replacement:
    """Replace `old` by `new`, literally. Raises `ToolFailure` and says why nothing was done."""
    if not old:
        raise ToolFailure(
            "badArguments",
            "`old` is empty but the file exists: give the text to replace, or use write for the whole file",
        )
    plain = _Plain(text)
    wanted, written = plain.normal(old), plain.normal(new)
    if wanted == written:
        raise ToolFailure("failed", "nothing would change: `old` and `new` are the same (line ends are kept)")
    starts = _find(plain.text, wanted)
    if not starts:
        raise ToolFailure("failed", f"`old` is not in the file. {nearest_lines(plain.text, wanted)}")
    if not all and (len(starts) > 1 or plain.text.find(wanted, starts[0] + 1) >= 0):
        raise ToolFailure("failed", _ambiguous(plain.text, wanted))
    return plain.rebuild(starts, len(wanted), written)


def apply_edits(text: str, edits: Sequence[Edit]) -> Replacement:
    """Apply all edits, each to what the one before left, or none. Raises `ToolFailure` naming the edit."""
    if len(edits) == 1:
        return replace(text, edits[0].old, edits[0].new, edits[0].all)
    if not edits:
        raise ToolFailure("badArguments", "`edits` is empty: give at least one edit")
    after, count = text, 0
    for number, edit in enumerate(edits, 1):
        try:
            step = replace(after, edit.old, edit.new, edit.all)
        except ToolFailure as failure:
            where = f"edit {number} of {len(edits)}: {failure.message} (no edit was applied)"
            raise ToolFailure(failure.kind, where) from None
        after, count = step.text, count + step.count
    if after == text:
        raise ToolFailure("failed", "nothing would change: the edits undo each other")
    ranges: list[tuple[int, int]] = []
    shift = 0
    for edit in text_edits(text, after):
        start = edit.start + shift
        ranges.append((start, start + len(edit.text)))
        shift += len(edit.text) - (edit.end - edit.start)
    return Replacement(after, count, tuple(ranges))


def with_line_ends_of(before: str, new: str, default: str) -> str:
    """`new` (line ends `\\n`) with the ends of the lines of `before` that it replaces, else `default`."""
    if "\r" not in before and default == "\n":
        return new
    lines = split_lines(new)
    old = split_lines(before)
    ends = {line_end(line) for line in old} - {""}
    if ends <= {default}:
        return new.replace("\n", default)
    stems = [line.removesuffix(line_end(line)) for line in old]
    new_stems = [line.removesuffix("\n") for line in lines]
    partner: dict[int, int] = {}
    i = j = 0
    for change in diff_lines(stems, new_stems):
        partner.update(zip(range(j, change.new_start), range(i, change.start), strict=True))
        partner.update(zip(range(change.new_start, change.new_end), range(change.start, change.end)))  # noqa: B905 - lines past the shorter side have no partner
        i, j = change.end, change.new_end
    partner.update(zip(range(j, len(lines)), range(i, len(old)), strict=True))
    return "".join(
        stem + ((line_end(old[partner[k]]) if k in partner else "") or default)
        if lines[k].endswith("\n")
        else stem
        for k, stem in enumerate(new_stems)
    )


def text_edits(before: str, after: str) -> tuple[TextChange, ...]:
    """The smallest edits by lines, cut to what differs in them; in order, never overlapping.

    No edit begins or ends inside a `\\r\\n`: editors have no position there. Cost as `diff_lines`.
    """
    old, new = split_lines(before), split_lines(after)
    if is_mac(before) != is_mac(after):
        old, new = ([before] if before else []), ([after] if after else [])
    starts = [0]
    for line in old:
        starts.append(starts[-1] + len(line))
    edits: list[TextChange] = []
    for change in diff_lines(old, new):
        gone = before[starts[change.start] : starts[change.end]]
        come = "".join(new[change.new_start : change.new_end])
        head = _common_head(gone, come)
        tail = _common_tail(gone[head:], come[head:])
        start = starts[change.start] + head
        edits.append(TextChange(start, starts[change.end] - tail, come[head : len(come) - tail]))
    return tuple(edits)


def apply_text_edits(before: str, edits: Sequence[TextChange]) -> str:
    """The text after `edits`, which are in order and don't overlap."""
    pieces: list[str] = []
    at = 0
    for edit in edits:
        pieces += (before[at : edit.start], edit.text)
        at = edit.end
    return "".join((*pieces, before[at:]))


class _Plain:
    """A text with its line ends made equal, and the way back to the real one."""

    def __init__(self, text: str) -> None:
        self._real = text
        self._mac = is_mac(text)
        self._newline = newline_of(text)
        self.text = self.normal(text)
        pairs = [match.start() for match in re.finditer("\r\n", text)] if "\r\n" in text else []
        self._pairs = [at - index for index, at in enumerate(pairs)]

    def normal(self, text: str) -> str:
        text = text.replace("\r\n", "\n")
        return text.replace("\r", "\n") if self._mac else text

    def rebuild(self, starts: list[int], length: int, written: str) -> Replacement:
        pieces: list[str] = []
        ranges: list[tuple[int, int]] = []
        at = size = 0
        for start in starts:
            begin, end = self._offset(start), self._offset(start + length)
            kept = self._real[at:begin]
            put = with_line_ends_of(self._real[begin:end], written, self._newline)
            pieces += (kept, put)
            ranges.append((size + len(kept), size + len(kept) + len(put)))
            size += len(kept) + len(put)
            at = end
        return Replacement("".join((*pieces, self._real[at:])), len(starts), tuple(ranges))

    def _offset(self, at: int) -> int:
        return at + bisect_left(self._pairs, at)


def _find(text: str, wanted: str) -> list[int]:
    starts: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        starts.append(at)
        at = text.find(wanted, at + len(wanted))
    return starts


def _ambiguous(text: str, wanted: str) -> str:
    numbers: list[int] = []
    count, at, line, counted = 0, text.find(wanted), 1, 0
    while at >= 0:
        line += text.count("\n", counted, at)
        counted = at
        count += 1
        if count <= _SHOWN_LINES:
            numbers.append(line)
        at = text.find(wanted, at + 1)
    more = ", …" if count > len(numbers) else ""
    return (
        f"`old` stands in the file {count} times, at lines {', '.join(map(str, numbers))}{more}: "
        "add lines around it until it is unique, or set `all` to replace each"
    )


def _common_head(a: str, b: str) -> int:
    size = _common(a, b)
    if size and a[size - 1] == "\r" and (a[size : size + 1] == "\n" or b[size : size + 1] == "\n"):
        size -= 1
    return size


def _common_tail(a: str, b: str) -> int:
    size = _common(a[::-1], b[::-1])
    if size and a[-size] == "\n" and (a[-size - 1 : -size] == "\r" or b[-size - 1 : -size] == "\r"):
        size -= 1
    return size


def _common(a: str, b: str) -> int:
    """Length of the common start, by halving: slices compare at the speed of memory."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
