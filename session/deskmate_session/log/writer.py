"""The one thread that writes. It owns the writing connection and commits whatever is queued together."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TypeVar

from deskmate_session.errors import LogError, LogReadOnly
from deskmate_session.log import chain, codec, database, read_model
from deskmate_session.log.rows import INSERT, Row
from deskmate_session.model.events import Draft, Event

_MOST = 512
"""Appends in one transaction; bounds how long another process waits for the lock."""

_CHECKPOINT_EVERY = 12
"""Transactions after which the write-ahead log goes into the database. One touches about eight pages of 8 KB,
so some 800 KB stand beside the database."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Entry:
    """A draft with what the moment of the call gives."""

    draft: Draft
    id: str
    at: int
    debug_tag: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One append: all of it or nothing."""

    session: str | None
    entries: Sequence[Entry]
    durable: bool
    future: asyncio.Future[list[Event]]


@dataclass(frozen=True, slots=True)
class _Encoded:
    type: str
    version: int
    stored: bytes
    digest: bytes


Outcome = tuple[Request, list[Event] | LogError]


class Writer:
    """Takes requests in order; hands back outcomes in order, on the loop."""

    def __init__(self, conn: sqlite3.Connection, deliver: Callable[[list[Outcome]], None]) -> None:
        self._conn = conn
        self._path = ""
        self._identity: tuple[int, int] | None = None
        self._deliver = deliver
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Request | None] = SimpleQueue()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._full = False
        # A daemon: a process that dies without closing must not hang here; what was committed stays.
        self._thread = threading.Thread(target=self._run, name="deskmate-log-writer", daemon=True)
        self._thread.start()

    def put(self, request: Request) -> None:
        """Queue an append; its place in the log's order is fixed by this call."""
        self._queue.put(request)

    async def close(self) -> None:
        """Commit what is queued, move the write-ahead log into the database, close the connection."""
        self._queue.put(None)
        await self._closed

    def _run(self) -> None:
        self._path = str(self._conn.execute("pragma database_list").fetchone()[2])
        self._identity = _identity(self._path)
        open, commits = True, 0
        while open:
            batch, open = self._take()
            if not batch:
                continue
            self._post(self._deliver, self._commit(batch))
            commits += 1
            if commits % _CHECKPOINT_EVERY == 0:
                # Not inside a commit: those who wait have their answer by now, and this takes a millisecond.
                with suppress(sqlite3.Error):
                    self._conn.execute("pragma wal_checkpoint(passive)").fetchall()
        # Readers of other processes may hold the log; then it stays for them, and waiting helps no one.
        with suppress(sqlite3.Error):
            self._conn.execute("pragma busy_timeout = 100")
            self._conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        self._conn.close()
        self._post(self._closed.set_result, None)

    def _take(self) -> tuple[list[Request], bool]:
        """Wait for a request, then take what else is there. No timer: a durable request never waits."""
        batch: list[Request] = []
        request = self._queue.get()
        with suppress(Empty):
            while request is not None:
                batch.append(request)
                if len(batch) == _MOST:
                    return batch, True
                request = self._queue.get_nowait()
            return batch, False
        return batch, True

    def _commit(self, batch: Sequence[Request]) -> list[Outcome]:
        """Write a batch in one transaction. If an append can't be logged, each gets its own instead, so that
        a bad one harms no other."""
        try:
            return list(zip(batch, self._transaction(batch), strict=True))
        except Exception as error:
            if self._conn.in_transaction:
                with suppress(sqlite3.Error):
                    self._conn.execute("rollback")
            # A full disk or a lock that is never given up would fail each of them too, only slower.
            outside = isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.IntegrityError)
            if len(batch) == 1 or outside:
                return [(request, database.translate(error)) for request in batch]
        return [outcome for request in batch for outcome in self._commit([request])]

    def _transaction(self, batch: Sequence[Request]) -> list[list[Event]]:
        # Encoded first: other processes wait while the transaction is open.
        encoded = [[_encode(entry) for entry in request.entries] for request in batch]
        durable = any(request.durable for request in batch)
        if durable and _identity(self._path) != self._identity:
            # SQLite would go on writing to a file that nobody can find again.
            raise LogReadOnly(f"{self._path} was removed or replaced while it was open; start again")
        self._set_full(durable)
        heads: dict[str, tuple[int, bytes]] = {}
        self._conn.execute("begin immediate")
        events = [
            [
                self._insert(heads, request.session or "", entry, body)
                for entry, body in zip(request.entries, bodies, strict=True)
            ]
            for request, bodies in zip(batch, encoded, strict=True)
        ]
        self._conn.execute("commit")
        return events

    def _insert(
        self, heads: dict[str, tuple[int, bytes]], session: str, entry: Entry, body: _Encoded
    ) -> Event:
        index, prev = heads.get(session) or self._head(session)
        cause = entry.draft.cause
        header = chain.header(
            session=session or None,
            index=index,
            id=entry.id,
            type=body.type,
            version=body.version,
            at=entry.at,
            cause=cause,
        )
        hash = chain.link(prev, header, body.digest)
        values = (entry.id, session, index, body.type, body.version, entry.at, body.stored, body.digest)
        rest = (cause, prev, hash, entry.debug_tag)
        seq = self._conn.execute(INSERT, (*values, *rest)).lastrowid or 0
        heads[session] = index + 1, hash
        event = Row(seq, *values, *rest).with_payload(entry.draft.payload)
        read_model.apply(self._conn, event)
        return event

    def _head(self, session: str) -> tuple[int, bytes]:
        """Return the next index and the last hash; read inside the transaction, since others write too."""
        row = self._conn.execute(
            "select idx + 1, hash from events where session = ? order by idx desc limit 1", (session,)
        ).fetchone()
        return row or (0, chain.GENESIS)

    def _set_full(self, full: bool) -> None:
        # Between transactions only: inside one SQLite refuses to switch.
        if full != self._full:
            self._conn.execute(f"pragma synchronous = {'full' if full else 'normal'}")
            self._full = full

    def _post(self, call: Callable[[_T], None], value: _T) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waited
            self._loop.call_soon_threadsafe(call, value)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _encode(entry: Entry) -> _Encoded:
    plain = codec.encode(entry.draft.payload)
    type, version = codec.tag(entry.draft.payload)
    return _Encoded(type, version, codec.pack(plain), chain.digest(plain))
