"""A turn of 50 steps, each of which reads a file."""

from benchmarks.bench import Bench
from benchmarks.table import Row

STEPS = 50


def run(bench: Bench) -> list[Row]:
    """One server; a new session each round, so that each has the same history; the first one warms up."""
    ours: list[float] = []
    reference: list[float] = []
    for number in range(bench.rounds + 1):
        with bench.session("anthropic") as session:
            bench.plan(10)
            session.prompt()
            for steps in (5, STEPS):
                bench.plan(10, calls=steps, path="notes.txt")
                turn = session.prompt()
            records = bench.records()
        if len(records) != STEPS + 1:
            raise RuntimeError(f"{len(records)} requests came for {STEPS} steps")
        # A step: its call's answer, the call, and the request that brings its result.
        mine = (turn.answered - turn.sent) * 1000 / STEPS
        bench.plan(10, calls=STEPS, path="notes.txt")
        told = bench.reference("loop", [record["size"] for record in records])
        if number:
            ours.append(mine)
            reference.append((told["end"] - told["sent"]) * 1000 / STEPS)
    return [Row("a step of 50 that read a file", "ms", ours, reference, "same requests, bare httpx", 15)]
