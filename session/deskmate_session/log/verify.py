"""Proof that a log is what was written: links, gaps, digests, causes, payloads, objects, and that the read
model and checkpoints are what the events give.

What `log.salvaged` says was lost is no problem: it is known, and the damaged log is kept. It reads one
snapshot on its own connection, so it may run while others append.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path

from deskmate_session.core.checkpoints import SCHEMA, dump
from deskmate_session.core.state import SessionState
from deskmate_session.errors import LogCorrupt
from deskmate_session.log import chain, checkpoints, codec, read_model
from deskmate_session.log.database import open_anyhow, open_for_reading, translate
from deskmate_session.log.rows import COLUMNS, Row
from deskmate_session.model.commands import Problem, Verified
from deskmate_session.model.events import ChangeApplied, ChangeStarted, EventPayload, LogSalvaged

Check = Callable[[str], str | None]
"""Asked about an object's hash: None when it is whole, else what is wrong with it."""


def verify(path: Path, session: str | None = None, check: Check | None = None) -> Verified:
    """Check the whole log, or one session's chain. Blocks; call it in a thread.

    Reports every problem with the `seq` at which it shows. Raises `LogCorrupt` when SQLite itself can't read
    the file.
    """
    try:
        with closing(open_anyhow(path) or open_for_reading(path)) as conn:
            conn.execute("begin")
            verifier = _Verifier(conn, session, check)
            problems = [
                *verifier.events(),
                *verifier.lost(),
                *verifier.read_model(),
                *verifier.checkpoints(),
            ]
            return Verified(ok=not problems, events=verifier.count, problems=tuple(problems))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a text that is none any more
        raise translate(error) from error


class _Verifier:
    def __init__(self, conn: sqlite3.Connection, session: str | None, check: Check | None) -> None:
        self.count = 0
        self._conn = conn
        self._session = session
        self._check = check
        self._checked: dict[str, str | None] = {}
        self._heads: dict[str, tuple[int, bytes]] = {}
        self._last_seq = 0
        self._places: dict[str, int] = {}
        """The last `seq` of each session."""
        self._readable = True
        self._known_lost = _known_lost(conn)

    def events(self) -> Iterator[Problem]:
        """Go through the events in order."""
        where = "" if self._session is None else "where e.session = ?"
        args = () if self._session is None else (self._session,)
        for raw in self._conn.execute(f"select {COLUMNS} from events e {where} order by e.seq", args):
            row = Row._make(raw)
            self.count += 1
            if self._session is None:
                yield from self._missing(row.seq)
            yield from self._link(row)
            yield from self._cause(row)
            yield from self._payload(row)

    def lost(self) -> Iterator[Problem]:
        """Look for events that were cut off the end: `seq` counts on even where rows are gone."""
        if self._session is None:
            row = self._conn.execute("select seq from sqlite_sequence where name = 'events'").fetchone()
            yield from self._missing((row[0] if row else 0) + 1)

    def read_model(self) -> Iterator[Problem]:
        """Compare the tables with those that the events give anew."""
        if not self._readable:
            return  # told already; a rebuild would stop there
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
            for statement in read_model.SCHEMA:
                fresh.execute(statement)
            try:
                read_model.rebuild(self._conn, fresh, self._session)
            except LogCorrupt as error:
                yield Problem(seq=0, kind="readModel", detail=str(error))
                return
            for table, key in read_model.KEYS.items():
                yield from self._compare(fresh, table, key)

    def checkpoints(self) -> Iterator[Problem]:
        """Compare each checkpoint with what replay gives. Those of another schema are read by nobody."""
        if not self._readable:
            return
        where = "" if self._session is None else "and session = ?"
        args = () if self._session is None else (self._session,)
        found = self._conn.execute(
            f"select session, seq, hash, body, checksum from checkpoints where schema = ? {where}"
            " order by session, seq",
            (SCHEMA, *args),
        ).fetchall()
        for session, rows in groupby(found, key=lambda row: row[0]):
            yield from self._replayed(session, {row[1]: row[2:] for row in rows})

    def _replayed(self, session: str, there: dict[int, tuple[bytes, bytes, bytes]]) -> Iterator[Problem]:
        state = SessionState()
        events = self._conn.execute(
            f"select {COLUMNS} from events e where e.session = ? and e.seq <= ? order by e.idx",
            (session, max(there)),
        )
        for row in map(Row._make, events):
            state.apply(row.event())
            hash, body, sum = there.pop(row.seq, (None, b"", b""))
            if hash is None:
                continue
            whole = hash == row.hash and sum == checkpoints.checksum(session, row.seq, hash, SCHEMA, body)
            if not whole or body != dump(state):
                detail = "it is not what the events give" if whole else "it is not what was written"
                yield Problem(seq=row.seq, kind="checkpoint", detail=detail)
        for seq in there:
            yield Problem(seq=seq, kind="checkpoint", detail=f"no event of session {session!r} is its last")

    def _gone(self, after: int, before: int) -> int:
        """How many events between two `seq` are known to be lost."""
        return sum(
            max(0, min(last, before - 1) - max(first, after + 1) + 1) for first, last in self._known_lost
        )

    def _missing(self, seq: int) -> Iterator[Problem]:
        first, last = self._last_seq + 1, seq - 1
        self._last_seq = seq
        if self._gone(first - 1, seq) == last - first + 1:
            return
        if first == last:
            yield Problem(seq=first, kind="gap", detail=f"event {first} is gone")
        elif first < last:
            yield Problem(seq=first, kind="gap", detail=f"events {first} to {last} are gone")

    def _link(self, row: Row) -> Iterator[Problem]:
        index, prev = self._heads.get(row.session, (0, chain.GENESIS))
        self._heads[row.session] = row.idx + 1, row.hash
        before, self._places[row.session] = self._places.get(row.session, 0), row.seq
        header = chain.header(
            session=row.session or None,
            index=row.idx,
            id=row.id,
            type=row.type,
            version=row.version,
            at=row.at,
            cause=row.cause,
        )
        if row.idx > index and self._gone(before, row.seq) >= row.idx - index:
            pass  # as many were lost in between
        elif row.idx != index:
            detail = f"index {row.idx} of its session follows {index - 1}"
            yield Problem(seq=row.seq, kind="gap", detail=detail)
        elif row.prev != prev:
            yield Problem(seq=row.seq, kind="link", detail="it does not follow the event before it")
        if chain.link(row.prev, header, row.digest) != row.hash:
            yield Problem(seq=row.seq, kind="link", detail="its hash does not fit its header and digest")

    def _cause(self, row: Row) -> Iterator[Problem]:
        if row.cause is None:
            return
        cause = self._conn.execute("select seq from events where id = ?", (row.cause,)).fetchone()
        if cause is None and self._gone(0, row.seq):
            return  # it may be among them
        if cause is None or cause[0] >= row.seq:
            yield Problem(seq=row.seq, kind="orphan", detail=f"no earlier event is its cause {row.cause!r}")

    def _payload(self, row: Row) -> Iterator[Problem]:
        try:
            plain = codec.unpack(row.payload)
            if chain.digest(plain) != row.digest:
                yield Problem(seq=row.seq, kind="digest", detail="its payload is not what was written")
            payload = codec.decode(row.type, row.version, plain)
        except LogCorrupt as error:
            self._readable = False
            yield Problem(seq=row.seq, kind="payload", detail=str(error))
            return
        yield from self._objects(row.seq, payload)

    def _objects(self, seq: int, payload: EventPayload) -> Iterator[Problem]:
        if self._check is None or not isinstance(payload, ChangeStarted | ChangeApplied):
            return
        for hash in (payload.before, payload.after):
            if hash is None:
                continue
            if hash not in self._checked:
                self._checked[hash] = self._check(hash)
            if wrong := self._checked[hash]:
                yield Problem(seq=seq, kind="object", detail=f"object {hash} is {wrong}")

    def _compare(self, fresh: sqlite3.Connection, table: str, key: str) -> Iterator[Problem]:
        owner = key.partition(",")[0]
        where = "" if self._session is None else f"where {owner} = ?"
        args = () if self._session is None else (self._session,)
        query = f"select * from {table} {where} order by {key}"
        found = self._conn.execute(query, args)
        names = [column[0] for column in found.description]
        there, right = set(found), set(fresh.execute(query, args))
        for what, odd in (("has too much", there - right), ("lacks", right - there)):
            for row in sorted(odd, key=repr):
                values = dict(zip(names, row, strict=True))
                # Rows of sessions and calls have no seq of their own.
                yield Problem(seq=values.get("seq", 0), kind="readModel", detail=f"{table} {what} {values!r}")


def _known_lost(conn: sqlite3.Connection) -> list[tuple[int, int]]:
    """Return the first and last `seq` of each run of events that was lost with a damaged log."""
    found: list[tuple[int, int]] = []
    query = "select payload from events where session = '' and type = ?"
    for (stored,) in conn.execute(query, (LogSalvaged.type,)):
        try:
            fact = codec.decode(LogSalvaged.type, LogSalvaged.version, codec.unpack(stored))
        except LogCorrupt:
            continue  # told where it stands
        if isinstance(fact, LogSalvaged):
            found += [(lost.first, lost.last) for lost in fact.lost]
    merged: list[tuple[int, int]] = []
    for first, last in sorted(found):  # a log may have been salvaged twice
        if merged and first <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged
