"""Every process hears of every event once, in the order of `seq`, whoever wrote it."""

import asyncio
import json
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from deskmate_session.log import follow
from deskmate_session.log.store import EventLog, Fault
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened, tamper

WRITER = """
import asyncio, json, random, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    folder, name, count, processes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(name)
    log = await EventLog.open(folder, support.Ticks(), RandomIds())
    heard, done, ended = [], set(), asyncio.Event()
    def listen(events, ours):
        for event in events:
            heard.append((event.seq, event.session, ours))
            assert log.delivered < event.seq
            if event.payload.title.startswith("last of"):
                done.add(event.payload.title)
        if len(done) == processes:
            ended.set()
    log.on_commit(listen)
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    waiting = []
    for n in range(count):
        drafts = [support.updated(f"{name} {n}")] * chance.randint(1, 3)
        session = chance.choice(["ses_same", f"ses_{name}"])
        waiting.append(log.append(session, drafts, durable=chance.random() < 0.2))
        if chance.random() < 0.4:
            for event in await chance.choice(waiting):
                assert (event.seq, event.session, True) in heard
    await asyncio.gather(*waiting)
    await log.append("ses_same", [support.updated(f"last of {name}")])
    await asyncio.wait_for(ended.wait(), 30)
    print(json.dumps(heard), flush=True)
    await log.close()
asyncio.run(main())
"""

TALKER = """
import asyncio, sys, time
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    log = await EventLog.open(Path(sys.argv[1]), support.Ticks(), RandomIds())
    print("open", flush=True)
    while (await asyncio.to_thread(sys.stdin.readline)).strip():
        await log.append("ses_1", [support.updated(str(time.monotonic()))])
    await log.close()
asyncio.run(main())
"""


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def say(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdin
    process.stdin.write(f"{words}\n")
    process.stdin.flush()


class Heard:
    """What a log told, and a way to wait for more."""

    def __init__(self, log: EventLog) -> None:
        self.calls: list[tuple[list[e.Event], bool]] = []
        self._more = asyncio.Event()
        log.on_commit(self._hear)

    def _hear(self, events: list[e.Event], ours: bool) -> None:
        self.calls.append((events, ours))
        self._more.set()

    @property
    def seqs(self) -> list[int]:
        return [event.seq for events, _ in self.calls for event in events]

    @property
    def ours(self) -> list[bool]:
        return [ours for events, ours in self.calls for _ in events]

    async def until(self, seq: int) -> None:
        """Wait for an event."""
        async with asyncio.timeout(30):
            while not self.seqs or self.seqs[-1] < seq:
                self._more.clear()
                await self._more.wait()


async def test_processes_hear_the_same_events_in_the_same_order_each_once(tmp_path: Path):
    names = ("a", "b", "c")
    writers = [support.child(WRITER, str(tmp_path), name, "60", str(len(names))) for name in names]
    try:
        assert [line(process) for process in writers] == ["open"] * len(names)
        for process in writers:
            say(process, "go")
        ends = [process.communicate(timeout=60) for process in writers]
        assert [errors for _, errors in ends] == [""] * len(names)
        heard: list[list[tuple[int, str, bool]]] = [json.loads(out) for out, _ in ends]
    finally:
        for process in writers:
            process.kill()
            process.communicate()
    async with opened(tmp_path) as log:
        there = [(event.seq, event.session) for event in await log.read()]
        assert (await log.verify()).ok
    for found in heard:
        assert [(seq, session) for seq, session, _ in found] == there
    # Each event is the own one of exactly one process.
    assert [[row[2] for row in rows].count(True) for rows in zip(*heard, strict=True)] == [1] * len(there)


async def test_others_are_heard_soon(tmp_path: Path):
    async with opened(tmp_path) as log:
        assert not log.others
        heard = Heard(log)
        gone = asyncio.Event()
        stop = log.on_owners_gone(gone.set)
        process = support.child(TALKER, str(tmp_path))
        try:
            assert line(process) == "open"
            say(process, "first")
            await heard.until(1)
            delays: list[float] = []
            for seq in range(2, 42):
                say(process, "more")
                await heard.until(seq)
                payload = heard.calls[-1][0][-1].payload
                assert isinstance(payload, e.SessionUpdated)
                delays.append(time.monotonic() - float(payload.title or 0))
            assert sorted(delays)[37] < 0.25
            assert log.others
            assert not gone.is_set()
        finally:
            process.kill()
            process.communicate()
        died = time.monotonic()
        await asyncio.wait_for(gone.wait(), 10)
        assert time.monotonic() - died < 2
        assert not log.others
        assert list((tmp_path / "owners").iterdir()) == [tmp_path / "owners" / f"{log.owner}.lock"]
        stop()
        assert heard.seqs == list(range(1, 42))
        assert not any(heard.ours)
        assert log.delivered == 41


async def test_what_others_wrote_between_comes_before_what_is_ours(tmp_path: Path):
    async with opened(tmp_path) as log, opened(tmp_path, EventLog) as other:
        heard, heard_there = Heard(log), Heard(other)
        for _ in range(20):
            await other.append("ses_1", [support.updated("a")] * 2)
            [event] = await log.append("ses_2", [support.updated("b")])
            assert heard.seqs[-1] == event.seq == log.delivered
        assert heard.seqs == list(range(1, 61))
        assert heard.ours == [False, False, True] * 20
        await heard_there.until(60)
        assert heard_there.seqs == heard.seqs
        assert heard_there.ours == [not ours for ours in heard.ours]


async def test_what_was_there_at_opening_is_not_told(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        assert log.delivered == 0
        await log.append("ses_1", [support.created()])
        assert log.delivered == 1
        async with opened(tmp_path) as other:
            assert other.others
            assert other.delivered == 1
            heard = Heard(other)
            await log.append("ses_1", [support.updated("x")])
            await heard.until(2)
            assert heard.seqs == [2]


async def test_long_runs_come_in_pieces(tmp_path: Path):
    for ours in (False, True):
        folder = tmp_path / str(ours)
        async with opened(folder) as log, opened(folder) as other:
            heard = Heard(other)
            await log.append("ses_1", [support.updated("x")] * (3 * follow.RUN))
            if ours:
                await other.append("ses_2", [support.updated("y")])
            await heard.until(3 * follow.RUN + ours)
            assert max(len(events) for events, _ in heard.calls) <= follow.RUN
            assert heard.seqs == list(range(1, 3 * follow.RUN + 1 + ours))


async def test_a_reader_of_a_newer_log_follows_it(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        tamper(tmp_path, "pragma user_version = 9999")
        async with opened(tmp_path) as reader:
            assert (reader.read_only is not None, reader.owner) == (True, "")
            heard = Heard(reader)
            await log.append("ses_1", [support.created()])
            await heard.until(1)
            assert heard.ours == [False]


@pytest.mark.parametrize("run", [1, follow.RUN])
async def test_an_event_that_can_not_be_read_is_told_once_and_passed_over(tmp_path: Path, run: int):
    async with opened(tmp_path) as log, opened(tmp_path) as other:
        heard, faults = Heard(other), list[Fault | None]()
        other.on_fault(faults.append)
        columns = "id, session, idx, type, version, at, payload, digest, prev, hash"
        broken = "'session.updated', 1, 0, x'7b', x'00', x'00', x'00'"
        with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as conn:
            conn.execute("begin")
            for n in range(run):
                conn.execute(f"insert into events ({columns}) values ('evt_{n}', 'ses_bad', {n}, {broken})")
            conn.execute("commit")
        await log.append("ses_1", [support.created()])
        await heard.until(run + 1)
        assert heard.seqs == [run + 1]
        assert [fault and fault.kind for fault in faults] == ["corrupt"]
        assert faults[0] is not None
        assert "event 1" in faults[0].message
        await other.append("ses_1", [support.updated("x")])
        assert heard.seqs == [run + 1, run + 2]
        assert len(faults) == 1


async def test_nobody_is_woken_while_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with opened(tmp_path) as log, opened(tmp_path) as other:
        heard = Heard(log)
        await other.append("ses_1", [support.created()])
        await heard.until(1)
        looks, reads = list[int](), list[int]()
        seen, enough = asyncio.get_running_loop(), asyncio.Event()
        version, foreign = follow.appends.data_version, follow.appends.foreign

        def look(conn: sqlite3.Connection) -> int:
            looks.append(1)
            if len(looks) == 10:
                seen.call_soon_threadsafe(enough.set)
            return version(conn)

        def read(*args: object) -> list[object]:
            reads.append(1)
            return foreign(*args)  # pyright: ignore[reportArgumentType, reportReturnType]

        monkeypatch.setattr(follow.appends, "data_version", look)
        monkeypatch.setattr(follow.appends, "foreign", read)
        posts = list[object]()
        monkeypatch.setattr(log._writer, "_post", lambda *args: posts.append(args))
        await asyncio.wait_for(enough.wait(), 30)
        monkeypatch.undo()
        assert (reads, posts) == ([], [])


async def test_a_listener_that_fails_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    def fail(*_: object) -> None:
        raise RuntimeError("its own fault")

    async with opened(tmp_path) as log:
        log.on_owners_gone(fail)
        stop = log.on_fault(fail)
        log.owners_gone(None)
        log.fault(None)
        stop()
        log.fault(None)
        assert caplog.text.count("a listener of the event log failed") == 2
        assert [event.seq for event in await log.append("ses_1", [support.created()])] == [1]
