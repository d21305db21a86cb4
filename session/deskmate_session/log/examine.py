"""Looking for damage: a little at each opening, all of it in the background, once a day.

Measured on a warm file: `pragma quick_check` takes 1 ms a megabyte, `integrity_check` 2 ms, and the hashes of
the events 15 µs each. What is looked at when a log opens is bounded by that.
"""

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from deskmate_session.log import pages, read_model
from deskmate_session.log.rows import COLUMNS, Row

SMALL = 4 << 20
"""Bytes of a database up to which all its pages are looked at when it opens."""
DELAY = 10.0
"""Seconds after an opening at which the look in the background begins: the start is over by then."""
EVERY = 24 * 3600.0
"""Seconds from one look in the background to the next."""

_HIGHEST = 1 << 53
"""No log has so many events, and no lease was taken so often."""
_RUN = 128
"""Events that are looked at in one go."""
_REST = 0.01
"""Seconds between two of them: everything else goes first."""


class Damaged(Exception):
    """What is in the file can't be what was written; the message says where it shows."""


def marked(path: Path) -> bool:
    """Tell whether damage was found while the log was in use."""
    return _mark(path).exists()


def mark(path: Path) -> None:
    """Have the next opening look at everything. Never raises: a place that can't be written is told else."""
    with suppress(OSError):
        _mark(path).touch(mode=0o600)


def unmark(path: Path) -> None:
    """All was looked at, and is good or was set aside."""
    with suppress(OSError):
        _mark(path).unlink(missing_ok=True)


def schema(conn: sqlite3.Connection) -> None:
    """Check that the tables that are read and written have the columns that they should have.

    Raises `Damaged` or `sqlite3.DatabaseError`.
    """
    columns = {"events e": COLUMNS, **read_model.KEYS}
    columns |= {"leases": "root, epoch, owner", "newest_checkpoint": "session, seq"}
    columns |= {"checkpoints": "session, seq, hash, schema, body, checksum"}
    try:
        for table, names in columns.items():
            conn.execute(f"select {names} from {table} limit 1").fetchone()
        highest = "select max(n) from (select seq n from sqlite_sequence union all select epoch from leases)"
        if (conn.execute(highest).fetchone()[0] or 0) > _HIGHEST:
            raise Damaged("a counter stands beyond all that was counted")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_ERROR:
            raise
        raise Damaged(str(error)) from error


def structure(conn: sqlite3.Connection) -> None:
    """Check all pages of a database that is `SMALL`. Raises `Damaged` or `sqlite3.DatabaseError`."""
    size = conn.execute("pragma page_count").fetchone()[0] * pages.PAGE
    if size <= SMALL:
        _sound(conn, "quick_check")


def everything(conn: sqlite3.Connection, wait: Callable[[], bool] = lambda: False) -> bool:
    """Check all pages, indexes and events. Between two runs of events `wait` is called; True ends it.

    False: it was ended. Raises `Damaged` or `sqlite3.DatabaseError`.
    """
    _sound(conn, "integrity_check")
    seq = 0
    while rows := conn.execute(
        f"select {COLUMNS} from events e where e.seq > ? order by e.seq limit ?", (seq, _RUN)
    ).fetchall():
        for row in map(Row._make, rows):
            seq = row.seq
            if not pages.whole(row):
                raise Damaged(f"event {seq} is not what was written")
        if wait():
            return False
    return True


class Background:
    """The look at everything while the log is in use; `damaged` is called from its thread, once at most."""

    def __init__(
        self,
        path: Path,
        connect: Callable[[Path], sqlite3.Connection],
        is_damage: Callable[[Exception], bool],
        damaged: Callable[[str], None],
    ) -> None:
        self._path = path
        self._connect = connect
        self._is_damage = is_damage
        self._damaged = damaged
        self._stop = threading.Event()
        # A daemon, as the writer is: nothing waits for it when the process dies.
        self._thread = threading.Thread(target=self._run, name="deskmate-log-examiner", daemon=True)

    def start(self) -> None:
        """Begin, `DELAY` from now, if the last time is `EVERY` ago."""
        self._thread.start()

    def stop(self) -> None:
        """End it, within the time that SQLite takes for one statement. Blocks. May be called again."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        if self._stop.wait(DELAY) or not self._due():
            return
        try:
            with closing(self._connect(self._path)) as conn:
                conn.set_progress_handler(self._stop.is_set, 10_000)
                if everything(conn, lambda: self._stop.wait(_REST)):
                    self._done().touch(mode=0o600)
        except Exception as error:  # a place that is gone, locked or full is told by whoever writes to it
            if self._is_damage(error):
                mark(self._path)
                self._damaged(str(error))

    def _due(self) -> bool:
        try:
            return not 0 <= time.time() - self._done().stat().st_mtime < EVERY
        except OSError:
            return True

    def _done(self) -> Path:
        return self._path.with_name(f"{self._path.name}.examined")


def _sound(conn: sqlite3.Connection, pragma: str) -> None:
    found = conn.execute(f"pragma {pragma}(1)").fetchone()[0]
    if found != "ok":
        raise Damaged(" ".join(str(found).split()))


def _mark(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")
