"""What is asked of the read model. Each takes a connection and returns wire shapes or events."""

import json
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass

from deskmate_session.log import rows
from deskmate_session.log.rows import COLUMNS, Row
from deskmate_session.model.events import Event
from deskmate_session.model.messages import Session

_LAST = (1 << 63) - 1
"""A `seq` beyond all."""

_SESSION = (
    "select s.id, s.folder, s.title, s.agent, s.model, s.variant, s.mode, s.parent, s.created_at, e.at,"
    " s.archived_at, e.seq from sessions s"
    " join events e on e.seq = (select seq from events where session = s.id order by idx desc limit 1)"
)
"""Each with its last event, found by an index: kept in the table, it would cost each append a page more."""


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
    query = f"{_SESSION} where s.id = ? and s.deleted_at is null"
    row = conn.execute(query, (id,)).fetchone()
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
    found = conn.execute(
        f"{_SESSION} where s.deleted_at is null and e.seq < ?"
        " and (? is null or (s.archived_at is not null) = ?) and instr(fold(s.title), ?) > 0"
        " order by e.seq desc limit ?",
        (before, archived, archived, (query or "").casefold(), limit + 1),
    ).fetchall()
    sessions = [_session(row) for row in found[:limit]]
    return SessionList(sessions, str(sessions[-1].seq) if len(found) > limit else None)


def message_page(
    conn: sqlite3.Connection,
    session: str,
    before: int | None = None,
    after: int | None = None,
    limit: int = 50,
    upto: int | None = None,
) -> MessagePage:
    """Return the newest page before seq `before`, or the first after seq `after`.

    `upto`: as it was then: with prompts that were taken back since, and with events up to that seq only.
    """
    forward = after is not None
    ids = conn.execute(
        "select id from messages where session = ? and (unqueued = 0 or ?) and seq > ? and seq < ?"
        f" order by seq {'asc' if forward else 'desc'} limit ?",
        (session, upto is not None, after or 0, _LAST if before is None else before, limit + 1),
    ).fetchall()
    page = {id: list[Event]() for (id,) in (ids[:limit] if forward else reversed(ids[:limit]))}
    found = conn.execute(
        f"select x.message, {COLUMNS} from json_each(?) m"
        " join entries x on x.session = ? and x.message = m.value and x.seq <= ?"
        " join events e on e.seq = x.seq order by e.seq",
        (json.dumps(list(page)), session, _LAST if upto is None else upto),
    )
    for message, *row in found:
        page[message].append(Row._make(row).event())
    return MessagePage(list(page.items()), len(ids) > limit)


def event_at(
    conn: sqlite3.Connection, session: str, seq: int | None = None, at: int | None = None
) -> Event | None:
    """Return a session's last event up to `seq`, or up to a time; its last without either."""
    where, value = ("e.at <= ?", at) if at is not None else ("e.seq <= ?", _LAST if seq is None else seq)
    query = f"where e.session = ? and {where} order by e.idx desc limit 1"
    return next(iter(rows.select(conn, query, (session, value))), None)


def stored(conn: sqlite3.Connection, session: str) -> list[Row]:
    """Return a session's events as they are stored, in order."""
    found = conn.execute(f"select {COLUMNS} from events e where e.session = ? order by e.idx", (session,))
    return [Row._make(row) for row in found]


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
    return rows.select(
        conn,
        "join changes c on c.seq = e.seq left join messages m on m.session = c.session and m.id = c.message"
        " where c.session = ?1 and c.seq between ?2 and ?3"
        " and (?4 is null or m.id = ?4 or m.parent = ?4)"
        " and (?5 is null or c.call in (select value from json_each(?5)))"
        " order by c.seq",
        (
            *(session, from_seq, _LAST if to_seq is None else to_seq, message),
            None if calls is None else json.dumps(list(calls)),
        ),
    )


def message_events(
    conn: sqlite3.Connection, session: str, ids: Collection[str], upto: int | None = None
) -> list[Event]:
    """Return the events with seq ≤ upto that made some messages, their parts and calls too, in order."""
    return rows.select(
        conn,
        "join entries x on x.seq = e.seq where x.session = ? and x.seq <= ?"
        " and x.message in (select value from json_each(?)) order by e.seq",
        (session, _LAST if upto is None else upto, json.dumps(list(ids))),
    )


def turn_end(conn: sqlite3.Connection, session: str, message: str) -> Event | None:
    """Return the end of a prompt's turn; None where it has not ended."""
    query = "join messages m on m.ended = e.seq where m.session = ? and m.id = ?"
    return next(iter(rows.select(conn, query, (session, message))), None)


def waiting(conn: sqlite3.Connection, session: str, upto: int | None = None) -> list[str]:
    """Return the prompts, received at seq ≤ upto, whose turn has not begun; the longest waiting first."""
    found = conn.execute(
        "select id from messages where session = ? and waiting = 1 and seq <= ? order by seq",
        (session, _LAST if upto is None else upto),
    )
    return [id for (id,) in found]


def open_asks(conn: sqlite3.Connection, session: str | None = None) -> list[Event]:
    """Return the `ask.opened` of what is not settled, oldest first; of one session or of all."""
    query = "join asks a on a.seq = e.seq where ?1 is null or a.session = ?1 order by e.seq"
    return rows.select(conn, query, (session,))


def ask(conn: sqlite3.Connection, id: str) -> tuple[str, Event] | None:
    """Return an open ask's session and its `ask.opened`."""
    found = rows.select(conn, "join asks a on a.seq = e.seq where a.id = ? order by e.seq desc", (id,))
    return next(((event.session, event) for event in found if event.session), None)


@dataclass(frozen=True, slots=True)
class Since:
    """What was logged in a session since its newest checkpoint."""

    events: int
    bytes: int
    """Of payloads, as stored."""
    last: int | None
    """Bytes of the checkpoint; None: there is none."""


def since_checkpoint(conn: sqlite3.Connection, session: str) -> Since:
    """Return what a new checkpoint of the session would spare a reader."""
    newest = conn.execute(
        "select c.seq, length(c.body) from newest_checkpoint n"
        " join checkpoints c on c.session = n.session and c.seq = n.seq where n.session = ?",
        (session,),
    ).fetchone()
    seq, last = newest or (0, None)
    events, size = conn.execute(
        "select count(*), coalesce(sum(length(payload)), 0) from events where session = ?1"
        " and idx > coalesce((select idx from events where seq = ?2), -1)",
        (session, seq),
    ).fetchone()
    return Since(events, size, last)


def unsettled(conn: sqlite3.Connection, root: str) -> list[str]:
    """Return the sessions of a root with an open turn, or with prompts that wait and are not held."""
    rows = conn.execute(
        "select id from sessions where root = ? and (turn is not null or (held = 0 and exists"
        " (select 1 from messages m where m.session = sessions.id and m.waiting = 1)))",
        (root,),
    )
    return [id for (id,) in rows]


def open_turns(conn: sqlite3.Connection) -> list[OpenTurn]:
    """Return the turns that have not ended, oldest first."""
    found = conn.execute(
        "select id, turn, turn_message, turn_owner, turn_seq from sessions"
        " where turn is not null order by turn_seq"
    )
    return [OpenTurn(*row) for row in found]


def _session(row: tuple[object, ...]) -> Session:
    names = ("id", "folder", "title", "agent", "model", "variant", "mode", "parent_id")
    times = ("created_at", "updated_at", "archived_at", "seq")
    return Session.model_validate(dict(zip((*names, *times), row, strict=True)))
