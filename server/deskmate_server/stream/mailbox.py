"""What waits for one token: updates in order, neighbouring deltas merged, memory bounded.

Sans-IO: `push` takes items, `take` gives the next thing to send. A reader that falls behind loses the
deltas that wait and gets their parts whole again.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from deskmate_session.model.base import Wire
from deskmate_session.model.updates import Delta, PartUpdate, Updated

MAX_WAITING = 1 << 20
"""Code points of delta text that may wait."""


@dataclass(slots=True)
class _Run:
    """Deltas of one field that go out together."""

    first: Delta
    texts: list[str]
    length: int
    since: float
    """When its first text came, in the loop's seconds."""


@dataclass(slots=True)
class _Whole:
    """A part to send whole, since its deltas were dropped."""

    session_id: str
    message_id: str
    part_id: str


@dataclass(slots=True)
class Mailbox:
    """Items of one token. `whole` gives a part as it stands now."""

    chunk_size: int
    whole: Callable[[str, str], Wire | None]
    _items: deque[Updated | _Run | _Whole] = field(default_factory=deque[Updated | _Run | _Whole])
    _begun: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Fields whose first delta went out."""
    _lost: set[str] = field(default_factory=set[str])
    """Parts whose deltas were dropped and that wait to be sent whole."""
    _waiting: int = 0

    @property
    def empty(self) -> bool:
        """Nothing waits."""
        return not self._items

    def push(self, item: Updated | Delta, now: float) -> None:
        """Take one item."""
        if not isinstance(item, Delta):
            self._items.append(item)
            return
        if item.part_id in self._lost:
            return  # the whole part that waits will hold it
        last = self._items[-1] if self._items else None
        if isinstance(last, _Run) and last.first.part_id == item.part_id and last.first.field == item.field:
            last.texts.append(item.text)
            last.length += len(item.text)
        else:
            self._items.append(_Run(item, [item.text], len(item.text), now))
        self._waiting += len(item.text)
        if self._waiting > MAX_WAITING:
            self._drop_deltas()

    def due(self, now: float, patience: float) -> float | None:
        """Seconds until the next item should go out: 0 for now, None when nothing waits.

        The first delta of a field goes at once; later ones wait for `chunk_size` code points, for something
        behind them, or for `patience` seconds.
        """
        if not self._items:
            return None
        head = self._items[0]
        if not isinstance(head, _Run) or len(self._items) > 1 or head.length >= self.chunk_size:
            return 0.0
        if (head.first.part_id, head.first.field) not in self._begun:
            return 0.0
        return max(0.0, head.since + patience - now)

    def take(self) -> dict[str, Any] | None:
        """The next update in the wire's shape; None where there is nothing to send after all."""
        item = self._items.popleft()
        match item:
            case _Run():
                self._waiting -= item.length
                self._begun.add((item.first.part_id, item.first.field))
                return {**item.first.dump(), "text": "".join(item.texts)}
            case _Whole():
                self._lost.discard(item.part_id)
                part = self.whole(item.session_id, item.part_id)
                if part is None:
                    return None  # it has ended: its own update holds it whole
                return {
                    "kind": "part",
                    "sessionId": item.session_id,
                    "messageId": item.message_id,
                    "part": part.dump(),
                }
            case PartUpdate() | Updated():
                return item.dump()

    def _drop_deltas(self) -> None:
        kept: deque[Updated | _Run | _Whole] = deque()
        for item in self._items:
            if not isinstance(item, _Run):
                kept.append(item)
                continue
            self._waiting -= item.length
            delta = item.first
            if delta.field != "output" and delta.part_id not in self._lost:
                self._lost.add(delta.part_id)
                kept.append(_Whole(delta.session_id, delta.message_id, delta.part_id))
        self._items = kept
