"""What others do to our files, and what the system denies: told, or passed over, and the log goes on."""

import errno
import fcntl
import os
import socket
import threading
from contextlib import closing
from pathlib import Path

import pytest

from deskmate_session.errors import LogError, LogReadOnly
from deskmate_session.log import checkpoints, database, owners, writer
from deskmate_session.log.store import EventLog
from tests.log import support
from tests.log.support import opened, tamper


async def test_a_look_that_fails_does_not_end_the_thread_that_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    looks: list[int] = []

    def living(_state_dir: Path, *, but: str = "") -> set[str]:
        looks.append(1)
        if len(looks) < 3:
            raise OSError(errno.EMFILE, "too many open files")
        return set()

    async with opened(tmp_path) as log:
        monkeypatch.setattr(owners, "living", living)
        log._others._due = 0.0
        await log.append("ses_1", [support.created()])
        while len(looks) < 3:
            log._others._due = 0.0
            await log.append("ses_1", [support.updated("x")])


@pytest.mark.parametrize("kind", ["fifo", "loop", "socket", "folder", "dangling"])
async def test_what_is_no_lock_file_is_no_living_owner(tmp_path: Path, kind: str):
    place = tmp_path / "owners" / "own_x.lock"
    place.parent.mkdir()
    match kind:
        case "fifo":
            os.mkfifo(place)
        case "loop":
            place.symlink_to(place)
        case "socket":
            with closing(socket.socket(socket.AF_UNIX)) as made:
                made.bind(str(place))
        case "folder":
            place.mkdir()
        case _:
            place.symlink_to(tmp_path / "nowhere")
    assert owners.alive(tmp_path, "own_x") is False
    owners.sweep(tmp_path)
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])


def test_an_owner_that_may_not_be_looked_at_is_taken_for_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def denied(*_: object) -> int:
        raise PermissionError(errno.EACCES, "denied")

    monkeypatch.setattr(os, "open", denied)
    assert owners.alive(tmp_path, "own_x") is True


@pytest.mark.parametrize("which", ["-wal", "-shm"])
async def test_a_file_beside_the_database_that_was_removed_is_noticed_and_nothing_is_lost(
    tmp_path: Path, which: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "_EVERY", 0.0)
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()], durable=True)
        (tmp_path / f"events.db{which}").unlink()
        with pytest.raises(LogReadOnly, match="removed or replaced"):
            await log.append("ses_1", [support.updated("x")], durable=True)
    async with opened(tmp_path) as log:
        assert [event.session for event in await log.read()] == ["ses_1"]
        assert (await log.verify()).ok


async def test_an_opener_does_not_wait_for_ever_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "OPENING", 0.05)
    with (tmp_path / "events.db.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(LogError, match="another program has been opening"):
            await EventLog.open(tmp_path, support.Ticks(), support.Counted())
    threads = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("deskmate-log") for name in threads)


@pytest.mark.parametrize(
    "statement",
    [
        "update sqlite_sequence set seq = 9223372036854775807",
        "insert or replace into leases values ('ses_1', 9223372036854775807, null)",
    ],
)
async def test_a_counter_beyond_all_is_damage(tmp_path: Path, statement: str):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
    tamper(tmp_path, statement)
    async with opened(tmp_path) as log:
        assert "was damaged" in log.notices[0]
        await log.append("ses_1", [support.updated("x")])
        assert (await log.verify()).ok


async def test_a_prompt_that_waits_and_is_nobodys_is_found(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        requested = await log.request("ses_1", [support.received("msg_1")])
        assert requested.lease is not None
        assert await log.dead_leases() == []
        await log.release(requested.lease, anyway=True)
        assert await log.dead_leases() == ["ses_1"]


def test_a_checkpoint_row_is_what_its_checksum_says():
    """The sum covers every column, so that no row can be moved or renamed."""
    whole = checkpoints.checksum("ses_1", 1, b"h", 1, b"b")
    others = [
        checkpoints.checksum("ses_2", 1, b"h", 1, b"b"),
        checkpoints.checksum("ses_1", 2, b"h", 1, b"b"),
        checkpoints.checksum("ses_1", 1, b"i", 1, b"b"),
        checkpoints.checksum("ses_1", 1, b"h", 2, b"b"),
        checkpoints.checksum("ses_1", 1, b"h", 1, b"c"),
    ]
    assert whole not in others
