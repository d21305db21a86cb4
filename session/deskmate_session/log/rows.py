"""Rows of the table `events` ↔ `Event`."""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import codec
from deskmate_session.model.events import ErasedPayload, Event, EventPayload, LoggedEvent

COLUMNS = (
    "e.seq, e.id, e.session, e.idx, e.type, e.version, e.at, e.payload, e.digest, e.cause, e.prev, e.hash,"
    " e.debug_tag"
)
"""What `Row` is made of; the table is aliased `e`."""

INSERT = (
    "insert into events"
    " (seq, id, session, idx, type, version, at, payload, digest, cause, prev, hash, debug_tag)"
    " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
"""Takes a `Row`."""

_TOGETHER = 64
"""Rows that one statement inserts, where there are so many. Each statement lets go of the interpreter's lock
and has to get it back; together a row costs 12 µs instead of 18, and the loop's thread runs meanwhile."""


class Row(NamedTuple):
    """A row as it is stored."""

    seq: int
    id: str
    session: str
    idx: int
    type: str
    version: int
    at: int
    payload: bytes
    digest: bytes
    cause: str | None
    prev: bytes
    hash: bytes
    debug_tag: str | None

    def event(self) -> Event:
        """Return the event. Raises `LogCorrupt`, naming the event, when its payload can't be read."""
        if not self.payload:
            return self.with_payload(ErasedPayload(tag=self.type))
        try:
            payload = codec.decode(self.type, self.version, codec.unpack(self.payload))
        except LogCorrupt as error:
            raise LogCorrupt(f"event {self.seq}: {error}; run `deskmate sessions verify --all`") from error
        return self.with_payload(payload)

    def with_payload(self, payload: EventPayload) -> Event:
        """Return the event with a payload that is at hand."""
        seq, id, session, idx, type, version, at, _, _, cause, prev, hash, debug_tag = self
        # By position: by name it costs a third more, for each event that is read or written.
        return Event(
            *(seq, id, session or None, idx, type, version, at, payload, cause, prev.hex(), hash.hex()),
            debug_tag,
        )


def insert(conn: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert rows, in order, with a statement that takes one and ends in its `(?, …)`."""
    whole = len(rows) - len(rows) % _TOGETHER
    if whole:
        values = statement[statement.rindex("(") :]
        together = statement + f", {values}" * (_TOGETHER - 1)
        for start in range(0, whole, _TOGETHER):
            conn.execute(together, [*chain.from_iterable(rows[start : start + _TOGETHER])])
    conn.executemany(statement, rows[whole:])


def select(conn: sqlite3.Connection, rest: str, args: tuple[object, ...] = ()) -> list[Event]:
    """Return the events of `select … from events e {rest}`."""
    return [Row._make(row).event() for row in conn.execute(f"select {COLUMNS} from events e {rest}", args)]


def logged(event: Event) -> LoggedEvent:
    """Return the event as it goes over the wire."""
    return LoggedEvent.model_construct(
        seq=event.seq,
        id=event.id,
        session_id=event.session,
        index=event.index,
        type=event.type,
        version=event.version,
        at=event.at,
        payload=codec.to_data(event.payload),
        cause=event.cause,
        prev=event.prev,
        hash=event.hash,
        debug_tag=event.debug_tag,
    )
