"""What keeps the log from being written, told apart: the append's own fault, or the world's.

Raw SQLite errors name the place where they arose, not the cause: a full quota and a limit on file size are
plain I/O errors (`SQLITE_IOERR_WRITE`, see os_unix.c), so the place is tried once more by hand.
"""

import errno
import os
import resource
import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deskmate_session.errors import LogCorrupt, LogError, LogReadOnly

FaultKind = Literal["full", "readOnly", "locked", "corrupt", "gone", "other"]

_NEAR = 1 << 20
"""Bytes below the limit on file size at which a failed write is put down to it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why appends fail, for a reason outside of them."""

    kind: FaultKind
    message: str
    """What is wrong and what to do."""

    def error(self) -> LogError:
        """Return the exception that each append gets."""
        match self.kind:
            case "full" | "readOnly" | "gone":
                return LogReadOnly(self.message)
            case "corrupt":
                return LogCorrupt(self.message)
            case "locked" | "other":
                return LogError(self.message)


_OWN = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""SQLite's errors that tell of the values, not of the place."""


class Gone(Exception):
    """The database's file is not the one that was opened."""


def busy(error: Exception) -> bool:
    """Another connection holds the lock; it may work in a moment."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def fault(error: Exception, path: str) -> Fault | None:
    """Return what is wrong with the place of the log; None when the append itself is at fault.

    `path` is the database's. May write a small file beside it, to learn what an I/O error means.
    """
    if isinstance(error, Gone):
        return _gone(path)
    if not isinstance(error, sqlite3.Error) or isinstance(error, _OWN):
        return None
    if busy(error):
        return locked(path)
    match _code(error):
        case sqlite3.SQLITE_FULL:
            return _full(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged(str(error))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return _look(error, path)
        case _:
            return Fault("other", f"the event log {path!r} can't be written: {error}")


def locked(path: str) -> Fault:
    """Return the fault of a lock that another program does not give up."""
    return Fault(
        "locked",
        f"the event log {path!r} is locked by another program: end what reads or copies it",
    )


def damaged(what: str) -> Fault:
    """Return the fault of bytes that can't be what was written."""
    return Fault(
        "corrupt",
        f"the event log is damaged: {what}; start again, and what can be read is kept in a new log",
    )


def _look(error: Exception, path: str) -> Fault:
    """Try the place by hand: what does the system say?"""
    folder = Path(path).parent
    if not folder.is_dir():
        return _gone(path)
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(64 << 10))
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as found:
        if found.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return _full(path)
        if found.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return _read_only(path, found.strerror or str(found))
        return Fault("other", f"the event log {path!r} can't be written: {found.strerror}")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if limit != resource.RLIM_INFINITY and _largest(path) > limit - _NEAR:
        return _full(path, f"a limit of {limit} bytes on the size of files")
    if _code(error) == sqlite3.SQLITE_READONLY:
        return _read_only(path, str(error))
    return Fault("other", f"the event log {path!r} can't be written: {error}")


def _gone(path: str) -> Fault:
    return Fault("gone", f"{path} was removed or replaced while it was open; start again")


def _full(path: str, why: str = "no space is left") -> Fault:
    return Fault(
        "full", f"the disk is full ({why}), nothing more is logged in {path!r}: free some space and go on"
    )


def _read_only(path: str, why: str) -> Fault:
    return Fault(
        "readOnly", f"the event log {path!r} may not be written ({why}): make its folder writable again"
    )


def _largest(path: str) -> int:
    sizes = [file.stat().st_size for file in Path(path).parent.glob(f"{Path(path).name}*")]
    return max(sizes, default=0)


def _code(error: Exception) -> int:
    # Absent on errors that the sqlite3 module itself raises. The upper bits tell the place.
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
