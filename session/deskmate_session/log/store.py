"""The event log's door: append, read, listen. Everything is called from the loop and never blocks it."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from sqlite3 import Connection
from typing import Concatenate, Final, Literal, ParamSpec, Self, TypeVar

from deskmate_session.errors import LogError, LogReadOnly
from deskmate_session.log import database, queries, rows, verify
from deskmate_session.log.writer import Entry, Outcome, Request, Writer
from deskmate_session.model.commands import Verified
from deskmate_session.model.events import Draft, Event
from deskmate_session.model.messages import Session
from deskmate_session.model.ports import Clock, Ids

PAGE = 1_000
"""Events in a page."""

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Every(Enum):
    ALL = "all"


ALL: Final = _Every.ALL
"""In place of a session: every session, and the facts of the folder."""

Which = str | None | Literal[_Every.ALL]
"""A session, None for the facts of the folder, or ALL."""

Listener = Callable[[list[Event]], None]


@dataclass(frozen=True, slots=True)
class Head:
    """The last event of a chain."""

    seq: int
    index: int
    hash: str


class EventLog:
    """The log of one workspace folder, `events.db`. Other processes may write to the same file.

    Every method raises `LogCorrupt` for a damaged database and `LogError` after `close`.
    """

    def __init__(self, path: Path, opened: database.Opened, clock: Clock, ids: Ids, debug_tags: bool) -> None:
        self.path = path
        self.read_only = opened.read_only
        """Why nothing may be appended; None when it may."""
        self._clock = clock
        self._ids = ids
        self._debug_tags = debug_tags
        self._listeners: list[Listener] = []
        self._closed = False
        self._writer = Writer(opened.writing, self._deliver)
        self._reader = opened.reading
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="deskmate-log-reader")

    @classmethod
    async def open(cls, state_dir: Path, clock: Clock, ids: Ids, *, debug_tags: bool = False) -> Self:
        """Open or create the log in `state_dir`. `debug_tags`: events tell which line appended them.

        Raises `LogCorrupt` when the file is damaged or not ours, `LogReadOnly` without the right to write.
        A log of a newer Deskmate opens with `read_only` set.
        """
        opened = await asyncio.to_thread(database.open_both, state_dir)
        return cls(database.file(state_dir), opened, clock, ids, debug_tags)

    async def close(self) -> None:
        """Commit what was appended, then let go of the file. May be called again."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._reading, self._reader.close)
        self._reading.shutdown(wait=False)  # it is idle: the reads before were waited for
        await self._writer.close()

    def append(
        self, session: str | None, drafts: Sequence[Draft], *, durable: bool = False
    ) -> asyncio.Future[list[Event]]:
        """Append facts in one transaction; the order of calls is the order of `seq`.

        The future holds the events once they are committed and the listeners have seen them. `durable`: they
        survive a loss of power, not only of the process. Cancelling the future takes nothing back. It raises
        `Conflict` for a session or a prompt that is there already, `LogReadOnly`, or `LogError`; then nothing
        of this append is in the log, and the log keeps working.
        """
        future: asyncio.Future[list[Event]] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(LogError("the event log is closed"))
        elif self.read_only:
            future.set_exception(LogReadOnly(self.read_only))
        elif not drafts:
            future.set_result([])
        else:
            where = _caller() if self._debug_tags else None
            at = self._clock.now()
            entries = [Entry(draft, self._ids.new("evt"), at, draft.debug_tag or where) for draft in drafts]
            self._writer.put(Request(session, entries, durable, future))
        return future

    def on_commit(self, callback: Listener) -> Callable[[], None]:
        """Call `callback` on the loop with the events of each append, in order of `seq`, before its future
        resolves. Only this process's appends. Returns a function that ends it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    # Reading. All of it happens on one thread, in the order of the calls.

    async def read(
        self,
        session: Which = ALL,
        *,
        after: int = 0,
        upto: int | None = None,
        limit: int | None = None,
        types: Collection[str] | None = None,
    ) -> list[Event]:
        """Return events with after < seq ≤ upto, oldest first."""
        return await self._read(_events, session, after, upto, limit, types)

    async def pages(
        self,
        session: Which = ALL,
        *,
        after: int = 0,
        upto: int | None = None,
        types: Collection[str] | None = None,
        size: int = PAGE,
    ) -> AsyncIterator[list[Event]]:
        """Yield the same events in pages, none of them empty."""
        while page := await self.read(session, after=after, upto=upto, limit=size, types=types):
            yield page
            after = page[-1].seq

    async def head(self, session: str | None) -> Head | None:
        """Return the end of a chain, None where it has not begun."""
        return await self._read(_head, session)

    async def last_seq(self) -> int:
        """Return the `seq` of the folder's last event, 0 in an empty log."""
        return await self._read(_last_seq)

    async def seq_of(self, event_id: str) -> int | None:
        """Return the position of an event."""
        return await self._read(_seq_of, event_id)

    async def session(self, id: str) -> Session | None:
        """Return a session; None when there is none or it was deleted."""
        return await self._read(queries.session, id)

    async def list_sessions(
        self,
        *,
        archived: bool | None = False,
        query: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> queries.SessionList:
        """Return sessions, newest activity first. `archived` None: both; `query`: a part of the title."""
        return await self._read(queries.list_sessions, archived, query, cursor, limit)

    async def message_page(
        self, session: str, *, before: int | None = None, after: int | None = None, limit: int = 50
    ) -> queries.MessagePage:
        """Return the newest messages before seq `before`, or the first after `after`, with their events."""
        return await self._read(queries.message_page, session, before, after, limit)

    async def change_events(
        self,
        session: str,
        *,
        from_seq: int = 0,
        to_seq: int | None = None,
        message: str | None = None,
        calls: Collection[str] | None = None,
    ) -> list[Event]:
        """Return `change.*` with from_seq ≤ seq ≤ to_seq, of some calls or of a message (a prompt: of all its
        answers)."""
        return await self._read(
            queries.change_events, session, from_seq, to_seq, message=message, calls=calls
        )

    async def open_turns(self) -> list[queries.OpenTurn]:
        """Return the turns that have not ended, oldest first."""
        return await self._read(queries.open_turns)

    async def verify(
        self, session: str | None = None, check: Callable[[str], str | None] | None = None
    ) -> Verified:
        """Check the whole log or one session; see `verify.verify`. On a thread of its own."""
        return await asyncio.to_thread(verify.verify, self.path, session, check)

    async def _read(
        self, query: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        if self._closed:
            raise LogError("the event log is closed")

        def call() -> _T:
            try:
                return query(self._reader, *args, **kwargs)
            except Exception as error:
                raise database.translate(error) from error

        return await asyncio.get_running_loop().run_in_executor(self._reading, call)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for request, result in outcomes:
            if isinstance(result, LogError):
                if not request.future.done():
                    request.future.set_exception(result)
                continue
            for listener in tuple(self._listeners):
                try:
                    listener(result)
                except Exception:
                    # The facts are logged; a listener's fault must not look like a failed append.
                    _log.exception("a listener of the event log failed at seq %d", result[0].seq)
            if not request.future.done():
                request.future.set_result(result)


def _caller() -> str:
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # the documented way; inspect costs ms
    while frame.f_code.co_name == "append" and frame.f_back is not None:
        frame = frame.f_back  # a door in front of ours
    return f"{frame.f_globals['__name__']}:{frame.f_code.co_name}:{frame.f_lineno}"


def _events(
    conn: Connection,
    session: Which,
    after: int,
    upto: int | None,
    limit: int | None,
    types: Collection[str] | None,
) -> list[Event]:
    where: list[str] = ["e.seq > ?"]
    values: list[object] = [after]
    if session is not ALL:
        where.append("e.session = ?")
        values.append(session or "")
    if upto is not None:
        where.append("e.seq <= ?")
        values.append(upto)
    if types is not None:
        where.append(f"e.type in ({','.join('?' * len(types))})")
        values.extend(types)
    # In a session idx and seq rise together; by idx, SQLite reads its index and sorts nothing.
    order = "e.seq" if session is ALL else "e.idx"
    values.append(-1 if limit is None else limit)
    return rows.select(conn, f"where {' and '.join(where)} order by {order} limit ?", tuple(values))


def _head(conn: Connection, session: str | None) -> Head | None:
    row = conn.execute(
        "select seq, idx, hash from events where session = ? order by idx desc limit 1", (session or "",)
    ).fetchone()
    return Head(row[0], row[1], row[2].hex()) if row else None


def _last_seq(conn: Connection) -> int:
    return conn.execute("select coalesce(max(seq), 0) from events").fetchone()[0]


def _seq_of(conn: Connection, event_id: str) -> int | None:
    row = conn.execute("select seq from events where id = ?", (event_id,)).fetchone()
    return row[0] if row else None
