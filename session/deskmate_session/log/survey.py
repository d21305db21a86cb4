"""Looking at the logs of a state home without opening them for work: nothing is written or settled."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from deskmate_session.errors import LogError
from deskmate_session.log import database, queries
from deskmate_session.log.verify import verify
from deskmate_session.model.commands import Verified
from deskmate_session.model.messages import Session
from deskmate_session.workspace.objects import Objects

MAX_SESSIONS = 500
"""Sessions that are told of one folder, newest activity first."""


@dataclass(frozen=True, slots=True)
class FolderLog:
    """A folder's log; `problem` says why its sessions can't be told."""

    state_dir: Path
    sessions: tuple[Session, ...]
    problem: str | None = None


def survey(state_home: Path) -> list[FolderLog]:
    """Return every log of a state home, by the name of its folder."""
    return [_look(path.parent) for path in sorted(state_home.glob("*/events.db"))]


def verify_all(state_home: Path) -> list[tuple[str, Verified | str]]:
    """Check every log of a state home; a text says why one can't be checked. Blocks."""
    found: list[tuple[str, Verified | str]] = []
    for path in sorted(state_home.glob("*/events.db")):
        try:
            found.append((str(path.parent), verify(path, check=Objects(path.parent).check)))
        except LogError as error:
            found.append((str(path.parent), str(error)))
    return found


def sqlite_version() -> str:
    """Return the version of the SQLite that Python brings."""
    return sqlite3.sqlite_version


def _look(state_dir: Path) -> FolderLog:
    try:
        with closing(database.open_for_reading(database.file(state_dir))) as conn:
            found = queries.list_sessions(conn, archived=None, limit=MAX_SESSIONS)
    except sqlite3.Error as error:
        return FolderLog(state_dir, (), str(database.translate(error)))
    return FolderLog(state_dir, tuple(found.sessions))
