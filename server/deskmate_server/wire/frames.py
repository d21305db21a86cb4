"""Splitting a byte stream into LSP messages, and back. Pure: no I/O.

The parser never gives up on a stream. A header it cannot read or a body it will not hold becomes a value that
says so, and parsing goes on with the next header that it can find.
"""

import re
from dataclasses import dataclass

MAX_BODY = 64 << 20
"""Largest message body accepted, in bytes; a larger one is skipped without being held in memory."""

_MAX_LINE = 4096
_HEAD = 4096
# Searched, not matched: after a wrong Content-Length the rest of a body stands before the next header, on one
# line. Ten digits are rubbish rather than a length: skipping that much would swallow the stream.
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*(\d{1,9})[ \t]*\r?\n$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Oversize:
    """A body over the cap, skipped. `length` is its size in bytes, `head` its first bytes (at most 4096)."""

    length: int
    head: bytes


@dataclass(frozen=True, slots=True)
class NoLength:
    """A header block without a readable Content-Length; `line` is its last line."""

    line: bytes


Frame = bytes | Oversize | NoLength


class FrameParser:
    """Feed it bytes as they come; it returns the messages that are complete. Headers are case-insensitive."""

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()
        self._length: int | None = None
        self._header: bytes = b""
        self._in_body = False
        self._head = bytearray()
        self._skipped = 0

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes of the stream and return every frame they complete, in order."""
        self._buffer += data
        frames: list[Frame] = []
        while True:
            if not self._in_body and not self._read_headers(frames):
                return frames
            if (frame := self._read_body()) is None:
                return frames
            self._in_body, self._length = False, None
            frames.append(frame)

    def _read_headers(self, frames: list[Frame]) -> bool:
        """Consume header lines; True once a block that announces a body has ended."""
        while (end := self._buffer.find(b"\n")) >= 0:
            line = bytes(self._buffer[: end + 1])
            del self._buffer[: end + 1]
            if found := _LENGTH.search(line):
                self._length = int(found[1])
            elif line.strip():
                self._header = line
            elif self._length is not None:
                self._in_body, self._header = True, b""
                return True
            elif self._header:
                frames.append(NoLength(self._header[:200]))
                self._header = b""
        # Rubbish without a line end must not pile up; the tail is enough to hold a header.
        if len(self._buffer) > _MAX_LINE:
            del self._buffer[:-_MAX_LINE]
        return False

    def _read_body(self) -> Frame | None:
        length = self._length or 0
        if length <= self._max_body:
            if len(self._buffer) < length:
                return None
            body = bytes(self._buffer[:length])
            del self._buffer[:length]
            return body
        here = min(length - self._skipped, len(self._buffer))
        self._head += self._buffer[: max(0, min(here, _HEAD - len(self._head)))]
        del self._buffer[:here]
        self._skipped += here
        if self._skipped < length:
            return None
        frame = Oversize(length, bytes(self._head))
        self._head, self._skipped = bytearray(), 0
        return frame


def encode_frame(body: bytes) -> bytes:
    """One message as it goes on the wire."""
    return b"Content-Length: %d\r\n\r\n" % len(body) + body
