"""Appends to the event log, and the inserts of the same rows with bare sqlite3: one thread, no read model."""

import asyncio
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import history
from benchmarks.bench import Bench
from benchmarks.table import Row
from deskmate_server import collecting
from deskmate_session.ids import RandomIds
from deskmate_session.log.database import WAL_PAGES
from deskmate_session.log.rows import INSERT
from deskmate_session.log.store import EventLog

BATCHED = 10_000
DURABLE = 500
_TOGETHER = 512
"""Rows in a transaction of the reference: as many as the log's writer takes at most."""
SESSION = "ses_bench"


def run(bench: Bench) -> list[Row]:
    """A new log each round, and beside it a table with the rows that came of it. The first round warms up."""
    collecting.seldom()  # as the server does
    ours: list[tuple[float, float]] = []
    bare: list[tuple[float, float]] = []
    for number in range(bench.rounds + 1):
        folder = bench.scratch / f"appends{number}"
        mine = asyncio.run(_ours(folder))
        theirs = _bare(folder / "events.db", bench.scratch / "bare.db")
        if number:
            ours.append(mine)
            bare.append(theirs)
        shutil.rmtree(folder)
    names = f"an append of {BATCHED:,} in flight", "an append on disk (FULL), one by one"
    return [
        Row(
            name,
            "µs",
            [run[at] for run in ours],
            [run[at] for run in bare],
            "bare sqlite3 insert",
            2,
            "ratio",
        )
        for at, name in enumerate(names)
    ]


async def _ours(folder: Path) -> tuple[float, float]:
    """Microseconds of an append in each manner."""
    drafts = [[history.part(n)] for n in range(BATCHED + DURABLE)]
    log = await EventLog.open(folder, history.Clock(), RandomIds())
    lease = await history.leased(log, SESSION)
    began = time.perf_counter()
    await asyncio.gather(*(log.append(SESSION, draft, lease=lease) for draft in drafts[:BATCHED]))
    batched = time.perf_counter() - began
    await asyncio.sleep(0.1)  # the log is moved into the database
    began = time.perf_counter()
    for draft in drafts[BATCHED:]:
        await log.append(SESSION, draft, lease=lease, durable=True)
    durable = time.perf_counter() - began
    await log.close()
    return batched / BATCHED * 1e6, durable / DURABLE * 1e6


def _bare(log: Path, path: Path) -> tuple[float, float]:
    """The same of the rows alone: same table, indexes, triggers and settings."""
    with closing(sqlite3.connect(log)) as source:
        made = source.execute("select sql from sqlite_schema where tbl_name = 'events' and sql is not null")
        schema = [sql for (sql,) in made]
        rows: list[Any] = source.execute("select * from events where idx > 0 order by seq").fetchall()
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("pragma page_size = 8192")
        conn.execute("pragma journal_mode = wal")
        conn.execute("pragma synchronous = normal")
        conn.execute(f"pragma wal_autocheckpoint = {WAL_PAGES}")
        for statement in schema:
            conn.execute(statement)
        began = time.perf_counter()
        for start in range(0, BATCHED, _TOGETHER):
            conn.execute("begin immediate")
            conn.executemany(INSERT, rows[start : min(start + _TOGETHER, BATCHED)])
            conn.execute("commit")
        batched = time.perf_counter() - began
        conn.execute("pragma wal_checkpoint(passive)").fetchall()
        conn.execute("pragma synchronous = full")
        began = time.perf_counter()
        for row in rows[BATCHED:]:
            conn.execute("begin immediate")
            conn.execute(INSERT, row)
            conn.execute("commit")
        durable = time.perf_counter() - began
    path.unlink()
    return batched / BATCHED * 1e6, durable / DURABLE * 1e6
