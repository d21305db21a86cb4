"""What is asked of the read model. Each takes a connection and returns wire shapes or events."""

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from deskmate_session.log.rows import COLUMNS, Row
from deskmate_session.model.events import Event
from deskmate_session.model.messages import Session

_LAST = (1 << 63) - 1
"""A `seq` beyond all."""

_SESSION = (
    "select id, folder, title, agent, model, variant, mode, parent, created_at, updated_at, archived_at, seq"
    " from sessions"
)


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """A turn that has begun and not ended; `owner` runs it, or has died."""

    session: str
    turn_id: str
    message_id: str
    """The prompt."""
    owner: str
    seq: int
    """Its `turn.started`."""


@dataclass(frozen=True, slots=True)
class SessionList:
    """A page of sessions; `next_cursor` is absent on the last."""

    sessions: list[Session]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class MessagePage:
    """A page of messages, oldest first: each message's id and the events that made it, to be folded."""

    messages: list[tuple[str, list[Event]]]
    has_more: bool
    """More lie beyond, in the direction that was asked for."""


def session(conn: sqlite3.Connection, id: str) -> Session | None:
    """Return a session; None when there is none or it was deleted."""
    row = conn.execute(f"{_SESSION} where id = ? and deleted_at is null", (id,)).fetchone()
    return _session(row) if row else None


def list_sessions(
    conn: sqlite3.Connection,
    archived: bool | None = False,
    query: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> SessionList:
    """Return sessions, newest activity first. `archived` None: both kinds; `query`: a part of the title.

    The cursor is the last event of the last session shown: a session that moves meanwhile moves to the
    front and is not shown twice. A cursor that is none of ours starts from the front.
    """
    before = int(cursor) if cursor and cursor.isdecimal() and len(cursor) < 19 else _LAST
    conn.create_function("fold", 1, str.casefold, deterministic=True)  # SQLite's lower() knows ASCII only
    rows = conn.execute(
        f"{_SESSION} where deleted_at is null and seq < ?"
        " and (? is null or (archived_at is not null) = ?) and instr(fold(title), ?) > 0"
        " order by seq desc limit ?",
        (before, archived, archived, (query or "").casefold(), limit + 1),
    ).fetchall()
    sessions = [_session(row) for row in rows[:limit]]
    return SessionList(sessions, str(sessions[-1].seq) if len(rows) > limit else None)


def message_page(
    conn: sqlite3.Connection,
    session: str,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
) -> MessagePage:
    """Return the newest page before seq `before`, or the first after seq `after`."""
    forward = after is not None
    ids = conn.execute(
        "select id from messages where session = ? and unqueued = 0 and seq > ? and seq < ?"
        f" order by seq {'asc' if forward else 'desc'} limit ?",
        (session, after or 0, _LAST if before is None else before, limit + 1),
    ).fetchall()
    page = {id: list[Event]() for (id,) in (ids[:limit] if forward else reversed(ids[:limit]))}
    rows = conn.execute(
        f"select x.message, {COLUMNS} from json_each(?) m"
        " join entries x on x.session = ? and x.message = m.value join events e on e.seq = x.seq"
        " order by e.seq",
        (json.dumps(list(page)), session),
    )
    for message, *row in rows:
        page[message].append(Row._make(row).event())
    return MessagePage(list(page.items()), len(ids) > limit)


def change_events(
    conn: sqlite3.Connection,
    session: str,
    from_seq: int = 0,
    to_seq: int | None = None,
    *,
    message: str | None = None,
    calls: Collection[str] | None = None,
) -> list[Event]:
    """Return `change.*` with from_seq ≤ seq ≤ to_seq: all, those of some calls, or those of a message (of a
    prompt: those of all its answers)."""
    rows = conn.execute(
        f"select {COLUMNS} from changes c join events e on e.seq = c.seq"
        " left join messages m on m.session = c.session and m.id = c.message"
        " where c.session = ?1 and c.seq between ?2 and ?3"
        " and (?4 is null or m.id = ?4 or m.parent = ?4)"
        " and (?5 is null or c.call in (select value from json_each(?5)))"
        " order by c.seq",
        (
            *(session, from_seq, _LAST if to_seq is None else to_seq, message),
            None if calls is None else json.dumps(list(calls)),
        ),
    )
    return [Row._make(row).event() for row in rows]


def open_turns(conn: sqlite3.Connection) -> list[OpenTurn]:
    """Return the turns that have not ended, oldest first."""
    rows = conn.execute(
        "select id, turn, turn_message, turn_owner, turn_seq from sessions"
        " where turn is not null order by turn_seq"
    )
    return [OpenTurn(*row) for row in rows]


def _session(row: tuple[object, ...]) -> Session:
    names = ("id", "folder", "title", "agent", "model", "variant", "mode", "parent_id")
    times = ("created_at", "updated_at", "archived_at", "seq")
    return Session.model_validate(dict(zip((*names, *times), row, strict=True)))
