"""Stopping: fast, settled, and without a trace in what comes next."""

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.fake_provider import answer, call, text
from tests.support.lsp_client import LspError
from tests.support.rig import ALLOW_ALL, Rig


def running(value: Any) -> bool:
    return value["kind"] == "part" and value["part"].get("state", {}).get("status") == "running"


async def test_an_interrupted_answer_keeps_its_text_and_the_next_prompt_is_answered(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("one two three", size=4), stall_after=4)]) as rig:
        session = await rig.create()
        answering = rig.start(session, "talk", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta")
        began = time.monotonic()
        assert (await rig.call("session/interrupt", sessionId=session)) == {"interrupted": True}
        assert time.monotonic() - began < 1.0
        assert (await answering)["finish"] == "interrupted"
        kept = await rig.text(session)
        assert kept and "one two three".startswith(kept)
        assert kept == rig.shown("t")
        rig.fake.add(answer(text("again")))
        assert (await rig.prompt(session, "go on"))["finish"] == "stop"
        roles = [message["role"] for message in rig.fake.bodies[-1]["messages"]]
        assert roles == ["user", "assistant", "user"]


async def test_an_interrupted_command_ends_with_all_its_children(tmp_path: Path) -> None:
    command = "echo part; trap '' TERM; (sleep 301 & sleep 302) | cat"
    answers = [answer(call("bash", {"command": command}))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as rig:
        session = await rig.create()
        answering = rig.start(session, "run", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and v["field"] == "output")
        began = time.monotonic()
        assert (await rig.call("session/interrupt", sessionId=session))["interrupted"] is True
        assert time.monotonic() - began < 3.0
        assert (await answering)["finish"] == "interrupted"
        [part] = await rig.calls(session)
        state = part["state"]
        assert (state["status"], state["interrupted"], state["outcomeUnknown"]) == ("error", True, True)
        assert "part" in state["output"]
        mine = str(rig.folder)
        assert not [
            p
            for p in psutil.process_iter(["cmdline", "cwd"])
            if p.info["cwd"] == mine and "sleep" in str(p.info["cmdline"])
        ]
        events = await rig.types(session)
        assert events.index("interrupt.requested") < events.index("call.failed")


async def test_X02_an_idle_interrupt_does_not_touch_the_next_prompt(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("whole answer"))]) as rig:
        session = await rig.create()
        stopping = rig.client.send("deskmate/session/interrupt", {"sessionId": session})
        answering = rig.start(session, "go", "t")
        assert (await stopping) == {"interrupted": False}
        assert (await answering)["finish"] == "stop"
        assert await rig.text(session) == "whole answer"


async def test_a_cancelled_request_interrupts_its_turn_and_gets_the_result(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("one two three", size=4), stall_after=4)]) as rig:
        session = await rig.create()
        answering = rig.start(session, "talk", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta")
        rig.client.cancel(answering)
        assert (await answering)["finish"] == "interrupted"


async def test_a_cancelled_queued_prompt_is_taken_back(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("first"), delay_ms=300), answer(text("third"))]) as rig:
        session = await rig.create()
        first = rig.start(session, "first", "t1")
        await rig.client.progress("t1", lambda v: v["kind"] == "message")
        second = rig.start(session, "second", "t2")
        await rig.client.progress("t2", lambda v: v["kind"] == "accepted")
        rig.client.cancel(second)
        with pytest.raises(LspError) as caught:
            await second
        assert caught.value.code == -32800
        assert (await first)["finish"] == "stop"
        assert (await rig.prompt(session, "third"))["finish"] == "stop"
        assert "second" not in str(rig.fake.bodies[-1]["messages"])


async def test_after_an_interrupt_the_queue_is_held_and_a_new_prompt_goes_first(tmp_path: Path) -> None:
    answers = [answer(text("x y z", size=2), stall_after=4), answer(text("new")), answer(text("waited"))]
    async with Rig.open(tmp_path, answers) as rig:
        session = await rig.create()
        first = rig.start(session, "first", "t1")
        await rig.client.progress("t1", lambda v: v["kind"] == "delta")
        waiting = rig.start(session, "waiting", "t2")
        await rig.client.progress("t2", lambda v: v["kind"] == "accepted")
        await rig.call("session/interrupt", sessionId=session)
        assert (await first)["finish"] == "interrupted"
        queue = (await rig.call("session/get", sessionId=session))["queue"]
        assert (queue["held"], len(queue["prompts"])) == (True, 1)
        assert (await rig.prompt(session, "new"))["finish"] == "stop"
        assert (await waiting)["finish"] == "stop"
        last = [body["messages"][-1]["content"][0]["text"] for body in rig.fake.bodies]
        assert last == ["first", "new", "waiting"]


async def test_delivery_interrupt_stops_the_turn_and_runs(tmp_path: Path) -> None:
    async with Rig.open(
        tmp_path, [answer(text("a b c", size=2), stall_after=4), answer(text("now this"))]
    ) as rig:
        session = await rig.create()
        first = rig.start(session, "first", "t1")
        await rig.client.progress("t1", lambda v: v["kind"] == "delta")
        result = await rig.prompt(session, "second", delivery="interrupt")
        assert (result["finish"], (await first)["finish"]) == ("stop", "interrupted")


async def test_an_orderly_stop_settles_the_turn_and_kills_every_child(tmp_path: Path) -> None:
    answers = [answer(call("bash", {"command": "echo $$ > pid; sleep 300"}))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as rig:
        session = await rig.create()
        rig.start(session, "run", "t").add_done_callback(lambda f: f.cancelled() or f.exception())
        await rig.client.progress("t", running)
        await rig.client.wait_until(lambda: (rig.folder / "pid").exists() or True)
        while not (rig.folder / "pid").exists() or not (rig.folder / "pid").read_text().strip():
            await rig.call("session/get", sessionId=session)
        pid = int((rig.folder / "pid").read_text())
        assert await rig.client.shutdown() == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        await rig.restart()
        events = await rig.events(session)
        assert events[-1]["payload"]["finish"] == "interrupted"
        settled = [e for e in events if e["type"] in ("call.failed", "turn.ended")]
        assert [e["type"] for e in settled] == ["call.failed", "turn.ended"]


async def test_prompts_of_a_held_queue_are_answered_when_their_session_is_deleted(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("a b c", size=2), stall_after=4)]) as rig:
        session = await rig.create()
        first = rig.start(session, "first", "t1")
        await rig.client.progress("t1", lambda v: v["kind"] == "delta")
        waiting = rig.start(session, "waiting", "t2")
        await rig.client.progress("t2", lambda v: v["kind"] == "accepted")
        await rig.call("session/delete", sessionId=session)
        assert (await first)["finish"] == "interrupted"
        with pytest.raises(LspError) as caught:
            await waiting
        assert caught.value.data["kind"] == "sessionNotFound"
