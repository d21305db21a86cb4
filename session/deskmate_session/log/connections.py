"""Connections to the database: how one is opened for writing, with a write-ahead log or without, and for
reading, in whatever place; and what SQLite's errors are called here."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from deskmate_session.errors import Conflict, LogCorrupt, LogError, LogReadOnly
from deskmate_session.log import examine, faults

SCHEMA_VERSION = 2
"""`pragma user_version` of a database that this build writes."""

BUSY_MS = 5_000
"""Milliseconds that SQLite waits for a lock."""

NO_PLACE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL)
"""Codes of SQLite that tell of the place, not of the file's content."""


def open_for_writing(path: Path, wal: bool) -> tuple[sqlite3.Connection, bool]:
    """Return a connection that can write, and whether it could not have the write-ahead log that it should.

    Raises `examine.Damaged` where SQLite will not write to a file that may be written.
    """
    conn = _connection(path)
    try:
        # A new database takes its page size from here.
        conn.execute("pragma page_size = 8192")
        is_wal = conn.execute("pragma journal_mode").fetchone()[0] == "wal"
        if wal and not is_wal:
            with suppress(sqlite3.OperationalError):  # others use it the other way: so do we
                conn.execute("pragma journal_mode = wal")
        if wal or not is_wal:
            _try_to_write(conn)
            return conn, False
    except sqlite3.OperationalError as error:
        conn.close()
        if not wal or not _may_be_memory(error, path):
            raise
    except BaseException:
        conn.close()
        raise
    conn.close()
    try:
        _leave_wal(path)
        conn = _connection(path)
        _try_to_write(conn)
    except sqlite3.OperationalError as error:
        conn.close()
        if code_of(error) == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK):
            raise examine.Damaged(str(error)) from error
        raise
    return conn, wal


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that can't write. May be used from any one thread at a time."""
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_MS / 1000,
    )


def open_anyhow(path: Path) -> sqlite3.Connection | None:
    """Return a connection that can't write, in a place that may be read-only. None where it would not see
    what stands in the write-ahead log. Raises `sqlite3.Error`."""
    conn = open_for_reading(path)
    try:
        conn.execute("pragma schema_version").fetchone()
        return conn
    except sqlite3.OperationalError as error:
        conn.close()
        if code_of(error) not in NO_PLACE:
            raise
    except BaseException:
        conn.close()
        raise
    # It can't make the shared memory for a write-ahead log. An empty one it does not need.
    wal = path.with_name(f"{path.name}-wal")
    if wal.exists() and wal.stat().st_size:
        return None
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    conn = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    try:
        conn.execute("pragma schema_version").fetchone()
    except BaseException:
        conn.close()
        raise
    return conn


def is_damage(error: Exception) -> bool:
    """Tell whether the file's content can't be what was written."""
    if isinstance(error, LogCorrupt | examine.Damaged | UnicodeDecodeError | OverflowError):
        return True  # the last two: of a table's name in the words of SQLite, of a number beyond all
    if not isinstance(error, sqlite3.Error):
        return False
    # Text that is none comes without a code, from the sqlite3 module itself.
    no_text = not hasattr(error, "sqlite_errorcode") and "decode" in str(error)
    return no_text or code_of(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def translate(error: Exception) -> LogError:
    """Return the exception of ours that stands for what went wrong in SQLite or in encoding."""
    if isinstance(error, LogError):
        return error
    if isinstance(error, sqlite3.IntegrityError):
        return Conflict(f"it is in the log already: {error}")
    if is_damage(error):
        return LogCorrupt(f"the event log is damaged: {error}")
    if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_READONLY:
        return LogReadOnly(f"the event log can't be written: {error}")
    return LogError(f"the event log: {type(error).__name__}: {error}")


def _may_be_memory(error: sqlite3.Error, path: Path) -> bool:
    """Tell whether it may be the memory beside the file that can't be had or written, not the file."""
    code = code_of(error)
    refused = code == sqlite3.SQLITE_READONLY and os.access(path, os.W_OK)
    return refused or code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)


def _leave_wal(path: Path) -> None:
    """Move the write-ahead log into the database, and have it used no more. Others that have the log open
    keep it: there it works."""
    with closing(_connection(path)) as conn:
        # Alone with the file SQLite needs no shared memory: https://sqlite.org/wal.html#noshm
        conn.execute("pragma locking_mode = exclusive")
        conn.execute(f"pragma busy_timeout = {BUSY_MS // 50}")
        try:
            conn.execute("pragma journal_mode = delete").fetchone()
        except sqlite3.OperationalError as error:
            if not faults.busy(error):
                raise


def _connection(path: Path) -> sqlite3.Connection:
    # No implicit transactions: the sqlite3 module would leave them open after `insert … returning`.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_MS / 1000)


def _try_to_write(conn: sqlite3.Connection) -> None:
    """Write nothing, but as if. Raises `sqlite3.OperationalError`; a lock that another one holds is none."""
    try:
        conn.execute("pragma busy_timeout = 0")
        conn.execute("begin immediate")
        # A file that can't be written still gives the lock, and refuses only now.
        conn.execute(f"pragma user_version = {SCHEMA_VERSION}")
        conn.execute("rollback")
    except sqlite3.OperationalError as error:
        if not faults.busy(error):
            raise
    finally:
        conn.execute(f"pragma busy_timeout = {BUSY_MS}")


def code_of(error: sqlite3.Error) -> int:
    """Return SQLite's primary code. Absent on errors that the sqlite3 module itself raises."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
