"""Who runs a session: one live process, whatever the others try."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from deskmate_session.errors import Conflict, LeaseLost
from deskmate_session.log.store import EventLog, Lease, Requested
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened

HOLDER = """
import asyncio, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    log = await EventLog.open(Path(sys.argv[1]), support.Ticks(), RandomIds())
    lease = await log.take("ses_1")
    print(log.owner, lease.epoch, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await log.close()
asyncio.run(main())
"""

RACER = """
import asyncio, sys
from pathlib import Path
from deskmate_session.ids import RandomIds
from deskmate_session.log.store import EventLog
from tests.log import support

async def main():
    log = await EventLog.open(Path(sys.argv[1]), support.Ticks(), RandomIds())
    print("open", flush=True)
    while session := (await asyncio.to_thread(sys.stdin.readline)).strip():
        lease = await log.take(session)
        print(0 if lease is None else lease.epoch, flush=True)
    await log.close()
asyncio.run(main())
"""


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def say(process: "subprocess.Popen[str]", words: str) -> None:
    assert process.stdin
    process.stdin.write(f"{words}\n")
    process.stdin.flush()


def hold(folder: Path) -> tuple["subprocess.Popen[str]", str, int]:
    """A process that holds the lease of `ses_1`."""
    process = support.child(HOLDER, str(folder))
    owner, epoch = line(process).split()
    return process, owner, int(epoch)


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.communicate()


async def begun(log: EventLog) -> Lease:
    taken = await log.request("ses_1", [support.created()])
    assert taken.lease is not None
    return taken.lease


async def test_a_lease_is_taken_once_and_kept(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        lease = await log.take("ses_1")
        assert lease == Lease("ses_1", 1)
        assert await log.take("ses_1") == lease
        assert await log.release(lease) is True
        assert await log.take("ses_1") == Lease("ses_1", 2)
        assert await log.release(lease) is True  # it is not ours any more, and the new one stays
        assert await log.take("ses_1") == Lease("ses_1", 2)


async def test_a_lease_of_an_older_epoch_is_refused_even_to_the_process_that_holds_a_newer_one(
    tmp_path: Path,
):
    async with opened(tmp_path, EventLog) as log, opened(tmp_path, EventLog) as other:
        first = await begun(log)
        assert await log.release(first) is True
        second, third = Lease("ses_1", first.epoch + 1), Lease("ses_1", first.epoch + 2)
        assert await other.take("ses_1") == second
        assert await other.release(second) is True
        assert await log.take("ses_1") == third
        for _ in range(2):  # before and after the log has seen that the newer one is held
            with pytest.raises(LeaseLost, match="run by another process"):
                await log.append("ses_1", [support.held()], lease=first)
            await log.append("ses_1", [support.held()], lease=third)
        assert [event.type for event in await log.read("ses_1")] == [
            "session.created",
            "queue.held",
            "queue.held",
        ]


@pytest.mark.parametrize("stopped", [False, True])
async def test_a_live_owner_is_never_robbed(tmp_path: Path, stopped: bool):
    async with opened(tmp_path, EventLog) as log:
        process, owner, epoch = hold(tmp_path)
        try:
            assert epoch == 1
            if stopped:
                os.kill(process.pid, signal.SIGSTOP)
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert await log.take("ses_1") is None
            asked = await log.request("ses_1", [support.created()])
            assert (asked.lease, asked.events[0].type) == (None, "session.created")
            assert await log.dead_leases() == []
            with pytest.raises(LeaseLost, match="run by another process"):
                await log.append("ses_1", [support.held()], lease=Lease("ses_1", epoch))
            end(process)
            assert await log.dead_leases() == ["ses_1"]
            assert await log.take("ses_1") == Lease("ses_1", 2)
            assert await log.dead_leases() == []
        finally:
            end(process)
        assert owner != log.owner


async def test_a_request_takes_the_lease_of_a_dead_owner(tmp_path: Path):
    process, _, _ = hold(tmp_path)
    end(process)
    async with opened(tmp_path, EventLog) as log:
        asked = await log.request("ses_1", [support.created(), support.received()])
        assert [event.type for event in asked.events] == ["session.created", "message.received"]
        assert asked.lease == Lease("ses_1", 2)
        assert (await log.request("ses_1", [support.received("msg_2")])).lease == Lease("ses_1", 2)


async def test_a_closed_process_leaves_its_lease_to_others(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        await begun(log)
    async with opened(tmp_path, EventLog) as log:
        assert await log.dead_leases() == ["ses_1"]
        assert await log.take("ses_1") == Lease("ses_1", 2)


async def test_a_stale_epoch_is_refused_and_nothing_is_logged(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log, opened(tmp_path, EventLog) as other:
        old = await begun(log)
        await log.release(old)
        new = await other.take("ses_1")
        assert new is not None
        assert new.epoch > old.epoch
        seq = await log.last_seq()
        mixed = [support.updated("mine"), support.held()]
        with pytest.raises(LeaseLost):
            await log.append("ses_1", mixed, lease=old)
        with pytest.raises(LeaseLost):
            await log.append("ses_1", [support.held()], lease=Lease("ses_1", new.epoch))
        assert await log.last_seq() == seq
        [event] = await other.append("ses_1", [support.held()], lease=new)
        assert event.seq == seq + 1


async def test_facts_of_a_run_need_a_lease_and_requests_do_not(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        await log.append("ses_1", [support.created(), support.received()])
        with pytest.raises(LeaseLost, match="only the holder"):
            await log.append("ses_1", [support.updated("x"), support.turn_started()])
        with pytest.raises(LeaseLost, match="only the holder"):
            await log.request("ses_1", [support.turn_started()])
        folder = e.Draft(e.UnknownPayload(tag="folder.fact", data={}))
        assert [event.seq for event in await log.append(None, [folder])] == [3]
        lease = await log.take("ses_1")
        assert [event.seq for event in await log.append(None, [folder], lease=lease)] == [4]


async def test_the_lease_of_another_session_is_no_right(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        await begun(log)
        other = await log.take("ses_2")
        with pytest.raises(LeaseLost, match="does not run under"):
            await log.append("ses_1", [support.held()], lease=other)


async def test_sub_sessions_run_under_the_lease_of_their_root(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        lease = await begun(log)
        await log.append("ses_sub", [support.created(parent="ses_1"), support.held()], lease=lease)
        await log.append("ses_low", [support.created(parent="ses_sub")])
        assert await log.take("ses_low") == lease
        await log.append("ses_low", [support.held()], lease=lease)
        asked = await log.request("ses_low", [support.received()])
        assert asked.lease == lease
        assert await log.release(lease) is False  # a prompt waits below
        orphan = await log.request("ses_lost", [support.created(parent="ses_none")])
        assert orphan.lease == Lease("ses_lost", 1)


async def test_a_lease_stays_while_a_prompt_waits(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        lease = await begun(log)
        await log.append("ses_1", [support.received("msg_1")])
        assert await log.release(lease) is False
        await log.append("ses_1", [support.turn_started("turn_1", "msg_1")], lease=lease)
        await log.append("ses_1", [support.received("msg_2")])
        await log.append("ses_1", [support.turn_ended("turn_1", "msg_1")], lease=lease)
        assert await log.release(lease) is False
        assert (await log.take("ses_1")) == lease
        await log.append("ses_1", [support.held()], lease=lease)
        assert await log.release(lease) is True  # held: it waits for the person
        again = await log.request("ses_1", [support.released()])
        assert again.lease == Lease("ses_1", 2)
        assert await log.release(again.lease) is False
        assert await log.release(again.lease, anyway=True) is True
        assert (await log.request("ses_1", [support.unqueued("msg_2")])).lease == Lease("ses_1", 3)


async def test_a_prompt_of_no_session_or_a_deleted_one(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        asked = await log.request("ses_odd", [support.received()])
        assert asked.lease is not None
        assert await log.release(asked.lease) is False
        asked = await log.request("ses_1", [support.created(), support.received(), support.deleted()])
        assert asked.lease is not None
        assert await log.release(asked.lease) is True


async def test_a_request_that_is_refused_takes_no_lease(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log:
        await log.append("ses_1", [support.created()])
        with pytest.raises(Conflict):
            await log.request("ses_1", [support.replied()])
        with pytest.raises(Conflict):
            await log.request("ses_1", [support.updated("x"), support.replied()])
        assert await log.take("ses_1") == Lease("ses_1", 1)


async def test_a_turn_of_a_dead_process_is_found_without_a_lease(tmp_path: Path):
    async with opened(tmp_path, EventLog) as log, opened(tmp_path, EventLog) as other:
        for session, owner in (("ses_1", "own_dead"), ("ses_2", log.owner), ("ses_3", "own_dead")):
            lease = (await log.request(session, [support.created(), support.received()])).lease
            assert lease is not None
            await log.append(session, [support.turn_started(owner=owner)], lease=lease)
            if session != "ses_3":
                await log.release(lease, anyway=True)
        # ses_3 is run by a live process, which has settled it or will.
        assert await log.dead_leases() == await other.dead_leases() == ["ses_1"]


async def test_two_processes_that_race_for_a_lease_get_it_once(tmp_path: Path):
    racers = [support.child(RACER, str(tmp_path)) for _ in range(2)]
    try:
        assert [line(process) for process in racers] == ["open", "open"]
        wins: list[list[str]] = []
        for round in range(50):
            for process in racers:
                say(process, f"ses_{round}")
            wins.append(sorted([line(process) for process in racers]))
        assert wins == [["0", "1"]] * 50
        assert [process.communicate("\n")[1] for process in racers] == ["", ""]
    finally:
        for process in racers:
            end(process)


async def test_two_requests_of_two_processes_give_one_lease(tmp_path: Path):
    async with opened(tmp_path, EventLog) as one, opened(tmp_path, EventLog) as two:
        for round in range(20):
            session = f"ses_{round}"
            await one.append(session, [support.created()])
            results: list[Requested] = await asyncio.gather(
                one.request(session, [support.received("msg_1")]),
                two.request(session, [support.received("msg_2")]),
            )
            assert [result.lease is None for result in results].count(True) == 1
        assert (await one.verify()).ok
