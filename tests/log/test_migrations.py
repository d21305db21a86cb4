"""Logs of older builds are brought up to date, whenever the work is cut off."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from deskmate_session.log import chain, codec, database, migrations
from tests.log import support
from tests.log.support import opened

# As the first build had them (commit 522ab74); they never change.
EVENTS = (
    """
    create table events (
      seq integer primary key autoincrement,
      id text not null unique,
      session text not null,  -- '' for facts of the folder
      idx integer not null,
      type text not null,
      version integer not null,
      at integer not null,
      payload blob not null,
      digest blob not null,   -- SHA-256 of the plain payload
      cause text,
      prev blob not null,
      hash blob not null,
      debug_tag text,         -- outside the hash
      unique (session, idx)
    ) strict
    """,
    "create trigger events_no_update before update on events"
    " begin select raise(abort, 'the log is append-only'); end",
    "create trigger events_no_delete before delete on events"
    " begin select raise(abort, 'the log is append-only'); end",
    "create trigger events_no_replace before insert on events when exists (select 1 from events where"
    " seq = new.seq or id = new.id or (session = new.session and idx = new.idx))"
    " begin select raise(abort, 'the log is append-only'); end",
    "create table _sqlite_migrations"
    " (id integer primary key, migration_set text, name text, applied_at text)",
    "create unique index idx__sqlite_migrations_migration_set_name"
    " on _sqlite_migrations (migration_set, name)",
    "insert into _sqlite_migrations values (1, 'events', 'm001_events', '2026-01-01 00:00:00+00:00')",
)
READ_MODEL = (
    """
    create table sessions (
      id text primary key, folder text not null, title text not null, agent text not null,
      model text not null, variant text, mode text not null, parent text,
      created_at integer not null, updated_at integer not null, archived_at integer, deleted_at integer,
      seq integer not null,  -- its last event
      turn text, turn_message text, turn_owner text, turn_seq integer  -- the open turn
    ) strict, without rowid
    """,
    "create index sessions_recent on sessions (seq)",
    # Also the guard of idempotency: a message id is received once in a session, whichever process asks.
    """
    create table messages (
      session text not null, id text not null, role text not null, seq integer not null,
      parent text, unqueued integer not null, primary key (session, id)
    ) strict, without rowid
    """,
    "create index messages_order on messages (session, seq)",
    """
    create table entries (
      session text not null, message text not null, seq integer not null,
      primary key (session, message, seq)
    ) strict, without rowid
    """,
    """
    create table calls (
      session text not null, id text not null, message text not null, primary key (session, id)
    ) strict, without rowid
    """,
    """
    create table changes (
      session text not null, seq integer not null, call text not null, message text,
      primary key (session, seq)
    ) strict, without rowid
    """,
)


def first_log(folder: Path) -> None:
    """A log of the first build: a session with an open turn, a prompt that waits, and an ended one."""
    drafts = [
        support.created(),
        support.received("msg_1"),
        support.turn_started("turn_1", "msg_1"),
        support.constructed("ans_1", "msg_1"),
        support.part_started("ans_1", "prt_1"),
        support.appended("words " * 200, message="ans_1", part="prt_1"),
        support.responded("ans_1", "call_1"),
        support.asked("ask_1", "call_1"),
        support.received("msg_2"),
    ]
    with closing(sqlite3.connect(folder / "events.db", isolation_level=None)) as conn:
        conn.execute("pragma page_size = 8192")
        conn.execute("pragma journal_mode = wal")
        conn.execute(f"pragma application_id = {0x44534B4D}")
        conn.execute("pragma user_version = 1")
        for statement in (*EVENTS, *READ_MODEL):
            conn.execute(statement)
        prev = chain.GENESIS
        for idx, draft in enumerate(drafts):
            plain = codec.encode(draft.payload)
            type, version = codec.tag(draft.payload)
            digest = chain.digest(plain)
            facts = {"id": f"evt_{idx}", "type": type, "version": version, "at": 1_000 + idx, "cause": None}
            hash = chain.link(prev, chain.header(session="ses_1", index=idx, **facts), digest)
            conn.execute(
                "insert into events (id, session, idx, type, version, at, payload, digest, prev, hash)"
                " values (?, 'ses_1', ?, ?, ?, ?, ?, ?, ?, ?)",
                (facts["id"], idx, type, version, facts["at"], codec.pack(plain), digest, prev, hash),
            )
            prev = hash
        conn.execute(
            "insert into sessions values ('ses_1', 'file:///w', 'A title', 'build', 'mock/test', null, 'ask',"
            " null, 1000, 1008, null, null, 9, 'turn_1', 'msg_1', 'own_1', 3)"
        )


def shape(folder: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(folder / "events.db")) as conn:
        query = "select type, name, sql from sqlite_schema where name not like '%sqlite%' order by 1, 2"
        return [(type, name, " ".join((sql or "").split())) for type, name, sql in conn.execute(query)]


async def migrated(folder: Path) -> None:
    """Open the log, and see that it is as if this build had written it."""
    async with opened(folder) as log:
        assert (log.notices, log.read_only) == ((), None)
        assert [event.id for event in await log.read()] == [f"evt_{n}" for n in range(9)]
        assert (await log.verify()).problems == ()
        assert [turn.turn_id for turn in await log.open_turns()] == ["turn_1"]
        assert await log.unsettled("ses_1") == ["ses_1"]
        assert await log.dead_leases() == ["ses_1"]
        [event] = await log.append("ses_1", [support.updated("on")])
        assert (event.seq, event.index) == (10, 9)
    with closing(sqlite3.connect(folder / "events.db")) as conn:
        assert conn.execute("pragma user_version").fetchone() == (database.SCHEMA_VERSION,)


async def test_a_log_of_the_first_build_becomes_one_of_this(tmp_path: Path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    first_log(old)
    await migrated(old)
    async with opened(new):
        pass
    assert shape(old) == shape(new)


async def test_a_log_is_migrated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    first_log(tmp_path)
    async with opened(tmp_path):
        pass
    monkeypatch.setattr(migrations.steps, "apply", None)
    async with opened(tmp_path) as log:
        assert len(await log.read()) == 9


async def test_a_schema_number_that_was_damaged_is_mended(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
    for number in (0, 1, -7):
        support.tamper(tmp_path, f"pragma user_version = {number}")
        async with opened(tmp_path) as log:
            assert (await log.verify()).problems == ()
            assert log.notices == ()


async def test_an_old_log_in_use_of_events_that_can_not_be_read_is_salvaged(tmp_path: Path):
    first_log(tmp_path)
    support.tamper(tmp_path, "update events set payload = x'7b' where seq = 6")
    async with opened(tmp_path) as log:
        assert len(log.notices) == 1
        assert [event.seq for event in await log.read()] == [1, 2, 3, 4, 5, 7, 8, 9, 10]
        assert (await log.verify()).problems == ()


DIES = """
import os, signal, sqlite3, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log import database
from tests.log import support

left = int(sys.argv[2])
connect = sqlite3.connect

def step(statement):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)

def traced(*args, **options):
    conn = connect(*args, **options)
    conn.set_trace_callback(step)
    return conn

sqlite3.connect = traced
database.open_both(Path(sys.argv[1]), support.Ticks(), RandomIds())
print(left)
"""


def killed(folder: Path, after: int) -> int | None:
    """Open the log in a process that is killed before a statement; None if it was, else what was left."""
    process = support.child(DIES, str(folder), str(after))
    output, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors
    return json.loads(output) if output else None


@pytest.mark.parametrize("old", [True, False])
async def test_a_kill_at_any_statement_of_the_first_opening_is_made_good(tmp_path: Path, old: bool):
    whole = tmp_path / "whole"
    whole.mkdir()
    if old:
        first_log(whole)
    left = killed(whole, 100_000)
    assert left is not None
    statements = 100_000 - left
    assert statements > 40
    for at in range(0, statements, 9):
        folder = tmp_path / f"killed{at}"
        folder.mkdir()
        if old:
            first_log(folder)
        assert killed(folder, at) is None
        if old:
            await migrated(folder)
        else:
            async with opened(folder) as log:
                await log.append("ses_1", [support.created()])
                assert (await log.verify()).problems == ()
                assert log.notices == ()
        assert shape(folder) == shape(whole)
        assert list(folder.glob("events.damaged*")) == []
