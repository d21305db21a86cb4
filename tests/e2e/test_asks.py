"""Permission asks: by request, by message box, by `ask/reply`; rejected, remarked, withdrawn."""

import asyncio
from pathlib import Path
from typing import Any

from tests.support.fake_provider import answer, call, text
from tests.support.rig import Rig

EDIT = answer(call("write", {"path": "new.txt", "content": "hello\n"}))
DONE = answer(text("done"))


async def test_reject_without_a_remark_ends_the_turn_as_denied(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE]) as rig:
        rig.ask = "reject"
        session = await rig.create()
        assert (await rig.prompt(session, "write it"))["finish"] == "denied"
        assert not (rig.folder / "new.txt").exists()
        [part] = await rig.calls(session)
        assert (part["state"]["errorKind"], part["state"]["rejectedBy"]) == ("denied", "person")
        assert len(rig.fake.requests) == 1


async def test_reject_with_a_remark_goes_on_and_tells_the_model(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE]) as rig:
        rig.ask = {"reply": "reject", "message": "use another name"}
        session = await rig.create()
        assert (await rig.prompt(session, "write it"))["finish"] == "stop"
        assert "use another name" in str(rig.fake.bodies[1]["messages"][-1])


async def test_an_answer_for_the_session_is_not_asked_again(tmp_path: Path) -> None:
    again = answer(call("write", {"path": "other.txt", "content": "x\n"}))
    async with Rig.open(tmp_path, [EDIT, again, DONE]) as rig:
        rig.ask = "session"
        session = await rig.create()
        assert (await rig.prompt(session, "write both"))["finish"] == "stop"
        assert len(rig.asked) == 1
        assert (rig.folder / "other.txt").exists()


async def test_a_changed_input_runs_without_a_second_ask_and_the_model_is_told(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(call("bash", {"command": "echo model > out"})), DONE]) as rig:
        rig.ask = {"reply": "once", "input": {"command": "echo person > out"}}
        session = await rig.create()
        assert (await rig.prompt(session, "run it"))["finish"] == "stop"
        assert (rig.folder / "out").read_text() == "person\n"
        assert len(rig.asked) == 1
        [part] = await rig.calls(session)
        assert part["state"]["input"] == {"command": "echo person > out"}
        assert part["summary"] == "bash echo person > out"
        told = rig.fake.bodies[1]["messages"]
        assert told[-2]["content"][0]["input"] == {"command": "echo model > out"}, "history is not rewritten"
        assert "echo person > out" in str(told[-1])


async def test_a_changed_input_that_a_rule_denies_is_denied(tmp_path: Path) -> None:
    config = {"permission": {"bash": {"*": "ask", "rm *": "deny"}}}
    async with Rig.open(tmp_path, [answer(call("bash", {"command": "ls"})), DONE], config=config) as rig:
        rig.ask = {"reply": "once", "input": {"command": "rm -rf x"}}
        session = await rig.create()
        await rig.prompt(session, "run it")
        [part] = await rig.calls(session)
        assert (part["state"]["errorKind"], part["state"]["rejectedBy"]) == ("denied", "rule")


async def test_a_session_answer_for_an_outside_folder_opens_that_folder_only(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "a").write_text("inside of it")
    (tmp_path / "beside").write_text("beside it")
    answers = [
        answer(call("bash", {"command": "ls", "workdir": str(outside)})),
        answer(call("read", {"path": str(outside / "a")})),
        answer(call("read", {"path": str(tmp_path / "beside")})),
        DONE,
    ]
    async with Rig.open(tmp_path, answers, config={"permission": {"bash": "allow"}}) as rig:
        rig.ask = lambda ask: "session" if len(rig.asked) == 1 else {"reply": "reject", "message": "no"}
        session = await rig.create()
        assert (await rig.prompt(session, "look"))["finish"] == "stop"
        assert [ask["permission"] for ask in rig.asked] == ["external_directory", "external_directory"]
        assert [part["state"]["status"] for part in await rig.calls(session)] == [
            "completed",
            "completed",
            "error",
        ]


async def test_search_tools_honour_what_may_be_read(tmp_path: Path) -> None:
    answers = [answer(call("grep", {"pattern": "B"}), call("glob", {"pattern": "*"})), DONE]
    files = {"b.txt": "B\n", "c.md": "B\n"}
    config = {"permission": {"read": {"*": "allow", "*.txt": "deny"}}}
    async with Rig.open(tmp_path, answers, files=files, config=config) as rig:
        session = await rig.create()
        await rig.prompt(session, "look")
        for part in await rig.calls(session):
            assert "c.md" in part["state"]["output"]
            assert "b.txt" not in part["state"]["output"]


async def test_a_client_without_ask_gets_a_message_box(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE], experimental={}) as rig:
        shown: list[Any] = []

        def answer_box(params: Any) -> Any:
            shown.append(params)
            return params["actions"][0]

        rig.client.on_request("window/showMessageRequest", answer_box)
        session = await rig.create()
        assert (await rig.prompt(session, "write it"))["finish"] == "stop"
        assert (rig.folder / "new.txt").read_text() == "hello\n"
        assert "new.txt" in shown[0]["message"]


async def test_an_ask_is_listed_answered_once_and_withdrawn(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE]) as rig:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rig.ask = lambda ask: never
        session = await rig.create()
        answering = rig.start(session, "write it", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "ask")
        await rig.client.wait_for("deskmate/ask")
        assert (await rig.call("session/get", sessionId=session))["status"] == {"status": "waiting"}
        [ask] = (await rig.call("ask/list"))["asks"]
        assert (await rig.call("ask/reply", askId=ask["id"], reply="once"))["accepted"] is True
        assert (await rig.call("ask/reply", askId=ask["id"], reply="reject"))["accepted"] is False
        assert (await answering)["finish"] == "stop"
        assert await rig.client.wait_for("$/cancelRequest")
        assert (rig.folder / "new.txt").exists()
        assert (await rig.call("ask/list"))["asks"] == []


async def test_an_interrupt_withdraws_the_ask_and_a_late_allow_does_nothing(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE]) as rig:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rig.ask = lambda ask: never
        session = await rig.create()
        answering = rig.start(session, "write it", "t")
        await rig.client.wait_for("deskmate/ask")
        assert (await rig.call("session/interrupt", sessionId=session))["interrupted"] is True
        assert (await answering)["finish"] == "interrupted"
        await rig.client.wait_for("$/cancelRequest")
        late = await rig.call("ask/reply", askId=rig.asked[0]["id"], reply="once")
        assert late["accepted"] is False
        assert not (rig.folder / "new.txt").exists()


async def test_an_ask_that_nobody_answers_counts_as_rejected_in_time(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [EDIT, DONE], config={"ask_timeout_ms": 100}) as rig:
        never: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rig.ask = lambda ask: never
        session = await rig.create()
        assert (await rig.prompt(session, "write it"))["finish"] == "denied"
        assert not (rig.folder / "new.txt").exists()


async def test_rules_of_the_person_decide_before_anyone_is_asked(tmp_path: Path) -> None:
    rules = {"edit": {"*": "allow", "secret/": "deny"}, "bash": {"*": "ask", "echo *": "allow"}}
    answers = [
        EDIT,
        answer(call("write", {"path": "secret/key.txt", "content": "x"})),
        answer(call("bash", {"command": "echo hi"})),
        answer(call("bash", {"command": "echo hi; rm -rf new.txt"})),
        DONE,
    ]
    async with Rig.open(tmp_path, answers, config={"permission": rules}) as rig:
        rig.ask = {"reply": "reject", "message": "no chains"}
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        states = [part["state"] for part in await rig.calls(session)]
        assert [state["status"] for state in states] == ["completed", "error", "completed", "error"]
        assert [state.get("rejectedBy") for state in states] == [None, "rule", None, "person"]
        assert [ask["detail"].get("command") for ask in rig.asked] == ["echo hi; rm -rf new.txt"]
        assert (rig.folder / "new.txt").exists()
