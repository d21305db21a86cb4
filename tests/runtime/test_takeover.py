"""A kernel beside a real process that dies, or stands still: the first is settled, the second not robbed."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import psutil
import pytest

from deskmate_session.kernel import Kernel, Notice
from deskmate_session.model import commands as c, queries as q
from tests.runtime.support import (
    Hand,
    by_hand,
    create,
    idle,
    send,
    types,
    until,
)
from tests.runtime.two import (
    ALLOW,
    ROOT,
    SESSION,
    ask,
    level,
    owners,
    queue,
    replies,
    verified,
)

PROCESS = """
import asyncio, json, os, signal, sys
from pathlib import Path
from deskmate_session.model import events as e
from tests.runtime.support import kernel, real, send

async def main():
    tmp, session, script, permission, dies, *prompts = sys.argv[1:]
    async with kernel(Path(tmp), script, permission=json.loads(permission), **real()) as opened:
        append_it = opened._sessions.append
        def append(session_id, *facts, **options):
            before = any(type(fact).__name__ == dies for fact in facts)
            if before:
                os.kill(os.getpid(), signal.SIGKILL)
            return append_it(session_id, *facts, **options)
        def heard(state, event, ours):
            if ours and dies == "after " + type(event.payload).__name__:
                os.kill(os.getpid(), signal.SIGKILL)
        opened._sessions.append = append
        opened._sessions.on_event(heard)
        for words in prompts:
            await send(opened, session, words)
        print(opened._log.owner, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


class Process:
    """A kernel in a process of its own that plays a script to some prompts."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(
        cls,
        tmp: Path,
        script: str,
        *prompts: str,
        permission: dict[str, Any] | None = None,
        dies: str = "",
    ) -> "Process":
        """`dies`: it kills itself before it logs such a fact, or as soon as it has (`after TurnStarted`)."""
        given = json.dumps(ALLOW if permission is None else permission)
        return cls(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROCESS, str(tmp), SESSION, script, given, dies, *prompts),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT}/session:{ROOT}/server:{ROOT}"},
                stdout=asyncio.subprocess.PIPE,
            )
        )

    async def owner(self) -> str:
        """Its name, once all prompts are sent."""
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def end(self) -> None:
        """Kill it, if it lives."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()


@contextlib.asynccontextmanager
async def beside(
    tmp: Path, script: str, *prompts: str, files: dict[str, str] | None = None, **options: Any
) -> AsyncGenerator[tuple[Kernel, Hand, Process]]:
    """A kernel here and one in a process that runs the prompts."""
    async with by_hand(tmp, files=files) as (opened, hand):
        await create(opened)
        process = await Process.start(tmp, script, *prompts, **options)
        try:
            yield opened, hand, process
        finally:
            await process.end()


async def settled(opened: Kernel) -> None:
    """Wait until the turn of the dead one has ended."""
    state = opened._sessions.live(SESSION)
    assert state is not None
    await until(lambda: state.last_finish == "interrupted")
    await idle(opened, SESSION)


async def calls(opened: Kernel) -> list[tuple[str, str, str | None, bool | None]]:
    """Tool, status, kind of error, and whether its outcome is unknown, of each call."""
    page = await opened.query(q.ListMessages(session_id=SESSION))
    assert isinstance(page, q.MessagePage)
    return [
        (part.tool, part.state.status, part.state.error_kind, part.state.outcome_unknown)
        for message in page.messages
        for part in message.parts
        if part.type == "tool"
    ]


async def test_streamed_text_of_a_killed_process_is_kept_and_what_waited_is_held(tmp_path: Path) -> None:
    script = "# turn\nsay: The half that came.\nwait 300s\n# turn\nsay: never"
    async with beside(tmp_path, script, "one", "two") as (opened, hand, process):
        await process.owner()
        state = opened._sessions.live(SESSION)
        assert state is not None
        await until(lambda: _text(state) == "The half that came.")
        process.signal(signal.SIGKILL)
        await settled(opened)
        assert _text(state) == "The half that came."
        assert await queue(opened) == (True, 1)
        assert hand.asked == []
        resumed = await opened.resume(c.Resume(session_id=SESSION))
        (await hand.next()).end()
        (await hand.next("two")).end()
        assert (await resumed.result).finish == "stop"
        await idle(opened, SESSION)
        assert await queue(opened) == (False, 0)
        await verified(opened)


async def test_a_running_command_of_a_killed_process_is_ended_and_its_outcome_is_unknown(
    tmp_path: Path,
) -> None:
    script = '# turn\ncall bash {"command": "echo $$ > pid; sleep 300 & setsid sleep 300 & exec sleep 300"}'
    async with beside(tmp_path, script, "one") as (opened, _, process):
        await process.owner()
        pid = tmp_path / "work" / "pid"
        await until(lambda: pid.exists() and pid.read_text().strip())
        await opened._log.catch_up()
        state = opened._sessions.live(SESSION)
        assert state is not None
        [call_id] = state.conversation.calls
        assert len(marked(call_id)) >= 3
        process.signal(signal.SIGKILL)
        await settled(opened)
        assert marked(call_id) == []
        assert await calls(opened) == [("bash", "error", "interrupted", True)]


@pytest.mark.parametrize(
    ("dies", "content", "told"),
    [
        ("after ChangeStarted", "old\n", "change.refused"),
        ("ChangeApplied", "new\n", "change.observed"),
    ],
)
async def test_a_file_tells_by_its_hash_what_became_of_a_change(
    tmp_path: Path, dies: str, content: str, told: str
) -> None:
    script = '# turn\ncall edit {"path": "f", "old": "old", "new": "new"}\n## answer\nsay: never'
    async with beside(tmp_path, script, "one", files={"f": "old\n"}, dies=dies) as (opened, _, process):
        await process.process.wait()
        await settled(opened)
        assert (tmp_path / "work" / "f").read_text() == content
        assert [type for type in await types(opened, SESSION) if type.startswith("change.")] == [
            "change.started",
            told,
        ]
        assert await calls(opened) == [("edit", "error", "interrupted", None)]
        await verified(opened)


async def test_an_open_ask_of_a_killed_process_is_void_and_its_call_never_runs(tmp_path: Path) -> None:
    script = '# turn\ncall bash {"command": "touch made"}'
    async with beside(tmp_path, script, "one", permission={"bash": "ask"}) as (opened, _, process):
        await process.owner()
        ask_id = await ask(opened)
        process.signal(signal.SIGKILL)
        await settled(opened)
        assert await replies(opened) == [("reject", "recovery")]
        assert await opened.submit(c.ReplyAsk(ask_id=ask_id, reply="once")) == c.Replied(accepted=False)
        assert await opened.query(q.ListAsks()) == q.AskList(asks=())
        assert await calls(opened) == [("bash", "error", "interrupted", None)]
        assert not (tmp_path / "work" / "made").exists()


@pytest.mark.parametrize("dies", ["TurnStarted", "after TurnStarted", "after ModelResponded", "TurnEnded"])
async def test_whenever_it_dies_the_next_prompt_runs(tmp_path: Path, dies: str) -> None:
    async with beside(tmp_path, "say: An answer.", "one", dies=dies) as (opened, hand, process):
        await process.process.wait()
        turn = await send(opened, SESSION, "two")
        if dies == "TurnStarted":
            # The first prompt waits still: before the second one, or behind it if it was held meanwhile.
            (first := await hand.next()).end()
            (await hand.next({"one": "two", "two": "one"}[first.words])).end()
        else:
            (await hand.next("two")).end()
        assert (await turn.result).finish == "stop"
        await idle(opened, SESSION)
        kinds = [type for type in await types(opened, SESSION) if type.startswith("turn.")]
        assert kinds == ["turn.started", "turn.ended"] * 2
        assert await queue(opened) == (False, 0)


async def test_a_prompt_at_once_after_a_death_comes_behind_what_the_dead_one_left(tmp_path: Path) -> None:
    script = '# turn\nsay: Half.\ncall bash {"command": "touch begun; exec sleep 300"}'
    async with beside(tmp_path, script, "one") as (opened, hand, process):
        await process.owner()
        state = opened._sessions.live(SESSION)
        assert state is not None
        # Not before: a child that has not executed its program yet holds its parent's lock for a moment.
        await until((tmp_path / "work" / "begun").exists)
        await opened._log.catch_up()
        told: list[Notice] = []
        opened.on_notice(told.append)
        opened._log._on_owners_gone.clear()  # the prompt is quicker than the look at who lives
        await process.end()
        turn = await send(opened, SESSION, "two")
        (await hand.next("two")).end()
        assert (await turn.result).finish == "stop"
        await idle(opened, SESSION)
        kinds = await types(opened, SESSION)
        assert kinds[kinds.index("call.started") :] == [
            *("call.started", "call.failed", "turn.ended"),
            *("message.received", "turn.started", "turn.ended"),
        ]
        assert [(notice.level, "cut off" in notice.message) for notice in told] == [("warning", True)]
        await verified(opened)


async def test_of_several_survivors_one_settles_it(tmp_path: Path) -> None:
    script = '# turn\nsay: Half.\ncall bash {"command": "exec sleep 300"}'
    async with contextlib.AsyncExitStack() as stack:
        opened, _, process = await stack.enter_async_context(beside(tmp_path, script, "one", "two"))
        more = [(await stack.enter_async_context(by_hand(tmp_path)))[0] for _ in range(3)]
        await process.owner()
        state = opened._sessions.live(SESSION)
        assert state is not None
        await until(lambda: [call.status for call in state.conversation.calls.values()] == ["running"])
        for other in more:
            assert await other.has_session(SESSION)
        process.signal(signal.SIGKILL)
        await settled(opened)
        for other in more:
            await idle(other, SESSION)
        ended = await types(opened, SESSION)
        assert [ended.count(type) for type in ("call.failed", "turn.ended", "queue.held")] == [1, 1, 1]
        await level(opened, *more)
        pages = [await each.query(q.ListMessages(session_id=SESSION)) for each in (opened, *more)]
        assert all(page == pages[0] for page in pages)


async def test_a_stopped_process_is_not_robbed_and_goes_on(tmp_path: Path) -> None:
    script = """
# turn
call bash {"command": "until test -e go; do sleep 0.02; done; echo gone on"}
## answer
say: One.
# turn
say: Two.
"""
    async with beside(tmp_path, script, "one") as (opened, hand, process):
        owner = await process.owner()
        state = opened._sessions.live(SESSION)
        assert state is not None
        await until(lambda: [call.status for call in state.conversation.calls.values()] == ["running"])
        process.signal(signal.SIGSTOP)
        waiting = await send(opened, SESSION, "two")
        # Longer than two looks at who lives; nothing that could be waited for must happen.
        await asyncio.sleep(0.6)
        assert await opened._log.take(SESSION) is None
        assert (await types(opened, SESSION))[-2:] == ["call.started", "message.received"]
        (tmp_path / "work" / "go").touch()
        process.signal(signal.SIGCONT)
        assert (await waiting.result).finish == "stop"
        assert await owners(opened) == [owner, owner]
        assert (_text(state), hand.asked) == ("One.Two.", [])
        assert await calls(opened) == [("bash", "completed", None, None)]


async def test_an_interrupt_of_a_stopped_process_names_what_is_left_and_takes_effect_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deskmate_session.runtime.coordinator.CLEAN_UP", 0.3)
    async with beside(tmp_path, "say: Half.\nwait 300s", "one") as (opened, _, process):
        await process.owner()
        state = opened._sessions.live(SESSION)
        assert state is not None
        await until(lambda: _text(state) == "Half.")
        process.signal(signal.SIGSTOP)
        turn = state.turn
        assert turn is not None
        stopped = await opened.submit(c.Interrupt(session_id=SESSION))
        assert stopped == c.Interrupted(interrupted=True, left=(turn.turn_id,))
        process.signal(signal.SIGCONT)
        await until(lambda: state.last_finish == "interrupted")


def marked(call_id: str) -> list[str]:
    """Processes of a call."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get("DESKMATE_CALL") == call_id:
                found.append(" ".join(process.cmdline()))
    return found


def _text(state: Any) -> str:
    return "".join(
        part.text
        for message in state.conversation.messages.values()
        if message.role == "assistant"
        for part in message.parts
        if hasattr(part, "text")
    )
