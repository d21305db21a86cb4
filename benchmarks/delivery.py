"""How long one process's event takes to the listeners of another: `python -m benchmarks.delivery FOLDER` is
the one that appends."""

import asyncio
import json
import random
import statistics
import sys
import time
from pathlib import Path

from benchmarks import history
from benchmarks.bench import REPO, Bench
from benchmarks.table import Row
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e

EVENTS = 100
PAUSES = 0.005, 0.06
"""Seconds between two events, by chance: the listener looks at fixed times."""


def run(bench: Bench) -> list[Row]:
    """A new log and a new process each round."""
    rounds = [asyncio.run(_listen(bench.scratch / f"delivery{number}")) for number in range(bench.rounds)]
    middle = [statistics.median(taken) for taken in rounds]
    late = [statistics.quantiles(taken, n=20)[-1] for taken in rounds]
    return [
        Row("an event of another process is heard after", "ms", middle, limit=250),
        Row("95 of 100 of them after", "ms", late, limit=250),
    ]


async def _listen(folder: Path) -> list[float]:
    """Milliseconds from each call of `append` there to the listener here."""
    log = await EventLog.open(folder, history.Clock(), RandomIds())
    heard: dict[int, float] = {}
    log.on_commit(lambda events, _: heard.update({event.seq: time.monotonic() for event in events}))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.delivery", str(folder)),
        cwd=REPO,
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await child.communicate()
    await log.catch_up()
    await log.close()
    sent: list[tuple[int, float]] = json.loads(told)
    return [(heard[seq] - began) * 1000 for seq, began in sent]


async def _append(folder: Path) -> None:
    log = await EventLog.open(folder, history.Clock(), RandomIds())
    await log.append("ses_bench", [history.created()])
    sent: list[tuple[int, float]] = []
    chance = random.Random(7)
    await asyncio.sleep(0.5)  # till the other one knows of us
    for number in range(EVENTS):
        await asyncio.sleep(chance.uniform(*PAUSES))
        began = time.monotonic()
        renamed = e.Draft(e.SessionUpdated(title=f"title {number}"))
        [event] = await log.append("ses_bench", [renamed], durable=True)
        sent.append((event.seq, began))
    await asyncio.sleep(0.5)
    await log.close()
    print(json.dumps(sent))


if __name__ == "__main__":
    asyncio.run(_append(Path(sys.argv[1])))
