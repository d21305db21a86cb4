"""Where states to open from are kept. What a body holds is `core.checkpoints`'s; here it is bytes.

A checkpoint is made of events and can be made again, so it is never trusted: its checksum, its shape's
version and the hash of its last event must all fit, else it is passed over as if it were not there.
"""

import hashlib
import sqlite3
from dataclasses import dataclass

from deskmate_session.errors import LogError

KEPT = 2
"""Newest checkpoints of a session that stay: one to open from, and one to fall back on."""
APART_EVENTS = 1_000
"""Events between two older ones, which stay so that the past is near; fewer are quickly folded."""
APART_SIZE = 8
"""How many times its own size in event bytes lies between two older ones, so that they never weigh much."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state as of `seq`."""

    seq: int
    body: bytes


def checksum(session: str, seq: int, hash: bytes, schema: int, body: bytes) -> bytes:
    """Return the SHA-256 over all that a checkpoint's row holds."""
    return hashlib.sha256(f"{session}\n{seq}\n{schema}\n".encode() + hash + body).digest()


def put(conn: sqlite3.Connection, session: str, seq: int, schema: int, body: bytes) -> None:
    """Store a checkpoint, then point to it, then thin out older ones. In the caller's transaction.

    Raises `LogError` where `seq` is no event of the session.
    """
    row = conn.execute("select hash from events where seq = ? and session = ?", (seq, session)).fetchone()
    if row is None:
        raise LogError(f"event {seq} is none of session {session!r}: no checkpoint can end there")
    values = (session, seq, row[0], schema, body, checksum(session, seq, row[0], schema, body))
    conn.execute("insert or replace into checkpoints values (?, ?, ?, ?, ?, ?)", values)
    conn.execute(
        "insert into newest_checkpoint values (?, ?) on conflict do update set seq = max(seq, excluded.seq)",
        (session, seq),
    )
    _thin(conn, session)


def _thin(conn: sqlite3.Connection, session: str) -> None:
    """Drop the one that is none of the newest any more, unless it is far enough from the older one."""
    seqs = [
        seq
        for (seq,) in conn.execute(
            "select seq from checkpoints where session = ? order by seq desc", (session,)
        )
    ][KEPT:]
    for seq, older in zip(seqs[:1], [*seqs[1:2], 0], strict=False):
        index, size = conn.execute(
            "select e.idx, length(c.body) from checkpoints c join events e on e.seq = c.seq"
            " where c.session = ? and c.seq = ?",
            (session, seq),
        ).fetchone()
        events, bytes = conn.execute(
            "select count(*), coalesce(sum(length(payload)), 0) from events where session = ?1 and idx <= ?2"
            " and idx > coalesce((select idx from events where seq = ?3), -1)",
            (session, index, older),
        ).fetchone()
        if events < APART_EVENTS or bytes < APART_SIZE * size:
            conn.execute("delete from checkpoints where session = ? and seq = ?", (session, seq))


def newest(conn: sqlite3.Connection, session: str, schema: int, upto: int | None = None) -> Checkpoint | None:
    """Return the newest good checkpoint with seq ≤ upto; None where there is none."""
    rows = conn.execute(
        # Up to the pointer: it moves last.
        "select c.seq, c.hash, c.body, c.checksum from checkpoints c"
        " join newest_checkpoint n on n.session = c.session and c.seq <= n.seq"
        " join events e on e.seq = c.seq and e.session = c.session and e.hash = c.hash"
        " where c.session = ?1 and c.schema = ?2 and (?3 is null or c.seq <= ?3) order by c.seq desc",
        (session, schema, upto),
    )
    for seq, hash, body, sum in rows:
        if checksum(session, seq, hash, schema, body) == sum:
            return Checkpoint(seq, body)
    return None
