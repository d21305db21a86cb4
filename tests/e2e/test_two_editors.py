"""Two editors with a real server each on one workspace: they drive one session, and outlive each other."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tests.e2e.test_interrupt import running
from tests.support.crash import children, words_of
from tests.support.editor import APPLY, Editor
from tests.support.fake_provider import Request, answer, call, text
from tests.support.histories import valid_anthropic
from tests.support.rig import ALLOW_ALL, Rig

WRITE = answer(call("write", {"path": "new.txt", "content": "hello\n"}))
ENDLESS = answer(text("one two three four five", size=4), stall_after=5)


@contextlib.asynccontextmanager
async def two(a: Rig, session: str, **profile: Any) -> AsyncGenerator[Rig]:
    """A second editor that shows what happens in the session, as the first does: both under `all`."""
    async with a.second(**profile) as b:
        for rig in (a, b):
            await rig.call("session/subscribe", sessionId=session, partialResultToken="all")
        yield b


async def shows(rig: Rig, seq: int) -> None:
    """Wait until an editor was shown an event."""
    await rig.client.progress("all", lambda value: value.get("seq", 0) >= seq)


async def last(rig: Rig, session: str) -> int:
    """The newest event's `seq`."""
    return (await rig.events(session))[-1]["seq"]


def idle(value: Any) -> bool:
    """No turn runs any more."""
    return value["kind"] == "status" and value["status"] == "idle"


def logged(rig: Rig) -> list[Any]:
    """The updates that stand for an event, in the order in which an editor was shown them."""
    return [value for value in rig.client.values("all") if "seq" in value]


def never() -> "asyncio.Future[Any]":
    """A person who does not answer."""
    return asyncio.get_running_loop().create_future()


async def test_one_session_is_driven_from_both_editors_by_turns(tmp_path: Path) -> None:
    answers = [
        answer(text("I look. "), call("read", {"path": "a.txt"})),
        answer(text("First answer.", size=3), delta_delay_ms=2),
        answer(call("bash", {"command": "echo hi"})),
        answer(text("Second answer.", size=3), delta_delay_ms=2),
        answer(text("Third answer.", size=3), delta_delay_ms=2),
    ]
    async with Rig.open(tmp_path, answers, files={"a.txt": "a\n"}, config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        async with two(a, session) as b:
            for rig, said in ((a, "one"), (b, "two"), (a, "three")):
                assert (await rig.prompt(session, said))["finish"] == "stop"
            newest = await last(a, session)
            for rig in (a, b):
                await shows(rig, newest)
            assert await a.events(session) == await b.events(session)
            assert logged(a) == logged(b)
            assert a.shown("all") == b.shown("all") == "I look. First answer.Second answer.Third answer."
            pages = [await rig.call("session/messages", sessionId=session) for rig in (a, b)]
            assert pages[0] == pages[1]
            details = [await rig.call("session/get", sessionId=session) for rig in (a, b)]
            assert details[0] == details[1]
        for body in a.fake.bodies:
            valid_anthropic(body)
        await a.verified()


async def test_prompts_that_overlap_run_one_after_the_other_and_both_editors_show_the_same(
    tmp_path: Path,
) -> None:
    def reply(request: Request) -> Any:
        return answer(text("x" * 40, size=4), delta_delay_ms=3)

    async with Rig.open(tmp_path, default=reply) as a:
        session = await a.create()
        async with two(a, session) as b:
            sent = [(a if n % 2 else b).start(session, f"prompt {n}", f"t{n}") for n in range(8)]
            assert [(await one)["finish"] for one in sent] == ["stop"] * 8
            newest = await last(a, session)
            for rig in (a, b):
                await shows(rig, newest)
            events = await a.events(session)
            assert events == await b.events(session)
            assert logged(a) == logged(b)
            for n in range(8):
                assert (a if n % 2 else b).shown(f"t{n}") == "x" * 40
            turns = [e["payload"]["turnId"] for e in events if e["type"] in ("turn.started", "turn.ended")]
            assert turns[::2] == turns[1::2], "one turn ends before the next one begins"
            received = [e["payload"]["messageId"] for e in events if e["type"] == "message.received"]
            ended = [e["payload"]["messageId"] for e in events if e["type"] == "turn.ended"]
            assert ended == received
            assert (await a.call("session/get", sessionId=session))["queue"]["prompts"] == []
        assert len(a.fake.requests) == 8
        for body in a.fake.bodies:
            valid_anthropic(body)
        await a.verified()


async def test_an_ask_of_one_editors_turn_is_answered_in_the_other_and_withdrawn(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [WRITE, answer(text("done"))]) as a:
        session = await a.create()
        async with two(a, session) as b:
            a.ask = lambda ask: never()
            answering = a.start(session, "write it", "t")
            assert (await answering)["finish"] == "stop"
            assert [ask["id"] for ask in a.asked] == [ask["id"] for ask in b.asked]
            assert await a.client.wait_for("$/cancelRequest")
            assert (a.folder / "new.txt").read_text() == "hello\n"
            [replied] = [e["payload"] for e in await a.events(session) if e["type"] == "ask.replied"]
            assert (replied["reply"], replied["by"]) == ("once", "person")
            for rig in (a, b):
                await rig.client.progress("all", lambda value: value["kind"] == "askResolved")
                assert (await rig.call("ask/list"))["asks"] == []


async def test_of_two_answers_at_once_one_counts(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [WRITE, answer(text("done"))]) as a:
        session = await a.create()
        async with two(a, session) as b:
            a.ask = b.ask = lambda ask: never()
            answering = a.start(session, "write it", "t")
            for rig in (a, b):
                await rig.client.wait_for("deskmate/ask")
            ask = a.asked[0]["id"]
            accepted = await asyncio.gather(
                a.call("ask/reply", askId=ask, reply="once"), b.call("ask/reply", askId=ask, reply="reject")
            )
            assert sorted(one["accepted"] for one in accepted) == [False, True]
            finish = (await answering)["finish"]
            assert finish == ("stop" if accepted[0]["accepted"] else "denied")
            assert (a.folder / "new.txt").exists() == (finish == "stop")
            for rig in (a, b):
                await rig.client.wait_for("$/cancelRequest")


async def test_an_interrupt_from_the_other_editor_stops_the_turn_where_it_runs(tmp_path: Path) -> None:
    command = "echo part; trap '' TERM; (sleep 301 & sleep 302) | cat"
    answers = [answer(call("bash", {"command": command})), answer(text("again"))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        async with two(a, session) as b:
            answering = a.start(session, "run", "t")
            await b.client.progress("all", running)
            assert await b.call("session/interrupt", sessionId=session) == {"interrupted": True}
            types = await b.types(session)
            assert types.index("interrupt.requested") < types.index("call.failed") < types.index("turn.ended")
            assert (await answering)["finish"] == "interrupted"
            assert (await b.prompt(session, "go on"))["finish"] == "stop"
            valid_anthropic(a.fake.bodies[-1])
            await b.verified()


async def test_a_killed_editors_turn_is_taken_over_by_the_other_and_goes_on(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [ENDLESS]) as a:
        session = await a.create()
        async with two(a, session) as b:
            a.start(session, "talk", "t")
            await b.client.progress("all", lambda v: v["kind"] == "delta" and "two" in v["text"])
            waiting = b.start(session, "waits", "w", messageId="msg_waits")
            await b.client.progress("w", lambda v: v["kind"] == "accepted")
            before = await b.events(session)
            skip = len(b.client.values("all"))
            await a.die()
            await b.client.progress("all", idle, skip=skip)
            told = await b.client.wait_for("window/showMessage")
            assert "cut off" in told["message"] and "Resume" in told["message"]
            events = await b.events(session)
            assert events[: len(before)] == before
            assert [e["type"] for e in events[-3:]] == ["model.responded", "turn.ended", "queue.held"]
            assert "one two" in await b.text(session)
            a.fake.add(answer(text(" and six")), answer(text("it waited")))
            assert (await b.call("session/resume", sessionId=session))["finish"] == "stop"
            assert (await waiting)["finish"] == "stop"
            for body in a.fake.bodies:
                valid_anthropic(body)
            await a.restart()
            assert await a.text(session) == await b.text(session)
            await a.verified()


async def test_a_killed_editors_command_is_ended_by_the_other_and_not_run_again(tmp_path: Path) -> None:
    answers = [answer(call("bash", {"command": "echo x >> ran; echo out; exec sleep 300"}))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        async with two(a, session) as b:
            a.start(session, "run", "t")
            await a.client.progress("t", lambda v: v["kind"] == "delta" and v["field"] == "output")
            await a.die()
            await b.client.progress("all", idle)
            [part] = await b.calls(session)
            state = part["state"]
            assert (state["status"], state["errorKind"], state["outcomeUnknown"]) == (
                "error",
                "interrupted",
                True,
            )
            assert not children(a.folder)
            a.fake.add(answer(text("I look first.")))
            assert (await b.call("session/resume", sessionId=session))["finish"] == "stop"
            assert (a.folder / "ran").read_text() == "x\n"
            valid_anthropic(a.fake.bodies[-1])


async def test_an_ask_of_a_killed_editors_turn_is_withdrawn_in_the_other(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [WRITE]) as a:
        a.ask = lambda ask: never()
        session = await a.create()
        async with two(a, session) as b:
            b.ask = lambda ask: never()
            a.start(session, "write it", "t")
            await b.client.wait_for("deskmate/ask")
            await a.die()
            await b.client.wait_for("$/cancelRequest")
            assert (await b.call("ask/reply", askId=b.asked[0]["id"], reply="once"))["accepted"] is False
            assert (await b.call("ask/list"))["asks"] == []
            a.fake.add(answer(text("never mind")))
            assert (await b.prompt(session, "leave it"))["finish"] == "stop"
            valid_anthropic(a.fake.bodies[-1])
            assert not (a.folder / "new.txt").exists()
            replied = [e["payload"]["by"] for e in await b.events(session) if e["type"] == "ask.replied"]
            assert replied == ["recovery"]


async def test_an_editor_that_looks_elsewhere_settles_and_tells_too(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [ENDLESS]) as a:
        session = await a.create()
        async with a.second() as b:
            await b.call("session/list")
            a.start(session, "talk", "t")
            await a.client.progress("t", lambda v: v["kind"] == "delta")
            await a.die()
            told = await b.client.wait_for("window/showMessage")
            assert "cut off" in told["message"]
            assert (await b.types(session))[-1] == "turn.ended"
            assert (await b.call("session/get", sessionId=session))["status"] == {"status": "idle"}


async def test_one_prompt_sent_through_both_editors_runs_once_and_both_get_its_result(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("once only", size=3), delta_delay_ms=10)]) as a:
        session = await a.create()
        async with two(a, session) as b:
            sent = [rig.start(session, "hi", "t", messageId="msg_same") for rig in (a, b)]
            first, second = [await one for one in sent]
            assert first == second
            assert first["finish"] == "stop"
            assert [rig.shown("all") for rig in (a, b)] == ["once only"] * 2
        assert len(a.fake.requests) == 1
        assert (await a.types(session)).count("message.received") == 1


async def test_a_prompt_sent_at_once_after_the_other_editor_died_runs(tmp_path: Path) -> None:
    """Whether the death was noticed before the prompt or after it."""

    def reply(request: Request) -> Any:
        return ENDLESS if words_of(request)[0] == "talk" else answer(text("good"))

    async with Rig.open(tmp_path, default=reply) as a:
        session = await a.create()
        async with two(a, session) as b:
            for wait_s in (0.0, 0.003, 0.01, 0.02, 0.03, 0.05):
                token = a.token()
                a.start(session, "talk", token)
                await a.client.progress(token, lambda v: v["kind"] == "delta")
                await a.die()
                await asyncio.sleep(wait_s)  # the moment is the point of this test
                assert (await b.prompt(session, "go on"))["finish"] == "stop"
                valid_anthropic(a.fake.bodies[-1])
                await a.restart()
            queue = (await b.call("session/get", sessionId=session))["queue"]
            assert queue["prompts"] == []
            await b.verified()


async def test_a_frozen_editor_does_not_hinder_the_other(tmp_path: Path) -> None:
    answers = [answer(call("bash", {"command": "echo hi > new.txt"})), answer(text("done"))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        async with two(a, session) as b:
            b.freeze()
            assert (await a.prompt(session, "write it"))["finish"] == "stop"
            newest = await last(a, session)
            b.thaw()
            await shows(b, newest)
            assert logged(b) == logged(a)
            a.fake.add(answer(text("from b")))
            assert (await b.prompt(session, "and you"))["finish"] == "stop"


async def test_a_change_is_shown_with_its_files_in_both_editors(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [WRITE, answer(text("done"))], config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        async with two(a, session) as b:
            assert (await a.prompt(session, "write it"))["finish"] == "stop"
            newest = await last(a, session)
            for rig in (a, b):
                await shows(rig, newest)
            assert [value["kind"] for value in logged(a)].count("changes") == 1
            assert logged(b) == logged(a)


async def test_a_frozen_owner_is_not_robbed_and_its_turn_goes_on_when_it_thaws(tmp_path: Path) -> None:
    answers = [answer(text("one two three", size=4), delta_delay_ms=20), answer(text("second"))]
    async with Rig.open(tmp_path, answers) as a:
        session = await a.create()
        other = await a.create()
        async with two(a, session) as b:
            answering = a.start(session, "talk", "t")
            await b.client.progress("all", lambda v: v["kind"] == "delta")
            a.freeze()
            waiting = b.start(session, "waits", "w")
            await b.client.progress("w", lambda v: v["kind"] == "accepted")
            b.fake.add(answer(text("third")))
            assert (await b.prompt(other, "meanwhile"))["finish"] == "stop"
            details = await b.call("session/get", sessionId=session)
            assert (details["status"]["status"], len(details["queue"]["prompts"])) == ("busy", 1)
            a.thaw()
            assert [(await one)["finish"] for one in (answering, waiting)] == ["stop", "stop"]
            assert a.shown("t") == "one two three"
            await b.verified()


async def test_a_turn_edits_in_the_buffers_of_the_editor_that_prompted(tmp_path: Path) -> None:
    """The two clients offer different things: one takes edits and counts in utf-8, the other takes none."""
    answers = [
        answer(call("edit", {"path": "f.py", "old": "漢 = 1", "new": "漢 = 2"})),
        answer(text("edited")),
        answer(call("edit", {"path": "g.py", "old": "漢 = 1", "new": "漢 = 2"})),
        answer(text("edited")),
    ]
    files = {"f.py": "漢 = 1\n", "g.py": "漢 = 1\n"}
    async with Rig.open(tmp_path, answers, files=files, config={"permission": ALLOW_ALL}) as a:
        session = await a.create()
        profile = {"experimental": {"ask": True, "save": True}, "capabilities": APPLY, "encodings": ["utf-8"]}
        async with two(a, session, **profile) as b:
            editor = Editor(b.client, "utf-8")
            buffer = editor.open(a.folder / "f.py")
            editor.open(a.folder / "g.py")
            assert (await b.prompt(session, "edit f"))["finish"] == "stop"
            assert (buffer.text, buffer.path.read_text()) == ("漢 = 2\n", "漢 = 2\n")
            assert (await a.prompt(session, "edit g"))["finish"] == "stop"
            assert (a.folder / "g.py").read_text() == "漢 = 2\n"
            assert len(editor.edits) == 1, "what the other editor's turn changes goes to the disk"
            applied = [e["payload"]["via"] for e in await b.events(session) if e["type"] == "change.applied"]
            assert applied == ["applyEdit", "disk"]
