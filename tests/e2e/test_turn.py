"""A whole turn against the real server, over both wires, and what survives its death."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_provider import answer, call, deltas, error, text
from tests.support.histories import valid_anthropic as _valid_anthropic
from tests.support.rig import ALLOW_ALL, Rig

CONFIG = "TIMEOUT = 10\nRETRIES = 3\n"
TURN = [
    answer(text("I look at the config first."), call("read", {"path": "config.py"})),
    answer(call("edit", {"path": "config.py", "old": "TIMEOUT = 10", "new": "TIMEOUT = 30"})),
    answer(call("bash", {"command": "cat config.py"})),
    answer(text("The timeout is 30 s now.")),
]


def story(events: list[Any]) -> list[Any]:
    """What happened, without ids, times and hashes."""
    told = []
    for event in events:
        payload = event["payload"]
        match event["type"]:
            case "call.started":
                told.append((event["type"], payload["tool"], json.dumps(payload["args"], sort_keys=True)))
            case "call.completed":
                told.append((event["type"], payload["tool"], payload["output"], payload["success"]))
            case "model.responded":
                told.append((event["type"], payload["step"], payload["kind"], payload["finish"]))
            case "turn.ended":
                told.append((event["type"], payload["finish"], payload["steps"]))
            case other:
                told.append((other,))
    return told


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_turn_reads_asks_edits_runs_and_answers(tmp_path: Path, kind: str) -> None:
    async with Rig.open(tmp_path, TURN, kind=kind, files={"config.py": CONFIG}) as rig:
        session = await rig.create()
        result = await rig.prompt(session, "Set the timeout to 30 s", partialResultToken="t")
        assert (result["finish"], result["steps"]) == ("stop", 4)
        assert (rig.folder / "config.py").read_text() == "TIMEOUT = 30\nRETRIES = 3\n"
        assert [ask["permission"] for ask in rig.asked] == ["edit", "bash"]
        assert "-TIMEOUT = 10\n+TIMEOUT = 30\n" in rig.asked[0]["detail"]["diff"]
        assert rig.shown("t") == "I look at the config first.The timeout is 30 s now."
        assert [part["state"]["status"] for part in await rig.calls(session)] == ["completed"] * 3
        assert (await rig.call("session/get", sessionId=session))["status"] == {"status": "idle"}
        diff = await rig.call("session/diff", sessionId=session)
        assert [(f["status"], f["additions"], f["deletions"]) for f in diff["files"]] == [("modified", 1, 1)]
        await rig.verified()


async def test_both_wires_leave_the_same_story(tmp_path: Path) -> None:
    stories = []
    for kind in ("anthropic", "openai"):
        async with Rig.open(tmp_path / kind, TURN, kind=kind, files={"config.py": CONFIG}) as rig:
            session = await rig.create()
            await rig.prompt(session, "Set the timeout to 30 s")
            stories.append(story(await rig.events(session)))
    assert stories[0] == stories[1]


async def test_every_logged_event_shows_in_exactly_one_update(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, TURN, files={"config.py": CONFIG}) as rig:
        session = await rig.create()
        await rig.call("session/subscribe", sessionId=session, partialResultToken="all")
        await rig.prompt(session, "Set the timeout to 30 s", partialResultToken="t")
        last = (await rig.events(session))[-1]["seq"]
        await rig.client.progress("all", lambda value: value.get("seq") == last)
        events = await rig.events(session)
        logged = [e["seq"] for e in events if e["type"] != "part.appended" and e["index"] > 0]
        assert [v["seq"] for v in rig.client.values("all") if "seq" in v] == logged
        assert [v["seq"] for v in rig.client.values("t") if "seq" in v] == logged
        assert rig.client.values("t")[0]["kind"] == "accepted"
        assert not [v for v in rig.client.values("all") if v["kind"] == "delta" and "seq" in v]


async def test_a_part_precedes_its_deltas_and_running_precedes_completed(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, TURN, files={"config.py": CONFIG}) as rig:
        session = await rig.create()
        await rig.prompt(session, "Set the timeout to 30 s", partialResultToken="t")
        known: set[str] = set()
        states: dict[str, list[str]] = {}
        for value in rig.client.values("t"):
            if value["kind"] == "part":
                part = value["part"]
                known.add(part["id"])
                if part["type"] == "tool":
                    states.setdefault(part["callId"], []).append(part["state"]["status"])
            if value["kind"] == "delta":
                assert value["partId"] in known
        for seen in states.values():
            assert list(dict.fromkeys(seen)) == ["pending", "running", "completed"]


async def test_a_killed_server_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    answers = [
        answer(text("Reading. "), call("read", {"path": "config.py"})),
        answer(text("one two three four five", size=4), stall_after=5),
    ]
    async with Rig.open(tmp_path, answers, files={"config.py": CONFIG}) as rig:
        session = await rig.create()
        rig.start(session, "Look at it", "t", messageId="msg_first").add_done_callback(
            lambda f: f.exception()
        )
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and "two" in v["text"])
        before = await rig.events(session)
        await rig.restart()
        after = await rig.events(session)
        assert after[: len(before)] == before
        assert "call.completed" in [event["type"] for event in before]
        details = await rig.call("session/get", sessionId=session)
        assert details["status"] == {"status": "idle"}
        assert (after[-1]["type"], after[-1]["payload"]["finish"]) == ("turn.ended", "interrupted")
        assert all(part["state"]["status"] in ("completed", "error") for part in await rig.calls(session))
        rig.fake.add(answer(text("Here again.")))
        result = await rig.prompt(session, "Go on")
        assert result["finish"] == "stop"
        _valid_anthropic(rig.fake.bodies[-1])
        await rig.verified()


async def test_a_command_that_was_cut_by_a_kill_is_outcome_unknown_and_never_runs_again(
    tmp_path: Path,
) -> None:
    answers = [answer(call("bash", {"command": "echo x >> ran; sleep 30"}))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as rig:
        session = await rig.create()
        rig.start(session, "Run it", "t").add_done_callback(lambda f: f.exception())
        await rig.client.progress(
            "t", lambda v: v["kind"] == "part" and v["part"].get("state", {}).get("status") == "running"
        )
        await rig.restart()
        [part] = await rig.calls(session)
        state = part["state"]
        assert (state["status"], state["errorKind"], state["outcomeUnknown"]) == (
            "error",
            "interrupted",
            True,
        )
        rig.fake.add(answer(text("I look first.")))
        assert (await rig.prompt(session, "Go on"))["finish"] == "stop"
        _valid_anthropic(rig.fake.bodies[-1])
        assert len(rig.fake.bodies[-1]["messages"]) >= 3


async def test_no_model_is_a_clear_error_that_says_what_to_do(tmp_path: Path) -> None:
    config = {"model": None, "providers": {}}
    async with Rig.open(tmp_path, config={k: v for k, v in config.items() if v is not None}) as rig:
        with pytest.raises(Exception, match=r"no model|no provider") as caught:
            await rig.create()
        assert caught.value.data["kind"] == "noModel"
        assert "ANTHROPIC_API_KEY" in caught.value.data["hint"] or "providers" in caught.value.data["hint"]


async def test_a_failed_request_is_a_failed_turn_and_the_session_goes_on(tmp_path: Path) -> None:
    answers = [error(401, {"type": "error", "error": {"type": "authentication_error", "message": "bad key"}})]
    async with Rig.open(tmp_path, answers) as rig:
        session = await rig.create()
        result = await rig.prompt(session, "hi")
        assert (result["finish"], result["error"]["kind"]) == ("error", "providerAuth")
        rig.fake.add(answer(text("hello")))
        assert (await rig.prompt(session, "again"))["finish"] == "stop"
        _valid_anthropic(rig.fake.bodies[-1])


async def test_the_same_message_id_runs_once_and_gives_one_result(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("once only"))]) as rig:
        session = await rig.create()
        first = await rig.prompt(session, "hi", messageId="msg_same")
        second = await rig.prompt(session, "hi", messageId="msg_same")
        assert first == second
        await rig.restart()
        assert await rig.prompt(session, "hi", messageId="msg_same") == first
        with pytest.raises(Exception, match="other parts") as caught:
            await rig.prompt(session, "something else", messageId="msg_same")
        assert caught.value.data["kind"] == "conflict"
        assert len(rig.fake.requests) == 1


async def test_prompts_while_busy_run_in_their_order(tmp_path: Path) -> None:
    answers = [answer(text(f"answer {n}"), delay_ms=60) for n in range(4)]
    async with Rig.open(tmp_path, answers) as rig:
        session = await rig.create()
        await rig.restart()  # so that the first one finds nothing loaded
        sent = [rig.start(session, f"prompt {n}", f"t{n}") for n in range(4)]
        results = [await one for one in sent]
        assert [result["finish"] for result in results] == ["stop"] * 4
        last = [body["messages"][-1]["content"][0]["text"] for body in rig.fake.bodies]
        assert last == [f"prompt {n}" for n in range(4)]
        for n in range(4):
            assert rig.shown(f"t{n}") == f"answer {n}"


async def test_D03_a_long_answer_leaves_a_small_log_and_opens_fast(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [deltas(20_000, "0123456789")]) as rig:
        session = await rig.create()
        database = next(rig.state.glob("*/events.db"))
        result = await rig.prompt(session, "write much", partialResultToken="t")
        assert result["finish"] == "stop"
        assert rig.shown("t") == "0123456789" * 20_000
        grown = sum(path.stat().st_size for path in database.parent.glob("events.db*"))
        assert grown < 2_000_000
        await rig.restart()
        await rig.call("session/list")  # the kernel's packages are loaded and the log is open
        began = time.monotonic()
        assert await rig.text(session) == "0123456789" * 20_000
        assert (await rig.call("session/get", sessionId=session))["session"]["id"] == session
        assert time.monotonic() - began < 1.0
