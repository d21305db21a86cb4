"""The real server killed at random moments of scripted turns: nothing acknowledged is lost, ever."""

import asyncio
import random
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.test_turn import _valid_anthropic
from tests.support.fake_provider import Request, answer, call, text
from tests.support.rig import ALLOW_ALL, Rig

pytestmark = pytest.mark.soak
ROUNDS = 100


def reply(request: Request) -> Any:
    """An answer that follows from the request alone, so that it fits wherever the last turn was cut."""
    results = sum(
        1
        for message in request.body["messages"]
        for block in message["content"]
        if isinstance(block, dict) and block["type"] == "tool_result"
    )
    match results % 4:
        case 0:
            return answer(
                text("I read first. " * 20, size=6), call("read", {"path": "a.txt"}), delta_delay_ms=1
            )
        case 1:
            return answer(call("bash", {"command": f"echo {results} >> ran; sleep 0.05"}))
        case 2:
            return answer(call("edit", {"path": "a.txt", "old": "counter", "new": f"counter {results}"}))
        case _:
            return answer(text("That was it. " * 10, size=6), delta_delay_ms=1)


async def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    chance = random.Random(20_261_130)
    config = {"permission": ALLOW_ALL}
    async with Rig.open(tmp_path, config=config, files={"a.txt": "counter\n"}, default=reply) as rig:
        session = await rig.create()
        for number in range(ROUNDS):
            words, token, prompt = f"round {number}", f"t{number}", f"msg_round{number}"
            answering = rig.start(session, words, token, messageId=prompt)
            answering.add_done_callback(lambda f: f.cancelled() or f.exception())
            await rig.client.progress(token, lambda v: v["kind"] == "accepted")
            await asyncio.sleep(chance.random() * 0.35)  # the moment of the kill is the point of this test
            seen = max(v["seq"] for v in rig.client.values(token) if "seq" in v)
            await rig.restart()
            events = await rig.events(session, afterSeq=0)
            page = events
            while len(page) == 1000:
                page = await rig.events(session, afterSeq=page[-1]["seq"])
                events += page
            assert seen <= events[-1]["seq"]
            assert [event["index"] for event in events] == list(range(len(events)))
            assert prompt in [
                e["payload"].get("messageId") for e in events if e["type"] == "message.received"
            ]
            details = await rig.call("session/get", sessionId=session)
            assert details["status"] == {"status": "idle"}
            settled = [part["state"]["status"] for part in await rig.calls(session)]
            assert set(settled) <= {"completed", "error"}
            assert "counter" in (rig.folder / "a.txt").read_text()
            assert not list(rig.folder.glob(".deskmate-*"))
            ran = (rig.folder / "ran").read_text().split() if (rig.folder / "ran").exists() else []
            started = [e for e in events if e["type"] == "call.started" and e["payload"]["tool"] == "bash"]
            assert len(ran) <= len(started), "a command ran without its fact, or twice"
        result = await rig.prompt(session, "the last one")
        assert result["finish"] == "stop"
        _valid_anthropic(rig.fake.bodies[-1])
        await rig.verified()
        mine = str(rig.folder)
        assert not [
            p
            for p in psutil.process_iter(["cwd", "cmdline"])
            if p.info["cwd"] == mine and "sleep" in str(p.info["cmdline"])
        ]


async def test_D01_eight_servers_on_one_workspace_lose_nothing(tmp_path: Path) -> None:
    steps = [answer(call("read", {"path": "a.txt"})) for _ in range(10)]

    async def one(number: int) -> int:
        files = {"a.txt": "a\n"} if number == 0 else None
        async with Rig.open(tmp_path, [*steps, answer(text("done"))], files=files) as rig:
            session = await rig.create()
            assert (await rig.prompt(session, "read ten times"))["finish"] == "stop"
            done = [e for e in await rig.events(session) if e["type"] == "call.completed"]
            assert len(done) == 10
            await rig.verified()
            return len(done)

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("a\n")
    assert await asyncio.gather(*(one(number) for number in range(8))) == [10] * 8


async def test_a_long_session_stays_whole_and_its_steps_stay_cheap(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, config={"permission": ALLOW_ALL}, files={"a.txt": "x\n" * 50}) as rig:
        session = await rig.create()
        for turn in range(200):
            rig.fake.add(*(answer(call("read", {"path": "a.txt"})) for _ in range(4)), answer(text("ok")))
            assert (await rig.prompt(session, f"turn {turn}"))["finish"] == "stop"
        server = psutil.Process(rig.client.process.pid)
        assert server.memory_info().rss < 300 * 2**20
        await rig.verified()
        await rig.restart()
        assert (await rig.call("session/get", sessionId=session))["status"] == {"status": "idle"}
