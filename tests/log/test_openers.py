"""Many processes that open a log at once and are the first: a new one, a damaged one, an old one."""

from pathlib import Path

from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened
from tests.log.test_migrations import first_log

OPENS = """
import asyncio, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    print("ready", flush=True)
    sys.stdin.readline()
    ids = RandomIds()
    log = await EventLog.open(Path(sys.argv[1]), support.Ticks(), ids)
    session = ids.new("ses")
    lease = await log.take(session)
    await log.append(session, [support.created()], durable=True, lease=lease)
    for n in range(3):
        await log.append("ses_shared", [support.updated(f"{session} {n}")], durable=n == 0)
    for notice in log.notices:
        print(notice, flush=True)
    print("open", flush=True)
    sys.stdin.readline()  # nobody closes before all are open
    await log.close()
asyncio.run(main())
"""


def at_once(folder: Path, count: int) -> list[list[str]]:
    """Run many openers that wait for each other; return what each was told."""
    told: list[list[str]] = []
    children = [support.child(OPENS, str(folder)) for _ in range(count)]
    for process in children:
        assert process.stdin and process.stdout
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in children:
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in children:
        assert process.stdout
        lines: list[str] = []
        while (line := process.stdout.readline()) not in ("open\n", ""):
            lines.append(line)
        told.append(lines)
    for process in children:
        _, errors = process.communicate("close\n", timeout=60)
        assert (process.returncode, errors) == (0, "")
    return told


async def test_32_first_openers_make_one_log(tmp_path: Path):
    folder = tmp_path / "home" / "state"
    assert at_once(folder, 32) == [[]] * 32
    async with opened(folder) as log:
        events = await log.read()
        assert [event.seq for event in events] == list(range(1, 32 * 4 + 1))
        assert len({event.session for event in events}) == 33
        assert (await log.verify()).problems == ()
    assert sorted(path.name for path in (folder / "owners").iterdir()) == []


async def test_of_many_openers_of_a_damaged_log_one_mends_it_and_tells(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), *(support.appended("x" * 300) for _ in range(200))])
    content = bytearray((tmp_path / "events.db").read_bytes())
    content[8192 * 4 : 8192 * 5] = b"\xa5" * 8192
    (tmp_path / "events.db").write_bytes(content)
    told = at_once(tmp_path, 8)
    [notice] = [line for lines in told for line in lines]
    assert "the event log was damaged" in notice
    [kept] = tmp_path.glob("events.damaged-*")
    assert kept.read_bytes() == content
    async with opened(tmp_path) as log:
        assert (await log.verify()).problems == ()
        [fact] = await log.read(types=[e.LogSalvaged.type])
        assert isinstance(fact.payload, e.LogSalvaged)


async def test_many_openers_of_an_old_log_migrate_it_once(tmp_path: Path):
    first_log(tmp_path)
    assert at_once(tmp_path, 8) == [[]] * 8
    async with opened(tmp_path) as log:
        assert (await log.verify()).problems == ()
