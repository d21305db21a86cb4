"""The command: run what was asked for, print one table.

    .venv/bin/python -m benchmarks [--quick] [--rounds N] [--only NAME …] [--profile FOLDER]

Exits 0 whatever the figures are, and with a traceback when something broke.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import appends, delivery, flood, idle, latency, opening, paced, size, start, steps, takeover
from benchmarks.bench import Bench
from benchmarks.table import Row, machine, render

NAMES: dict[str, Callable[[Bench], list[Row]]] = {
    "start": start.run,
    "idle": idle.run,
    "latency": latency.run,
    "flood": flood.run,
    "steps": steps.run,
    "paced": paced.run,
    "appends": appends.run,
    "opening": opening.run,
    "size": size.run,
    "delivery": delivery.run,
    "takeover": takeover.run,
}


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two rounds, to see that it works")
    parser.add_argument("--rounds", type=int, help="rounds (5)")
    parser.add_argument("--only", action="append", choices=[*NAMES], metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="servers under cProfile; slower")
    args = parser.parse_args()
    rounds = args.rounds or (2 if args.quick else 5)
    rows: list[Row] = []
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="deskmate-bench-") as scratch:
        bench = Bench(Path(scratch), rounds, args.profile)
        for name in args.only or NAMES:
            print(f"{name} …", file=sys.stderr, flush=True)
            rows += NAMES[name](bench)
    print(render(rows))
    print(f"\nMedians (min–max) of {rounds} rounds, ours and the reference in turn. {machine(load)}")


if __name__ == "__main__":
    main()
