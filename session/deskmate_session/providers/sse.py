"""Server-sent events, sans-IO: bytes in, `(event, data)` out.

Spec: https://html.spec.whatwg.org/multipage/server-sent-events.html. Cuts may fall anywhere, in the
middle of a character or of a CRLF too, because only complete events are decoded.
"""

from deskmate_session.errors import ProviderError

MAX_EVENT_BYTES = 16 * 1024 * 1024

_BOM = b"\xef\xbb\xbf"


class SseReader:
    """Feed it chunks as they come; it gives each event once, when its blank line has arrived."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._buffer = bytearray()
        self._max = max_event_bytes
        self._at_start = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[tuple[str, str]]:
        """Return the events that `chunk` completes: name (`message` by default) and data.

        Raises `ProviderError` (`badResponse`) when one event outgrows the limit.
        """
        if not chunk:
            return []
        if self._after_cr or b"\r" in chunk:
            chunk = self._only_lf(chunk)
        buffer = self._buffer
        searched = max(len(buffer) - 1, 0)
        buffer += chunk
        if self._at_start:
            if len(buffer) < len(_BOM) and _BOM.startswith(buffer):
                return []
            if buffer.startswith(_BOM):
                del buffer[: len(_BOM)]
                searched = 0
            self._at_start = False
        end = buffer.rfind(b"\n\n", searched)
        if end < 0:
            complete = b""
        else:
            complete = bytes(buffer[:end])
            del buffer[: end + 2]
        if len(buffer) > self._max:
            raise ProviderError(
                "badResponse",
                f"one event of the answer is larger than {self._max:,} bytes",
                hint="check that base_url points to a model server",
            )
        return _parse(complete) if complete else []

    def flush(self) -> list[tuple[str, str]]:
        """Return what the stream's end leaves: an event whose blank line never came.

        The spec would drop it, but servers exist that forget the last blank line; a torn one is no JSON
        and the adapter refuses it.
        """
        rest = bytes(self._buffer)
        self._buffer.clear()
        return _parse(rest) if rest else []

    def _only_lf(self, chunk: bytes) -> bytes:
        """Turn CRLF and CR into LF. A CR ends its line at once; an LF right behind it is swallowed."""
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            if not chunk:
                self._after_cr = False
                return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _parse(complete: bytes) -> list[tuple[str, str]]:
    """Parse whole events, LF only. Bytes that are no UTF-8 become U+FFFD, as the spec says."""
    events: list[tuple[str, str]] = []
    for block in complete.decode("utf-8", "replace").split("\n\n"):
        head, _, data = block.partition("\ndata: ")
        if head.startswith("event: ") and "\n" not in head and data and "\n" not in data:
            events.append((head[7:], data))  # nearly all events of an answer look like this
        elif (event := _parse_lines(block)) is not None:
            events.append(event)
    return events


def _parse_lines(block: str) -> tuple[str, str] | None:
    name = ""
    data: list[str] = []
    for line in block.split("\n"):  # not splitlines: U+2028 and friends are text here
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
    return (name or "message", "\n".join(data)) if data else None
