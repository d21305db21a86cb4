"""The one thread that writes. It owns the writing connection, commits whatever is queued together, and is the
one place that sees every event of the folder, in order."""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from deskmate_session.errors import LogCorrupt, LogError
from deskmate_session.log import appends, database, faults, follow
from deskmate_session.log.appends import Append, Appends, Outcome
from deskmate_session.log.faults import Fault
from deskmate_session.model.events import Event

_MOST = 512
"""Appends in one transaction; bounds how long another process waits for the lock."""

_CHECKPOINT_AFTER = 12
"""Transactions after which the write-ahead log goes into the database, once it is quiet. One touches about
eight pages of 8 KB, so some 800 KB stand beside the database. Where it is never quiet SQLite does so itself,
inside a commit (`database.WAL_PAGES`)."""
_QUIET = 0.005
"""Seconds with nothing to write: who appends one thing after another is not made to wait for it."""

PATIENCE = 20.0
"""Seconds that a locked database is tried again before the append fails."""
LOCKED_AFTER = 5.0
"""Seconds of it after which the person is told."""
_SLICE_MS = 1_000
"""Milliseconds that SQLite itself waits for a lock, so that the two above are kept."""
_EVERY = 0.1
"""Seconds from one look at the files beside the database to the next; the database is looked at each time."""
_PAUSE = 0.02
"""Seconds between tries, where SQLite does not wait at all (a lock that it believes would never come)."""

_T = TypeVar("_T")
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Something else that is written, in a transaction of its own."""

    run: Callable[[sqlite3.Connection], Any]
    future: asyncio.Future[Any]


class Listener(Protocol):
    """What the writer tells, always on the loop, in order."""

    def heard(self, events: list[Event]) -> None:
        """Other processes committed these."""
        ...

    def appended(self, outcomes: list[Outcome]) -> None:
        """Appends of ours are committed, or have failed."""
        ...

    def owners_gone(self, _: None) -> None:
        """Another process has ended."""
        ...

    def fault(self, fault: Fault | None) -> None:
        """Appends fail for an outside reason, or work again."""
        ...


class Writer:
    """Takes appends and jobs in order; hands back what came of them in order, on the loop."""

    def __init__(
        self, conn: sqlite3.Connection, others: follow.Others, ours: Appends, listener: Listener
    ) -> None:
        self._conn = conn
        self._others = others
        self._ours = ours
        self._follower = follow.Follower(conn, ours, self._damaged)
        self._listener = listener
        self._path = ""
        self._files: tuple[_File, _File, _File] = (None, None, None)
        self._next_look = 0.0
        self._stumbled = False
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Append | Job | None] = SimpleQueue()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._full = False
        self._fault: Fault | None = None
        self._told_damage = False
        self._commits = 0
        # A daemon: a process that dies without closing must not hang here; what was committed stays.
        self._thread = threading.Thread(target=self._run, name="deskmate-log-writer", daemon=True)

    def start(self) -> None:
        """Begin; the listener is ready."""
        self._thread.start()

    def put(self, item: Append | Job) -> None:
        """Queue an append; its place in the log's order is fixed by this call."""
        self._queue.put(item)

    async def close(self) -> None:
        """Commit what is queued, move the write-ahead log into the database, close the connection."""
        self._queue.put(None)
        await self._closed

    def _run(self) -> None:
        self._path = str(self._conn.execute("pragma database_list").fetchone()[2])
        self._files = _files(self._path)
        self._conn.execute(f"pragma busy_timeout = {_SLICE_MS}")
        open = True
        while open:
            batch, job, open = self._take()
            if batch:
                self._post(self._listener.appended, self._commit(batch))
                self._commits += 1
            if job is not None:
                self._do(job)
                self._commits += 1
            self._look_around(idle=not batch and job is None)
        # Readers of other processes may hold the log; then it stays for them, and waiting helps no one.
        with suppress(sqlite3.Error):
            self._conn.execute("pragma busy_timeout = 100")
            self._conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        self._conn.close()
        self._post(self._closed.set_result, None)

    def _look_around(self, *, idle: bool) -> None:
        """See what others did, and who lives. What fails here is tried again at the next look: whoever
        appends is told what is wrong, and the thread must live for them."""
        try:
            if idle:
                self._follow()
                self._tidy()
            if self._others.look(self._conn):
                self._follow()  # its last words come before its death
                self._post(self._listener.owners_gone, None)
            self._stumbled = False
        except Exception as error:
            if not self._stumbled:
                self._stumbled = True
                _logger.warning("the log can't be watched for now: %s", error)

    def _take(self) -> tuple[list[Append], Job | None, bool]:
        """Wait for an append or a job, or till it is time to look what others did; then take what else is
        there, up to the next job. No timer for what is ours: a durable append never waits."""
        batch: list[Append] = []
        try:
            item = self._queue.get(timeout=self._patience())
            while isinstance(item, Append):
                batch.append(item)
                if len(batch) == _MOST:
                    return batch, None, True
                item = self._queue.get_nowait()
        except Empty:
            return batch, None, True
        return batch, item, item is not None

    def _patience(self) -> float:
        if self._commits >= _CHECKPOINT_AFTER:
            return _QUIET
        return follow.WITH_OTHERS if self._others.any else follow.ALONE

    def _commit(self, batch: Sequence[Append]) -> list[Outcome]:
        """Write a batch in one transaction. If an append can't be logged, each gets its own instead, so that
        a bad one harms no other."""
        try:
            return self._transaction(batch)
        except Exception as error:
            self._rollback()
            # A full disk or a lock that is never given up would fail each of them too, only slower.
            if (fault := faults.fault(error, self._path)) is not None:
                self._failing(fault)
                return [(append, fault.error()) for append in batch]
            if len(batch) == 1:
                return [(batch[0], database.translate(error))]
        return [outcome for append in batch for outcome in self._commit([append])]

    def _transaction(self, batch: Sequence[Append]) -> list[Outcome]:
        # Encoded first: other processes wait while the transaction is open.
        encoded = [_encoded(append) for append in batch]
        durable = any(append.durable for append in batch)
        if (durable or self._fault) and self._moved():
            # SQLite would go on writing to files that nobody can find again.
            self._rescue()
            raise faults.Gone
        self._set_full(durable)
        self._patiently("begin immediate")
        rows = self._ours.begin()
        outcomes: list[Outcome] = [
            (append, bodies) if isinstance(bodies, LogError) else self._ours.add(append, bodies)
            for append, bodies in zip(batch, encoded, strict=True)
        ]
        self._ours.end()
        self._patiently("commit")
        self._ours.committed()
        if self._fault is not None and not all(isinstance(result, LogError) for _, result in outcomes):
            self._fault = None
            self._post(self._listener.fault, None)
        for start in range(0, len(rows), follow.RUN):  # they were first
            self._post(self._listener.heard, self._follower.decoded(rows[start : start + follow.RUN]))
        return outcomes

    def _moved(self) -> bool:
        """The database, its write-ahead log or the memory beside it is not the file that was opened."""
        if _file(self._path) != self._files[0]:
            return True
        if time.monotonic() < self._next_look:
            return False
        self._next_look = time.monotonic() + _EVERY
        files = _files(self._path)
        known = [(now, before) for now, before in zip(files, self._files, strict=True) if before is not None]
        if any(now != before for now, before in known):
            return True
        self._files = files  # what was made meanwhile
        return False

    def _rescue(self) -> None:
        """Where only the write-ahead log was removed, what it holds is still at hand: into the database."""
        database, wal, _ = _files(self._path)
        if database == self._files[0] and wal is None:
            with suppress(sqlite3.Error):
                self._conn.execute("pragma wal_checkpoint(passive)").fetchall()

    def _patiently(self, statement: str) -> None:
        """Execute, again and again while another program holds the lock."""
        start = time.monotonic()
        while True:
            try:
                self._conn.execute(statement)
            except sqlite3.Error as error:
                waited = time.monotonic() - start
                if not faults.busy(error) or waited >= PATIENCE:
                    raise
                if waited >= LOCKED_AFTER:
                    self._failing(faults.locked(self._path))
                time.sleep(_PAUSE)
            else:
                return

    def _do(self, job: Job) -> None:
        try:
            self._set_full(False)
            self._patiently("begin immediate")
            result = job.run(self._conn)
            self._patiently("commit")
        except Exception as error:
            self._rollback()
            fault = faults.fault(error, self._path)
            self._post(_fail, (job.future, fault.error() if fault else database.translate(error)))
        else:
            # A lease that was taken: what its last holder logged is told before the new one acts on it.
            self._follow()
            self._post(_succeed, (job.future, result))
        self._ours.forget()  # a lease may have changed

    def _rollback(self) -> None:
        self._ours.forget()
        if self._conn.in_transaction:
            with suppress(sqlite3.Error):
                self._conn.execute("rollback")

    def _follow(self) -> None:
        """Tell what others committed. What can't be read now is tried again at the next look."""
        try:
            while events := self._follower.next():
                self._post(self._listener.heard, events)
        except sqlite3.Error as error:
            fault = faults.fault(error, self._path)
            if fault is not None and fault.kind == "corrupt":
                self._damaged(LogCorrupt(str(error)))

    def _damaged(self, error: LogCorrupt) -> None:
        if not self._told_damage:
            self._told_damage = True
            self._post(self._listener.fault, faults.damaged(str(error)))

    def _failing(self, fault: Fault) -> None:
        if self._fault is None or self._fault.kind != fault.kind:
            self._fault = fault
            self._post(self._listener.fault, fault)

    def _tidy(self) -> None:
        """Move the write-ahead log into the database while nobody waits: that flushes both to the disk."""
        if self._commits >= _CHECKPOINT_AFTER:
            self._commits = 0
            with suppress(sqlite3.Error):
                self._conn.execute("pragma wal_checkpoint(passive)").fetchall()

    def _set_full(self, full: bool) -> None:
        # Between transactions only: inside one SQLite refuses to switch.
        if full != self._full:
            self._conn.execute(f"pragma synchronous = {'full' if full else 'normal'}")
            self._full = full

    def _post(self, call: Callable[[_T], None], value: _T) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waited
            self._loop.call_soon_threadsafe(call, value)


def _encoded(append: Append) -> list[appends.Encoded] | LogError:
    try:
        return [appends.encode(entry) for entry in append.entries]
    except Exception as error:
        return database.translate(error)


_File = tuple[int, int] | None


def _files(path: str) -> tuple[_File, _File, _File]:
    return _file(path), _file(f"{path}-wal"), _file(f"{path}-shm")


def _file(path: str) -> _File:
    try:
        found = os.stat(path)  # noqa: PTH116 -- with each durable append; a Path costs five times as much
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _succeed(told: tuple[asyncio.Future[Any], Any]) -> None:
    future, result = told
    if not future.done():
        future.set_result(result)


def _fail(told: tuple[asyncio.Future[Any], LogError]) -> None:
    future, error = told
    if not future.done():
        future.set_exception(error)
