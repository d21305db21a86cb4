"""How much larger the database is than what is said in it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from benchmarks.bench import REPO, Bench
from benchmarks.table import Row
from deskmate_session.log.codec import unpack

TURNS, STEPS, DELTAS = 3, 20, 200
FILE = "kernel.py"


def run(bench: Bench) -> list[Row]:
    """Turns of steps that read a source file and answer in text; read model and checkpoints included."""
    shutil.copy(REPO / "session" / "deskmate_session" / FILE, bench.workspace / FILE)
    sizes: list[float] = []
    payloads: list[float] = []
    for _ in range(bench.rounds):
        with bench.session("anthropic") as session:
            for _ in range(TURNS):
                bench.plan(DELTAS, calls=STEPS, path=FILE)
                session.prompt()
            size, payload = _measure(next(session.state.rglob("events.db")))
        sizes.append(size / 1e3)
        payloads.append(payload / 1e3)
    return [Row("database of 60 steps", "KB", sizes, payloads, "its payloads as JSON", 1.5, "ratio")]


def _measure(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.execute("pragma wal_checkpoint(truncate)").fetchall()
        payload = sum(len(unpack(stored)) for (stored,) in conn.execute("select payload from events"))
    return sum(file.stat().st_size for file in path.parent.glob("events.db*")), payload
