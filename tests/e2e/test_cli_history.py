"""`deskmate sessions verify`, `export` and `import`."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.e2e.test_cli import Home, home

__all__ = ["home"]


def worked(home: Home) -> str:
    """A session with a turn that edits; its id."""
    assert home.run("run", "edit it", "--allow", "edit")[0] == 0
    return home.run("sessions", "list")[1].split()[0]


def database(home: Home) -> Path:
    [path] = (home.root / "state").glob("deskmate/*/events.db")
    return path


def test_a_log_is_verified_and_a_changed_byte_is_named(home: Home) -> None:
    session = worked(home)
    code, told, _ = home.run("sessions", "verify")
    assert (code, "all as they were written" in told) == (0, True)
    assert home.run("sessions", "verify", session)[0] == 0
    assert home.run("sessions", "verify", "ses_none")[0] == 1
    code, told, _ = home.run("sessions", "verify", "--all")
    assert (code, str(database(home).parent) in told) == (0, True)
    with closing(sqlite3.connect(database(home))) as conn:
        conn.execute("drop trigger events_no_update")
        conn.execute("update events set at = at + 1 where seq = 3")
        conn.commit()
    code, told, _ = home.run("sessions", "verify", "--all")
    assert code == 1
    assert "#3 link: its hash does not fit" in told


def test_a_session_goes_to_a_file_and_comes_back_under_a_new_id(home: Home) -> None:
    session = worked(home)
    code, lines, _ = home.run("sessions", "export", session)
    assert code == 0
    assert json.loads(lines.splitlines()[0])["sessionId"] == session
    (home.folder / "session.jsonl").write_text(lines)
    code, told, _ = home.run("sessions", "import", "session.jsonl")
    assert code == 0
    taken = told.split()[0]
    assert taken != session
    code, told, _ = home.run("sessions", "import", "-", text=lines)
    assert code == 0
    assert len(home.run("sessions", "list")[1].splitlines()) == 3
    assert home.run("sessions", "verify")[0] == 0
    assert home.run("sessions", "export", taken, "-o", "again.md", "--format", "markdown")[0] == 0
    assert (home.folder / "again.md").read_text().startswith("# edit it\n")
    (home.folder / "bad.jsonl").write_text(lines.replace('"at":1', '"at":2', 1))
    code, _, complaint = home.run("sessions", "import", "bad.jsonl")
    assert code == 1
    assert "line 2" in complaint
    assert len(home.run("sessions", "list")[1].splitlines()) == 3
