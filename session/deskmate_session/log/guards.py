"""What a fact must find in the log to be let in. Races of two processes end here, inside the transaction.

The read model itself takes any facts in any order, since it must be made again from older logs.
"""

import sqlite3

from deskmate_session.errors import Conflict
from deskmate_session.model import events as e

_GUARDED = {e.AskReplied, e.MessageUnqueued, e.InterruptRequested, e.TurnStarted}
_NEW_WORK = (*e.REQUESTS, e.TurnStarted)


def check(conn: sqlite3.Connection, session: str, payload: e.EventPayload, *, held: bool, gone: bool) -> None:
    """Raise `Conflict` for a fact that contradicts what is there.

    `held`: it is logged under the session's lease; `gone`: the session was deleted. A holder may still settle
    what runs in a deleted session; nobody may begin anything there.
    """
    if not gone and type(payload) not in _GUARDED:
        return
    if gone and isinstance(payload, _NEW_WORK) and not (held and isinstance(payload, _SETTLING)):
        raise Conflict(f"session {session!r} was deleted")
    match payload:
        case e.AskReplied(ask_id=ask):
            if not _any(conn, "asks where session = ? and id = ?", session, ask):
                raise Conflict(f"ask {ask!r} is settled already, or unknown")
        case e.MessageUnqueued(message_id=message):
            if not _waiting(conn, session, message):
                raise Conflict(f"prompt {message!r} does not wait any more")
        case e.InterruptRequested(turn_id=turn):
            if not _any(conn, "sessions where id = ? and turn = ?", session, turn):
                raise Conflict(f"turn {turn!r} does not run any more")
        case e.TurnStarted(message_id=message):
            if _any(conn, "sessions where id = ? and turn is not null", session):
                raise Conflict(f"session {session!r} has a turn that did not end")
            if not _waiting(conn, session, message):
                raise Conflict(f"prompt {message!r} does not wait any more")
        case _:
            pass


_SETTLING = (e.AskReplied, e.MessageUnqueued, e.InterruptRequested)
"""Requests that end something."""


def _waiting(conn: sqlite3.Connection, session: str, message: str) -> bool:
    return _any(conn, "messages where session = ? and id = ? and waiting = 1", session, message)


def _any(conn: sqlite3.Connection, rest: str, *args: str) -> bool:
    return conn.execute(f"select 1 from {rest}", args).fetchone() is not None
