"""Nobody waits in vain: each prompt's request gets an answer, whatever happens to the prompt."""

import asyncio
import os
from pathlib import Path

import pytest

from deskmate_session.core.recovery import Seen
from deskmate_session.errors import LogReadOnly, Rejected
from deskmate_session.model import events as e
from deskmate_session.runtime import coordinator as coordinating
from tests.runtime.support import by_hand, coordinator, create, idle, send, types, until
from tests.runtime.two import SESSION, two


async def test_a_prompt_that_is_taken_back_in_the_moment_it_is_logged_is_answered(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, model):
        session = await create(opened)
        running = await send(opened, session, "first")
        answering = await model.next("first")
        for number in range(20):
            sending = asyncio.ensure_future(send(opened, session, "waits", message_id=f"msg_{number:04}"))
            await asyncio.sleep(0)
            while not await opened.unqueue(session, f"msg_{number:04}"):
                await asyncio.sleep(0)
            turn = await sending
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(turn.result, 5)
        answering.say("done")
        answering.end()
        assert (await running.result).finish == "stop"


async def test_a_prompt_that_was_taken_back_is_not_received_under_its_id_again(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, model):
        session = await create(opened)
        await send(opened, session, "first")
        await model.next("first")
        await send(opened, session, "waits", message_id="msg_back")
        assert await opened.unqueue(session, "msg_back")
        with pytest.raises(Rejected) as caught:
            await send(opened, session, "waits", message_id="msg_back")
        assert (caught.value.kind, caught.value.message) == (
            "conflict",
            "message 'msg_back' was taken back before",
        )
        await coordinator(opened).interrupt(session)


async def test_a_prompt_runs_though_the_process_it_waited_for_closes_in_that_moment(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as it:
        first = await send(it.a, SESSION, "first")
        answering = await it.model_a.next("first")
        answering.say("done")
        answering.end()
        assert (await first.result).finish == "stop"
        await idle(it.a, SESSION)
        lease = await it.a._log.take(SESSION)  # as if it had not given it back yet
        assert lease is not None
        waiting = await send(it.b, SESSION, "second")
        await it.a._log.release(lease, anyway=True)
        await it.a.close()
        answering = await it.model_b.next("second")
        answering.say("here")
        answering.end()
        assert (await waiting.result).finish == "stop"
        assert "queue.held" not in await types(it.b, SESSION)


async def test_recovery_that_the_log_can_not_take_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinating, "MEND_AFTER", (0.01,))
    async with two(tmp_path) as it:
        await send(it.a, SESSION, "first")
        await it.model_a.next("first")
        failing = [True]
        take = it.b._log.take

        def broken(session: str) -> "asyncio.Future[object]":
            if failing.pop() if failing else False:
                failed = asyncio.get_running_loop().create_future()
                failed.set_exception(LogReadOnly("the disk is full"))
                return failed
            return take(session)

        monkeypatch.setattr(it.b._log, "take", broken)
        assert it.a._log._owner is not None
        it.a._log._owner._path.unlink()  # to the others it is dead
        await until(lambda: not failing)
        state = await it.b._sessions.known(SESSION)
        await until(lambda: state.turn is None)
        assert state.last_finish == "interrupted"


async def test_a_path_that_is_no_file_any_more_tells_nothing_of_a_change(tmp_path: Path) -> None:
    async with by_hand(tmp_path) as (opened, _):
        place = tmp_path / "pipe"
        os.mkfifo(place)
        change = e.ChangeStarted(
            call_id="call_1", uri=place.as_uri(), before=None, after="0" * 64, via="disk"
        )
        recovery = coordinator(opened)._recovery
        assert await asyncio.wait_for(asyncio.to_thread(recovery._look, change), 5) == Seen("unknown")
