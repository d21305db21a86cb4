"""Reading the log: every question in one place. All are answered on one thread, in the order of the calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from sqlite3 import Connection
from typing import Concatenate, Final, Literal, ParamSpec, TypeVar

from deskmate_session.core.checkpoints import SCHEMA
from deskmate_session.errors import LogCorrupt, LogError
from deskmate_session.log import checkpoints, database, examine, queries, rows, verify
from deskmate_session.log.checkpoints import Checkpoint
from deskmate_session.model.commands import Verified
from deskmate_session.model.events import Event
from deskmate_session.model.messages import Session

PAGE = 1_000
"""Events in a page."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Every(Enum):
    ALL = "all"


ALL: Final = _Every.ALL
"""In place of a session: every session, and the facts of the folder."""

Which = str | None | Literal[_Every.ALL]
"""A session, None for the facts of the folder, or ALL."""


@dataclass(frozen=True, slots=True)
class Head:
    """The last event of a chain."""

    seq: int
    index: int
    hash: str


class LogReader:
    """The reading half of `EventLog`.

    What is read is what any process has committed, which may be ahead of what listeners were told: bound it
    by `delivered` where that matters. Every method raises `LogCorrupt` for a damaged database and `LogError`
    after `close`.
    """

    def __init__(self, path: Path, conn: Connection) -> None:
        self.path = path
        self._reader = conn
        self._closed = False
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="deskmate-log-reader")

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
        self,
        session: str,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = 50,
        upto: int | None = None,
    ) -> queries.MessagePage:
        """Return the newest messages before seq `before`, or the first after `after`, with their events;
        `upto`: as it was after that event."""
        return await self._read(queries.message_page, session, before, after, limit, upto)

    async def event_at(self, session: str, *, seq: int | None = None, at: int | None = None) -> Event | None:
        """Return a session's last event up to `seq`, or to a time in milliseconds; None before its first."""
        return await self._read(queries.event_at, session, seq, at)

    async def stored(self, session: str) -> list[rows.Row]:
        """Return a session's events as they are stored, in order."""
        return await self._read(queries.stored, session)

    async def message_events(
        self, session: str, ids: Collection[str], upto: int | None = None
    ) -> list[Event]:
        """Return the events with seq ≤ upto that made some messages, those of their parts and calls too, in
        order."""
        return await self._read(queries.message_events, session, ids, upto)

    async def turn_end(self, session: str, message_id: str) -> Event | None:
        """Return the `turn.ended` of a prompt; None where its turn has not ended."""
        return await self._read(queries.turn_end, session, message_id)

    async def waiting(self, session: str, upto: int | None = None) -> list[str]:
        """Return the prompts, received at seq ≤ upto, whose turn has not begun; the longest waiting first."""
        return await self._read(queries.waiting, session, upto)

    async def open_asks(self, session: str | None = None) -> list[Event]:
        """Return the `ask.opened` of what is not settled, oldest first; of one session or of all."""
        return await self._read(queries.open_asks, session)

    async def ask(self, ask_id: str) -> tuple[str, Event] | None:
        """Return an open ask's session and its `ask.opened`; None where it is settled or unknown."""
        return await self._read(queries.ask, ask_id)

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

    async def since_checkpoint(self, session: str) -> queries.Since:
        """Return what was logged in a session since its newest checkpoint."""
        return await self._read(queries.since_checkpoint, session)

    async def unsettled(self, root: str) -> list[str]:
        """Return the sessions of a root with an open turn, or with prompts that wait and are not held."""
        return await self._read(queries.unsettled, root)

    async def open_turns(self) -> list[queries.OpenTurn]:
        """Return the turns that have not ended, oldest first."""
        return await self._read(queries.open_turns)

    async def newest_checkpoint(
        self, session: str, upto: int | None = None, schema: int = SCHEMA
    ) -> Checkpoint | None:
        """Return the newest checkpoint with seq ≤ upto that is whole, of this schema and of this very chain.
        Others are passed over."""
        return await self._read(checkpoints.newest, session, schema, upto)

    async def verify(
        self, session: str | None = None, check: Callable[[str], str | None] | None = None
    ) -> Verified:
        """Check the whole log or one session; see `verify.verify`. On a thread of its own.

        A read model that is wrong is made anew at the next opening.
        """
        try:
            found = await asyncio.to_thread(verify.verify, self.path, session, check)
        except LogCorrupt:
            await asyncio.to_thread(examine.mark, self.path)
            raise
        if any(problem.kind == "readModel" for problem in found.problems):
            await asyncio.to_thread(examine.mark, self.path)
        return found

    async def _read(
        self, query: Callable[Concatenate[Connection, _P], _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        if self._closed:
            raise LogError("the event log is closed")

        def call() -> _T:
            try:
                return query(self._reader, *args, **kwargs)
            except Exception as error:
                translated = database.translate(error)
                if isinstance(translated, LogCorrupt):
                    examine.mark(self.path)
                raise translated from error

        return await asyncio.get_running_loop().run_in_executor(self._reading, call)

    async def _close_reader(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._reading, self._reader.close)
        self._reading.shutdown(wait=False)  # it is idle: the reads before were waited for


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
        # Where `after` is the session's own, a checkpoint or a page's end, the index leads to what follows.
        where.append(
            "e.session = ? and e.idx > coalesce((select idx from events where seq = ? and session = ?), -1)"
        )
        values += [session or "", after, session or ""]
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
