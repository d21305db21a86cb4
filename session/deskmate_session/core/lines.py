"""Lines of a text and the line diff: what edits, diffs and hunks are made of.

A line ends at `\\n` or `\\r\\n`. A text without any `\\n` but with `\\r` is an old Mac text: there `\\r` ends
lines. Nothing else does (`str.splitlines` also breaks at form feeds and U+2028, which editors don't).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from deskmate_session.model.edits import Newline

_ENDS = re.compile(r"(?<=\n)")
_MAC_ENDS = re.compile(r"(?<=\r)")

_ANCHORS_FROM = 1_000
"""Lines on both sides from which a diff is first cut at lines that are unique on both sides."""
_MAX_COST = 400
"""Insertions and deletions that the exact diff of one stretch looks for; beyond it is one replacement."""


@dataclass(frozen=True, slots=True)
class Change:
    """Lines `start:end` of the old side became `new_start:new_end` of the new one. Half-open, from 0."""

    start: int
    end: int
    new_start: int
    new_end: int


def split_lines(text: str) -> list[str]:
    """The lines with their ends; joined they are `text`. An empty text has none."""
    ends = _MAC_ENDS if is_mac(text) else _ENDS
    lines = ends.split(text)
    if lines and not lines[-1]:
        lines.pop()
    return lines


def is_mac(text: str) -> bool:
    """Do lines end at a bare carriage return?"""
    return "\r" in text and "\n" not in text


def newline_of(text: str) -> Newline:
    """The most frequent line end; `\\n` on a tie and for a text without any."""
    pairs = text.count("\r\n")
    feeds = text.count("\n") - pairs
    if pairs > feeds:
        return "\r\n"
    return "\r" if is_mac(text) else "\n"


def one_kind_of_end(text: str) -> bool:
    """All lines end alike, in `\\n` or in `\\r\\n`. Editors count lines differently where that is not so."""
    pairs, feeds, returns = text.count("\r\n"), text.count("\n"), text.count("\r")
    return returns == pairs and pairs in (0, feeds)


def line_end(line: str) -> str:
    """The end of one line as `split_lines` gives it; empty for a last line without one."""
    if line.endswith("\r\n"):
        return "\r\n"
    return line[-1:] if line.endswith(("\n", "\r")) else ""


def diff_lines(old: Sequence[str], new: Sequence[str]) -> list[Change]:
    """What changed, in order, nothing adjacent. Shortest for small changes.

    Cost is bounded: about (lines + 400²) steps for each stretch between unique lines; where more than
    400 lines of one stretch differ, the stretch counts as replaced.
    """
    numbers: dict[str, int] = {}
    a = [numbers.setdefault(line, len(numbers)) for line in old]
    b = [numbers.setdefault(line, len(numbers)) for line in new]
    same = bytearray(len(a))
    partner = [0] * len(a)
    for start, end, new_start, new_end in _stretches(a, b):
        for i, j in _matches(a, b, start, end, new_start, new_end):
            same[i], partner[i] = 1, j
    changes: list[Change] = []
    i = j = 0
    for k in [k for k in range(len(a)) if same[k]]:
        if k > i or partner[k] > j:
            changes.append(Change(i, k, j, partner[k]))
        i, j = k + 1, partner[k] + 1
    if i < len(a) or j < len(b):
        changes.append(Change(i, len(a), j, len(b)))
    return changes


Stretch = tuple[int, int, int, int]


def _stretches(a: list[int], b: list[int]) -> list[Stretch]:
    """Cut both sides at lines that occur once on each (patience), so that each piece is small."""
    if min(len(a), len(b)) < _ANCHORS_FROM:
        return [(0, len(a), 0, len(b))]
    once_a, once_b = _once(a), _once(b)
    pairs = [(i, once_b[line]) for line, i in once_a.items() if line in once_b]
    cuts = _increasing(pairs)
    stretches: list[Stretch] = []
    i = j = 0
    for k, m in cuts:
        stretches.append((i, k, j, m))
        i, j = k, m
    stretches.append((i, len(a), j, len(b)))
    return stretches


def _once(side: list[int]) -> dict[int, int]:
    seen: dict[int, int] = {}
    for index, line in enumerate(side):
        seen[line] = -1 if line in seen else index
    return {line: index for line, index in seen.items() if index >= 0}


def _increasing(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest run of pairs, sorted by the first number, whose second numbers rise too."""
    tops: list[int] = []
    back: list[int] = []
    values = [j for _, j in pairs]
    for index, value in enumerate(values):
        low, high = 0, len(tops)
        while low < high:
            middle = (low + high) // 2
            if values[tops[middle]] < value:
                low = middle + 1
            else:
                high = middle
        back.append(tops[low - 1] if low else -1)
        tops[low : low + 1] = [index]
    run: list[tuple[int, int]] = []
    index = tops[-1] if tops else -1
    while index >= 0:
        run.append(pairs[index])
        index = back[index]
    return run[::-1]


def _matches(a: list[int], b: list[int], i: int, n: int, j: int, m: int) -> list[tuple[int, int]]:
    """Pairs of equal lines of one stretch, rising on both sides."""
    pairs: list[tuple[int, int]] = []
    while i < n and j < m and a[i] == b[j]:
        pairs.append((i, j))
        i, j = i + 1, j + 1
    tail: list[tuple[int, int]] = []
    while n > i and m > j and a[n - 1] == b[m - 1]:
        n, m = n - 1, m - 1
        tail.append((n, m))
    pairs += [(i + x, j + y) for x, y in _shortest(a[i:n], b[j:m])]
    return pairs + tail[::-1]


def _shortest(a: list[int], b: list[int]) -> list[tuple[int, int]]:
    """Equal lines of a shortest edit script (Myers 1986), or none when it costs more than `_MAX_COST`."""
    n, m = len(a), len(b)
    if not n or not m or abs(n - m) > _MAX_COST:
        return []
    reach = {1: 0}
    trace: list[dict[int, int]] = []
    for cost in range(min(n + m, _MAX_COST) + 1):
        trace.append(reach.copy())
        for k in range(-cost, cost + 1, 2):
            down = k == -cost or (k != cost and reach[k - 1] < reach[k + 1])
            x = reach[k + 1] if down else reach[k - 1] + 1
            y = x - k
            while x < n and y < m and a[x] == b[y]:
                x, y = x + 1, y + 1
            reach[k] = x
            if x >= n and y >= m:
                return _walk_back(trace, n, m)
    return []


def _walk_back(trace: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    for cost in range(len(trace) - 1, -1, -1):
        reach, k = trace[cost], x - y
        down = k == -cost or (k != cost and reach[k - 1] < reach[k + 1])
        before = k + 1 if down else k - 1
        old_x = reach[before]
        old_y = old_x - before
        while x > max(old_x, 0) and y > max(old_y, 0):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = old_x, old_y
    return pairs[::-1]
