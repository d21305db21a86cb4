"""Where a log may lie: file systems without shared memory, without locks, read-only, or full."""

import errno
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from deskmate_session.errors import LogReadOnly
from deskmate_session.log import database, mounts, owners
from deskmate_session.log.mounts import Mount
from deskmate_session.log.store import EventLog
from tests.log import support
from tests.log.support import opened
from tests.log.test_migrations import first_log

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard
40 27 0:40 / /home/a\040b rw,relatime shared:2 master:3 - nfs4 server:/home rw,vers=4.2
41 40 254:1 / /home/a\040b/local rw - xfs /dev/vdb rw
42 27 0:42 / /net rw - fuse.sshfs me@there:/ rw,user_id=0
43 27 0:43 / /merged rw - overlay overlay rw,lowerdir=/l,upperdir=/home/a\040b/up,workdir=/w
44 27 0:44 / /layers rw - overlay overlay rw,lowerdir=/l:/m,upperdir=/var/up,workdir=/w
45 27 0:45 / /over rw - tmpfs tmpfs rw
46 27 0:46 / /over rw - 9p share rw
47 27 0:47 / /under rw - overlay overlay ro,lowerdir=/l:/m
48 27 0:48 / /circle rw - overlay overlay rw,upperdir=/circle/up
no line of a mount
"""


def test_mounts_are_read_with_their_escapes():
    found = mounts.parse(MOUNTINFO)
    assert found[:3] == [
        Mount("/proc", "proc"),
        Mount("/", "ext4"),
        Mount("/home/a b", "nfs4"),
    ]
    assert found[5] == Mount("/merged", "overlay", "/home/a b/up")
    assert len(found) == 11


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/x", None),
        ("/home/a b", "nfs4"),
        ("/home/a b/state", "nfs4"),
        ("/home/a b/local/state", None),
        ("/home/a bc", None),
        ("/net/x", "fuse.sshfs"),
        ("/network/x", None),
        ("/merged/x", "nfs4"),
        ("/layers/x", None),
        ("/over/x", "9p"),
        ("/under/x", None),
        ("/circle/x", None),
    ],
)
def test_a_path_lies_in_the_mount_that_is_longest_and_latest(path: str, kind: str | None):
    assert mounts.distrusted(path, mounts.parse(MOUNTINFO)) == kind


def test_a_system_without_a_table_of_mounts_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    assert mounts.look(tmp_path) is None
    assert mounts.distrusted("/x", []) is None


def test_this_systems_own_table_can_be_read(tmp_path: Path):
    if not mounts.MOUNTS.exists():
        pytest.skip("only Linux has a table of mounts in /proc")
    there = mounts.at(str(tmp_path.resolve()), mounts.parse(mounts.MOUNTS.read_text()))
    assert there is not None
    assert Path(there.point).is_mount()


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of mounts says that the test's folder lies on NFS."""
    table = tmp_path / "mountinfo"
    point = str(tmp_path).replace(" ", "\\040")
    table.write_text(f"1 1 0:1 / / rw - ext4 x rw\n2 1 0:2 / {point} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr(mounts, "MOUNTS", table)


def journal(folder: Path) -> str:
    with closing(sqlite3.connect(folder / "events.db")) as conn:
        return conn.execute("pragma journal_mode").fetchone()[0]


@pytest.mark.usefixtures("foreign")
async def test_a_network_file_system_gets_a_rollback_journal_and_the_person_is_told(tmp_path: Path):
    folder = tmp_path / "state"
    async with opened(folder) as log, opened(folder, EventLog) as other:
        assert journal(folder) == "delete"
        [notice] = log.notices
        assert "nfs4" in notice
        assert "point XDG_STATE_HOME to a local disk" in notice
        await log.append("ses_1", [support.created()], durable=True)
        await other.append("ses_1", [support.updated("x")])
        assert [event.seq for event in await other.read()] == [1, 2]
        assert (await log.verify()).problems == ()
        assert not (folder / "events.db-wal").exists()


@pytest.mark.usefixtures("foreign")
async def test_a_person_who_chose_the_journal_is_not_told(tmp_path: Path):
    for choice, mode in (("wal", "wal"), ("rollback", "delete"), ("wal", "wal")):
        async with opened(tmp_path / "state", journal=choice) as log:
            assert log.notices == ()
            await log.append(f"ses_{choice}{await log.last_seq()}", [support.created()])
            assert journal(tmp_path / "state") == mode
    async with opened(tmp_path / "state", journal="wal") as log:
        assert len(await log.read()) == 3
        assert (await log.verify()).problems == ()


async def test_a_log_in_use_keeps_its_journal(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        async with opened(tmp_path, EventLog, journal="rollback") as other:
            await other.append("ses_1", [support.updated("x")])
        assert journal(tmp_path) == "wal"
        await log.append("ses_1", [support.updated("y")])
        assert len(await log.read()) == 3


async def killed(tmp: Path) -> Path:
    """A folder as a killed process leaves it: two events, in the write-ahead log alone."""
    live, dead = tmp / "live", tmp / "dead"
    async with opened(live) as log:
        with closing(sqlite3.connect(log.path, isolation_level=None)) as old:
            old.execute("pragma wal_checkpoint(truncate)").fetchall()
            old.execute("begin")
            old.execute("select count(*) from events").fetchone()  # what comes after this look stays there
            await log.append("ses_1", [support.created(), support.received()])
            dead.mkdir()
            for name in ("events.db", "events.db-wal", "openingn0x"):
                shutil.copy(live / name, dead / name)
    return dead


@pytest.mark.parametrize("spoil", [lambda path: path.symlink_to("nowhere"), Path.mkdir])
async def test_where_no_shared_memory_can_be_made_the_log_leaves_the_write_ahead_log(
    tmp_path: Path, spoil: Callable[[Path], None]
):
    dead = await killed(tmp_path)
    shm = dead / "events.db-shm"
    spoil(shm)  # SQLite can't open it, or can't write to it
    async with opened(dead) as log:
        [notice] = log.notices
        assert "shares no memory between programs" in notice
        assert journal(dead) == "delete"
        await log.append("ses_1", [support.updated("x")])
        assert (await log.verify()).problems == ()
    assert list(dead.glob("events.damaged*")) == []
    shm.rmdir() if shm.is_dir() else shm.unlink(missing_ok=True)
    async with opened(dead) as log:
        assert log.notices == ()
        assert journal(dead) == "wal"
        assert len(await log.read()) == 3


async def read(folder: Path) -> list[int]:
    async with opened(folder) as log:
        return [event.seq for event in await log.read()]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
@pytest.mark.parametrize("made", [True, False])
async def test_without_locks_a_log_is_only_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, made: bool
):
    if made:
        async with opened(tmp_path) as log:
            await log.append("ses_1", [support.created()])

    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(database.fcntl, "flock", fails)
    async with opened(tmp_path) as log:
        assert log.read_only is not None
        assert "locks do not work" in log.read_only
        assert log.notices == (log.read_only,)
        assert len(await log.read()) == int(made)
        assert (await log.list_sessions()).next_cursor is None
        with pytest.raises(LogReadOnly, match="point XDG_STATE_HOME to a local disk"):
            await log.append("ses_1", [support.created()])
    monkeypatch.undo()
    assert await read(tmp_path) == [1] * made


async def test_locks_that_fail_at_the_sign_of_life_are_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(owners.Owner, "claim", fails)
    async with opened(tmp_path) as log:
        assert log.read_only is not None
        assert "locks do not work" in log.read_only


# ── Real mounts ──────────────────────────────────────────────────────────────────────────────────


def mount(*args: str) -> None:
    made = subprocess.run(["mount", *args], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"this environment lets nobody mount: {made.stderr.strip()}")


@contextmanager
def mounted(*args: str, point: Path) -> Iterator[None]:
    mount(*args, str(point))
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    with mounted("--bind", str(folder), point=folder):
        mount("-o", "remount,bind,ro", str(folder))
        yield


async def test_a_read_only_place_is_read(tmp_path: Path):
    state = tmp_path / "state"
    async with opened(state) as log:
        await log.append("ses_1", [support.created(), support.received()])
    files = {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()}
    with read_only(state):
        log = await EventLog.open(state, support.Ticks(), support.Counted())
        assert log.read_only is not None
        assert "Read-only file system" in log.read_only
        assert log.notices == (log.read_only,)
        assert [event.seq for event in await log.read()] == [1, 2]
        assert (await log.verify()).problems == ()
        with pytest.raises(LogReadOnly):
            await log.append("ses_1", [support.updated("x")])
        await log.close()
    assert {path.name: path.read_bytes() for path in state.iterdir() if path.is_file()} == files
    assert await read(state) == [1, 2]


async def test_a_read_only_place_with_a_write_ahead_log_is_read_whole(tmp_path: Path):
    dead = await killed(tmp_path)
    with read_only(dead):
        log = await EventLog.open(dead, support.Ticks(), support.Counted())
        assert log.read_only is not None
        assert [event.seq for event in await log.read()] == [1, 2]
        await log.close()


async def test_an_old_log_in_a_read_only_place_is_read_as_if_it_were_new(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    first_log(state)
    content = (state / "events.db").read_bytes()
    with read_only(state):
        log = await EventLog.open(state, support.Ticks(), support.Counted())
        assert [turn.turn_id for turn in await log.open_turns()] == ["turn_1"]
        assert len((await log.message_page("ses_1")).messages) == 3
        await log.close()
    assert (state / "events.db").read_bytes() == content


async def test_an_empty_read_only_place_and_a_damaged_one_are_empty_logs(tmp_path: Path):
    for name, content in (("empty", None), ("damaged", b"\xa5" * 100_000)):
        state = tmp_path / name
        state.mkdir()
        if content is not None:
            (state / "events.db").write_bytes(content)
        with read_only(state):
            log = await EventLog.open(state, support.Ticks(), support.Counted())
            assert log.read_only is not None
            assert ("it is damaged" in log.read_only) == (content is not None)
            assert await log.read() == []
            await log.close()


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(4096))


async def test_a_full_disk_is_told_and_passes(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", point=state):
        async with opened(state) as log:
            kinds: list[str | None] = []
            log.on_fault(lambda fault: kinds.append(fault and fault.kind))
            await log.append("ses_1", [support.created()])
            (state / "filler").write_bytes(b"")
            with (
                (state / "filler").open("wb", buffering=0) as filler,
                pytest.raises(OSError, match="No space"),
            ):
                while True:
                    filler.write(bytes(4096))
            big = support.appended(os.urandom(100_000).hex())
            for _ in range(3):
                with pytest.raises(LogReadOnly, match="the disk is full"):
                    await log.append("ses_1", [big])
            (state / "filler").unlink()
            [event] = await log.append("ses_1", [big])
            assert event.seq == 2
            assert kinds == ["full", None]
            assert (await log.verify()).problems == ()


async def test_a_log_on_a_full_disk_opens(tmp_path: Path):
    state = tmp_path / "state"
    state.mkdir()
    with mounted("-t", "tmpfs", "-o", "size=1m", "tmpfs", point=state):
        async with opened(state) as log:
            await log.append("ses_1", [support.created()])
        fill(state / "filler")
        log = await EventLog.open(state, support.Ticks(), support.Counted())
        assert [event.seq for event in await log.read()] == [1]
        assert log.notices == (() if log.read_only is None else (log.read_only,))
        await log.close()
        (state / "filler").unlink()
        async with opened(state) as log:
            assert log.read_only is None
            assert [event.seq for event in await log.append("ses_1", [support.updated("x")])] == [2]
