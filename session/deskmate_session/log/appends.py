"""Appends inside a transaction: who may, what fits, the chain, the row, the read model.

What is known of a session's chain is kept across transactions for as long as nobody else commits: SQLite's
`pragma data_version` changes exactly then. See https://sqlite.org/pragma.html#pragma_data_version.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deskmate_session.errors import Conflict, LeaseLost, LogError
from deskmate_session.log import chain, codec, database, guards, leases, read_model, rows
from deskmate_session.log.leases import Lease
from deskmate_session.log.rows import COLUMNS, Row
from deskmate_session.model.events import Draft, Event, SessionCreated, SessionDeleted


class Entry(NamedTuple):
    """A draft with what the moment of the call gives."""

    draft: Draft
    id: str
    at: int
    debug_tag: str | None


@dataclass(frozen=True, slots=True)
class Requested:
    """What came of a request: its events, and the lease if this process is to act on them."""

    events: list[Event]
    lease: Lease | None
    """None: another live process runs the session, and sees the request."""


class Append(NamedTuple):
    """One append: all of it or nothing."""

    session: str | None
    entries: Sequence[Entry]
    durable: bool
    lease: Lease | None
    """The lease under which it is logged."""
    taking: bool
    """It takes the lease where nobody alive holds it, and its result is `Requested`."""
    future: asyncio.Future[Any]


Outcome = tuple[Append, list[Event] | Requested | LogError]


class Encoded(NamedTuple):
    """A payload as it is stored."""

    type: str
    version: int
    stored: bytes
    digest: bytes


@dataclass(slots=True)
class _End:
    """The end of a session's chain."""

    index: int
    """Of the next event."""
    hash: bytes
    root: str
    deleted: bool


class Appends:
    """Writes appends on the writing connection. `last` is the highest `seq` that was seen, ours or not."""

    def __init__(
        self, conn: sqlite3.Connection, owner: str, alive: leases.Alive, suspect: Callable[[str], None]
    ) -> None:
        self._conn = conn
        self._owner = owner
        self._alive = alive
        self._suspect = suspect
        # In this order: what is committed between the two is seen as a change.
        self.version = data_version(conn)
        self.last: int = conn.execute("select coalesce(max(seq), 0) from events").fetchone()[0]
        self._known: int | None = None
        """The data version at which all below is known."""
        self._next = 0
        self._ends: dict[str, _End] = {}
        self._held: set[Lease] = set()
        self._rows: list[Row] = []
        self._entries: list[tuple[str, str, int]] = []

    def forget(self) -> None:
        """Read everything anew: the transaction was rolled back, or leases changed."""
        self._known = None

    def begin(self) -> list[Row]:
        """Start within an open transaction. Returns what others committed since `last`, not decoded."""
        self._rows, self._entries = [], []
        version = data_version(self._conn)
        if version == self._known:
            return []
        self._ends.clear()
        self._held.clear()
        self._known = version
        # Not max(seq): `seq` is never used again, even where the newest rows are gone.
        row = self._conn.execute("select seq from sqlite_sequence where name = 'events'").fetchone()
        self._next = 1 + max(row[0] if row else 0, self.last)
        return foreign(self._conn, self.last)

    def add(self, append: Append, bodies: Sequence[Encoded]) -> Outcome:
        """Write one append. Raises what SQLite raises, and `Conflict` or `LeaseLost`, where a part of it is
        written already; else those are the outcome."""
        before = len(self._rows)
        session, held = append.session or "", append.lease is not None
        try:
            self._may(append)
            events = [
                self._insert(session, entry, body, held)
                for entry, body in zip(append.entries, bodies, strict=True)
            ]
        except (Conflict, LeaseLost, sqlite3.IntegrityError) as error:
            # Of the first fact, the first statement or none has failed: nothing is written yet.
            if len(self._rows) > before:
                raise
            return append, database.translate(error)
        if not append.taking:
            return append, events
        taken = leases.take(self._conn, self._end(session).root, self._owner, self._alive)
        if isinstance(taken, Lease):
            return append, Requested(events, taken)
        self._suspect(taken)
        return append, Requested(events, None)

    def end(self) -> None:
        """Write what was gathered; the caller commits."""
        rows.insert(self._conn, rows.INSERT, self._rows)
        read_model.entered(self._conn, self._entries)

    def committed(self) -> None:
        """The transaction is on its way to the disk: what it wrote is seen."""
        self.last = max(self.last, self._next - 1)
        self.version = self._known if self._known is not None else self.version

    def _may(self, append: Append) -> None:
        """Check that the lease is ours, and of this session."""
        lease, session = append.lease, append.session
        if lease is None or session is None:
            return
        first = append.entries[0].draft.payload
        parent = first.parent_id if isinstance(first, SessionCreated) else None
        if self._end(parent or session).root != lease.root:
            raise LeaseLost(f"session {session!r} does not run under the lease of {lease.root!r}")
        if lease not in self._held:
            leases.check(self._conn, lease, self._owner)
            self._held.add(lease)

    def _insert(self, session: str, entry: Entry, body: Encoded, held: bool) -> Event:
        draft, id, at, debug_tag = entry
        type, version, stored, digest = body
        payload, cause, seq = draft.payload, draft.cause, self._next
        end = self._ends.get(session) or self._end(session)
        if session:
            guards.check(self._conn, session, payload, held=held, gone=end.deleted)
        index, prev = end.index, end.hash
        header = chain.header(
            session=session or None, index=index, id=id, type=type, version=version, at=at, cause=cause
        )
        hash = chain.link(prev, header, digest)
        row = Row(seq, id, session, index, type, version, at, stored, digest, cause, prev, hash, debug_tag)
        event = row.with_payload(payload)
        if session:
            message = read_model.apply(self._conn, event)
            if message is not None:
                self._entries.append((session, message, seq))
        self._rows.append(row)
        self._next = seq + 1
        end.index = index + 1
        end.hash = hash
        if isinstance(payload, SessionCreated):
            end.root = leases.root(self._conn, session)
        elif isinstance(payload, SessionDeleted):
            end.deleted = True
        return event

    def _end(self, session: str) -> _End:
        """Return the end of a chain; read inside the transaction, since others write too."""
        if (end := self._ends.get(session)) is None:
            row = self._conn.execute(
                "select idx + 1, hash from events where session = ? order by idx desc limit 1", (session,)
            ).fetchone()
            index, hash = row or (0, chain.GENESIS)
            about = self._conn.execute(
                "select root, deleted_at is not null from sessions where id = ?", (session,)
            ).fetchone()
            root, deleted = about or (session, 0)
            end = self._ends[session] = _End(index, hash, root, bool(deleted))
        return end


def data_version(conn: sqlite3.Connection) -> int:
    """Return a number that changes when another connection commits, and only then."""
    return conn.execute("pragma data_version").fetchone()[0]


def foreign(conn: sqlite3.Connection, after: int, limit: int = -1) -> list[Row]:
    """Return the rows behind `after`, not decoded."""
    query = f"select {COLUMNS} from events e where e.seq > ? order by e.seq limit ?"
    return [Row._make(row) for row in conn.execute(query, (after, limit))]


def encode(entry: Entry) -> Encoded:
    """Return a payload as it is stored. Before the transaction: others wait while one is open."""
    plain = codec.encode(entry.draft.payload)
    type, version = codec.tag(entry.draft.payload)
    return Encoded(type, version, codec.pack(plain), chain.digest(plain))
