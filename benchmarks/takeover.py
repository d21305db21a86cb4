"""How long a turn stays open whose server was killed, while another server has the folder open."""

import sqlite3
import threading
import time
from contextlib import closing, suppress
from pathlib import Path

from benchmarks.bench import Bench, Json
from benchmarks.client import DEADLINE, Client
from benchmarks.table import Row

_LOOK = 0.002
"""Seconds between two looks at the log."""


def run(bench: Bench) -> list[Row]:
    """A session streams, SIGKILL, the other server settles its turn in the log; new servers each round."""
    ours = [_round(bench, number) for number in range(bench.rounds)]
    return [Row("SIGKILL in mid-turn → settled by another server", "ms", ours, limit=1_000)]


def _round(bench: Bench, number: int) -> float:
    state = bench.scratch / f"takeover{number}"
    options = {"stateDir": str(state), "config": bench.config("anthropic")}
    bench.plan(5_000, gap=0.01)
    with bench.ours() as doomed, bench.ours() as heir:
        for client in (doomed, heir):
            client.initialize(bench.workspace, options)
            client.notify("initialized")
        _, session = doomed.request("deskmate/session/create")
        heir.request("deskmate/session/list")  # the folder is open there too
        streams = threading.Event()
        prompting = threading.Thread(target=_prompt, args=(doomed, session["id"], streams))
        prompting.start()
        if not streams.wait(DEADLINE):
            raise TimeoutError("nothing streams")
        killed = time.monotonic()
        doomed.process.kill()
        settled = _settled(next(state.rglob("events.db")))
        prompting.join(DEADLINE)
    return (settled - killed) * 1000


def _prompt(client: Client, session: str, streams: threading.Event) -> None:
    def seen(_: float, value: Json) -> None:
        if value["kind"] == "delta":
            streams.set()

    parts = [{"type": "text", "text": "hello"}]
    params = {"sessionId": session, "parts": parts, "partialResultToken": "bench"}
    with suppress(EOFError, OSError):  # it is killed
        client.request("deskmate/session/prompt", params, seen)


def _settled(path: Path) -> float:
    """When the turn's end is in the log."""
    until = time.monotonic() + DEADLINE
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        while time.monotonic() < until:
            if conn.execute("select 1 from events where type = 'turn.ended'").fetchone():
                return time.monotonic()
            time.sleep(_LOOK)
    raise TimeoutError("nobody settled the turn")
