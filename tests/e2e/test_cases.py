"""Cases from bug reports, through the whole server: bytes on disk, modes, commands."""

import asyncio
import contextlib
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.crash import children
from tests.support.fake_provider import Request, answer, call, text
from tests.support.histories import valid_anthropic, valid_openai
from tests.support.rig import ALLOW_ALL, Rig

DONE = answer(text("done"))
CONFIG = {"permission": ALLOW_ALL}


async def run(tmp: Path, name: str, args: object, files: dict[str, str | bytes]) -> tuple[Path, dict, list]:
    """Let the model make one call; returns the folder, the call's state and the session's diff."""
    async with Rig.open(tmp, [answer(call(name, args)), DONE], files=files, config=CONFIG) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        [part] = await rig.calls(session)
        diff = (await rig.call("session/diff", sessionId=session))["files"]
        await rig.verified()
        return rig.folder, part["state"], diff


async def test_E01_a_crlf_file_and_a_model_that_writes_lf(tmp_path: Path) -> None:
    args = {"path": "f", "old": "a\nb\n", "new": "a\nB1\nB2\n"}
    folder, _, diff = await run(tmp_path, "edit", args, {"f": b"a\r\nb\r\nc\r\n"})
    assert (folder / "f").read_bytes() == b"a\r\nB1\r\nB2\r\nc\r\n"
    assert [(file["deletions"], file["additions"]) for file in diff] == [(1, 2)]


async def test_E03_a_byte_order_mark_is_kept_once_and_never_shown(tmp_path: Path) -> None:
    answers = [
        answer(call("read", {"path": "f"})),
        answer(call("edit", {"path": "f", "old": "hello", "new": "hello2"})),
        answer(call("write", {"path": "f", "content": "new é\n"})),
        DONE,
    ]
    async with Rig.open(
        tmp_path, answers, files={"f": b"\xef\xbb\xbfhello\n\xc3\xa9\n"}, config=CONFIG
    ) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        read, edited, written = [part["state"] for part in await rig.calls(session)]
        assert "\ufeff" not in read["output"]
        assert (edited["status"], written["status"]) == ("completed", "completed")
        assert (rig.folder / "f").read_bytes() == b"\xef\xbb\xbfnew \xc3\xa9\n"


@pytest.mark.parametrize("all_of_them", [False, True])
@pytest.mark.parametrize("new", ["$& ok", "\\1", "\\g<0>", "a\\nb", "\\\\"])
async def test_E04_a_replacement_is_literal(tmp_path: Path, new: str, all_of_them: bool) -> None:
    before = 'log("done")\n' * (2 if all_of_them else 1)
    args = {"path": "f", "old": "done", "new": new, "all": all_of_them}
    folder, _, _ = await run(tmp_path, "edit", args, {"f": before})
    assert (folder / "f").read_text() == before.replace("done", new)


@pytest.mark.parametrize(("before", "after"), [("x\ny", "x\nz"), ("x\ny\n", "x\nz\n")])
async def test_E05_a_final_newline_is_neither_added_nor_taken(
    tmp_path: Path, before: str, after: str
) -> None:
    folder, _, _ = await run(tmp_path, "edit", {"path": "f", "old": "y", "new": "z"}, {"f": before})
    assert (folder / "f").read_text() == after


async def test_E06_mode_bits_are_kept(tmp_path: Path) -> None:
    answers = [
        answer(call("edit", {"path": "run.sh", "old": "a", "new": "b"})),
        answer(call("read", {"path": "key.pem"})),
        answer(call("write", {"path": "key.pem", "content": "new\n"})),
        answer(call("write", {"path": "fresh", "content": "new\n"})),
        DONE,
    ]
    async with Rig.open(tmp_path, answers, files={"run.sh": "a\n", "key.pem": "old\n"}, config=CONFIG) as rig:
        (rig.folder / "run.sh").chmod(0o755)
        (rig.folder / "key.pem").chmod(0o600)
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        modes = {name: stat.S_IMODE((rig.folder / name).stat().st_mode) for name in ("run.sh", "key.pem")}
        assert modes == {"run.sh": 0o755, "key.pem": 0o600}
        assert (rig.folder / "key.pem").read_text() == "new\n"
        (rig.folder / "made").touch()
        assert (rig.folder / "fresh").stat().st_mode == (rig.folder / "made").stat().st_mode


@pytest.mark.parametrize("all_of_them", [False, True])
async def test_E08_an_empty_old_is_refused_on_a_file_and_creates_a_missing_one(
    tmp_path: Path, all_of_them: bool
) -> None:
    args = {"path": "f", "old": "", "new": "X", "all": all_of_them}
    folder, state, _ = await run(tmp_path / "there", "edit", args, {"f": "abc"})
    assert (state["status"], (folder / "f").read_text()) == ("error", "abc")
    folder, state, _ = await run(tmp_path / "missing", "edit", args, {})
    assert (state["status"], (folder / "f").read_text()) == ("completed", "X")


async def test_H01_a_background_child_does_not_hold_the_call(tmp_path: Path) -> None:
    began = time.monotonic()
    _, state, _ = await run(tmp_path, "bash", {"command": "sleep 60 & echo done"}, {})
    assert state["output"].startswith("done")
    assert (state["exitCode"], state["success"]) == (0, True)
    assert state["endedAt"] - state["startedAt"] < 2_000
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ('read x; echo "got:[$x]"; readlink /proc/self/fd/0', "got:[]\n/dev/null"),
        ("git init -q . && git -c core.editor=vim commit --allow-empty", ""),
        ("python3 -c 'input()'", "EOFError"),
    ],
)
async def test_H02_a_command_that_asks_gets_the_end_of_input(
    tmp_path: Path, command: str, shown: str
) -> None:
    _, state, _ = await run(tmp_path, "bash", {"command": command}, {})
    assert shown in state["output"]
    assert state["endedAt"] - state["startedAt"] < 3_000


async def test_D01_eight_servers_on_one_workspace_at_once_lose_nothing(tmp_path: Path) -> None:
    steps = 10

    def reply(request: Request) -> Any:
        results = str(request.body["messages"]).count("'tool_result'")
        if results == steps:
            return answer(text("done"))
        return answer(call("bash", {"command": f"echo {results}"}))

    async def one(rig: Rig) -> str:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        return session

    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(
            Rig.open(tmp_path, default=reply, config={"permission": ALLOW_ALL})
        )
        rigs = [first]
        rigs += await asyncio.gather(*(stack.enter_async_context(first.second()) for _ in range(7)))
        sessions = await asyncio.gather(*(one(rig) for rig in rigs))
        everything = await first.events()
        for rig, session in zip(rigs, sessions, strict=True):
            calls = await rig.calls(session)
            assert [c["state"]["output"].strip() for c in calls] == [str(n) for n in range(steps)]
            assert rig.client.received("window/showMessage") == []
            own = await rig.events(session)
            assert own == [event for event in everything if event.get("sessionId") == session]
            assert len([event for event in own if event["type"] == "call.completed"]) == steps
            assert b"locked" not in rig.client.stderr
        found = await first.verified()
        assert found["events"] == len(everything) == everything[-1]["seq"]
        database = next(first.state.glob("*/events.db"))
    with contextlib.closing(sqlite3.connect(database)) as conn:
        assert conn.execute("pragma integrity_check").fetchall() == [("ok",)]


async def test_D02_a_kill_during_a_command_and_its_stream_is_settled_and_told(tmp_path: Path) -> None:
    calls = [call("bash", {"command": "echo x >> ran; echo some output; exec sleep 300"})]
    async with Rig.open(tmp_path, [answer(*calls)], config=CONFIG) as rig:
        session = await rig.create()
        rig.start(session, "run it", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and v["field"] == "output")
        await crashed(rig, session)
        [part] = await rig.calls(session)
        state = part["state"]
        assert (state["status"], state["interrupted"], state["outcomeUnknown"]) == ("error", True, True)
        assert children(rig.folder) == []
        await goes_on(rig, session)
        assert "look at the state of things" in str(rig.fake.bodies[-1]["messages"])
        assert (rig.folder / "ran").read_text() == "x\n"


async def test_D02_a_kill_during_streaming_keeps_the_text_and_is_told(tmp_path: Path) -> None:
    streamed = answer(text("one two three four five six seven eight nine", size=4), stall_after=11)
    async with Rig.open(tmp_path, [streamed], config={"streaming": {"chunk_size": 8}}) as rig:
        session = await rig.create()
        rig.start(session, "talk", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and "seven" in v["text"])
        # Text is logged in batches, half a second apart; what was not yet, a kill may cost.
        while "part.appended" not in await rig.types(session):
            pass
        shown = rig.shown("t")
        await crashed(rig, session)
        assert await rig.text(session) == shown == "one two three four five six seven ei"
        await goes_on(rig, session)
        assert await rig.text(session) == f"{shown}and on"


async def test_D02_after_a_kill_an_openai_server_takes_the_history(tmp_path: Path) -> None:
    calls = [
        call("bash", {"command": "echo first"}),
        call("bash", {"command": "echo second; exec sleep 300"}),
        call("bash", {"command": "echo third > never"}),
    ]
    async with Rig.open(
        tmp_path, [answer(text("I run three."), *calls)], kind="openai", config=CONFIG
    ) as rig:
        session = await rig.create()
        rig.start(session, "run them", "t")
        await rig.client.progress(
            "t", lambda v: v["kind"] == "delta" and v["field"] == "output" and "second" in v["text"]
        )
        await crashed(rig, session)
        await goes_on(rig, session)
        sent = rig.fake.bodies[-1]["messages"]
        [asked] = [message for message in sent if message.get("tool_calls")]
        told = [message for message in sent if message["role"] == "tool"]
        assert [message["tool_call_id"] for message in told] == [made["id"] for made in asked["tool_calls"]]
        assert len(told) == 3 and told[0]["content"].startswith("first")
        assert "look at the state of things" in told[1]["content"]
        assert not (rig.folder / "never").exists()


async def crashed(rig: Rig, session: str) -> None:
    """Kill the server in mid-turn; nothing is open in the next one, and the person is told."""
    await rig.die()
    await rig.restart()
    assert (await rig.call("session/get", sessionId=session))["status"] == {"status": "idle"}
    page = await rig.call("session/messages", sessionId=session)
    [ended] = [e["payload"] for e in await rig.events(session) if e["type"] == "turn.ended"]
    assert ended["finish"] == "interrupted"
    assert all("completedAt" in m for m in page["messages"] if m["role"] == "assistant")
    for part in [part for message in page["messages"] for part in message["parts"]]:
        assert part.get("state", {}).get("status") not in ("pending", "running")
    told = await rig.client.wait_for("window/showMessage")
    assert "cut off" in told["message"]


async def goes_on(rig: Rig, session: str) -> None:
    """The next prompt is answered, from a history that a provider takes."""
    rig.fake.add(answer(text("and on")))
    assert (await rig.prompt(session, "go on"))["finish"] == "stop"
    (valid_openai if rig.fake.requests[-1].wire == "openai" else valid_anthropic)(rig.fake.bodies[-1])
    await rig.verified()
