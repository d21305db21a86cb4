"""Who runs a session: one process at a time, told by a row that names its owner and by that owner's lock.

A lease is of a root, a session without parent; its sub-sessions run under the same one. Its epoch rises with
each taking, so a holder that was taken for dead is refused from then on. All of these run inside the caller's
transaction.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from deskmate_session.errors import LeaseLost

Alive = Callable[[str], bool]
"""Tells whether the process that claimed an id still runs."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to run a root session and all below it, held by this process since `epoch`."""

    root: str
    """A session without parent; the session itself where it has not begun."""
    epoch: int


def root(conn: sqlite3.Connection, session: str) -> str:
    """Return the session at the top of a session's parents; itself where it has not begun."""
    row = conn.execute("select root from sessions where id = ?", (session,)).fetchone()
    return row[0] if row else session


def check(conn: sqlite3.Connection, lease: Lease, owner: str) -> None:
    """Raise `LeaseLost` unless `owner` holds this very lease."""
    if conn.execute("select epoch, owner from leases where root = ?", (lease.root,)).fetchone() != (
        lease.epoch,
        owner,
    ):
        raise LeaseLost(f"session {lease.root!r} is run by another process now; this run ends")


def take(conn: sqlite3.Connection, root: str, owner: str, alive: Alive) -> Lease | str:
    """Take the lease of a root, or return the live other that holds it. Ours already: the same lease."""
    row = conn.execute("select epoch, owner from leases where root = ?", (root,)).fetchone()
    epoch, holder = row or (0, None)
    if holder == owner:
        return Lease(root, epoch)
    if holder is not None and alive(holder):
        return str(holder)
    conn.execute("insert or replace into leases values (?, ?, ?)", (root, epoch + 1, owner))
    return Lease(root, epoch + 1)


def release(conn: sqlite3.Connection, lease: Lease, owner: str, *, anyway: bool = False) -> bool:
    """Let go of a lease, unless a prompt waits that nobody else would see. True where it is not ours any
    more. `anyway`: even then."""
    where = "root = ? and epoch = ? and owner = ?"
    values = (lease.root, lease.epoch, owner)
    ours = conn.execute(f"select 1 from leases where {where}", values).fetchone()
    if ours and not anyway and _waits(conn, lease.root):
        return False
    conn.execute(f"update leases set owner = null where {where}", values)
    return True


def holders(conn: sqlite3.Connection) -> set[str]:
    """Return the owners that hold leases, dead or alive."""
    return {owner for (owner,) in conn.execute("select owner from leases where owner is not null")}


def dead(conn: sqlite3.Connection, owner: str, alive: Alive) -> list[str]:
    """Return the roots whose holder is dead, those with an open turn of a dead process that no live one has
    taken over (logs from before leases), and those where a prompt waits that nobody would run."""
    rows = conn.execute(
        "select root, owner, null from leases where owner is not null"
        " union all select s.root, l.owner, s.turn_owner from sessions s"
        " left join leases l on l.root = s.root where s.turn is not null"
    ).fetchall()
    lives = {id: id == owner or alive(id) for row in rows for id in row[1:] if id is not None}
    lives[None] = False
    found = [
        root
        for root, holder, turn_owner in rows
        if not lives[holder] and not lives[turn_owner] and (holder or turn_owner)
    ]
    nobodys = conn.execute(
        "select distinct s.root from messages m join sessions s on s.id = m.session"
        " left join leases l on l.root = s.root where m.waiting = 1 and s.held = 0 and s.turn is null"
        " and s.deleted_at is null and l.owner is null"
    )
    return list(dict.fromkeys([*found, *(root for (root,) in nobodys)]))


def _waits(conn: sqlite3.Connection, root: str) -> bool:
    """A prompt waits in a session of the root whose queue is not held."""
    return (
        conn.execute(
            "select 1 from messages m left join sessions s on s.id = m.session"
            " where m.waiting = 1 and coalesce(s.root, m.session) = ? and coalesce(s.held, 0) = 0"
            " and s.deleted_at is null limit 1",
            (root,),
        ).fetchone()
        is not None
    )
