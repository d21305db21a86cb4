"""A full disk, a locked database, a place that is taken away: told once, nothing half logged, it goes on."""

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from deskmate_session.errors import LogCorrupt, LogError, LogReadOnly
from deskmate_session.log import connections, faults, follow, writer
from deskmate_session.log.store import EventLog, Fault
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened

LIMITED = """
import asyncio, os, resource, sys
from pathlib import Path
from deskmate_session.errors import LogReadOnly
from deskmate_session.ids import RandomIds
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import HeldLog

async def main():
    log = await HeldLog.open(Path(sys.argv[1]), support.Ticks(), RandomIds())
    told = []
    log.on_fault(lambda fault: told.append(fault and fault.kind))
    await log.append("ses_1", [support.created(), support.received()])
    size = max(path.stat().st_size for path in Path(sys.argv[1]).glob("events.db*"))
    big = [e.Draft(e.UnknownPayload(tag="big", data={"a": os.urandom(20_000).hex()}))] * 4
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40_000, resource.RLIM_INFINITY))
    for durable in (False, True, False):
        for session in ("ses_1", "ses_1", "ses_2"):
            try:
                await log.append(session, big, durable=durable)
            except LogReadOnly as error:
                assert "the disk is full" in str(error), error
            else:
                raise AssertionError("there was room")
    assert told == ["full"], told
    assert [event.seq for event in await log.read()] == [1, 2]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    events = await log.append("ses_1", [*big, support.turn_started()])
    assert [event.seq for event in events] == [3, 4, 5, 6, 7]
    assert told == ["full", None], told
    assert (await log.verify()).problems == ()
    await log.close()
asyncio.run(main())
"""


def told(log: EventLog) -> list[Fault | None]:
    found: list[Fault | None] = []
    log.on_fault(found.append)
    return found


def kinds(found: list[Fault | None]) -> list[str | None]:
    return [fault and fault.kind for fault in found]


def test_a_limit_on_the_size_of_files_is_a_full_disk_and_passes(tmp_path: Path):
    process = support.child(LIMITED, str(tmp_path))
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


async def test_a_full_disk_fails_the_append_and_not_the_log(tmp_path: Path):
    async with opened(tmp_path) as log:
        found = told(log)
        await log.append("ses_1", [support.created()])
        # Another connection's limit does not count; the writer's own does.
        conn = log._writer._conn
        pages = conn.execute("pragma page_count").fetchone()[0]
        conn.execute(f"pragma max_page_count = {pages}")
        big = e.Draft(e.UnknownPayload(tag="big", data={"a": os.urandom(200_000).hex()}))
        failed = await asyncio.gather(
            log.append("ses_1", [big]), log.append("ses_1", [support.received()]), return_exceptions=True
        )
        assert isinstance(failed[0], LogReadOnly)
        assert "the disk is full" in str(failed[0])
        conn.execute("pragma max_page_count = 1000000")
        [event] = await log.append("ses_1", [big])
        assert event.payload == big.payload
        assert kinds(found) == ["full", None]
        assert (await log.verify()).ok


class Lock:
    """Another program that holds the database."""

    def __init__(self, folder: Path, statement: str = "begin exclusive") -> None:
        self._conn = sqlite3.connect(folder / "events.db", isolation_level=None, check_same_thread=False)
        self._conn.execute(statement)

    def end(self) -> None:
        self._conn.execute("rollback")
        self._conn.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(writer, "_SLICE_MS", 10)
    monkeypatch.setattr(writer, "LOCKED_AFTER", 0.05)
    monkeypatch.setattr(writer, "PATIENCE", 0.3)
    yield


async def test_a_lock_that_is_given_up_in_time_is_waited_for(tmp_path: Path):
    async with opened(tmp_path) as log:
        found = told(log)
        await log.append("ses_1", [support.created()])
        lock = Lock(tmp_path)
        waiting = [log.append("ses_1", [support.appended("x")], durable=durable) for durable in (True, False)]
        taking = log.take("ses_1")
        release = threading.Timer(0.3, lock.end)
        release.start()
        assert [event.seq for events in await asyncio.gather(*waiting) for event in events] == [2, 3]
        assert await taking is not None
        release.join()
        assert found == []


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_lasts_is_told_and_the_append_is_tried_on(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        lock, seen = Lock(tmp_path), asyncio.Event()
        found = told(log)
        log.on_fault(lambda fault: seen.set())
        waiting = log.append("ses_1", [support.received()])
        await asyncio.wait_for(seen.wait(), 10)
        lock.end()
        assert [event.seq for event in await waiting] == [2]
        assert kinds(found) == ["locked", None]


@pytest.mark.usefixtures("impatient")
async def test_a_lock_that_is_never_given_up_fails_the_append(tmp_path: Path):
    async with opened(tmp_path) as log:
        found = told(log)
        await log.append("ses_1", [support.created()])
        lease = await log.take("ses_1")
        lock = Lock(tmp_path)
        both = [log.append("ses_1", [support.received()]), log.append("ses_1", [support.received("msg_2")])]
        for failed in await asyncio.gather(*both, log.take("ses_2"), return_exceptions=True):
            assert isinstance(failed, LogError)
            assert "locked by another program" in str(failed)
        assert kinds(found) == ["locked"]
        lock.end()
        assert await log.take("ses_1") == lease
        assert [event.seq for event in await log.append("ses_1", [support.received()])] == [2]
        assert kinds(found) == ["locked", None]
        assert (await log.verify()).ok


async def test_a_log_that_was_taken_away_is_not_written_in_the_dark(tmp_path: Path):
    async with opened(tmp_path) as log:
        found = told(log)
        await log.append("ses_1", [support.created()])
        (tmp_path / "events.db").rename(tmp_path / "elsewhere.db")
        for durable in (True, False):
            with pytest.raises(LogReadOnly, match=r"was removed or replaced .* start again"):
                await log.append("ses_1", [support.received()], durable=durable)
        assert kinds(found) == ["gone"]
        (tmp_path / "elsewhere.db").rename(tmp_path / "events.db")
        assert [event.seq for event in await log.append("ses_1", [support.received()])] == [2]
        assert kinds(found) == ["gone", None]


async def test_a_refusal_is_no_sign_of_recovery(tmp_path: Path):
    async with opened(tmp_path) as log:
        found = told(log)
        await log.append("ses_1", [support.created()])
        log._writer._failing(faults.locked("x"))
        with pytest.raises(LogError):
            await log.append("ses_1", [support.created()])
        assert kinds(found) == ["locked"]
        await log.append("ses_1", [support.received()])
        assert kinds(found) == ["locked", None]


async def test_what_can_not_be_followed_now_is_followed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(tmp_path) as log, opened(tmp_path, EventLog) as other:
        codes = iter([sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_CORRUPT])
        foreign, conn = follow.appends.foreign, log._writer._conn

        def fails(*args: object) -> list[object]:
            if args[0] is conn:
                for code in codes:
                    raise coded(code)
            return foreign(*args)  # pyright: ignore[reportArgumentType, reportReturnType]

        found, heard = told(log), asyncio.Event()
        log.on_commit(lambda *_: heard.set())
        monkeypatch.setattr(follow.appends, "foreign", fails)
        await other.append("ses_1", [support.created()])
        await asyncio.wait_for(heard.wait(), 10)
        assert kinds(found) == ["corrupt"]


def coded(code: int, kind: type[sqlite3.Error] = sqlite3.OperationalError) -> sqlite3.Error:
    error = kind("the words of SQLite")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "kind", "raised"),
    [
        (coded(sqlite3.SQLITE_FULL), "full", LogReadOnly),
        (coded(sqlite3.SQLITE_BUSY_RECOVERY), "locked", LogError),
        (coded(sqlite3.SQLITE_LOCKED), "locked", LogError),
        (coded(sqlite3.SQLITE_CORRUPT_INDEX, sqlite3.DatabaseError), "corrupt", LogCorrupt),
        (coded(sqlite3.SQLITE_NOTADB, sqlite3.DatabaseError), "corrupt", LogCorrupt),
        (coded(sqlite3.SQLITE_READONLY_DIRECTORY), "readOnly", LogReadOnly),
        (coded(sqlite3.SQLITE_IOERR_WRITE), "other", LogError),
        (coded(sqlite3.SQLITE_CANTOPEN), "other", LogError),
        (coded(sqlite3.SQLITE_NOMEM), "other", LogError),
        (sqlite3.OperationalError("without a code"), "other", LogError),
    ],
)
def test_errors_of_sqlite_are_told_apart(
    tmp_path: Path, error: sqlite3.Error, kind: str, raised: type[LogError]
):
    fault = faults.fault(error, str(tmp_path / "events.db"))
    assert fault is not None
    assert fault.kind == kind
    assert type(fault.error()) is raised
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "error", [sqlite3.IntegrityError("x"), sqlite3.ProgrammingError("x"), TypeError("x")]
)
def test_an_append_that_is_wrong_in_itself_is_no_fault(tmp_path: Path, error: Exception):
    assert faults.fault(error, str(tmp_path / "events.db")) is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, "full"),
        (errno.EDQUOT, "full"),
        (errno.EROFS, "readOnly"),
        (errno.EACCES, "readOnly"),
        (errno.EIO, "other"),
    ],
)
def test_an_io_error_is_what_the_system_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: str
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(faults.tempfile, "TemporaryFile", fail)
    fault = faults.fault(coded(sqlite3.SQLITE_IOERR_WRITE), str(tmp_path / "events.db"))
    assert fault is not None
    assert fault.kind == kind


def test_a_folder_that_is_gone_is_told_as_such(tmp_path: Path):
    fault = faults.fault(coded(sqlite3.SQLITE_CANTOPEN), str(tmp_path / "none" / "events.db"))
    assert fault is not None
    assert fault.kind == "gone"


async def test_a_place_for_no_sign_of_life_is_only_read(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
    (tmp_path / "owners").rmdir()
    (tmp_path / "owners").touch()
    async with opened(tmp_path) as log:
        assert log.read_only is not None
        assert log.notices == (log.read_only,)
        assert len(await log.read()) == 1
        with pytest.raises(LogReadOnly, match="the state folder"):
            await log.append("ses_1", [support.received()])


async def test_a_lock_that_another_program_never_gives_up_fails_the_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(tmp_path, journal="rollback") as log:
        await log.append("ses_1", [support.created()])
    monkeypatch.setattr(connections, "BUSY_MS", 50)
    lock = Lock(tmp_path)
    with pytest.raises(LogError, match="locked"):
        await EventLog.open(tmp_path, support.Ticks(), support.Counted(), journal="rollback")
    lock.end()
    async with opened(tmp_path, journal="rollback") as log:
        assert len(await log.read()) == 1
