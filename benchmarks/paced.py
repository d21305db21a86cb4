"""An answer at 1,000 deltas a second, some five times what models do: what each costs, and how late it is."""

import bisect
import statistics

from benchmarks.bench import Bench, Turn
from benchmarks.processes import cpu
from benchmarks.table import Row

DELTAS = 2_000
GAP = 0.001
SIZE = 6


def run(bench: Bench) -> list[Row]:
    """For information: no targets."""
    spent: list[float] = []
    beside: list[float] = []
    lags: list[float] = []
    worst: list[float] = []
    updates: list[float] = []
    with bench.session("anthropic") as session:
        bench.plan(200)
        session.prompt()
        bench.reference("sdk")
        for _ in range(bench.rounds):
            bench.plan(DELTAS, gap=GAP)
            before = cpu(session.client.pid)
            turn = session.prompt()
            spent.append((cpu(session.client.pid) - before) * 1e6 / DELTAS)
            late = _lags(turn, bench.records()[0]["writes"])
            lags.append(statistics.median(late))
            worst.append(max(late))
            updates.append(len(turn.deltas))
            bench.plan(DELTAS, gap=GAP)
            beside.append(bench.reference("sdk")["cpu"] * 1e6 / DELTAS)
    return [
        Row("1,000 deltas/s, processor time a delta", "µs", spent, beside, "anthropic SDK events"),
        Row("1,000 deltas/s, a delta is visible after", "ms", lags),
        Row("1,000 deltas/s, the latest one after", "ms", worst),
        Row("1,000 deltas/s, updates for 2,000 deltas", "", updates),
    ]


def _lags(turn: Turn, writes: list[float]) -> list[float]:
    """Milliseconds from the mock's write to the client's read, of each delta."""
    ends = [offset + length for _, offset, length in turn.deltas]
    return [
        (turn.deltas[bisect.bisect_left(ends, (number + 1) * SIZE)][0] - written) * 1000
        for number, written in enumerate(writes)
    ]
