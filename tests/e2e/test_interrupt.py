"""Stopping: fast, settled, and without a trace in what comes next."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.fake_provider import Request, answer, call, text
from tests.support.histories import valid_anthropic
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


async def test_X01_every_call_of_a_cancelled_turn_has_its_result_and_what_waited_never_ran(
    tmp_path: Path,
) -> None:
    calls = [
        call("read", {"path": "a.txt"}),
        call("bash", {"command": "echo began; exec sleep 300"}),
        call("bash", {"command": "touch third"}),
    ]
    async with Rig.open(
        tmp_path, [answer(*calls)], files={"a.txt": "the true text\n"}, config={"permission": ALLOW_ALL}
    ) as rig:
        session = await rig.create()
        answering = rig.start(session, "run", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and v["field"] == "output")
        assert [part["state"]["status"] for part in await rig.calls(session)] == [
            "completed",
            "running",
            "pending",
        ]
        rig.client.cancel(answering)
        assert (await answering)["finish"] == "interrupted"
        assert not (rig.folder / "third").exists()
        states = [part["state"] for part in await rig.calls(session)]
        assert [state["status"] for state in states] == ["completed", "error", "error"]
        assert [state.get("interrupted") for state in states] == [None, True, True]
        assert [state.get("outcomeUnknown") for state in states] == [None, True, None]
        started = [e["payload"]["callId"] for e in await rig.events(session) if e["type"] == "call.started"]
        assert len(started) == 2, "the third never began"
        rig.fake.add(answer(text("I see.")))
        assert (await rig.prompt(session, "go on"))["finish"] == "stop"
        valid_anthropic(rig.fake.bodies[-1])
        told = [
            str(block["content"])
            for message in rig.fake.bodies[-1]["messages"]
            for block in message["content"]
            if block["type"] == "tool_result"
        ]
        assert len(told) == 3
        assert "the true text" in told[0]
        assert "interrupted" in told[1] and "began" in told[1]
        assert "not run: the turn was interrupted" in told[2]
        assert not (rig.folder / "third").exists()


async def test_X03_a_cancel_reaches_one_session_and_no_other(tmp_path: Path) -> None:
    answers = {
        "first": answer(text("one two three", size=4), stall_after=4),
        "second": answer(text("a whole answer", size=2), delta_delay_ms=20),
    }

    def reply(request: Request) -> Any:
        return answers[request.body["messages"][0]["content"][0]["text"]]

    async with Rig.open(tmp_path, default=reply) as rig:
        sessions = [await rig.create(), await rig.create()]
        sent = [rig.start(session, said, said) for session, said in zip(sessions, answers, strict=True)]
        for token in answers:
            await rig.client.progress(token, lambda v: v["kind"] == "delta")
        assert await rig.call("session/interrupt", sessionId=sessions[0]) == {"interrupted": True}
        assert [(await each)["finish"] for each in sent] == ["interrupted", "stop"]
        assert rig.shown("second") == await rig.text(sessions[1]) == "a whole answer"
        assert "interrupt.requested" not in await rig.types(sessions[1])


async def test_X03_a_cancel_withdraws_the_open_ask_and_a_late_allow_does_nothing(tmp_path: Path) -> None:
    allow: asyncio.Event = asyncio.Event()

    async def late(ask: Any) -> str:
        try:
            await allow.wait()
        except asyncio.CancelledError:
            withdrawn.append(ask["id"])
            await allow.wait()  # an editor that answers although the request was withdrawn
        return "once"

    withdrawn: list[str] = []
    write = answer(call("write", {"path": "new.txt", "content": "hello\n"}))
    async with Rig.open(tmp_path, [write]) as rig:
        rig.ask = late
        session = await rig.create()
        answering = rig.start(session, "write it", "t")
        await rig.client.wait_for("deskmate/ask")
        rig.client.cancel(answering)
        assert (await answering)["finish"] == "interrupted"
        await rig.client.wait_for("$/cancelRequest")
        assert withdrawn == [ask["id"] for ask in rig.asked]
        allow.set()
        assert (await rig.call("ask/reply", askId=withdrawn[0], reply="once"))["accepted"] is False
        rig.fake.add(answer(text("never mind")))
        assert (await rig.prompt(session, "something else"))["finish"] == "stop"
        assert not (rig.folder / "new.txt").exists()
        replied = [e["payload"] for e in await rig.events(session) if e["type"] == "ask.replied"]
        assert [(each["reply"], each["by"]) for each in replied] == [("reject", "interrupt")]
        valid_anthropic(rig.fake.bodies[-1])
