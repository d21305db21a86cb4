"""How long an editor waits for `initialize`, beside a bare pygls server."""

from benchmarks.bench import Bench
from benchmarks.client import Client
from benchmarks.table import Row


def run(bench: Bench) -> list[Row]:
    """Spawn both in turn, twice a round; the first pair only warms the disk."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(bench.rounds * 2 + 1):
        ours.append(_start(bench, bench.ours()))
        bare.append(_start(bench, bench.bare()))
    return [Row("spawn → initialize answered", "ms", ours[1:], bare[1:], "bare pygls", 1.5, "ratio")]


def _start(bench: Bench, client: Client) -> float:
    with client:
        return (client.initialize(bench.workspace, {}) - client.spawned) * 1000
