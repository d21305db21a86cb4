"""Who runs, in one process: each cell of the table, the races between its moves, and what faults leave."""

import asyncio
import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from deskmate_session.core.lifecycle import RUN_MOVES, RunMove, RunState
from deskmate_session.errors import Conflict, LogError, LogReadOnly, Rejected
from deskmate_session.ids import RandomIds
from deskmate_session.kernel import Kernel
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.model.messages import TextPart
from deskmate_session.runtime import coordinator as coordinating
from deskmate_session.workspace.descendants import Descendants
from tests.runtime.support import StillClock, by_hand, coordinator, create, idle, logged, send, types, until

SESSION = "ses_0001"
TURN = ["turn.started", "turn.ended"]


def moves_of(opened: Kernel) -> list[tuple[RunState, RunMove, RunState]]:
    """What the runs of a kernel do from now on; each move is held against the table."""
    made: list[tuple[RunState, RunMove, RunState]] = []
    real = coordinator(opened)._move

    def move(run: Any, by: RunMove) -> Any:
        before = run.state
        effect = real(run, by)
        assert (run.state, effect) == RUN_MOVES[before, by]
        made.append((before, by, run.state))
        return effect

    coordinator(opened)._move = move  # type: ignore[method-assign]
    return made


def received(message_id: str, words: str) -> e.MessageReceived:
    part = TextPart(id=f"prt_{message_id}", text=words)
    return e.MessageReceived(
        message_id=message_id, delivery="queue", parts=(part,), agent="build", model="mock/test"
    )


async def held(opened: Kernel) -> tuple[bool, int]:
    """Whether the queue is held, and how long it is."""
    details = await opened.query(q.GetSession(session_id=SESSION))
    assert isinstance(details, q.SessionDetails)
    return details.queue.held, len(details.queue.prompts)


async def verified(opened: Kernel) -> None:
    """The log holds, and the fold of each session allows what is in it."""
    found = await opened.query(q.Verify())
    assert isinstance(found, c.Verified) and found.ok, found


# ── The cells of the table ───────────────────────────────────────────────────────────────────


async def test_idle_a_wake_starts_a_run_and_its_end_gives_the_lease_back(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        made = moves_of(opened)
        turn = await send(opened, SESSION, "one")
        (await hand.next("one")).end()
        assert (await turn.result).finish == "stop"
        await idle(opened, SESSION)
        assert made == [("idle", "wake", "running"), ("running", "ended", "idle")]


async def test_idle_an_interrupt_does_nothing_and_logs_nothing(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, _):
        await create(opened)
        before, made = await logged(opened, SESSION), moves_of(opened)
        assert await opened.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=False)
        assert (await logged(opened, SESSION), made) == (before, [])


async def test_running_any_number_of_wakes_gives_one_further_pass(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        made = moves_of(opened)
        first = await send(opened, SESSION, "one")
        answering = await hand.next("one")
        second, third = await send(opened, SESSION, "two"), await send(opened, SESSION, "three")
        coordinator(opened).join(SESSION)
        answering.end()
        for words, turn in (("two", second), ("three", third)):
            (await hand.next(words)).end()
            assert (await turn.result).finish == "stop"
        assert (await first.result).finish == "stop"
        await idle(opened, SESSION)
        assert made == [
            ("idle", "wake", "running"),
            ("running", "wake", "woken"),
            ("woken", "wake", "woken"),
            ("woken", "wake", "woken"),
            ("woken", "ended", "running"),
            ("running", "ended", "idle"),
        ]
        assert (hand.asked, hand.most) == (["one", "two", "three"], 1)


async def test_running_an_interrupt_returns_after_the_clean_up_is_logged(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        made = moves_of(opened)
        turn = await send(opened, SESSION, "one")
        answering = await hand.next("one")
        answering.say("half")
        answering.call("bash", command="sleep 300 & exec sleep 300")
        answering.end("toolCalls")
        await until(lambda: "call.started" in kinds(opened))
        assert await opened.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=True)
        ended = await types(opened, SESSION)
        assert ended[-4:] == ["call.started", "interrupt.requested", "call.failed", "turn.ended"]
        assert turn.result.done() and turn.result.result().finish == "interrupted"
        assert not children(opened)
        await idle(opened, SESSION)
        assert made == [
            ("idle", "wake", "running"),
            ("running", "interrupt", "stopping"),
            ("stopping", "interrupt", "stopping"),  # the event of the same interrupt
            ("stopping", "ended", "idle"),
        ]


async def test_stopping_a_second_interrupt_joins_the_first(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        await hand.next("one")
        both = await asyncio.gather(*(opened.submit(c.Interrupt(session_id=SESSION)) for _ in range(3)))
        assert both == [c.Interrupted(interrupted=True)] * 3
        assert (await types(opened, SESSION)).count("interrupt.requested") == 1


async def test_stopping_a_prompt_during_the_clean_up_runs_afterwards(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        made = moves_of(opened)
        first = await send(opened, SESSION, "one")
        await hand.next("one")
        stopped, second = await asyncio.gather(
            opened.submit(c.Interrupt(session_id=SESSION)), send(opened, SESSION, "two")
        )
        assert stopped == c.Interrupted(interrupted=True)
        (await hand.next("two")).end()
        assert (await first.result).finish == "interrupted"
        assert (await second.result).finish == "stop"
        await idle(opened, SESSION)
        assert ("stopping", "wake", "succeeding") in made
        assert ("succeeding", "ended", "running") in made
        assert hand.most == 1


async def test_the_successor_of_an_interrupted_turn_can_be_interrupted_too(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        await hand.next("one")
        _, second = await asyncio.gather(
            opened.submit(c.Interrupt(session_id=SESSION)), send(opened, SESSION, "two")
        )
        await hand.next("two")
        assert await opened.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=True)
        assert (await second.result).finish == "interrupted"


async def test_succeeding_an_interrupt_drops_the_wake_and_holds_what_waits(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        await hand.next("one")
        await send(opened, SESSION, "two")
        await opened.submit(c.Interrupt(session_id=SESSION))
        await idle(opened, SESSION)
        assert (await held(opened), hand.asked) == ((True, 1), ["one"])
        resumed = await opened.resume(c.Resume(session_id=SESSION))
        (await hand.next()).end()
        assert (await resumed.result).finish == "stop"
        (await hand.next("two")).end()
        await idle(opened, SESSION)
        assert await held(opened) == (False, 0)


# ── Races ────────────────────────────────────────────────────────────────────────────────────


async def test_an_interrupt_reaches_a_prompt_that_is_on_its_way_into_the_log(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        sent, stopped = await asyncio.gather(
            send(opened, SESSION, "one"), opened.submit(c.Interrupt(session_id=SESSION))
        )
        assert stopped == c.Interrupted(interrupted=True)
        assert (await sent.result).finish == "interrupted"
        assert not hand.answering


async def test_the_same_prompt_sent_many_times_at_once_runs_once(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        sent = await asyncio.gather(*(send(opened, SESSION, "one", message_id="msg_same") for _ in range(5)))
        (await hand.next("one")).end()
        results = [await turn.result for turn in sent]
        assert (hand.asked, len(set(map(str, results)))) == (["one"], 1)
        assert [turn.repeated for turn in sent].count(False) == 1


async def test_a_prompt_that_is_taken_back_at_its_start_harms_no_other(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        answering = await hand.next("one")
        back = await send(opened, SESSION, "back", message_id="msg_back")
        other = await send(opened, SESSION, "other")
        # As another process takes it: committed, and not heard of here when the turn is about to start.
        log, state = opened._log, opened._sessions.live(SESSION)
        real = opened._sessions.append

        def append(session_id: str, *facts: e.EventPayload, **options: Any) -> Any:
            if isinstance(facts[0], e.TurnStarted) and facts[0].message_id == "msg_back":
                log.append(SESSION, [e.Draft(e.MessageUnqueued(message_id="msg_back"))])
            return real(session_id, *facts, **options)

        opened._sessions.append = append  # type: ignore[method-assign]
        answering.end()
        (await hand.next("other")).end()
        assert (await other.result).finish == "stop"
        assert back.result.cancelled()
        assert (hand.asked, state and state.queue) == (["one", "other"], [])
        await idle(opened, SESSION)


async def test_a_running_session_that_another_process_deletes_is_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        await hand.next("one")
        await opened._log.append(SESSION, [e.Draft(e.SessionDeleted())])  # no interrupt came before it
        await idle(opened, SESSION)
        events = [event.type for event in await opened._log.read(session=SESSION)]
        assert events[-1] == "turn.ended"
        assert events[-4:].count("interrupt.requested") == 1
        assert not hand.answering
        gc.collect()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR], caplog.text


async def test_an_open_ask_of_a_deleted_session_is_settled(tmp_path: Path) -> None:
    async with by_hand(tmp_path, permission={"bash": "ask"}) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        answering = await hand.next("one")
        answering.call("bash", command="touch x")
        answering.end("toolCalls")
        await until(lambda: "ask.opened" in kinds(opened))
        await opened._log.append(SESSION, [e.Draft(e.SessionDeleted())])
        await idle(opened, SESSION)
        replies = [
            event.payload.by
            for event in await opened._log.read(session=SESSION)
            if isinstance(event.payload, e.AskReplied)
        ]
        assert replies == ["interrupt"]
        assert not opened._asks._waiting
        assert not (tmp_path / "work" / "x").exists()


async def test_a_turn_of_a_deleted_session_does_not_keep_the_folder_from_opening(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, _):
        await create(opened)
        state_dir = opened.state_dir
    log = await EventLog.open(state_dir, StillClock(), RandomIds())
    lease = await log.take(SESSION)
    facts = [
        received("msg_a", "one"),
        e.TurnStarted(turn_id="turn_x", message_id="msg_a", owner=log.owner),
        e.SessionDeleted(),
    ]
    await log.append(SESSION, [e.Draft(fact) for fact in facts], lease=lease)
    await log.close()  # the lease stays, as after a crash
    async with by_hand(tmp_path) as (opened, _):
        events = [event.type for event in await opened._log.read(session=SESSION)]
        assert events[-2:] == ["session.deleted", "turn.ended"]
        await idle(opened, SESSION)


# ── Faults ───────────────────────────────────────────────────────────────────────────────────


class Full:
    """Makes the log full, as far as whoever appends can tell, until `emptied`."""

    def __init__(self, opened: Kernel) -> None:
        self.full = False
        self.only: type[Any] = object
        """The facts that are refused."""
        self.refused = 0
        self._real = opened._log._writer._ours.add
        opened._log._writer._ours.add = self._add  # type: ignore[method-assign]

    def _add(self, append: Any, bodies: Any) -> Any:
        if self.full and isinstance(append.entries[0].draft.payload, self.only):
            self.refused += 1
            return append, LogReadOnly("the disk is full")
        return self._real(append, bodies)


async def test_a_fault_in_the_middle_of_a_turn_is_told_and_the_same_session_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinating, "MEND_AFTER", (0.01,))
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        disk = Full(opened)
        turn = await send(opened, SESSION, "one")
        answering = await hand.next("one")
        waiting = await send(opened, SESSION, "two")
        disk.full = True
        answering.say("text")
        answering.end()
        for each in (turn, waiting):
            with pytest.raises(LogReadOnly):
                await each.result
        with pytest.raises(LogReadOnly):
            await send(opened, SESSION, "refused")
        disk.full = False
        (await hand.next("two")).end()
        await idle(opened, SESSION)
        assert await types(opened, SESSION) == [
            "session.created",
            "message.received",
            "session.updated",
            "turn.started",
            "message.received",
            *("turn.ended", *TURN),
        ]
        again = await send(opened, SESSION, "three")
        (await hand.next("three")).end()
        assert (await again.result).finish == "stop"
        await verified(opened)


async def test_a_fault_at_the_start_of_a_turn_leaves_its_prompt_to_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinating, "MEND_AFTER", (0.01,))
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        disk = Full(opened)
        sent = await send(opened, SESSION, "one")
        disk.full = True  # before the run has logged the start of its turn
        with pytest.raises(LogReadOnly):
            await sent.result
        await until(lambda: disk.refused >= 3)
        disk.full = False
        (await hand.next("one")).end()
        await idle(opened, SESSION)
        assert (await types(opened, SESSION))[-2:] == TURN


async def test_an_interrupt_that_can_not_be_logged_is_told_and_the_turn_still_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinating, "MEND_AFTER", (0.01,))
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        disk = Full(opened)
        await send(opened, SESSION, "one")
        await hand.next("one")
        disk.full = True
        with pytest.raises(LogReadOnly):
            await opened.submit(c.Interrupt(session_id=SESSION))
        disk.full = False
        await idle(opened, SESSION)
        assert (await types(opened, SESSION))[-1] == "turn.ended"
        assert hand.asked == ["one"]
        assert await held(opened) == (False, 0)


async def test_an_interrupt_that_alone_could_not_be_logged_is_logged_by_the_run(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        disk = Full(opened)
        turn = await send(opened, SESSION, "one")
        await hand.next("one")
        disk.only, disk.full = e.InterruptRequested, True
        real = opened._sessions.append

        def append(session_id: str, *facts: e.EventPayload, **options: Any) -> Any:
            disk.full = not options.get("held")
            return real(session_id, *facts, **options)

        opened._sessions.append = append  # type: ignore[method-assign]
        with pytest.raises(LogReadOnly):
            await opened.submit(c.Interrupt(session_id=SESSION))
        assert (await turn.result).finish == "interrupted"
        assert (await types(opened, SESSION))[-2:] == ["interrupt.requested", "turn.ended"]
        assert hand.asked == ["one"]


# ── Closing ──────────────────────────────────────────────────────────────────────────────────


async def test_closing_settles_every_turn_and_gives_the_leases_back(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        sessions = [await create(opened, f"ses_000{number}") for number in range(3)]
        turns = [await send(opened, session, session) for session in sessions]
        for session in sessions:
            await hand.next(session)
        await send(opened, sessions[0], "waits")
        await opened.close()
        assert [turn.result.result().finish for turn in turns] == ["interrupted"] * 3
        assert not hand.answering
    async with by_hand(tmp_path) as (opened, _):
        assert await opened._log.dead_leases() == []
        assert [await opened._log.unsettled(session) for session in sessions] == [[], [], []]
        last = [(await types(opened, session))[-1] for session in sessions]
        assert last == ["queue.held", "turn.ended", "turn.ended"]


async def test_closing_between_two_turns_holds_what_waits(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "one")
        answering = await hand.next("one")
        await send(opened, SESSION, "two")
        closing: list[asyncio.Task[None]] = []

        def close(_state: Any, event: e.Event, _ours: bool) -> None:
            if isinstance(event.payload, e.TurnEnded):
                closing.append(asyncio.ensure_future(opened.close()))

        opened._sessions.on_event(close)
        answering.end()
        await until(lambda: closing)
        await closing[0]
    async with by_hand(tmp_path) as (opened, hand):
        assert (await held(opened), hand.asked) == ((True, 1), [])


async def test_after_closing_nothing_is_accepted(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, _):
        await create(opened)
        await opened.close()
        with pytest.raises((LogError, Rejected)) as caught:
            await send(opened, SESSION, "late")
        assert not isinstance(caught.value, Conflict)


def kinds(opened: Kernel) -> set[str]:
    """What has happened in the session, from the state in memory."""
    state = opened._sessions.live(SESSION)
    assert state is not None
    found = {"ask.opened"} if state.asks else set[str]()
    return found | {"call.started" for call in state.conversation.calls.values() if call.status == "running"}


def children(opened: Kernel) -> list[str]:
    """Commands of this session that still run."""
    state = opened._sessions.live(SESSION)
    assert state is not None
    return [
        str(process)
        for call_id in state.conversation.calls
        for process in Descendants(None, call_id, since=0)._living()
    ]
