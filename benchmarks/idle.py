"""What a server holds that an editor has started and nobody uses."""

import time

from benchmarks.bench import Bench
from benchmarks.client import Client
from benchmarks.processes import resident
from benchmarks.table import Row

SETTLE = 2.0
"""Seconds after the last request."""


def run(bench: Bench) -> list[Row]:
    """Both servers side by side; ours has opened its log and listed the sessions in it."""
    ours: list[float] = []
    bare: list[float] = []
    for number in range(bench.rounds):
        with bench.ours() as client, bench.bare() as beside:
            options = {"stateDir": str(bench.scratch / f"idle{number}"), "config": bench.config("anthropic")}
            _begin(bench, client, options)
            client.request("deskmate/session/list")
            _begin(bench, beside, {})
            time.sleep(SETTLE)
            ours.append(resident(client.pid))
            bare.append(resident(beside.pid))
    return [Row("idle memory, sessions listed", "MB", ours, bare, "bare pygls", 80)]


def _begin(bench: Bench, client: Client, options: dict[str, object]) -> None:
    client.initialize(bench.workspace, options)
    client.notify("initialized")
