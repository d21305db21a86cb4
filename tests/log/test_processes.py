"""Several processes on one log, and processes that die."""

import subprocess
from pathlib import Path

from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened

OPEN = """
import asyncio, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    sys.stdin.readline()
    log = await EventLog.open(Path(sys.argv[1]), support.Ticks(), RandomIds())
"""

WRITE = (
    OPEN
    + """
    futures = []
    for n in range(int(sys.argv[2])):
        drafts = [support.updated(f"{n} "), support.updated("x")]
        futures.append(log.append("ses_1", drafts, durable=n % 10 == 0))
        if n % 5 == 0:
            await futures[-1]
    await asyncio.gather(*futures)
    await log.close()
asyncio.run(main())
"""
)

FOREVER = (
    OPEN
    + """
    n = 0
    while True:
        events = await asyncio.gather(*(log.append("ses_1", [support.updated(str(n))]) for _ in range(3)))
        n += 1
        print(events[-1][-1].seq, flush=True)
asyncio.run(main())
"""
)


def finish(children: list["subprocess.Popen[str]"]) -> None:
    for process in children:
        _, errors = process.communicate("go\n", timeout=60)
        assert (process.returncode, errors) == (0, "")


async def test_events_of_several_processes_form_one_chain(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        finish([support.child(WRITE, str(tmp_path), "100") for _ in range(4)])
        events = await log.read("ses_1")
        assert [event.index for event in events] == list(range(801))
        assert [event.seq for event in events] == list(range(1, 802))
        assert (await log.verify()).problems == ()


async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path):
    for round in range(1, 4):
        process = support.child(FOREVER, str(tmp_path))
        assert process.stdin
        assert process.stdout
        process.stdin.write("go\n")
        process.stdin.flush()
        told = [int(process.stdout.readline()) for _ in range(20 * round)]
        process.kill()
        told += [int(line) for line in process.stdout.read().split()]
        process.communicate()
        async with opened(tmp_path) as log:
            assert await log.last_seq() >= told[-1]
            assert (await log.verify()).problems == ()


async def test_an_older_build_keeps_what_a_newer_one_wrote(tmp_path: Path):
    data = {"messageId": "msg_1", "soul": [1, {"b": None}], "text": "ü"}
    async with opened(tmp_path) as log:
        await log.append(
            "ses_1", [support.created(), e.Draft(e.UnknownPayload(tag="part.dreamt", data=data))]
        )
        event = (await log.read("ses_1"))[1]
        assert event.payload == e.UnknownPayload(tag="part.dreamt", data=data)
        assert (event.type, event.version) == ("part.dreamt", 1)
        assert (await log.verify()).ok
