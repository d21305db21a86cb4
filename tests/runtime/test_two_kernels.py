"""Two kernels on one folder, as two editors have: one session, one order, one run.

Both are in this process: a kernel's sign of life is a lock on a file of its own.
"""

import asyncio
import contextlib
from pathlib import Path

import pytest

from deskmate_session.errors import Conflict, LeaseLost
from deskmate_session.model import commands as c, events as e, queries as q
from tests.runtime.support import (
    create,
    idle,
    kernel,
    logged,
    prompt,
    real,
    send,
    types,
    until,
)
from tests.runtime.two import (
    SESSION,
    ask,
    events_of,
    facts,
    level,
    owners,
    queue,
    replies,
    seen_by,
    text,
    two,
)


async def test_both_see_the_same_events_in_the_same_order(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        shown = await seen_by(it.a, it.b)
        for opened, model, words in ((it.a, it.model_a, "one"), (it.b, it.model_b, "two")):
            turn = await send(opened, SESSION, words)
            answering = await model.next(words)
            answering.say(f"It is {words}. ")
            answering.call("bash", command=f"echo {words}")
            answering.end("toolCalls")
            await until(lambda: model.answering[-1:] not in ([], [answering]))  # noqa: B023 - waited for here
            last = model.answering[-1]
            last.say("Done. ")
            last.end()
            assert (await turn.result).finish == "stop"
            await idle(opened, SESSION)  # until then a prompt from elsewhere is its own to run
        await level(it.a, it.b)
        told = [facts(sink) for sink in shown]
        assert told[0] == told[1]
        assert [update["seq"] for update in told[0]] == sorted({update["seq"] for update in told[0]})
        assert [text(sink) for sink in shown] == ["It is one. Done. It is two. Done. "] * 2
        pages = [await opened.query(q.ListMessages(session_id=SESSION)) for opened in (it.a, it.b)]
        assert pages[0] == pages[1]
        assert await owners(it.b) == [it.a._log.owner, it.b._log.owner]


async def test_text_is_logged_more_often_while_another_process_shows_it(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(60))
    appends: dict[bool, int] = {}
    for followed in (False, True):
        tmp = tmp_path / str(followed)
        tmp.mkdir()
        async with contextlib.AsyncExitStack() as stack:
            script = f"pace: 20ms\nsay: {words}"
            opened = await stack.enter_async_context(kernel(tmp, script, **real()))
            if followed:
                await stack.enter_async_context(kernel(tmp, script, **real()))
                await until(lambda: opened._log.others)  # noqa: B023 - waited for here
            await create(opened)
            assert (await prompt(opened, SESSION, "talk")).finish == "stop"
            told = await events_of(opened, e.PartAppended)
            assert "".join(event.payload.text for event in told) == words
            appends[followed] = len(told)
    # Each 500 ms alone, each 100 ms with another: five times as often, were the machine never late.
    assert appends[True] > 2 * appends[False], appends


async def test_a_prompt_in_one_waits_behind_the_turn_of_the_other_and_runs_there(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        first = await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        second = await send(it.b, SESSION, "two")
        state = it.a._sessions.live(SESSION)
        assert state is not None
        await until(lambda: state.queue)
        answering.end()
        (await it.model_a.next("two")).end()
        assert [(await first.result).finish, (await second.result).finish] == ["stop", "stop"]
        assert (it.model_b.asked, it.model_a.most) == ([], 1)
        assert await owners(it.b) == [it.a._log.owner] * 2


async def test_an_interrupt_in_one_stops_the_turn_of_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        turn = await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        answering.say("half")
        answering.call("bash", command="sleep 300 & exec sleep 300")
        answering.end("toolCalls")
        state = it.b._sessions.live(SESSION)
        assert state is not None
        await until(lambda: [call.status for call in state.conversation.calls.values()] == ["running"])
        assert await it.b.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=True)
        assert (await types(it.b, SESSION))[-3:] == ["interrupt.requested", "call.failed", "turn.ended"]
        assert (await turn.result).finish == "interrupted"
        assert await it.b.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=False)


async def test_interrupts_of_both_at_once_stop_it_once(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "one")
        await it.model_a.next("one")
        await it.b._log.catch_up()
        stopped = await asyncio.gather(
            *(opened.submit(c.Interrupt(session_id=SESSION)) for opened in (it.a, it.b))
        )
        assert c.Interrupted(interrupted=True) in stopped
        assert (await types(it.a, SESSION)).count("turn.ended") == 1


async def test_an_ask_of_one_is_answered_in_the_other_and_the_second_answer_is_refused(
    tmp_path: Path,
) -> None:
    async with two(tmp_path, permission={"bash": "ask"}) as it:
        turn = await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        answering.call("bash", command="touch made")
        answering.end("toolCalls")
        ask_id = await ask(it.b)
        asks = await it.b.query(q.ListAsks(session_id=SESSION))
        assert isinstance(asks, q.AskList) and [each.id for each in asks.asks] == [ask_id]
        assert await it.b.submit(c.ReplyAsk(ask_id=ask_id, reply="once")) == c.Replied(accepted=True)
        for opened in (it.a, it.b):
            assert await opened.submit(c.ReplyAsk(ask_id=ask_id, reply="reject")) == c.Replied(accepted=False)
        with pytest.raises(Conflict):
            late = e.AskReplied(ask_id=ask_id, reply="reject", by="person")
            await it.a._sessions.append(SESSION, late)
        (await it.model_a.next()).end()
        assert (await turn.result).finish == "stop"
        assert (tmp_path / "work" / "made").exists()
        assert await replies(it.a) == [("once", "person")]


async def test_two_answers_at_once_are_one(tmp_path: Path) -> None:
    async with two(tmp_path, permission={"bash": "ask"}) as it:
        await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        answering.call("bash", command="touch made")
        answering.end("toolCalls")
        ask_id = await ask(it.b)
        accepted = await asyncio.gather(
            it.a.submit(c.ReplyAsk(ask_id=ask_id, reply="once")),
            it.b.submit(c.ReplyAsk(ask_id=ask_id, reply="reject")),
        )
        assert sorted(str(each.dump()) for each in accepted) == ["{'accepted': False}", "{'accepted': True}"]
        assert len(await replies(it.a)) == 1


async def test_X03_a_cancel_while_an_ask_is_open_withdraws_it_and_a_late_answer_does_nothing(
    tmp_path: Path,
) -> None:
    async with two(tmp_path, permission={"bash": "ask"}) as it:
        turn = await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        answering.call("bash", command="touch made")
        answering.end("toolCalls")
        ask_id = await ask(it.b)
        assert await it.b.submit(c.Interrupt(session_id=SESSION)) == c.Interrupted(interrupted=True)
        for opened in (it.b, it.a):
            assert await opened.submit(c.ReplyAsk(ask_id=ask_id, reply="once")) == c.Replied(accepted=False)
            assert await opened.query(q.ListAsks(session_id=SESSION)) == q.AskList(asks=())
        assert (await turn.result).finish == "interrupted"
        assert await replies(it.a) == [("reject", "interrupt")]
        assert not (tmp_path / "work" / "made").exists()
        calls = [event for event in await logged(it.a, SESSION) if event["type"].startswith("call.")]
        assert [event["type"] for event in calls] == ["call.failed"]


async def test_a_waiting_prompt_is_taken_back_in_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        waiting = await send(it.a, SESSION, "two", message_id="msg_wait")
        last = await send(it.b, SESSION, "three")
        assert await it.b.unqueue(SESSION, "msg_wait")
        assert not await it.a.unqueue(SESSION, "msg_wait")
        answering.end()
        (await it.model_a.next("three")).end()
        assert (await last.result).finish == "stop"
        assert waiting.result.cancelled()
        assert it.model_a.asked == ["one", "three"]


async def test_prompts_of_both_at_once_have_one_order_and_run_once(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        shown = await seen_by(it.a, it.b)
        sent = await asyncio.gather(
            *(send((it.a, it.b)[number % 2], SESSION, f"p{number}") for number in range(8))
        )
        running: list[str] = []
        while not all(turn.result.done() for turn in sent):
            await until(
                lambda: (
                    it.model_a.answering or it.model_b.answering or all(turn.result.done() for turn in sent)
                )
            )
            for model in (it.model_a, it.model_b):
                for answering in tuple(model.answering):
                    if answering.words not in running:
                        running.append(answering.words)
                        answering.end()
            assert len(it.model_a.answering) + len(it.model_b.answering) <= 1
            await asyncio.sleep(0.001)
        await idle(it.a, SESSION)
        await idle(it.b, SESSION)
        await level(it.a, it.b)
        received = [event.payload.message_id for event in await events_of(it.a, e.MessageReceived)]
        started = [event.payload.message_id for event in await events_of(it.b, e.TurnStarted)]
        assert received == started
        assert sorted(running) == sorted(f"p{number}" for number in range(8))
        assert facts(shown[0]) == facts(shown[1])
        kinds = [type for type in await types(it.a, SESSION) if type.startswith("turn.")]
        assert kinds == ["turn.started", "turn.ended"] * 8


async def test_the_same_prompt_sent_to_both_runs_once(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        sent = await asyncio.gather(
            *(send(opened, SESSION, "one", message_id="msg_same") for opened in (it.a, it.b, it.b, it.a))
        )
        await until(lambda: it.model_a.answering or it.model_b.answering)
        (it.model_a.answering or it.model_b.answering)[0].end()
        results = [await turn.result for turn in sent]
        assert len({result.seq for result in results}) == 1
        assert len(it.model_a.asked + it.model_b.asked) == 1


async def test_a_prompt_that_interrupts_the_turn_of_the_other_runs_once(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        first = await send(it.a, SESSION, "one")
        await it.model_a.next("one")
        await it.b._log.catch_up()
        second = await send(it.b, SESSION, "two", delivery="interrupt")
        assert (await first.result).finish == "interrupted"
        await until(lambda: it.model_a.answering or it.model_b.answering)
        (it.model_a.answering or it.model_b.answering)[0].end()
        assert (await second.result).finish == "stop"
        assert (it.model_a.asked + it.model_b.asked) == ["one", "two"]


async def test_a_held_queue_goes_on_where_the_person_resumes(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "one")
        await it.model_a.next("one")
        waiting = await send(it.a, SESSION, "two")
        await it.a.submit(c.Interrupt(session_id=SESSION))
        await idle(it.a, SESSION)
        await it.b._log.catch_up()
        assert (await queue(it.a), await queue(it.b)) == ((True, 1), (True, 1))
        resumed = await it.b.resume(c.Resume(session_id=SESSION))
        (await it.model_b.next()).end()
        assert (await resumed.result).finish == "stop"
        (await it.model_b.next("two")).end()
        assert (await waiting.result).finish == "stop"
        assert await owners(it.a) == [it.a._log.owner, it.b._log.owner, it.b._log.owner]


async def test_a_session_that_runs_in_one_is_deleted_in_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "one")
        await it.model_a.next("one")
        await it.b._log.catch_up()
        await it.b.submit(c.DeleteSession(session_id=SESSION))
        await idle(it.a, SESSION)
        assert not it.model_a.answering
        for opened in (it.a, it.b):
            await opened._log.catch_up()
            assert not await opened.has_session(SESSION)


async def test_one_that_closes_settles_its_turns_and_the_other_goes_on(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "one")
        await it.model_a.next("one")
        waiting = await send(it.b, SESSION, "two")
        await it.a.close()
        await it.b._log.catch_up()
        assert await queue(it.b) == (True, 1)
        third = await send(it.b, SESSION, "three")
        for words in ("three", "two"):
            (await it.model_b.next(words)).end()
        assert [(await third.result).finish, (await waiting.result).finish] == ["stop", "stop"]


async def test_who_lost_its_lease_logs_nothing_more_and_its_run_ends(tmp_path: Path) -> None:
    async with two(tmp_path) as it:
        turn = await send(it.a, SESSION, "one")
        answering = await it.model_a.next("one")
        await send(it.a, SESSION, "two")
        lease = it.a._sessions.leases[SESSION]
        # As a file system does that frees a lock too early.
        (it.a.state_dir / "owners" / f"{it.a._log.owner}.lock").unlink()
        assert (await turn.result).finish == "interrupted"  # told by the other
        before = await logged(it.b, SESSION)
        answering.say("too late")
        answering.end()
        await idle(it.a, SESSION)  # without the lease
        await level(it.a, it.b)
        assert await logged(it.b, SESSION) == before
        assert await queue(it.a) == (True, 1)
        with pytest.raises(LeaseLost):
            held = e.QueueHeld(reason="crash")
            await it.a._log.append(SESSION, [e.Draft(held)], lease=lease)
