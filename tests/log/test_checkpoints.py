"""Checkpoints are offered only while they are whole, of this schema, and of this very chain."""

from pathlib import Path

import pytest

from deskmate_session.errors import LogError
from deskmate_session.log import checkpoints
from deskmate_session.log.store import Checkpoint, EventLog
from tests.log import support
from tests.log.support import opened, tamper


async def filled(log: EventLog) -> None:
    """Events 1 to 5 of `ses_1`, checkpoints at 3 and 5; event 6 is another session's."""
    await log.append("ses_1", [support.created(), *(support.updated(str(n)) for n in range(4))])
    await log.append("ses_2", [support.created()])
    await log.checkpoint("ses_1", 3, b"three")
    await log.checkpoint("ses_1", 5, b"five")


async def test_the_newest_within_bounds_is_found(tmp_path: Path):
    async with opened(tmp_path) as log:
        assert await log.newest_checkpoint("ses_1") is None
        await filled(log)
        assert await log.newest_checkpoint("ses_1") == Checkpoint(5, b"five")
        assert await log.newest_checkpoint("ses_1", upto=5) == Checkpoint(5, b"five")
        assert await log.newest_checkpoint("ses_1", upto=4) == Checkpoint(3, b"three")
        assert await log.newest_checkpoint("ses_1", upto=2) is None
        assert await log.newest_checkpoint("ses_2") is None
        assert await log.newest_checkpoint("ses_1", schema=99) is None
    async with opened(tmp_path) as log:
        assert await log.newest_checkpoint("ses_1") == Checkpoint(5, b"five")


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("update checkpoints set body = x'00' where seq = 5", 3),
        ("update checkpoints set checksum = x'00' where seq = 5", 3),
        ("update checkpoints set hash = zeroblob(32) where seq = 5", 3),
        ("update checkpoints set schema = schema + 1 where seq = 5", 3),
        ("update checkpoints set session = 'ses_2', seq = 6 where seq = 5", 3),
        ("update checkpoints set seq = 4 where seq = 5", 3),
        ("update checkpoints set seq = 7 where seq = 5", 3),
        ("update events set hash = zeroblob(32) where seq = 5", 3),
        ("update newest_checkpoint set seq = 3", 3),  # what the pointer has not reached is not there yet
        ("delete from newest_checkpoint", None),
        ("update checkpoints set body = x'00'", None),
        ("delete from checkpoints", None),
    ],
)
async def test_one_that_is_damaged_or_foreign_is_passed_over(
    tmp_path: Path, statement: str, left: int | None
):
    async with opened(tmp_path) as log:
        await filled(log)
    tamper(tmp_path, statement)
    async with opened(tmp_path) as log:
        found = await log.newest_checkpoint("ses_1")
        assert (None if found is None else found.seq) == left
        assert await log.newest_checkpoint("ses_2") is None


async def test_only_the_newest_two_stay_and_the_pointer_never_goes_back(tmp_path: Path):
    async with opened(tmp_path) as log:
        await filled(log)
        await log.checkpoint("ses_1", 4, b"four")
        assert await log.newest_checkpoint("ses_1") == Checkpoint(5, b"five")
        assert await log.newest_checkpoint("ses_1", upto=4) == Checkpoint(4, b"four")
        assert await log.newest_checkpoint("ses_1", upto=3) is None
        await log.checkpoint("ses_1", 5, b"five again")
        assert await log.newest_checkpoint("ses_1") == Checkpoint(5, b"five again")
        await log.checkpoint("ses_2", 6, b"six")
        assert await log.newest_checkpoint("ses_2") == Checkpoint(6, b"six")
        assert await log.newest_checkpoint("ses_1", upto=4) == Checkpoint(4, b"four")


async def test_a_checkpoint_ends_at_an_event_of_its_session(tmp_path: Path):
    async with opened(tmp_path) as log:
        await filled(log)
        for seq in (6, 7, 0):
            with pytest.raises(LogError, match=f"event {seq} is none of session 'ses_1'"):
                await log.checkpoint("ses_1", seq, b"")
        assert await log.newest_checkpoint("ses_1") == Checkpoint(5, b"five")
        assert (await log.verify()).events == 6


async def test_a_checkpoint_that_is_cut_off_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.updated("x")])
        await log.checkpoint("ses_1", 1, b"one")
        put = checkpoints.put

        def cut(*args: object) -> None:
            put(*args)  # pyright: ignore[reportArgumentType]
            raise OSError("the lights went out")

        monkeypatch.setattr(checkpoints, "put", cut)
        with pytest.raises(LogError, match="the lights went out"):
            await log.checkpoint("ses_1", 2, b"two")
        assert await log.newest_checkpoint("ses_1") == Checkpoint(1, b"one")
        assert (await log.append("ses_1", [support.updated("y")]))[0].seq == 3
