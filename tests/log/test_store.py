"""Appending, reading, listening, on a real database."""

import asyncio
import os
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from deskmate_session.errors import Conflict, LogCorrupt, LogError, LogReadOnly
from deskmate_session.log import chain, codec, database, rows
from deskmate_session.log.store import ALL, EventLog, Head
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened


async def test_an_append_gives_the_events_back_as_they_are_read(tmp_path: Path):
    async with opened(tmp_path) as log:
        first = await log.append("ses_1", [support.created(), support.received()])
        second = await log.append("ses_1", [support.turn_started()], durable=True)
        folder = await log.append(None, [e.Draft(e.UnknownPayload(tag="folder.fact", data={"a": None}))])
        assert [event.seq for event in first + second + folder] == [1, 2, 3, 4]
        assert [event.index for event in first + second + folder] == [0, 1, 2, 0]
        assert await log.read() == first + second + folder
        assert await log.read("ses_1") == first + second
        assert await log.read(None) == folder
        assert await log.read(ALL, after=1, upto=3) == first[1:] + second
        assert await log.read("ses_1", types=["turn.started", "turn.ended"]) == second
        assert await log.read(limit=1) == first[:1]
        assert [page async for page in log.pages(size=3)] == [first + second, folder]
        assert await log.head("ses_1") == Head(3, 2, second[0].hash)
        assert await log.head("ses_2") is None
        assert await log.last_seq() == 4
        assert await log.seq_of(second[0].id) == 3
        assert await log.seq_of("evt_none") is None


async def test_the_chain_can_be_computed_from_what_is_told(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received()])
        prev = "0" * 64
        for event in await log.read("ses_1"):
            told = rows.logged(event)
            header = chain.header(
                session="ses_1",
                index=told.index,
                id=told.id,
                type=told.type,
                version=told.version,
                at=told.at,
                cause=told.cause,
            )
            digest = chain.digest(codec.canonical(told.payload))
            assert told.prev == prev
            assert chain.link(bytes.fromhex(prev), header, digest).hex() == told.hash
            prev = told.hash


async def test_appends_keep_the_order_of_their_calls(tmp_path: Path):
    async with opened(tmp_path) as log:
        futures = [
            log.append(f"ses_{n % 3}", [support.appended(str(n))], durable=n % 7 == 0) for n in range(1200)
        ]
        done = [event for events in await asyncio.gather(*futures) for event in events]
        assert [event.seq for event in done] == list(range(1, 1201))
        assert await log.read() == done
        assert (await log.verify()).ok


async def test_nothing_to_append_is_done_at_once(tmp_path: Path):
    async with opened(tmp_path) as log:
        assert await log.append("ses_1", []) == []
        assert await log.last_seq() == 0


async def test_listeners_hear_of_events_before_the_caller_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    heard: list[int] = []

    def fail(_: list[e.Event], __: bool) -> None:
        raise RuntimeError("a listener's own fault")

    async with opened(tmp_path) as log:
        log.on_commit(fail)
        stop = log.on_commit(lambda events, _: heard.extend(event.seq for event in events))
        futures = [log.append("ses_1", [support.appended("a")] * 2) for _ in range(5)]
        await futures[2]
        assert heard[:6] == [1, 2, 3, 4, 5, 6]
        await asyncio.gather(*futures)
        stop()
        await log.append("ses_1", [support.appended("b")])
        assert heard == list(range(1, 11))
        assert "a listener of the event log failed at seq 1" in caplog.text


async def test_a_bad_append_harms_no_other(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        bad = e.Draft(e.UnknownPayload(tag="x", data={"a": object()}))
        results = await asyncio.gather(
            log.append("ses_1", [support.received("msg_1")]),
            log.append("ses_1", [support.appended("a"), support.received("msg_1")]),
            log.append("ses_1", [bad]),
            log.append("ses_1", [support.received("msg_2")]),
            return_exceptions=True,
        )
        assert isinstance(results[1], Conflict)
        assert isinstance(results[2], LogError)
        assert "TypeError" in str(results[2])
        assert [event.type for event in await log.read()] == [
            "session.created",
            "message.received",
            "message.received",
        ]
        assert (await log.verify()).ok


async def test_a_cancelled_wait_takes_nothing_back(tmp_path: Path):
    async with opened(tmp_path) as log:
        log.append("ses_1", [support.created()]).cancel()
        log.append("ses_1", [support.created()]).cancel()  # and a failure that nobody waits for is no fault
        await log.append("ses_1", [support.received()])
        assert [event.type for event in await log.read()] == ["session.created", "message.received"]


async def test_a_lone_surrogate_is_replaced(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.appended("a\ud83d")])
        [event] = await log.read()
        assert isinstance(event.payload, e.PartAppended)
        assert event.payload.text == "a\ufffd"


async def test_debug_tags_name_the_line_and_stand_outside_the_hash(tmp_path: Path):
    async with opened(tmp_path, debug_tags=True) as log:
        [event] = await log.append("ses_1", [support.created()])
        assert event.debug_tag is not None
        assert event.debug_tag.startswith(f"{__name__}:test_debug_tags")
        [event] = await log.append("ses_1", [e.Draft(support.received().payload, debug_tag="mine")])
        assert event.debug_tag == "mine"
    support.tamper(tmp_path, "update events set debug_tag = null")
    async with opened(tmp_path) as log:
        assert (await log.verify()).ok


async def test_the_log_refuses_updates_and_deletes(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
    with closing(sqlite3.connect(tmp_path / "events.db")) as conn:
        known = {row[1] for row in conn.execute("pragma table_info(events)")}
        columns = ", ".join(name for name in known if name != "debug_tag")
        replace = f"insert or replace into events ({columns}) select {columns} from events"
        for statement in ("update events set at = 0", "delete from events", replace):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                conn.execute(statement)


async def test_files_are_private_and_tidy(tmp_path: Path):
    folder = tmp_path / "state"
    async with opened(folder) as log:
        await log.append("ses_1", [support.created()])
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.glob("events.db*")}
        assert set(modes) == {"events.db", "events.db-wal", "events.db-shm", "events.db.lock"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        await log.close()
        await log.close()
        assert {path.name for path in folder.glob("events.db*")} == {"events.db", "events.db.lock"}
    with closing(sqlite3.connect(folder / "events.db")) as conn:
        assert conn.execute("pragma page_size").fetchone() == (8192,)
        assert conn.execute("pragma journal_mode").fetchone() == ("wal",)


async def test_a_closed_log_says_so(tmp_path: Path):
    async with opened(tmp_path) as log:
        waiting = log.append("ses_1", [support.created()])
        await log.close()
        assert [event.seq for event in await waiting] == [1]
        with pytest.raises(LogError, match="closed"):
            await log.append("ses_1", [support.received()])
        with pytest.raises(LogError, match="closed"):
            await log.read()


async def test_a_newer_log_is_read_and_not_written(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
    support.tamper(tmp_path, "pragma user_version = 9999")
    async with opened(tmp_path) as log:
        assert log.read_only is not None
        assert "schema 9999" in log.read_only
        assert len(await log.read()) == 1
        with pytest.raises(LogReadOnly, match="update this one"):
            await log.append("ses_1", [support.received()])


async def test_what_is_no_log_of_ours_is_left_alone(tmp_path: Path):
    path = tmp_path / "events.db"
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("create table theirs (a)")
    content = path.read_bytes()
    with pytest.raises(LogCorrupt):
        await EventLog.open(tmp_path, support.Ticks(), support.Counted())
    assert path.read_bytes() == content


async def test_a_log_that_was_cut_while_it_was_made_is_made_again(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "events.db")) as conn:
        conn.execute(
            "create table _sqlite_migrations (id integer primary key, migration_set, name, applied_at)"
        )
        conn.commit()
    async with opened(tmp_path) as log:
        assert await log.last_seq() == 0


async def test_a_damaged_page_is_told_as_such(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), *(support.appended("x" * 300) for _ in range(200))])
    path = tmp_path / "events.db"
    async with opened(tmp_path) as log:
        await log.take("ses_1")
        content = bytearray(path.read_bytes())
        content[8192:] = b"\xa5" * (len(content) - 8192)
        path.write_bytes(content)
        with pytest.raises(LogCorrupt, match="damaged"):
            await log.read()
        with pytest.raises(LogCorrupt, match="damaged"):
            await log.append("ses_1", [support.received()])
        with pytest.raises(LogCorrupt, match="damaged"):
            await log.verify()


async def test_a_payload_that_can_not_be_read_names_its_event(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.appended("a")])
    support.tamper(tmp_path, "update events set payload = x'7b' where seq = 2")
    async with opened(tmp_path) as log:
        with pytest.raises(LogCorrupt, match=r"event 2: .* run `deskmate sessions verify"):
            await log.read()


def test_errors_of_sqlite_have_their_names_in_ours():
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorcode = sqlite3.SQLITE_READONLY
    assert isinstance(database.translate(error), LogReadOnly)
    assert type(database.translate(sqlite3.ProgrammingError("closed"))) is LogError
    kept = Conflict("mine")
    assert database.translate(kept) is kept


async def test_the_writer_outlives_the_loop(tmp_path: Path):
    def abandon() -> EventLog:
        async def run() -> EventLog:
            log = await EventLog.open(tmp_path, support.Ticks(), support.Counted())
            with closing(sqlite3.connect(tmp_path / "events.db", isolation_level=None)) as other:
                other.execute("begin immediate")
                log.append("ses_1", [support.created()])
            return log  # the loop closes while the writer still waits for the lock

        return asyncio.run(run())

    log = await asyncio.to_thread(abandon)
    log._writer._queue.put(None)
    await asyncio.to_thread(log._writer._thread.join)
    log._reader.close()
    async with opened(tmp_path) as again:
        assert len(await again.read()) == 1


async def test_streamed_text_grows_the_log_by_less_than_twice_its_size(tmp_path: Path):
    """D03: 200 KB in 20,000 deltas, logged in batches of 2 KB."""
    text = os.urandom(100_000).hex()  # no compressor's friend: 4 bits in each byte
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received(), support.constructed()])
        await log.append("ses_1", [support.part_started()])
        before = (tmp_path / "events.db").stat().st_size
        for offset in range(0, len(text), 2_000):
            await log.append("ses_1", [support.appended(text[offset : offset + 2_000], offset)])
        while_open = sum(path.stat().st_size for path in tmp_path.glob("events.db*"))
        start = time.perf_counter()
        page = await log.message_page("ses_1")
        took = time.perf_counter() - start
    grown = (tmp_path / "events.db").stat().st_size - before
    parts = [event.payload for event in page.messages[-1][1]]
    assert "".join(part.text for part in parts if isinstance(part, e.PartAppended)) == text
    assert grown < 2 * len(text)
    assert while_open < 3_000_000  # the write-ahead log at its limit
    assert took < 1


async def test_nothing_blocks_the_loop(tmp_path: Path):
    with blockbuster_ctx():
        log = await EventLog.open(tmp_path, support.Ticks(), support.Counted())
        await log.append("ses_1", [support.created(), support.received()], durable=True)
        await log.read()
        await log.message_page("ses_1")
        await log.verify()
        await log.close()
