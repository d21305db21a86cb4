"""Where a text that was not found might have been meant: by lines, at a bounded cost."""

import re
from collections import Counter, defaultdict

_MAX_LINES = 20_000
"""Lines of the file that are looked at."""
_MAX_WANTED = 40
"""Lines of the wanted text that are looked for."""
_MAX_PLACES = 50
"""Places of one line that are counted; a line that stands more often says little."""
_SHOWN = 5
_SHOWN_WIDTH = 160
_WORD = re.compile(r"\w+")
_LIKE = 0.5
"""Share of words in common from which a line is worth naming."""


def nearest_lines(text: str, wanted: str) -> str:
    """A sentence for the model that names the nearest lines of `text`, or says that there are none.

    Both have `\\n` as line ends. Lines are compared without the white space around and between words.
    """
    lines = text.split("\n")[:_MAX_LINES]
    looked_for = wanted.split("\n")[:_MAX_WANTED]
    start = _by_lines(lines, looked_for)
    if start is None:
        start = _by_words(lines, looked_for)
        if start is None:
            return "no line of the file looks like it; read the file again"
    end = min(max(start + 1, start + len(looked_for)), start + _SHOWN, len(lines))
    shown = "\n".join(f"{n + 1}|{lines[n][:_SHOWN_WIDTH]}" for n in range(start, end))
    if _squeeze("\n".join(lines[start : start + len(looked_for)])) == _squeeze("\n".join(looked_for)):
        return f"The nearest lines differ in white space only (tabs, spaces, blank lines):\n{shown}"
    return f"The nearest lines are:\n{shown}"


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def _by_lines(lines: list[str], wanted: list[str]) -> int | None:
    """The start at which most wanted lines stand in their order."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    keys = {key for line in wanted if (key := _squeeze(line))}
    for index, line in enumerate(lines):
        key = _squeeze(line)
        if key in keys and len(places[key]) < _MAX_PLACES:
            places[key].append(index)
    votes: Counter[int] = Counter()
    for offset, line in enumerate(wanted):
        for index in places.get(_squeeze(line), ()):
            votes[index - offset] += 1
    if not votes:
        return None
    most = max(votes.values())
    return max(0, min(start for start, count in votes.items() if count == most))


def _by_words(lines: list[str], wanted: list[str]) -> int | None:
    """The line that shares most words with the longest wanted line."""
    offset = max(range(len(wanted)), key=lambda n: len(wanted[n].strip()))
    words = set(_WORD.findall(wanted[offset]))
    if not words:
        return None
    best, found = 0.0, None
    for index, line in enumerate(lines):
        there = set(_WORD.findall(line[:1_000]))
        score = len(words & there) / len(words | there)
        if score > best:
            best, found = score, index
    if found is None or best < _LIKE:
        return None
    return max(0, found - offset)
