"""What a command prints, as a model can read it: bounded in memory, whole in a file once it is long.

Escape sequences go, `\\r` progress bars keep their last state, bytes that are not UTF-8 become U+FFFD.
"""

import codecs
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]+[0-~]|[0-OQ-WYZ\\`-~])"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)$")
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_MAX_ESCAPE = 4_096
"""A sequence that is longer was none."""
_MAX_LINE = 64 * 1024
"""Characters of an unfinished line that are held back to see whether a `\\r` overwrites them."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A finished transcript."""

    text: str
    """All of it, or its first and last lines with a line between them that says what was left out."""
    omitted_lines: int
    total_bytes: int
    """Bytes that the command printed."""
    output_file: str | None
    """Where the whole text lies when lines were left out."""


class Cleaner:
    """Text without escape sequences and overwritten progress; gives whole lines, holds the rest back."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._escape = ""
        self._line = ""

    def feed(self, data: bytes, final: bool = False) -> str:
        """What is certain by now. After `final` nothing is held back."""
        text = self._line + self._plain(self._decoder.decode(data, final), final)
        end = len(text) if final else text.rfind("\n") + 1
        if len(text) - end > _MAX_LINE:
            end = len(text) - text.endswith("\r")
        self._line = text[end:]
        # What was held back holds no `\\n`; keep only the state that a progress bar left.
        if self._line.count("\r") > 1:
            self._line = _last_state(self._line.rstrip("\r")) + ("\r" if self._line.endswith("\r") else "")
        return _overwritten(text[:end])

    def _plain(self, text: str, final: bool) -> str:
        text = self._escape + text
        self._escape = ""
        if "\x1b" in text or "\x9b" in text:
            text = _ESCAPES.sub("", text)
            cut = None if final else _CUT_ESCAPE.search(text, max(0, len(text) - _MAX_ESCAPE))
            if cut is not None:
                text, self._escape = text[: cut.start()], text[cut.start() :]
        return _CONTROLS.sub("", text)


class Transcript:
    """Collects what a command prints. Not for several threads at once."""

    def __init__(self, file: Path, max_lines: int, max_bytes: int) -> None:
        self._path = file
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._cleaner = Cleaner()
        self._head = ""
        self._tail = ""
        self._file: TextIO | None = None
        self._lines = 0
        self._bytes = 0

    def feed(self, data: bytes) -> str:
        """Add what was printed; returns the clean text that became certain."""
        self._bytes += len(data)
        return self._add(self._cleaner.feed(data))

    def finish(self) -> tuple[str, Shown]:
        """Close the file; returns the last clean text and the whole as a model should see it."""
        rest = self._add(self._cleaner.feed(b"", final=True))
        if self._file is None:
            return rest, Shown(self._head, 0, self._bytes, None)
        self._file.close()
        head = _first(self._head, self._max_lines // 2, self._max_bytes // 2)
        tail = _last(self._tail, self._max_lines // 2, self._max_bytes // 2)
        total = self._lines + (not self._tail.endswith("\n"))
        omitted = max(0, total - _count(head) - _count(tail))
        left_out = f"{omitted:,} lines left out of {total:,}" if omitted else "the middle left out"
        note = f"[… {left_out}; the whole output ({self._bytes:,} bytes printed) is in {self._path} …]"
        gap = "" if head.endswith("\n") or not head else "\n"
        return rest, Shown(f"{head}{gap}{note}\n{tail}", omitted, self._bytes, str(self._path))

    def close(self) -> None:
        """Close the file, if any; for a run that ends by an exception."""
        if self._file is not None:
            self._file.close()

    def _add(self, text: str) -> str:
        if not text:
            return text
        self._lines += text.count("\n")
        if self._file is not None:
            self._file.write(text)
            # Characters are at most as many as bytes, so this much always covers the tail's budget.
            self._tail = (self._tail + text)[-self._max_bytes :]
            return text
        self._head += text
        if self._lines > self._max_lines or len(self._head.encode("utf-8", "replace")) > self._max_bytes:
            self._file = self._create()
            self._file.write(self._head)
            self._tail = self._head[-self._max_bytes :]
            self._head = self._head[: self._max_bytes]
        return text

    def _create(self) -> TextIO:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="")


def _overwritten(text: str) -> str:
    if "\r" not in text:
        return text
    text = re.sub(r"\r+\n", "\n", text)
    if "\r" not in text:
        return text
    return "\n".join(_last_state(line) for line in text.split("\n"))


def _last_state(line: str) -> str:
    """What a terminal would still show of a line, near enough: what stands after the last `\\r`."""
    return next((part for part in reversed(line.split("\r")) if part.strip()), "") if "\r" in line else line


def _first(text: str, lines: int, size: int) -> str:
    """Whole lines from the start within both bounds; a part of the first line if even that is too long."""
    text = text.encode("utf-8", "replace")[:size].decode("utf-8", "ignore")
    parts = text.split("\n")
    kept = "\n".join(parts[: min(lines, len(parts) - 1)])
    return f"{kept}\n" if kept or len(parts) > 1 else text


def _last(text: str, lines: int, size: int) -> str:
    data = text.encode("utf-8", "replace")
    cut = len(data) > size
    text = data[-size:].decode("utf-8", "ignore")
    ended = text.endswith("\n")
    parts = text.removesuffix("\n").split("\n")
    if cut and len(parts) > 1:
        parts = parts[1:]
    return "\n".join(parts[-lines:]) + ("\n" if ended else "")


def _count(text: str) -> int:
    return text.count("\n") + (bool(text) and not text.endswith("\n"))
