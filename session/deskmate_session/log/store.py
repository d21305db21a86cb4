"""The event log's door: append, read, listen. Everything is called from the loop and never blocks it."""

import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self, TypeVar

from deskmate_session.core.checkpoints import SCHEMA
from deskmate_session.errors import LeaseLost, LogError, LogReadOnly
from deskmate_session.log import checkpoints, database, examine, leases
from deskmate_session.log.appends import Append, Appends, Entry, Outcome, Requested as Requested
from deskmate_session.log.checkpoints import Checkpoint as Checkpoint
from deskmate_session.log.database import Journal as Journal
from deskmate_session.log.faults import Fault as Fault, damaged as damage
from deskmate_session.log.follow import Others
from deskmate_session.log.leases import Lease as Lease
from deskmate_session.log.reading import ALL as ALL, PAGE as PAGE, Head as Head, LogReader, Which as Which
from deskmate_session.log.writer import Job, Writer
from deskmate_session.model.events import REQUESTS, Draft, Event, SessionCreated
from deskmate_session.model.ports import Clock, Ids

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

Listener = Callable[[list[Event], bool], None]


@dataclass(frozen=True, slots=True)
class _Parts:
    """What an open log is made of; made on a thread, since all of it touches the disk."""

    opened: database.Opened
    others: Others
    ours: Appends


class EventLog(LogReader):
    """The log of one workspace folder, `events.db`. Other processes may write to the same file.

    A session is run by the process that holds its lease. Anyone may append what the person asks for
    (`request`, `model.events.REQUESTS`); all other facts need the lease.
    """

    def __init__(self, path: Path, parts: _Parts, clock: Clock, ids: Ids, debug_tags: bool) -> None:
        super().__init__(path, parts.opened.reading)
        self.read_only = parts.opened.read_only
        """Why nothing may be appended; None when it may."""
        self.owner = "" if parts.opened.owner is None else parts.opened.owner.id
        """This process's name among those that have the log open; empty in a read-only log."""
        self.delivered = parts.ours.last
        """`seq` up to which listeners were told; at opening the last event of all."""
        self.notices: tuple[str, ...] = parts.opened.notices
        """What the person should be told once: a damaged log that was set aside, a place without locks."""
        self._owner = parts.opened.owner
        self._others = parts.others
        self._clock = clock
        self._ids = ids
        self._debug_tags = debug_tags
        self._listeners: list[Listener] = []
        self._on_owners_gone: list[Callable[[], None]] = []
        self._on_fault: list[Callable[[Fault | None], None]] = []
        self._told_damage = False
        self._writer = Writer(parts.opened.writing, parts.others, parts.ours, self)
        self._writer.start()
        self._examiner = None if self.read_only else self._examine(path)

    @classmethod
    async def open(
        cls,
        state_dir: Path,
        clock: Clock,
        ids: Ids,
        *,
        debug_tags: bool = False,
        journal: Journal = "auto",
    ) -> Self:
        """Open or create the log in `state_dir`, and be known there as alive. `debug_tags`: events tell which
        line appended them.

        A damaged log is set aside and what can be read is kept; `notices` tell so. A log of a newer Deskmate,
        and one that can't be written, opens with `read_only` set. Raises `LogCorrupt` when the file is not
        ours, or damaged while another process has it open.
        """
        parts = await asyncio.to_thread(_open, state_dir, clock, ids, journal)
        return cls(database.file(state_dir), parts, clock, ids, debug_tags)

    async def close(self) -> None:
        """Commit what was appended, let go of the file, and be gone to other processes. May be called again.

        Leases that are still held go to whoever looks next, as after a crash.
        """
        if self._closed:
            return
        self._closed = True
        if self._examiner is not None:
            await asyncio.to_thread(self._examiner.stop)
        await self._close_reader()
        await self._writer.close()
        if self._owner is not None:
            await asyncio.to_thread(self._owner.release)

    def append(
        self,
        session: str | None,
        drafts: Sequence[Draft],
        *,
        durable: bool = False,
        lease: Lease | None = None,
    ) -> asyncio.Future[list[Event]]:
        """Append facts in one transaction; the order of calls is the order of `seq`.

        The future holds the events once they are committed and the listeners have seen them. `durable`: they
        survive a loss of power, not only of the process. Cancelling the future takes nothing back. It raises
        `LeaseLost` when `lease` is not held any more, or is missing for facts that need one; `Conflict` for a
        fact that contradicts the log; `LogReadOnly` (a full disk, too) or `LogError`. Then nothing of this
        append is in the log, and the log keeps working.
        """
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        if self._refuses(future):
            return future
        if lease is None and session is not None and not _are_requests(drafts):
            future.set_exception(_unleased(session))
        elif not drafts:
            future.set_result([])
        else:
            self._writer.put(Append(session, self._entries(drafts), durable, lease, False, future))
        return future

    def begin(self, session: str, drafts: Sequence[Draft]) -> asyncio.Future[list[Event]]:
        """Begin a session with facts from elsewhere, all in one durable transaction; nobody runs it.

        The first draft is its `session.created`, which names their origin. Raises as `append` does;
        `Conflict` where the session is there already.
        """
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        if self._refuses(future):
            return future
        first = drafts[0].payload
        if not isinstance(first, SessionCreated) or first.origin is None:
            future.set_exception(_unleased(session))
        else:
            self._writer.put(Append(session, self._entries(drafts), True, None, False, future))
        return future

    def request(
        self, session: str, drafts: Sequence[Draft], *, durable: bool = True
    ) -> asyncio.Future[Requested]:
        """Append what the person asks for (`REQUESTS`), and take the session's lease in the same transaction
        where no live process holds it.

        `Requested.lease` is the lease if this process holds it now, and so must act; None where another one
        does, which sees the request within 25 ms. Raises as `append` does.
        """
        future: asyncio.Future[Requested] = asyncio.get_running_loop().create_future()
        if self._refuses(future):
            return future
        if not _are_requests(drafts):
            future.set_exception(_unleased(session))
        else:
            self._writer.put(Append(session, self._entries(drafts), durable, None, True, future))
        return future

    def take(self, session: str) -> asyncio.Future[Lease | None]:
        """Take the lease under which a session runs; None when another live process holds it. Ours already:
        the same lease."""

        def run(conn: Connection) -> Lease | None:
            root = leases.root(conn, session)
            taken = leases.take(conn, root, self.owner, self._others.alive)
            if isinstance(taken, Lease):
                return taken
            self._others.suspect(taken)
            return None

        return self._job(run)

    def release(self, lease: Lease, *, anyway: bool = False) -> asyncio.Future[bool]:
        """Let go of a lease. False, and it is still ours, while a prompt waits in a session of its root whose
        queue is not held: nobody else would start it. `anyway`: regardless of that."""
        return self._job(lambda conn: leases.release(conn, lease, self.owner, anyway=anyway))

    def catch_up(self) -> asyncio.Future[None]:
        """Tell listeners now what other processes have committed, without waiting for the next look."""
        return self._job(lambda _conn: None)

    async def dead_leases(self) -> list[str]:
        """Return the roots whose process died with the lease, or in the middle of a turn; to be taken."""
        return await self._read(leases.dead, self.owner, self._others.alive)

    async def checkpoint(self, session: str, seq: int, body: bytes, schema: int = SCHEMA) -> None:
        """Keep a state to open from: that of a session after its event `seq`. Not durable, since it can be
        made again. Raises `LogError` where `seq` is no event of the session.
        """
        await self._job(lambda conn: checkpoints.put(conn, session, seq, schema, body))

    @property
    def others(self) -> bool:
        """Another live process has this log open; known within 250 ms."""
        return self._others.any

    def on_commit(self, callback: Listener) -> Callable[[], None]:
        """Call `callback` on the loop with every event of the folder, each exactly once, in order of `seq`,
        and whether this process wrote them. One call holds one append of ours, or a run of others' events.

        An append's future resolves after that. Others' events come within 25 ms of their commit while the
        other process is known (`others`), else within 250 ms. Returns a function that ends it.
        """
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def on_owners_gone(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` on the loop when another process is seen to be gone, within 250 ms of its death and
        after its last events. Returns a function that ends it."""
        self._on_owners_gone.append(callback)
        return lambda: self._on_owners_gone.remove(callback)

    def on_fault(self, callback: Callable[[Fault | None], None]) -> Callable[[], None]:
        """Call `callback` on the loop once when appends begin to fail for a reason outside of them, and with
        None once when one worked again. A damaged event of another process is told the same way, once.
        Returns a function that ends it."""
        self._on_fault.append(callback)
        return lambda: self._on_fault.remove(callback)

    # What the writer tells.

    def heard(self, events: list[Event]) -> None:
        """Others committed these."""
        self._tell(events, False)

    def appended(self, outcomes: list[Outcome]) -> None:
        """Tell what came of appends, first to the listeners."""
        for append, result in outcomes:
            if not isinstance(result, LogError):
                self._tell(result.events if isinstance(result, Requested) else result, True)
            if append.future.done():
                continue
            if isinstance(result, LogError):
                append.future.set_exception(result)
            else:
                append.future.set_result(result)

    def owners_gone(self, _: None) -> None:
        """Another process has ended."""
        for callback in tuple(self._on_owners_gone):
            _safely(callback)

    def fault(self, fault: Fault | None) -> None:
        """Appends begin to fail, or work again."""
        if fault is not None and fault.kind == "corrupt":
            if self._told_damage:
                return
            self._told_damage = True
            if not self._closed:
                self._reading.submit(examine.mark, self.path)
        for callback in tuple(self._on_fault):
            _safely(lambda callback=callback: callback(fault))

    def _examine(self, path: Path) -> examine.Background:
        loop = asyncio.get_running_loop()

        def damaged(what: str) -> None:
            with suppress(RuntimeError):  # the loop is gone; the next opening looks again
                loop.call_soon_threadsafe(self.fault, damage(what))

        examiner = examine.Background(path, database.open_for_reading, database.is_damage, damaged)
        examiner.start()
        return examiner

    def _tell(self, events: list[Event], ours: bool) -> None:
        if not events:
            return
        for listener in tuple(self._listeners):
            try:
                listener(events, ours)
            except Exception:
                # The facts are logged; a listener's fault must not look like a failed append.
                _log.exception("a listener of the event log failed at seq %d", events[0].seq)
        self.delivered = events[-1].seq

    def _refuses(self, future: asyncio.Future[Any]) -> bool:
        if self._closed:
            future.set_exception(LogError("the event log is closed"))
        elif self.read_only:
            future.set_exception(LogReadOnly(self.read_only))
        return future.done()

    def _entries(self, drafts: Sequence[Draft]) -> list[Entry]:
        where = _caller() if self._debug_tags else None
        at = self._clock.now()
        return [
            Entry(draft, draft.id or self._ids.new("evt"), draft.at or at, draft.debug_tag or where)
            for draft in drafts
        ]

    def _job(self, run: Callable[[Connection], _T]) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        if not self._refuses(future):
            self._writer.put(Job(run, future))
        return future


def _open(state_dir: Path, clock: Clock, ids: Ids, journal: Journal) -> _Parts:
    opened = database.open_both(state_dir, clock, ids, journal)
    owner = "" if opened.owner is None else opened.owner.id
    try:
        others = Others(state_dir, owner)
        others.look(opened.writing)
        ours = Appends(opened.writing, owner, others.alive, others.suspect)
    except Exception as error:
        opened.writing.close()
        opened.reading.close()
        if opened.owner is not None:
            opened.owner.release()
        raise database.translate(error) from error
    return _Parts(opened, others, ours)


def _unleased(session: str) -> LeaseLost:
    return LeaseLost(f"only the holder of its lease may log this in session {session!r}")


def _are_requests(drafts: Sequence[Draft]) -> bool:
    return all(isinstance(draft.payload, REQUESTS) for draft in drafts)


def _safely(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:
        _log.exception("a listener of the event log failed")


def _caller() -> str:
    frame = sys._getframe(3)  # pyright: ignore[reportPrivateUsage]  # the documented way; inspect costs ms
    while frame.f_code.co_name in ("append", "begin", "request") and frame.f_back is not None:
        frame = frame.f_back  # a door in front of ours
    return f"{frame.f_globals['__name__']}:{frame.f_code.co_name}:{frame.f_lineno}"
