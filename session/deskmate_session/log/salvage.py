"""A damaged log: set aside, never deleted, and what can be read of it goes on in a new one.

The order makes it safe to be killed at any moment. All of it happens under the lock of openers:

1. the new log is made under `events.db.new`, flushed, and then named `events.db.salvaged`;
2. from then on whoever opens the log goes on here: the old files get their other name, the new one its place.

Before the second name there is nothing but the old file; after it the new log is complete.
"""

import errno
import os
import sqlite3
from bisect import bisect_left
from collections.abc import Iterable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlite_utils import Database

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import chain, codec, migrations, owners, pages, read_model, verify
from deskmate_session.log.rows import INSERT, Row
from deskmate_session.model.events import LogSalvaged
from deskmate_session.model.payloads.log import LostEvents
from deskmate_session.model.ports import Clock, Ids

READY = "events.db.salvaged"
"""Beside the database: a new log that is complete and has to take its place."""

_NEW = "events.db.new"
_BESIDE = ("-wal", "-shm", "-journal")


def salvage(path: Path, clock: Clock, ids: Ids) -> str:
    """Set a damaged database aside and put a new one in its place; return what to tell the person.

    The caller holds the lock of openers. Events keep their `seq`, ids and hashes; `log.salvaged` says what is
    gone. Raises `LogCorrupt` where another process has the log open, `OSError` and `sqlite3.Error` where the
    place can't be written; then the old file is where it was.
    """
    if owners.living(path.parent):
        raise LogCorrupt(
            "the event log is damaged, and another process has it open: end that one, then start again"
        )
    found = pages.search(path)
    ends = _ends(path)
    last = max([found.last, *ends.values()])
    kept_as = _free_name(path.parent, clock.now())
    new = path.with_name(_NEW)
    for name in (_NEW, f"{_NEW}-journal"):
        path.with_name(name).unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    with closing(sqlite3.connect(new, isolation_level=None)) as conn:
        conn.execute(f"pragma page_size = {pages.PAGE}")
        migrations.steps.apply(Database(conn, strict=True, execute_plugins=False))
        conn.execute("begin immediate")
        kept = in_order(found.rows.values())
        conn.executemany(INSERT, kept)
        fact = LogSalvaged(
            kept_as=kept_as, events=len(kept), lost=_lost(kept, last), sessions=_cut(kept, ends)
        )
        _append(conn, fact, last + 1, ids.new("evt"), clock.now())
        read_model.rebuild(conn, conn)
        conn.execute("commit")
    left = len(verify.verify(new).problems)
    _flush(new)
    new.replace(path.with_name(READY))
    _flush(path.parent)
    told = finish(path) or ""
    return f"{told}; {left} problems are left, see `deskmate sessions verify --all`" if left else told


def finish(path: Path) -> str | None:
    """Let a complete new log take its place; return what to tell the person, None where there is none.

    The caller holds the lock of openers.
    """
    ready = path.with_name(READY)
    if not ready.exists():
        return None
    with closing(sqlite3.connect(ready, isolation_level=None)) as conn:
        [stored] = conn.execute(
            "select payload from events where type = ? order by seq desc limit 1", (LogSalvaged.type,)
        ).fetchone()
    fact = LogSalvaged.model_validate_json(codec.unpack(stored))
    # What lies beside first: as soon as the new database has its name, it would be taken for its own.
    for suffix in ("-wal", "-journal", ""):
        _set_aside(path.with_name(path.name + suffix), path.with_name(fact.kept_as + suffix), suffix != "")
    for suffix in _BESIDE:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    ready.replace(path)
    _flush(path.parent)
    return _notice(fact, path.parent)


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that can stand in one log, by `seq`: each id and place in a session once, and in each
    session both numbers rising. No hash covers `seq`, so one that does not fit among its session's others
    is damage."""
    sessions: dict[str, list[Row]] = {}
    ids: set[str] = set()
    places: set[tuple[str, int]] = set()
    for row in sorted(rows):
        if row.id not in ids and (row.session, row.idx) not in places:
            ids.add(row.id)
            places.add((row.session, row.idx))
            sessions.setdefault(row.session, []).append(row)
    return sorted(row for chain in sessions.values() for row in _rising(sorted(chain, key=_index)))


def _rising(rows: list[Row]) -> list[Row]:
    """Return the longest run of rows in which `seq` rises; see "patience sorting"."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for place, row in enumerate(rows):
        length = bisect_left(ends, row.seq)
        if length == len(ends):
            ends.append(row.seq)
            at.append(place)
        else:
            ends[length], at[length] = row.seq, place
        before.append(at[length - 1] if length else -1)
    kept: list[Row] = []
    place = at[-1] if at else -1
    while place >= 0:
        kept.append(rows[place])
        place = before[place]
    return kept[::-1]


def _index(row: Row) -> int:
    return row.idx


def _append(conn: sqlite3.Connection, fact: LogSalvaged, seq: int, id: str, at: int) -> None:
    row = conn.execute(
        "select idx + 1, hash from events where session = '' order by idx desc limit 1"
    ).fetchone()
    index, prev = row or (0, chain.GENESIS)
    plain = codec.encode(fact)
    digest = chain.digest(plain)
    type, version = codec.tag(fact)
    header = chain.header(session=None, index=index, id=id, type=type, version=version, at=at, cause=None)
    hash = chain.link(prev, header, digest)
    values = (seq, id, "", index, type, version, at, codec.pack(plain), digest, None, prev, hash, None)
    conn.execute(INSERT, values)


def _lost(kept: list[Row], last: int) -> tuple[LostEvents, ...]:
    lost: list[LostEvents] = []
    next = 1
    for seq in (*(row.seq for row in kept), last + 1):
        if seq > next:
            lost.append(LostEvents(first=next, last=seq - 1))
        next = seq + 1
    return tuple(lost)


def _cut(kept: list[Row], ends: dict[str, int]) -> tuple[str, ...]:
    """Return the sessions that lost events: a place is empty, or the last one is not what it was."""
    chains: dict[str, list[Row]] = {session: [] for session in ends}
    for row in kept:
        chains.setdefault(row.session, []).append(row)
    return tuple(
        session
        for session, rows in sorted(chains.items())
        if session
        and (not rows or rows[-1].idx != len(rows) - 1 or rows[-1].seq < ends.get(session, rows[-1].seq))
    )


def _ends(path: Path) -> dict[str, int]:
    """Return each session's last `seq`, as far as the damaged read model still tells it. Nothing is locked or
    written."""
    with suppress(sqlite3.Error, UnicodeDecodeError), closing(_still(path)) as conn:
        found = conn.execute("select id, seq from sessions").fetchall()
        return {
            id: seq for id, seq in found if isinstance(id, str) and isinstance(seq, int) and seq < 1 << 40
        }
    return {}


def _still(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _free_name(folder: Path, now: int) -> str:
    time = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    for again in range(1_000):
        name = f"events.damaged-{time}{f'-{again + 1}' if again else ''}.db"
        if not any((folder / f"{name}{suffix}").exists() for suffix in ("", *_BESIDE)):
            return name
    raise LogCorrupt("the event log is damaged, and a thousand damaged ones are kept: move them away")


def _set_aside(old: Path, kept: Path, beside: bool) -> None:
    # Of an empty one there is nothing to keep; the shared memory is made from the others.
    if not old.exists() or (kept.exists() and kept.samefile(old)) or (beside and not old.stat().st_size):
        return
    if kept.exists():
        raise LogCorrupt(f"{str(kept)!r} is there already: move it away, then start again")
    try:
        # Not a rename: till the new log has its place, there is no moment without a database.
        kept.hardlink_to(old)
    except OSError as error:
        if error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            raise
        old.rename(kept)  # a file system without links


def _flush(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _notice(fact: LogSalvaged, folder: Path) -> str:
    gone = sum(lost.last - lost.first + 1 for lost in fact.lost)
    what = f"{fact.events} events are kept in a new one, {gone} are lost"
    if not fact.events:
        what = "nothing of it can be read, and a new one begins"
    named = ", ".join(fact.sessions[:5]) + (", …" if len(fact.sessions) > 5 else "")
    where = f" (of the sessions that are still known: {named})"
    return (
        f"the event log was damaged: {what}{where if fact.sessions else ''};"
        f" the damaged file is kept as {str(folder / fact.kept_as)!r}"
    )
