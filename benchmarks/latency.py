"""From a prompt to its first delta, without what the model itself took."""

import statistics

from benchmarks.bench import Bench, Wire, overhead
from benchmarks.table import Row

PROMPTS = 20
"""Prompts in a round; its figure is their median. One session, so the history grows."""
REFERENCES: dict[Wire, tuple[str, str]] = {
    "anthropic": ("sdk", "anthropic SDK alone"),
    "openai": ("chat", "httpx alone"),
}


def run(bench: Bench) -> list[Row]:
    """Each wire on a server of its own."""
    return [_wire(bench, wire, *REFERENCES[wire]) for wire in REFERENCES]


def _wire(bench: Bench, wire: Wire, what: str, beside: str) -> Row:
    ours: list[float] = []
    reference: list[float] = []
    with bench.session(wire) as session:
        for number in range(bench.rounds + 1):
            mine: list[float] = []
            theirs: list[float] = []
            for _ in range(PROMPTS):
                bench.plan(10)
                turn = session.prompt()
                mine.append(overhead(turn.sent, turn.first, bench.records()[0]))
                bench.plan(10)
                told = bench.reference(what)
                theirs.append(overhead(told["sent"], told["first"], bench.records()[0]))
            if number:  # the first round warms up
                ours.append(statistics.median(mine))
                reference.append(statistics.median(theirs))
    return Row(f"warm prompt → first delta, {wire} wire", "ms", ours, reference, beside, 15)
