"""Who runs a session checkpoints it; who opens it begins there, and knows all that a full replay tells."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deskmate_session.core import checkpoints
from deskmate_session.core.state import SessionState
from deskmate_session.kernel import Kernel
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, events as e, queries as q
from deskmate_session.runtime.checkpointing import LOOK_EVERY
from tests.runtime.support import Hand, by_hand, create, folded, idle, send, until
from tests.runtime.two import SESSION, level, queue, verified

INTERVAL = 30
OFTEN = {"config": {"checkpoint": {"interval": INTERVAL}}}
WAITING = 45
"""Prompts that wait behind a turn, each an event of its session: more than an interval and two looks."""
RUNS, ASKS = "sleep 300", "touch made"
ASKING = {"permission": {"bash": {"*": "ask", "sleep *": "allow"}}, "files": {"f": "x\n"}}


class Kept:
    """The `seq` of each checkpoint that is written, and the events that are read of the session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seqs: list[int] = []
        self.read: list[int] = []
        put, read = EventLog.checkpoint, EventLog.read

        async def counted_put(log: EventLog, session: str, seq: int, body: bytes, **rest: Any) -> None:
            await put(log, session, seq, body, **rest)
            self.seqs.append(seq)

        async def counted_read(log: EventLog, *args: Any, **options: Any) -> Sequence[e.Event]:
            events = await read(log, *args, **options)
            self.read += [event.seq for event in events]
            return events

        monkeypatch.setattr(EventLog, "checkpoint", counted_put)
        monkeypatch.setattr(EventLog, "read", counted_read)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    return Kept(monkeypatch)


async def run_turns(opened: Kernel, hand: Hand, count: int) -> None:
    """Turns of a few events each."""
    for number in range(count):
        turn = await send(opened, SESSION, f"p{number}")
        answering = await hand.next(f"p{number}")
        answering.say(f"a{number}")
        answering.end()
        assert (await turn.result).finish == "stop"
    await idle(opened, SESSION)


async def in_mid_turn(opened: Kernel, hand: Hand, kept: Kept, command: str) -> None:
    """A turn whose last call runs, or waits for the person; that began before the newest checkpoint."""
    await send(opened, SESSION, "long")
    answering = await hand.next("long")
    answering.say("I look. ")
    answering.call("read", path="f")
    answering.call("bash", command=command)
    answering.call("read", path="f")
    answering.end("toolCalls")
    state = live(opened)
    await until(lambda: state.asks or [call.status for call in state.unsettled_calls()][:1] == ["running"])
    await until(lambda: state.asks or [call.tool for call in state.unsettled_calls()][:1] == ["bash"])
    began = state.seq
    for number in range(WAITING):
        await send(opened, SESSION, f"w{number}")
    await until(lambda: kept.seqs and kept.seqs[-1] > began)


def live(opened: Kernel) -> SessionState:
    """The state in memory."""
    state = opened._sessions.live(SESSION)
    assert state is not None
    return state


async def known(opened: Kernel) -> list[Any]:
    """All that a kernel tells of the session."""
    asked = (
        q.GetSession(session_id=SESSION),
        q.ListMessages(session_id=SESSION),
        q.ListAsks(session_id=SESSION),
        q.ListAsks(),
    )
    return [await opened.query(query) for query in asked]


async def replayed(opened: Kernel) -> bytes:
    """The checkpoint that a full replay would make now."""
    return checkpoints.dump(folded(list(await opened._log.read(session=SESSION))))


async def test_who_runs_a_session_checkpoints_it_an_interval_apart(tmp_path: Path, kept: Kept) -> None:
    async with by_hand(tmp_path, **OFTEN) as (opened, hand), by_hand(tmp_path, **OFTEN) as (other, _):
        await create(opened)
        assert await other.has_session(SESSION)
        await run_turns(opened, hand, 3 * INTERVAL // 8 + 8)
        await level(opened, other)
        assert len(kept.seqs) >= 2 and len(set(kept.seqs)) == len(kept.seqs)
        spaces = [later - earlier for earlier, later in zip([0, *kept.seqs], kept.seqs, strict=False)]
        assert min(spaces) >= INTERVAL
        assert max(spaces) < 2 * INTERVAL + 2 * LOOK_EVERY
        newest = await opened._log.newest_checkpoint(SESSION)
        assert newest is not None and newest.seq == kept.seqs[-1]
        earlier = [event for event in await opened._log.read(session=SESSION) if event.seq <= newest.seq]
        assert newest.body == checkpoints.dump(folded(earlier))
        await verified(opened)


async def test_a_short_session_has_none_and_who_only_follows_writes_none(tmp_path: Path, kept: Kept) -> None:
    async with by_hand(tmp_path) as (opened, hand), by_hand(tmp_path, **OFTEN) as (other, _):
        await create(opened)
        assert await other.has_session(SESSION)
        await run_turns(opened, hand, 8)
        await level(opened, other)
        assert INTERVAL + LOOK_EVERY < live(other).seq < 75
        await other.close()  # with all that it had begun
        assert kept.seqs == []


async def test_a_session_opens_at_its_newest_checkpoint(tmp_path: Path, kept: Kept) -> None:
    async with by_hand(tmp_path, **OFTEN) as (opened, hand):
        await create(opened)
        await run_turns(opened, hand, INTERVAL // 4)
        before = await known(opened)
        assert kept.seqs
    async with by_hand(tmp_path, **OFTEN) as (opened, hand):
        kept.read.clear()
        assert await opened.has_session(SESSION)
        state = live(opened)
        assert not state.whole
        assert kept.read == list(range(kept.seqs[-1] + 1, state.seq + 1))
        assert checkpoints.dump(state) == await replayed(opened)
        assert await known(opened) == before
        await run_turns(opened, hand, 1)  # a request is made from all of it
        assert live(opened).whole


@pytest.mark.parametrize(("command", "status"), [(RUNS, "busy"), (ASKS, "waiting")])
async def test_who_opens_a_session_in_mid_turn_knows_what_its_owner_knows(
    tmp_path: Path, kept: Kept, command: str, status: str
) -> None:
    async with by_hand(tmp_path, **OFTEN, **ASKING) as (opened, hand):
        await create(opened)
        await run_turns(opened, hand, 2)
        await in_mid_turn(opened, hand, kept, command)
        async with by_hand(tmp_path, **OFTEN, **ASKING) as (other, _):
            kept.read.clear()
            told = await known(other)
            state = live(other)
            assert not state.whole
            assert kept.read == list(range(kept.seqs[-1] + 1, state.seq + 1))
            assert told == await known(opened)
            details, _, asks, _ = told
            assert (details.status.status, len(details.queue.prompts)) == (status, WAITING)
            assert len(asks.asks) == (command == ASKS)
            assert checkpoints.dump(state) == checkpoints.dump(live(opened)) == await replayed(opened)
            assert state.unsettled_calls() == live(opened).unsettled_calls()
            assert len(state.unsettled_calls()) == 2
            await opened.submit(c.Interrupt(session_id=SESSION))
            await idle(opened, SESSION)
            await level(opened, other)
            assert await known(other) == await known(opened)


def die(opened: Kernel) -> None:
    """Look dead to others, as where a file system frees a lock too early."""
    (opened.state_dir / "owners" / f"{opened._log.owner}.lock").unlink()


@pytest.mark.parametrize(
    ("command", "facts"),
    [
        (RUNS, [("call.failed", True), ("call.failed", None)]),
        (ASKS, [("call.failed", None), ("call.failed", None), ("ask.replied", None)]),
    ],
)
async def test_who_takes_over_in_mid_turn_settles_the_calls_from_before_its_checkpoint(
    tmp_path: Path, kept: Kept, command: str, facts: list[tuple[str, bool | None]]
) -> None:
    async with by_hand(tmp_path, **OFTEN, **ASKING) as (opened, hand):
        await create(opened)
        await run_turns(opened, hand, 2)
        await in_mid_turn(opened, hand, kept, command)
        newest = kept.seqs[-1]
        die(opened)
        kept.read.clear()
        async with by_hand(tmp_path, **OFTEN, **ASKING) as (other, _):
            assert await other.has_session(SESSION)
            state = live(other)
            assert not state.whole and (not kept.read or min(kept.read) > newest)
            assert (state.turn, state.last_finish) == (None, "interrupted")
            assert settled(await other._log.read(session=SESSION)) == facts
            assert await texts(other) == ["a0", "a1", "I look. "]
            assert await queue(other) == (True, WAITING)
            assert checkpoints.dump(state) == await replayed(other)
            assert not (tmp_path / "work" / "made").exists()
            await verified(other)
            await idle(opened, SESSION)  # without its lease


async def test_who_takes_over_in_mid_answer_keeps_the_text_from_before_its_checkpoint(
    tmp_path: Path, kept: Kept
) -> None:
    async with by_hand(tmp_path, **OFTEN) as (opened, hand):
        await create(opened)
        await send(opened, SESSION, "long")
        answering = await hand.next("long")
        said = [f"Block {number}. " for number in range(INTERVAL)]
        for words in said:
            answering.say(words)
        state = live(opened)
        await until(
            lambda: kept.seqs and state.seq >= kept.seqs[-1] >= INTERVAL and not answering.orders.qsize()
        )
        await until(
            lambda: [len(message.parts) for message in state.conversation.messages.values()][1:] == [INTERVAL]
        )
        die(opened)
        async with by_hand(tmp_path, **OFTEN) as (other, _):
            assert await other.has_session(SESSION)
            assert not live(other).whole
            assert live(other).last_finish == "interrupted"
            assert await texts(other) == said
            assert checkpoints.dump(live(other)) == await replayed(other)
            answering.end()
            await idle(opened, SESSION)  # without its lease


def settled(events: Sequence[e.Event]) -> list[tuple[str, bool | None]]:
    """How asks and calls that did not come to their end were settled, and whether the outcome is unknown."""
    found: list[tuple[str, bool | None]] = []
    for event in events:
        if isinstance(event.payload, e.CallFailed):
            found.append((event.type, event.payload.outcome_unknown))
        elif isinstance(event.payload, e.AskReplied):
            found.append((event.type, None))
    return found


async def texts(opened: Kernel) -> list[str]:
    """The text parts of the model's answers."""
    page = await opened.query(q.ListMessages(session_id=SESSION))
    assert isinstance(page, q.MessagePage)
    return [
        part.text
        for message in page.messages
        if message.role == "assistant"
        for part in message.parts
        if part.type == "text"
    ]
