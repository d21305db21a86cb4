"""What both dialects share on the way in: whole Unicode, and the bookkeeping of an answer's blocks."""

import re
from typing import Literal

from deskmate_session.model.ports import AnswerEnded, BlockDelta, BlockEnded, BlockStarted, StreamEvent

_LONE = re.compile("[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """Join surrogate pairs and replace lone surrogates by U+FFFD; other text comes back as it is."""
    if text.isascii() or not _LONE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class BlockWriter:
    """Collects an answer's events. Deltas of one block that arrive together leave as one.

    A server that cuts its text in UTF-16 units may end a delta inside an emoji: the high half waits
    here for the block's next delta; if none comes it is U+FFFD.
    """

    def __init__(self) -> None:
        self._events: list[StreamEvent] = []
        self._held: dict[int, str] = {}
        self._next = 0
        self._current = -1
        self._pieces: list[str] = []

    def start(
        self,
        kind: Literal["text", "reasoning", "tool"],
        provider_id: str | None = None,
        name: str | None = None,
    ) -> int:
        """Begin a block; return its index in order of appearance."""
        self._join()
        index = self._next
        self._next += 1
        self._held[index] = ""
        self._events.append(BlockStarted(index, kind, provider_id, name))
        return index

    def delta(self, index: int, text: str) -> None:
        """Append text to an open block."""
        if index != self._current:
            self._join()
            self._current = index
        self._pieces.append(text)

    def end(self, index: int, signature: str | None = None, redacted: str | None = None) -> None:
        """End an open block; ending it twice does nothing."""
        self._join()
        held = self._held.pop(index, None)
        if held is None:
            return
        if held:
            self._events.append(BlockDelta(index, "\ufffd"))
        self._events.append(BlockEnded(index, signature, redacted))

    def finish(self, ended: AnswerEnded) -> None:
        """End what is open, then the answer."""
        for index in tuple(self._held):
            self.end(index)
        self._events.append(ended)

    def take(self) -> list[StreamEvent]:
        """Return the events since the last call."""
        self._join()
        events, self._events = self._events, []
        return events

    def _join(self) -> None:
        if not self._pieces:
            return
        index = self._current
        text = self._held[index] + "".join(self._pieces)
        self._pieces.clear()
        self._current = -1
        self._held[index] = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._held[index] = text[-1]
            text = text[:-1]
        if text:
            self._events.append(BlockDelta(index, well_formed(text)))
