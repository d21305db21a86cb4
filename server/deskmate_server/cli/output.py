"""The one door to the terminal: colours where they are wanted, text of others made harmless."""

import io
import json
import os
import sys
import textwrap
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TextIO

Style = Literal["plain", "dim", "bold", "red", "green", "yellow", "cyan"]

_CODES: dict[Style, str] = {
    "plain": "",
    "dim": "\x1b[2m",
    "bold": "\x1b[1m",
    "red": "\x1b[31m",
    "green": "\x1b[32m",
    "yellow": "\x1b[33m",
    "cyan": "\x1b[36m",
}
_RESET = "\x1b[0m"
_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: "␡",
    **{code: f"<{code:02X}>" for code in range(0x80, 0xA0)},
    **{code: f"<U+{code:04X}>" for code in _BIDI},
}
"""Control characters as pictures: an escape sequence can't run, and one can see that somebody tried.
Bidirectional controls too, since they can make a command or a diff look like another one."""


def harmless(text: str) -> str:
    """Text of a model, a tool or a file, safe to print. Works on any piece of a stream."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str) -> str:
    """The same on a single line."""
    return harmless(" ".join(text.split()))


def cells(text: str) -> int:
    """Columns that a text takes on a terminal."""
    return sum(_cell(character) for character in text)


def shorten(text: str, width: int) -> str:
    """Cut a line to a width in columns; `…` shows the cut."""
    if cells(text) <= width:
        return text
    kept: list[str] = []
    left = width - 1
    for character in text:
        left -= _cell(character)
        if left < 0:
            break
        kept.append(character)
    return "".join(kept) + "…"


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break text at words; its own line ends stay, and so do long words, such as paths."""
    room = max(20, width - len(indent))
    lines: list[str] = []
    for line in text.split("\n"):
        pieces = textwrap.wrap(
            line, room, break_on_hyphens=False, break_long_words=False, replace_whitespace=False
        )
        lines += [f"{indent}{piece}".rstrip() for piece in pieces or [""]]
    return lines


def _cell(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


class Output:
    """Where a command writes. What it is given goes out as it is: `harmless` is the caller's word."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
        self._stream = stream
        self._at_start = True
        self.terminal = _is_terminal(stream)
        """A person looks at it."""
        self.colour = self.terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        self.width = _width(stream, environment) if self.terminal else 100
        """Columns."""

    def line(self, text: str = "", style: Style = "plain") -> None:
        """Print a line, on a line of its own."""
        self.finish_line()
        self.write(self.paint(text, style) + "\n")

    def finish_line(self) -> None:
        """What comes next begins on a new line."""
        if not self._at_start:
            self.write("\n")

    def echoed(self) -> None:
        """The person pressed return: the terminal stands at the start of a line."""
        self._at_start = True

    def write(self, text: str, style: Style = "plain") -> None:
        """Print without a line end, at once."""
        if not text:
            return
        self._at_start = text.endswith("\n")
        encoding = self._stream.encoding or "utf-8"  # it says what it can; for the rest stands a `?`
        painted = self.paint(text, style).encode(encoding, "replace").decode(encoding)
        try:
            print(painted, end="", file=self._stream, flush=True)
        except OSError as error:
            _lose(self._stream, error)

    def json(self, value: Mapping[str, Any]) -> None:
        """Print an object as one line of JSON."""
        # ASCII only: no terminal, pipe or lone surrogate can hurt it.
        self.write(json.dumps(value, separators=(",", ":")) + "\n")

    def diff(self, patch: str, indent: str = "") -> None:
        """Print a unified diff; its text is made harmless here."""
        for line in harmless(patch).removesuffix("\n").split("\n"):
            style: Style = "plain"
            if line.startswith(("+++", "---")):
                style = "bold"
            elif line.startswith("@@"):
                style = "cyan"
            elif line.startswith("+"):
                style = "green"
            elif line.startswith("-"):
                style = "red"
            self.line(f"{indent}{line}", style)

    def paint(self, text: str, style: Style) -> str:
        """The text in a colour, where colours are wanted."""
        if not self.colour or style == "plain" or not text:
            return text
        return f"{_CODES[style]}{text}{_RESET}"


_losses: list[OSError] = []
"""Why what was written did not get through, in this process."""


def _lose(stream: TextIO, error: OSError) -> None:
    """Write to nowhere from now on: a turn must end in order though nobody reads of it any more."""
    _losses.append(error)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def settled(code: int) -> int:
    """Get out what is still held back; the exit code, which says when not everything got through."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError as error:
            _lose(stream, error)
        except ValueError:  # closed
            pass
    if not _losses:
        return code
    first = _losses[0]
    _losses.clear()
    if not isinstance(first, BrokenPipeError):  # `| head` has seen enough, and knows it
        complain(f"the output could not be written: {first.strerror or first}")
        _losses.clear()
    return code or 1


def stdout() -> Output:
    """Standard output."""
    return Output(sys.stdout or io.StringIO())  # started with `>&-` there is none


def stderr() -> Output:
    """Standard error."""
    return Output(sys.stderr or io.StringIO())


def complain(message: str, hint: str | None = None) -> None:
    """Say on stderr why something failed and what to do next."""
    out = stderr()
    out.line(f"deskmate: {harmless(message)}", "red")
    if hint:
        out.line(f"  {harmless(hint)}")


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _width(stream: TextIO, environment: Mapping[str, str]) -> int:
    asked = environment.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(40, int(asked))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return max(40, columns or 80)


def clock(at: int) -> str:
    """A moment, in milliseconds since the epoch, as the person's clock showed it."""
    return datetime.fromtimestamp(at / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
