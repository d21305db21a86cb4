"""Opening the database file: one process at a time, private to the user, brought up to date.

Nothing is ever written without locks. Where `flock` does not work, who runs a session can't be told, and
SQLite's own locks are seldom better off: two editors would write over each other. There the log opens for
reading only, as it does where nothing can be written, and the person is told where to point XDG_STATE_HOME.
"""

import errno
import fcntl
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deskmate_session.errors import LogCorrupt, LogError, LogReadOnly
from deskmate_session.log import examine, faults, mounts
from deskmate_session.log.connections import (
    NO_PLACE,
    SCHEMA_VERSION as SCHEMA_VERSION,
    code_of,
    is_damage as is_damage,
    open_anyhow as open_anyhow,
    open_for_reading as open_for_reading,
    open_for_writing,
    translate as translate,
)
from deskmate_session.log.owners import Owner
from deskmate_session.model.ports import Clock, Ids

WAL_PAGES = 200
"""Pages of 8 KB at which a commit moves the write-ahead log into the database, where the writer has not done
so before. The default of 1000 would let 8 MB stand beside a database of 200 KB."""

OPENING = 20.0
"""Seconds that an opener waits for another one, which may be mending a large log."""

Journal = Literal["auto", "wal", "rollback"]
"""How commits are made safe; `auto`: by a write-ahead log, unless the file system is not to be trusted."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


@dataclass(frozen=True, slots=True)
class Opened:
    """The two connections to a log."""

    writing: sqlite3.Connection
    reading: sqlite3.Connection
    owner: Owner | None
    """This process's sign of life; None in a log that is only read."""
    read_only: str | None = None
    """Why nothing may be written, and what to do."""
    notices: tuple[str, ...] = ()
    """What the person should be told once."""


class _NotOurs(LogCorrupt):
    """A database of something else: it is left alone."""


class _NoLocks(Exception):
    """The file system has no locks."""


def file(state_dir: Path) -> Path:
    """Return the database of a state folder."""
    return state_dir / "events.db"


def open_both(state_dir: Path, clock: Clock, ids: Ids, journal: Journal = "auto") -> Opened:
    """Create or open the log, bring its schema up to date, and be known as alive. Blocks.

    Of many first openers one does the work while the others wait at the lock. A damaged log is set aside
    and salvaged (`salvage`). A log of a newer Deskmate, and one that can't be written, opens with
    `read_only` set; nothing of it is changed. Raises `LogCorrupt` when it is not ours, or damaged while
    another process has it open; `LogError` when it stays locked.
    """
    path = file(state_dir)
    try:
        _make(state_dir)
        with _alone(state_dir):
            return _open(path, clock, ids, journal)
    except _NoLocks:
        why = f"locks do not work in {str(state_dir)!r}, so the event log is only read"
        return _only_read(path, f"{why}; point XDG_STATE_HOME to a local disk")
    except PermissionError:
        return _only_read(path, f"no right to write {str(path)!r}: give it back to your user")
    except OSError as error:
        why = f"the state folder {str(state_dir)!r} can't be used: {error.strerror or error}"
        return _only_read(path, f"{why}; point XDG_STATE_HOME to a place that can")
    except LogCorrupt as error:
        raise LogCorrupt(f"{error} ({path})") from error
    except sqlite3.Error as error:
        if code_of(error) in NO_PLACE and (fault := faults.fault(error, str(path))) is not None:
            return _only_read(path, fault.message)
        raise translate(error) from error


def _make(state_dir: Path) -> None:
    state_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    state_dir.mkdir(mode=0o700, exist_ok=True)
    state_dir.chmod(0o700)


@contextmanager
def _alone(state_dir: Path) -> Generator[None]:
    fd = os.open(state_dir / "events.db.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + OPENING
        with _locking():
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise LogError(
                            f"another program has been opening the event log for {OPENING:.0f} s"
                            f" ({str(state_dir / 'events.db.lock')!r} is locked): end it, then try again"
                        ) from None
                    time.sleep(0.005)
        yield
    finally:
        os.close(fd)


@contextmanager
def _locking() -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _NoLocks from error
        raise


def _open(path: Path, clock: Clock, ids: Ids, journal: Journal) -> Opened:
    notices: list[str] = []
    if (path.parent / f"{path.name}.salvaged").exists():
        notices.append(_finish(path))
    if not path.exists():
        # Made before SQLite would: its -wal and -shm take over the mode. Only then: closing any descriptor
        # of the file frees the locks of this process's other connections (https://sqlite.org/howtocorrupt.html).
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    distrusted = mounts.look(path.parent) if journal == "auto" else None
    wal = journal == "wal" or (journal == "auto" and distrusted is None)
    suspect = examine.marked(path)
    try:
        newer, examined = _look(path)
        if newer is not None:
            return newer
        conn, fell_back = _prepare(path, wal, examined)
        if suspect:
            _remake(conn)  # the events are good: what is made of them can be made again
    except _NotOurs:
        raise
    except Exception as error:
        if not is_damage(error):
            raise
        notices.append(_salvage(path, clock, ids, error))
        conn, fell_back = _prepare(path, wal, False)
    if distrusted is not None or (fell_back and journal == "auto"):
        kind = f" ({distrusted})" if distrusted else ""
        notices.append(
            f"the file system{kind} of {str(path.parent)!r} shares no memory between programs, so the event"
            " log is written in a slower way; on several machines at once it is not safe:"
            " point XDG_STATE_HOME to a local disk"
        )
    try:
        with _locking():
            owner = Owner.claim(path.parent, ids.new("own"))
        return Opened(conn, open_for_reading(path), owner, notices=tuple(notices))
    except BaseException:
        conn.close()
        raise


def _look(path: Path) -> tuple[Opened | None, bool]:
    """Look at what is there before anything could write to it, since SQLite moves a write-ahead log into
    whatever it takes for its database. Return a log of a newer Deskmate, open for reading, and whether
    damage was looked for.

    Raises `_NotOurs` for what is no log, and what `is_damage` knows.
    """
    if not path.stat().st_size:
        wal = path.with_name(f"{path.name}-wal")
        if wal.exists() and wal.stat().st_size:
            raise examine.Damaged("the database is empty, and its write-ahead log is not")
        return None, False
    conn = open_for_reading(path)
    try:
        version = conn.execute("pragma user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            message = (
                f"the event log is of a newer Deskmate (schema {version}): update this one to write to it"
            )
            return Opened(conn, open_for_reading(path), None, message, (message,)), True
        if version < SCHEMA_VERSION:
            _check_ours(conn, path)
        _examine(conn, path, version)
    except Exception as error:
        conn.close()
        if isinstance(error, sqlite3.Error) and not is_damage(error):
            return (
                None,
                False,
            )  # a journal that has to be rolled back first, or a place without memory to share
        raise
    conn.close()
    return None, True


def _examine(conn: sqlite3.Connection, path: Path, version: int) -> None:
    if version == SCHEMA_VERSION:
        examine.schema(conn)
    if not examine.marked(path):
        examine.structure(conn)
    elif conn.execute("select 1 from sqlite_schema where name = 'events'").fetchone():
        examine.everything(conn)
        examine.unmark(path)


def _check_ours(conn: sqlite3.Connection, path: Path) -> None:
    from deskmate_session.log.migrations import APPLICATION_ID

    ours = conn.execute("pragma application_id").fetchone()[0] == APPLICATION_ID
    # What is left of a first opening that was cut short is no one else's either.
    theirs = conn.execute("select count(*) from sqlite_schema where name not like '%sqlite%'").fetchone()[0]
    if theirs and not ours:
        raise _NotOurs(f"{str(path)!r} is not a Deskmate log: move it away")


def _prepare(path: Path, wal: bool, examined: bool) -> tuple[sqlite3.Connection, bool]:
    """Return the writing connection, and whether it could not have the write-ahead log that it should."""
    conn, fell_back = open_for_writing(path, wal)
    try:
        version = conn.execute("pragma user_version").fetchone()[0]
        if version < SCHEMA_VERSION:
            _migrate(conn)
        if not examined or version < SCHEMA_VERSION:
            _examine(conn, path, SCHEMA_VERSION)
        conn.execute("pragma synchronous = normal")
        conn.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
        conn.execute(f"pragma journal_size_limit = {WAL_PAGES * 8192}")
        return conn, fell_back
    except BaseException:
        conn.close()
        raise


def _migrate(conn: sqlite3.Connection) -> None:
    from sqlite_utils import Database  # 76 ms, and only the first opening needs it

    from deskmate_session.log import migrations

    migrations.steps.apply(Database(conn, strict=True, execute_plugins=False))
    # A number that was damaged says less than the table of steps.
    conn.execute(f"pragma user_version = {SCHEMA_VERSION}")


def _remake(conn: sqlite3.Connection) -> None:
    from sqlite_utils import Database

    from deskmate_session.log import migrations

    conn.execute("begin immediate")
    try:
        migrations.remake(Database(conn, strict=True, execute_plugins=False))
        conn.execute("commit")
    except BaseException:
        conn.execute("rollback")
        raise


def _salvage(path: Path, clock: Clock, ids: Ids, error: Exception) -> str:
    from deskmate_session.log import salvage  # only damage needs it, and all that it imports

    notice = salvage.salvage(path, clock, ids)
    examine.unmark(path)
    return f"{notice} ({error})"


def _finish(path: Path) -> str:
    from deskmate_session.log import salvage

    notice = salvage.finish(path)
    examine.unmark(path)
    return notice or ""


def _only_read(path: Path, why: str) -> Opened:
    """Open what is there for reading, whatever it takes but a change; an empty log where nothing is."""
    try:
        writing, reading = _readers(path)
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        if is_damage(error):
            why = f"{why}; and it is damaged ({error}), which can be mended only where it can be written"
            writing, reading = _in_a_copy(None)
        else:
            raise LogReadOnly(why) from error
    return Opened(writing, reading, None, why, (why,))


def _readers(path: Path) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    if path.exists() and path.stat().st_size:
        writing = open_anyhow(path)
        if writing is not None:
            if writing.execute("pragma user_version").fetchone()[0] >= SCHEMA_VERSION:
                return writing, open_anyhow(path) or open_for_reading(path)
            writing.close()
        return _in_a_copy(path)
    return _in_a_copy(None)


def _in_a_copy(path: Path | None) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Return two connections to a copy, or to an empty log, in a place that has no name any more."""
    with tempfile.TemporaryDirectory(prefix="deskmate-") as folder:
        copy = Path(folder) / "events.db"
        if path is not None:
            for suffix in ("", "-wal", "-journal"):
                with suppress(FileNotFoundError):
                    shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        writing, _ = open_for_writing(copy, wal=False)
        if writing.execute("pragma user_version").fetchone()[0] < SCHEMA_VERSION:
            _migrate(writing)
        reading = open_for_reading(copy)
        reading.execute("select count(*) from sqlite_schema").fetchone()
        return writing, reading
