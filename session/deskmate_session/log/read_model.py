"""The read model: tables that point at events and copy no text.

`apply` runs in the transaction that appends, so what is read is never behind what was written. All of it can
be made again from the events; `verify` does so and compares. The queries are in `queries`.
"""

import sqlite3
from collections.abc import Sequence

from deskmate_session.errors import LogCorrupt
from deskmate_session.log.rows import COLUMNS, Row, insert
from deskmate_session.model import events as e
from deskmate_session.model.messages import ToolPart

SCHEMA = (
    """
    create table sessions (
      id text primary key, folder text not null, title text not null, agent text not null,
      model text not null, variant text, mode text not null, parent text,
      root text not null,  -- itself, or the session at the top of its parents: they run under one lease
      created_at integer not null, archived_at integer, deleted_at integer,
      turn text, turn_message text, turn_owner text, turn_seq integer,  -- the open turn
      held integer not null  -- its queue is held
    ) strict, without rowid
    """,
    # No index by seq: it would change with each commit, and a list of a folder's sessions is short.
    # Also the guard of idempotency: a message id is received once in a session, whichever process asks.
    """
    create table messages (
      session text not null, id text not null, role text not null, seq integer not null,
      parent text, unqueued integer not null,
      waiting integer not null,  -- a prompt whose turn has not begun
      ended integer,  -- seq of the end of its turn
      primary key (session, id)
    ) strict, without rowid
    """,
    "create index messages_order on messages (session, seq)",
    "create index messages_waiting on messages (session) where waiting = 1",
    """
    create table entries (
      session text not null, message text not null, seq integer not null,
      primary key (session, message, seq)
    ) strict, without rowid
    """,
    """
    create table calls (
      session text not null, id text not null, message text not null, primary key (session, id)
    ) strict, without rowid
    """,
    """
    create table changes (
      session text not null, seq integer not null, call text not null, message text,
      primary key (session, seq)
    ) strict, without rowid
    """,
    # Open asks; settled ones leave.
    """
    create table asks (
      session text not null, id text not null, seq integer not null, primary key (session, id)
    ) strict, without rowid
    """,
)

KEYS = {
    "sessions": "id",
    "messages": "session, id",
    "entries": "session, message, seq",
    "calls": "session, id",
    "changes": "session, seq",
    "asks": "session, id",
}
"""Table → its key, whose first column is the session."""

_WAITS = "exists (select 1 from messages where session = ? and waiting = 1)"


def apply(conn: sqlite3.Connection, event: e.Event) -> str | None:
    """Bring the tables up to `event`, the next one, but for what costs less for many events at once: call
    `entered` for the message that it returns, to which the event belongs.

    Raises `sqlite3.IntegrityError` for a session or a prompt that is there already; then it wrote nothing.
    """
    if event.session is None:
        return None
    match event.payload:
        # The most frequent one first: each case that does not fit costs a look.
        case e.PartAppended() | e.PartEnded() as fact:
            return fact.message_id
        case e.SessionCreated() | e.SessionUpdated() | e.SessionDeleted() as fact:
            _session(conn, event, event.session, fact)
        case e.MessageReceived() as fact:
            conn.execute(
                "insert into messages values (?, ?, 'user', ?, null, 0, 1, null)",
                (event.session, fact.message_id, event.seq),
            )
            _hold(conn, event, held=False)
            return fact.message_id
        case e.MessageUnqueued() as fact:
            conn.execute(
                "update messages set unqueued = 1, waiting = 0 where session = ? and id = ? and waiting = 1",
                (event.session, fact.message_id),
            )
            return fact.message_id
        case e.InterruptRequested() as fact:
            # What waits at this moment is held; a prompt that comes after it lets the queue go on.
            conn.execute(
                f"update sessions set held = {_WAITS} where id = ? and turn = ?",
                (event.session, event.session, fact.turn_id),
            )
        case e.QueueHeld():
            _hold(conn, event, held=True)
        case e.QueueReleased():
            _hold(conn, event, held=False)
        case e.AskOpened() as fact:
            conn.execute(
                "insert or ignore into asks values (?, ?, ?)", (event.session, fact.ask.id, event.seq)
            )
        case e.AskReplied() as fact:
            conn.execute("delete from asks where session = ? and id = ?", (event.session, fact.ask_id))
        case e.TurnStarted() as fact:
            conn.execute(
                "update sessions set turn = ?, turn_message = ?, turn_owner = ?, turn_seq = ? where id = ?",
                (fact.turn_id, fact.message_id, fact.owner, event.seq, event.session),
            )
            conn.execute(
                "update messages set waiting = 0 where session = ? and id = ?",
                (event.session, fact.message_id),
            )
            return fact.message_id
        case e.TurnEnded() as fact:
            conn.execute(
                "update sessions set turn = null, turn_message = null, turn_owner = null, turn_seq = null"
                " where id = ? and turn = ?",
                (event.session, fact.turn_id),
            )
            conn.execute(
                "update messages set ended = ? where session = ? and id = ?",
                (event.seq, event.session, fact.message_id),
            )
            conn.execute("delete from asks where session = ?", (event.session,))
        case e.ContextConstructed() as fact:
            conn.execute(
                "insert into messages values (?, ?, 'assistant', ?, ?, 0, 0, null)"
                " on conflict do update set seq = excluded.seq, parent = excluded.parent",
                (event.session, fact.message_id, event.seq, fact.parent_id),
            )
            return fact.message_id
        case e.PartStarted() as fact:
            if isinstance(fact.part, ToolPart):
                _call(conn, event, fact.part.call_id, fact.message_id)
            return fact.message_id
        case e.ModelResponded() as fact:
            for call in fact.calls:
                _call(conn, event, call.call_id, fact.message_id)
            return fact.message_id
        case e.ModelFailed() as fact:
            return fact.message_id
        case e.CallStarted() | e.CallCompleted() | e.CallFailed() as fact:
            return _message_of(conn, event, fact.call_id)
        case e.ChangeStarted() | e.ChangeApplied() | e.ChangeRefused() | e.ChangeObserved() as fact:
            conn.execute(
                "insert into changes values (?, ?, ?, ?)",
                (event.session, event.seq, fact.call_id, _message_of(conn, event, fact.call_id)),
            )
        case _:
            pass
    return None


def entered(conn: sqlite3.Connection, entries: Sequence[tuple[str | None, str, int]]) -> None:
    """Note which message events belong to: session, message and `seq` of each."""
    insert(conn, "insert into entries values (?, ?, ?)", entries)


def rebuild(source: sqlite3.Connection, target: sqlite3.Connection, session: str | None = None) -> None:
    """Fill `target`'s empty tables from `source`'s events, of one session or of all.

    Raises `LogCorrupt` for a payload that can't be read, or an event that contradicts an earlier one.
    """
    where = "" if session is None else "where e.session = ?"
    args = () if session is None else (session,)
    for row in source.execute(f"select {COLUMNS} from events e {where} order by e.seq", args):
        event = Row._make(row).event()
        try:
            message = apply(target, event)
        except sqlite3.IntegrityError as error:
            raise LogCorrupt(f"event {event.seq} contradicts an earlier one: {error}") from error
        if message is not None:
            entered(target, [(event.session, message, event.seq)])


def _session(
    conn: sqlite3.Connection,
    event: e.Event,
    session: str,
    fact: e.SessionCreated | e.SessionUpdated | e.SessionDeleted,
) -> None:
    if isinstance(fact, e.SessionCreated):
        conn.execute(
            "insert into sessions values"
            " (?, ?, ?, ?, ?, ?, ?, ?, coalesce((select root from sessions where id = ?), ?), ?,"
            " null, null, null, null, null, null, 0)",
            (
                *(session, fact.folder, fact.title, fact.agent, fact.model, fact.variant, fact.mode),
                *(fact.parent_id, fact.parent_id, session, event.at),
            ),
        )
    elif isinstance(fact, e.SessionUpdated):
        conn.execute(
            "update sessions set title = coalesce(?, title), agent = coalesce(?, agent),"
            " model = coalesce(?, model), variant = coalesce(?, variant), mode = coalesce(?, mode)"
            " where id = ?",
            (fact.title, fact.agent, fact.model, fact.variant, fact.mode, session),
        )
        if fact.archived is not None:
            at = event.at if fact.archived else None
            conn.execute("update sessions set archived_at = ? where id = ?", (at, session))
    else:
        conn.execute("update sessions set deleted_at = ? where id = ?", (event.at, session))


def _hold(conn: sqlite3.Connection, event: e.Event, *, held: bool) -> None:
    conn.execute(
        f"update sessions set held = ? and {_WAITS} where id = ?", (held, event.session, event.session)
    )


def _call(conn: sqlite3.Connection, event: e.Event, call: str, message: str) -> None:
    # It is named twice: when its part begins to stream, and in the complete answer.
    conn.execute("insert or ignore into calls values (?, ?, ?)", (event.session, call, message))


def _message_of(conn: sqlite3.Connection, event: e.Event, call: str) -> str | None:
    row = conn.execute(
        "select message from calls where session = ? and id = ?", (event.session, call)
    ).fetchone()
    return row[0] if row else None
