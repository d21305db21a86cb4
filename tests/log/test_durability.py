"""What must outlast a loss of power is flushed to the disk before it is acknowledged; the rest is not."""

from pathlib import Path

import pytest

from deskmate_session.log.store import EventLog
from tests.log import support
from tests.log.support import opened


class Commits:
    """The commits of a log's writer from now on, each with the `synchronous` that it was made under."""

    def __init__(self, log: EventLog) -> None:
        conn = log._writer._conn
        self._level = {1: "normal", 2: "full"}[conn.execute("pragma synchronous").fetchone()[0]]
        self._levels: list[str] = []
        conn.set_trace_callback(self._ran)

    def _ran(self, statement: str) -> None:
        said = statement.lower()
        if said.startswith("pragma synchronous ="):
            self._level = said.rpartition("=")[2].strip()
        elif said == "commit":
            self._levels.append(self._level)

    def take(self) -> list[str]:
        """Those since the last look."""
        taken, self._levels = self._levels, []
        return taken


async def test_a_durable_append_is_flushed_and_a_plain_one_is_not(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        commits = Commits(log)
        for durable in (False, True, True, False, True):
            await log.append("ses_1", [support.updated("x")], durable=durable)
            assert commits.take() == ["full" if durable else "normal"]


@pytest.mark.parametrize("alone", [True, False])
async def test_what_a_person_asks_for_is_flushed(tmp_path: Path, alone: bool):
    async with opened(tmp_path, EventLog) as log, opened(tmp_path, EventLog) as other:
        holder = log if alone else other
        await holder.request("ses_1", [support.created()])
        commits = Commits(log)
        assert ((await log.request("ses_1", [support.received()])).lease is not None) is alone
        assert commits.take() == ["full"]


async def test_plain_appends_that_share_a_commit_with_a_durable_one_are_flushed_with_it(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        commits = Commits(log)
        for durable in (False, True, False):
            last = log.append("ses_1", [support.updated("x")], durable=durable)
        await last
        levels = commits.take()
        # However the three were batched, one of the commits holds the durable one.
        assert set(levels) <= {"normal", "full"} and levels.count("full") == 1


async def test_a_lease_and_a_checkpoint_are_not_flushed_after_something_durable(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        await log.request("ses_1", [support.created()])
        commits = Commits(log)
        await log.append("ses_1", [support.updated("x")], durable=True)
        await log.take("ses_1")
        await log.checkpoint("ses_1", 1, b"one")
        assert commits.take() == ["full", "normal", "normal"]
