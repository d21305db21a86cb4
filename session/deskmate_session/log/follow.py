"""What other processes do to the same log: what they commit, and whether they live.

Used by the writer's thread. Nothing is decoded and nobody is woken while nothing changed.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from deskmate_session.errors import LogCorrupt
from deskmate_session.log import appends, leases, owners
from deskmate_session.log.rows import Row
from deskmate_session.model.events import Event

WITH_OTHERS = 0.025
"""Seconds between two looks at the log while another process has it open."""
ALONE = 0.25
"""The same while none has, and between two looks at who lives."""

RUN = 256
"""Events that are handed over at once: more would keep the loop from everyone else."""


class Others:
    """Which other processes have the log open."""

    def __init__(self, state_dir: Path, owner: str) -> None:
        self._state_dir = state_dir
        self._owner = owner
        self._seen: set[str] = set()
        self._gone: set[str] = set()
        """Those whose end was told; no id is used again."""
        self._version = -1
        self._due = 0.0

    @property
    def any(self) -> bool:
        """Another live process has the log open."""
        return bool(self._seen)

    def alive(self, id: str) -> bool:
        """Tell whether an owner lives. Our own file is not opened: that may free its lock, where the file
        system emulates `flock` by POSIX locks."""
        return id == self._owner or owners.alive(self._state_dir, id)

    def suspect(self, id: str) -> None:
        """Watch an owner that was taken for alive, until it is gone."""
        self._seen.add(id)

    def look(self, conn: sqlite3.Connection) -> bool:
        """Look who lives, at most every `ALONE` seconds. True when somebody is gone since the last look.

        Whoever came and died between two looks is known by the lease that it left.
        """
        if time.monotonic() < self._due:
            return False
        self._due = time.monotonic() + ALONE
        holders = self._holders(conn)
        living = owners.living(self._state_dir, but=self._owner)
        gone = (self._seen | holders) - living - self._gone
        self._seen = living
        self._gone |= gone
        if gone:
            owners.sweep(self._state_dir, but=self._owner)
        return bool(gone)

    def _holders(self, conn: sqlite3.Connection) -> set[str]:
        """Return who else holds a lease, if another connection has committed since the last look."""
        try:
            version = appends.data_version(conn)
            if version == self._version:
                return set()
            found = leases.holders(conn) - {self._owner}
        except sqlite3.Error:
            return set()  # the next look tells
        self._version = version
        return found


class Follower:
    """Reads what others committed, in order, each event once."""

    def __init__(
        self, conn: sqlite3.Connection, ours: appends.Appends, damaged: Callable[[LogCorrupt], None]
    ) -> None:
        self._conn = conn
        self._ours = ours
        self._damaged = damaged

    def next(self) -> list[Event]:
        """Return the next run of others' events, at most `RUN`; empty when all were seen.

        Raises `sqlite3.Error`; then nothing is skipped.
        """
        while (version := appends.data_version(self._conn)) != self._ours.version:
            rows = appends.foreign(self._conn, self._ours.last, RUN)
            if len(rows) < RUN:
                self._ours.version = version
            if rows:
                self._ours.last = rows[-1].seq
                if events := self.decoded(rows):
                    return events
        return []

    def decoded(self, rows: Sequence[Row]) -> list[Event]:
        """Return the events; those that can't be read are told and left out."""
        events: list[Event] = []
        for row in rows:
            try:
                events.append(row.event())
            except LogCorrupt as error:
                self._damaged(error)
        return events
