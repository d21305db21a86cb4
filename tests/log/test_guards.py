"""Facts that contradict the log are refused, whoever loses the race; the read model takes them anyway."""

from pathlib import Path

import pytest

from deskmate_session.errors import Conflict
from deskmate_session.log import guards
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from tests.log import support
from tests.log.support import opened


async def refuses(log: EventLog, why: str, *drafts: e.Draft, plain: bool = False) -> None:
    """The append is refused as a whole; `plain`: without the lease."""
    seq = await log.last_seq()
    append = super(type(log), log).append if plain else log.append
    with pytest.raises(Conflict, match=why):
        await append("ses_1", drafts)
    assert await log.last_seq() == seq


async def test_an_ask_is_settled_once(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received(), support.turn_started()])
        await refuses(log, "'ask_1' is settled already, or unknown", support.replied())
        [opened_ask] = await log.append("ses_1", [support.asked()])
        await log.append("ses_2", [support.created(), support.asked("ask_2")])
        assert [event.seq for event in await log.open_asks()] == [opened_ask.seq, opened_ask.seq + 2]
        assert await log.open_asks("ses_1") == [opened_ask]
        assert await log.ask("ask_1") == ("ses_1", opened_ask)
        assert await log.ask("ask_none") is None
        await log.append("ses_1", [support.replied()])
        assert await log.open_asks("ses_1") == []
        assert await log.ask("ask_1") is None
        await refuses(log, "'ask_1' is settled already", support.replied())
        await refuses(log, "'ask_1' is settled already", support.updated("x"), support.replied())
        await log.append("ses_1", [support.asked("ask_3")])
        await log.append("ses_1", [support.turn_ended()])
        await refuses(log, "'ask_3' is settled already", support.replied("ask_3"))


async def test_a_prompt_is_taken_back_only_while_it_waits(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created()])
        await log.append("ses_1", [support.received(f"msg_{n}") for n in (1, 2, 3)])
        assert await log.waiting("ses_1") == ["msg_1", "msg_2", "msg_3"]
        assert await log.waiting("ses_1", upto=3) == ["msg_1", "msg_2"]
        await log.append("ses_1", [support.turn_started("turn_1", "msg_1")])
        await refuses(log, "'msg_1' does not wait", support.unqueued("msg_1"))
        await log.append("ses_1", [support.unqueued("msg_2")])
        await refuses(log, "'msg_2' does not wait", support.unqueued("msg_2"))
        await refuses(log, "'msg_none' does not wait", support.unqueued("msg_none"))
        assert await log.waiting("ses_1") == ["msg_3"]
        assert await log.waiting("ses_none") == []


async def test_an_interrupt_names_the_turn_that_runs(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received()])
        await refuses(log, "'turn_1' does not run", support.interrupted())
        await log.append("ses_1", [support.turn_started()])
        await refuses(log, "'turn_2' does not run", support.interrupted("turn_2"))
        await log.append("ses_1", [support.interrupted()])
        assert await log.turn_end("ses_1", "msg_1") is None
        [end] = await log.append("ses_1", [support.turn_ended()])
        assert await log.turn_end("ses_1", "msg_1") == end
        await refuses(log, "'turn_1' does not run", support.interrupted())


async def test_a_session_has_one_turn_at_a_time_of_a_prompt_that_waits(tmp_path: Path):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received("msg_1"), support.received("msg_2")])
        await refuses(log, "'msg_none' does not wait", support.turn_started("turn_1", "msg_none"))
        await log.append("ses_1", [support.turn_started("turn_1", "msg_1")])
        await refuses(log, "a turn that did not end", support.turn_started("turn_2", "msg_2"))
        both = [support.turn_ended("turn_1", "msg_1"), support.turn_started("turn_2", "msg_2")]
        await log.append("ses_1", both)
        await log.append("ses_1", [support.turn_ended("turn_2", "msg_2")])
        await refuses(log, "'msg_1' does not wait", support.turn_started("turn_3", "msg_1"))


@pytest.mark.parametrize("reopened", [False, True])
async def test_nothing_begins_in_a_deleted_session_and_what_ran_is_settled(tmp_path: Path, reopened: bool):
    async with opened(tmp_path) as log:
        await log.append("ses_1", [support.created(), support.received("msg_1"), support.received("msg_2")])
        await log.append(
            "ses_1", [support.turn_started("turn_1", "msg_1"), support.asked(), support.deleted()]
        )
        if not reopened:
            await settles(log)
    if reopened:
        async with opened(tmp_path) as log:
            await settles(log)


async def settles(log: EventLog) -> None:
    why = "session 'ses_1' was deleted"
    for draft in (support.updated("x"), support.received("msg_3"), support.deleted(), support.released()):
        await refuses(log, why, draft)
        await refuses(log, why, draft, plain=True)
    for draft in (support.replied(), support.unqueued("msg_2"), support.interrupted()):
        await refuses(log, why, draft, plain=True)
    await log.append("ses_1", [support.interrupted(), support.replied(), support.unqueued("msg_2")])
    await log.append("ses_1", [support.turn_ended("turn_1", "msg_1")])
    await refuses(log, why, support.turn_started("turn_2", "msg_2"))
    await refuses(log, why, support.created())
    assert (await log.verify()).ok


async def test_of_two_answers_the_first_counts(tmp_path: Path):
    async with opened(tmp_path) as log, opened(tmp_path, EventLog) as other:
        for round in range(10):
            await log.append("ses_1", [support.asked(f"ask_{round}")])
            futures = [each.append("ses_1", [support.replied(f"ask_{round}")]) for each in (log, other)]
            results: list[object] = []
            for future in futures:
                try:
                    results.append(await future)
                except Conflict:
                    results.append(None)
            assert results.count(None) == 1
        assert (await log.verify()).ok


async def test_an_older_log_may_hold_what_is_refused_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guards, "check", lambda *_, **__: None)
    odd = [support.replied(), support.unqueued(), support.interrupted(), support.turn_started()]
    async with opened(tmp_path) as log:
        await log.append("ses_1", odd)
        await log.append(
            "ses_1", [support.created(), *odd, support.turn_started("turn_2"), support.deleted()]
        )
        await log.append("ses_1", [support.received(), *odd, support.deleted(), support.updated("x")])
        assert (await log.verify()).ok
