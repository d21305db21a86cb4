"""Rows of the table `events` ↔ `Event`."""

import sqlite3
from typing import NamedTuple

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import codec
from deskmate_session.model.events import Event, EventPayload, LoggedEvent

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
