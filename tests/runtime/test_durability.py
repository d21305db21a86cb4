"""Nothing happens before the fact that says so is in the log, flushed to the disk.

A `Gate` holds one fact of one session back on its way into the log. The same is done in another session
meanwhile: when that has come to its end, whatever does not wait would be done in the first one, too.
"""

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deskmate_session.errors import LogReadOnly
from deskmate_session.kernel import Kernel
from deskmate_session.log.store import EventLog
from deskmate_session.model import commands as c, events as e
from tests.runtime.support import Hand, by_hand, create, logged, send, types, until

GATED, FREE = "ses_gated", "ses_free"
SESSIONS = (GATED, FREE)


class Gate:
    """Holds the first fact of a kind in `GATED` back till it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type) -> None:
        self.durable: list[bool] = []
        """How each fact of this kind was appended, in any session."""
        self._kind = kind
        self._came, self._opened = asyncio.Event(), asyncio.Event()
        append, request = EventLog.append, EventLog.request

        def gated_append(
            log: EventLog,
            session: str | None,
            drafts: Sequence[e.Draft],
            *,
            durable: bool = False,
            **rest: Any,
        ) -> Any:
            put = lambda: append(log, session, drafts, durable=durable, **rest)  # noqa: E731
            return self._through(session, drafts, durable, put)

        def gated_request(
            log: EventLog, session: str, drafts: Sequence[e.Draft], *, durable: bool = True
        ) -> Any:
            put = lambda: request(log, session, drafts, durable=durable)  # noqa: E731
            return self._through(session, drafts, durable, put)

        monkeypatch.setattr(EventLog, "append", gated_append)
        monkeypatch.setattr(EventLog, "request", gated_request)

    async def reached(self) -> None:
        """Wait until the fact is on its way."""
        async with asyncio.timeout(10):
            await self._came.wait()

    def open(self) -> None:
        """Let it into the log."""
        self._opened.set()

    def _through(self, session: str | None, drafts: Sequence[e.Draft], durable: bool, put: Any) -> Any:
        if not any(isinstance(draft.payload, self._kind) for draft in drafts):
            return put()
        self.durable.append(durable)
        if session != GATED:
            return put()

        async def later() -> Any:
            self._came.set()
            await self._opened.wait()
            return await put()

        return asyncio.ensure_future(later())


async def ask_for(opened: Kernel, hand: Hand, session: str, tool: str, **args: Any) -> Any:
    """Prompt a session, and let its model ask for one call. Returns the turn."""
    turn = await send(opened, session, f"go {session}")
    answering = await hand.next(f"go {session}")
    answering.call(tool, **args)
    answering.end("toolCalls")
    return turn


async def finish(hand: Hand, turn: Any) -> None:
    """End every request, whoever makes it, till a turn is over."""
    ended: list[Any] = []

    def over() -> bool:
        for answering in hand.answering:
            if answering not in ended:
                ended.append(answering)
                answering.end()
        return turn.result.done()

    await until(over)
    assert (await turn.result).finish == "stop"


async def test_a_command_runs_once_its_start_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, e.CallStarted)
    async with by_hand(tmp_path) as (opened, hand):
        for session in SESSIONS:
            await create(opened, session)
        turn = await ask_for(opened, hand, GATED, "bash", command="touch gated")
        await gate.reached()
        other = await ask_for(opened, hand, FREE, "bash", command="touch free")
        await finish(hand, other)
        assert [path.name for path in (tmp_path / "work").iterdir()] == ["free"]
        gate.open()
        await finish(hand, turn)
        assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["free", "gated"]
        assert (await types(opened, GATED))[-3:] == ["call.started", "call.completed", "turn.ended"]
    assert gate.durable == [True, True]


async def test_a_call_without_effect_is_not_made_to_wait_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, e.CallStarted)
    async with by_hand(tmp_path, files={"f": "x\n"}) as (opened, hand):
        await create(opened, FREE)
        turn = await ask_for(opened, hand, FREE, "read", path="f")
        await finish(hand, turn)
    assert gate.durable == [False]


async def test_a_file_is_touched_once_its_change_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, e.ChangeStarted)
    async with by_hand(tmp_path, files={GATED: "old\n", FREE: "old\n"}) as (opened, hand):
        for session in SESSIONS:
            await create(opened, session)
        turn = await ask_for(opened, hand, GATED, "edit", path=GATED, old="old", new="new")
        await gate.reached()
        other = await ask_for(opened, hand, FREE, "edit", path=FREE, old="old", new="new")
        await finish(hand, other)
        assert contents(tmp_path) == {GATED: "old\n", FREE: "new\n"}
        gate.open()
        await finish(hand, turn)
        assert contents(tmp_path) == {GATED: "new\n", FREE: "new\n"}
    assert gate.durable == [True, True]


async def test_a_prompt_is_accepted_once_it_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, e.MessageReceived)
    async with by_hand(tmp_path) as (opened, hand):
        for session in SESSIONS:
            await create(opened, session)
        sending = asyncio.ensure_future(send(opened, GATED, "one"))
        await gate.reached()
        other = await send(opened, FREE, "two")
        (await hand.next("two")).end()
        assert (await other.result).finish == "stop"
        assert (sending.done(), hand.asked, await types(opened, GATED)) == (
            False,
            ["two"],
            ["session.created"],
        )
        gate.open()
        turn = await sending
        (await hand.next("one")).end()
        assert (await turn.result).finish == "stop"
    assert gate.durable == [True, True]


async def test_a_call_begins_once_the_answer_to_its_ask_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, e.AskReplied)
    async with by_hand(tmp_path, permission={"bash": "ask"}) as (opened, hand):
        turns: dict[str, Any] = {}
        asks: dict[str, str] = {}
        for session in SESSIONS:
            await create(opened, session)
            turns[session] = await ask_for(opened, hand, session, "bash", command=f"touch {session}")
            state = opened._sessions.live(session)
            assert state is not None
            await until(lambda: state.asks)  # noqa: B023 - waited for here
            asks[session] = next(iter(state.asks))
        replying = asyncio.ensure_future(opened.submit(c.ReplyAsk(ask_id=asks[GATED], reply="once")))
        await gate.reached()
        assert await opened.submit(c.ReplyAsk(ask_id=asks[FREE], reply="once")) == c.Replied(accepted=True)
        await finish(hand, turns[FREE])
        assert [path.name for path in (tmp_path / "work").iterdir()] == [FREE]
        assert not replying.done()
        gate.open()
        assert await replying == c.Replied(accepted=True)
        await finish(hand, turns[GATED])
        assert (tmp_path / "work" / GATED).exists()
    assert gate.durable == [True, True]


class FullDisk:
    """The writer's connection, whose commits fail as on a full disk while `full`."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self.full = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._conn, name)

    def execute(self, statement: str, *given: Any) -> Any:
        """Execute, or fail."""
        if self.full and statement == "commit":
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return self._conn.execute(statement, *given)


async def test_a_command_whose_start_can_not_be_logged_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with by_hand(tmp_path) as (opened, hand):
        await create(opened, GATED)
        writer: Any = opened._log._writer
        disk = writer._conn = FullDisk(writer._conn)
        append = opened._sessions.append

        def fills_up(session_id: str, *facts: e.EventPayload, **options: Any) -> Any:
            disk.full = disk.full or any(isinstance(fact, e.CallStarted) for fact in facts)
            return append(session_id, *facts, **options)

        monkeypatch.setattr(opened._sessions, "append", fills_up)
        turn = await ask_for(opened, hand, GATED, "bash", command="touch made")
        with pytest.raises(LogReadOnly, match="the disk is full"):
            await turn.result
        assert not (tmp_path / "work" / "made").exists()
        disk.full = False
        state = opened._sessions.live(GATED)
        assert state is not None
        await until(lambda: state.turn is None)
        settled = [event for event in await logged(opened, GATED) if event["type"].startswith("call.")]
        assert [(event["type"], event["payload"]["kind"]) for event in settled] == [
            ("call.failed", "interrupted")
        ]
        assert not (tmp_path / "work" / "made").exists()


def contents(tmp_path: Path) -> dict[str, str]:
    """Every file of the workspace."""
    return {path.name: path.read_text() for path in (tmp_path / "work").iterdir()}
