"""Opening the database file: one process at a time, private to the user, brought up to date."""

import fcntl
import os
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.errors import Conflict, LogCorrupt, LogError, LogReadOnly

SCHEMA_VERSION = 2
"""`pragma user_version` of a database that this build writes."""

BUSY_MS = 5_000
WAL_PAGES = 250
"""Pages of 8 KB at which a commit moves the write-ahead log into the database, where the writer has not done
so before. The default of 1000 would let 8 MB stand beside a database of 200 KB."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The two connections to a log; `read_only` says why nothing may be written, if so."""

    writing: sqlite3.Connection
    reading: sqlite3.Connection
    read_only: str | None


def file(state_dir: Path) -> Path:
    """Return the database of a state folder."""
    return state_dir / "events.db"


def open_both(state_dir: Path) -> Opened:
    """Create or open the log, and bring its schema up to date.

    Of many first openers one does the work while the others wait at the lock. A database of a newer
    Deskmate is opened read-only. Raises `LogCorrupt` when it is damaged or not ours, `LogReadOnly` without
    the right to write.
    """
    path = file(state_dir)
    try:
        state_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_dir.mkdir(mode=0o700, exist_ok=True)
        state_dir.chmod(0o700)
        with _alone(state_dir):
            # Made before SQLite would: its -wal and -shm take over the mode.
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            return _prepare(path)
    except PermissionError as error:
        raise LogReadOnly(f"no right to write {str(path)!r}: give it back to your user") from error
    except OSError as error:
        why = f"the state folder {str(state_dir)!r} can't be used: {error.strerror or error}"
        raise LogReadOnly(f"{why}; point XDG_STATE_HOME to a place that can") from error
    except LogCorrupt as error:
        raise LogCorrupt(f"{error} ({path})") from error
    except sqlite3.Error as error:
        raise translate(error) from error


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that can't write. May be used from any one thread at a time."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_MS / 1000,
    )


def translate(error: Exception) -> LogError:
    """Return the exception of ours that stands for what went wrong in SQLite or in encoding."""
    if isinstance(error, LogError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"it is in the log already: {error}")
    if isinstance(error, sqlite3.Error):
        # Absent on errors that the sqlite3 module itself raises.
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return LogCorrupt(f"the event log is damaged: {error}")
        if code == sqlite3.SQLITE_READONLY:
            return LogReadOnly(f"the event log can't be written: {error}")
    return LogError(f"the event log: {type(error).__name__}: {error}")


@contextmanager
def _alone(state_dir: Path) -> Generator[None]:
    fd = os.open(state_dir / "events.db.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _prepare(path: Path) -> Opened:
    # No implicit transactions: the sqlite3 module would leave them open after `insert … returning`.
    conn = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)
    try:
        version = conn.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            conn.close()
            message = (
                f"the event log is of a newer Deskmate (schema {version}): update this one to write to it"
            )
            return Opened(open_for_reading(path), open_for_reading(path), message)
        if version < SCHEMA_VERSION:
            _migrate(conn, path)
        conn.execute("pragma synchronous = normal")
        conn.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
        conn.execute(f"pragma journal_size_limit = {WAL_PAGES * 8192}")
        return Opened(conn, open_for_reading(path), None)
    except BaseException:
        conn.close()
        raise


def _migrate(conn: sqlite3.Connection, path: Path) -> None:
    from sqlite_utils import Database  # 76 ms, and only the first opening needs it

    from deskmate_session.log import migrations

    ours = conn.execute("pragma application_id").fetchone()[0] == migrations.APPLICATION_ID
    # What is left of a first opening that was cut short is no one else's either.
    theirs = conn.execute("select count(*) from sqlite_schema where name not like '%sqlite%'").fetchone()[0]
    if theirs and not ours:
        raise LogCorrupt(f"{str(path)!r} is not a Deskmate log: move it away")
    conn.execute("pragma page_size = 8192")
    conn.execute("pragma journal_mode = wal")
    migrations.steps.apply(Database(conn, strict=True, execute_plugins=False))
