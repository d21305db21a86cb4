"""An answer of 20,000 deltas at full speed: time, memory, and what stays in the log."""

import sqlite3
import time
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.processes import peak, reset_peak, resident
from benchmarks.table import Row

DELTAS = 20_000
CHARS = 6 * DELTAS


def run(bench: Bench) -> list[Row]:
    """A new server each round, warmed by two short turns; then the SDK on the same stream."""
    names = ("whole", "first", "grown", "peak", "log", "sdk whole", "sdk first")
    figures: dict[str, list[float]] = {name: [] for name in names}
    bench.plan(2_000)
    bench.reference("sdk")
    for _ in range(bench.rounds):
        for name, value in (_ours(bench) | _sdk(bench)).items():
            figures[name].append(value)
    sdk = "anthropic SDK events"
    return [
        Row(
            "20,000 deltas, prompt → response",
            "ms",
            figures["whole"],
            figures["sdk whole"],
            sdk,
            1.6,
            "ratio",
        ),
        Row("20,000 deltas, first one visible after", "ms", figures["first"], figures["sdk first"], sdk, 30),
        Row("20,000 deltas, memory kept", "MB", figures["grown"], limit=30),
        Row("20,000 deltas, memory at the peak", "MB", figures["peak"], limit=30),
        Row("20,000 deltas, log growth", "KB", figures["log"], [CHARS / 1000], "the text", 2, "ratio"),
    ]


def _ours(bench: Bench) -> dict[str, float]:
    with bench.session("anthropic") as session:
        for warm in (10, 2_000):
            bench.plan(warm)
            session.prompt()
        time.sleep(0.5)
        pid = session.client.pid
        stored, before = _stored(session.state), resident(pid)
        reset_peak(pid)
        bench.plan(DELTAS)
        turn = session.prompt()
        record = bench.records()[0]
        if (characters := sum(length for _, _, length in turn.deltas)) != CHARS:
            raise RuntimeError(f"{characters} of {CHARS} characters came")
        time.sleep(0.5)
        return {
            "whole": (turn.answered - turn.sent) * 1000,
            "first": (turn.first - record["first"]) * 1000,
            "grown": resident(pid) - before,
            "peak": peak(pid) - before,
            "log": (_stored(session.state) - stored) / 1000,
        }


def _sdk(bench: Bench) -> dict[str, float]:
    bench.plan(DELTAS)
    told = bench.reference("sdk")
    record = bench.records()[0]
    return {
        "sdk whole": (told["end"] - told["sent"]) * 1000,
        "sdk first": (told["first"] - record["first"]) * 1000,
    }


def _stored(state: Path) -> int:
    """Bytes in the state folder once the write-ahead log is moved over."""
    for database in state.rglob("events.db"):
        connection = sqlite3.connect(database)
        busy = connection.execute("pragma wal_checkpoint(truncate)").fetchone()[0]
        connection.close()
        if busy:
            raise RuntimeError("the write-ahead log is in use")
    return sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
