"""Sessions as they were, and elsewhere: through the real server."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_provider import answer, call, text
from tests.support.lsp_client import LspError
from tests.support.rig import ALLOW_ALL, Rig

CONFIG = {"permission": ALLOW_ALL}
EDITS = [
    answer(text("I look at it. "), call("read", {"path": "config.py"})),
    answer(call("edit", {"path": "config.py", "old": "10", "new": "30"})),
    answer(text("The timeout is thirty seconds now.")),
]


def said(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


async def worked(rig: Rig) -> str:
    """A session with a turn of three steps and one of words."""
    session = await rig.create()
    assert (await rig.prompt(session, "Set the timeout"))["finish"] == "stop"
    assert (await rig.prompt(session, "Thank you"))["finish"] == "stop"
    return session


async def test_a_session_is_shown_as_it_stood_after_any_event(tmp_path: Path) -> None:
    async with Rig.open(
        tmp_path, [*EDITS, answer(text("Welcome."))], config=CONFIG, files={"config.py": "timeout = 10\n"}
    ) as rig:
        session = await worked(rig)
        events = await rig.events(session)
        seen: list[list[str]] = []
        for event in events:
            state = await rig.call("session/stateAt", sessionId=session, seq=event["seq"])
            assert state["seq"] == event["seq"]
            assert state["changedBy"]["type"] == event["type"]
            seen.append([said(message) for message in state["messages"]])
        assert seen[0] == []
        assert seen[-1] == [
            "Set the timeout",
            "I look at it. ",
            "",
            "The timeout is thirty seconds now.",
            "Thank you",
            "Welcome.",
        ]
        now = await rig.call("session/messages", sessionId=session)
        state = await rig.call("session/stateAt", sessionId=session)
        assert state["messages"] == now["messages"]
        assert state["workContext"] == (await rig.call("session/get", sessionId=session))["workContext"]
        [update] = [event["seq"] for event in events if event["type"] == "workContext.updated"]
        before = await rig.call("session/stateAt", sessionId=session, seq=update - 1)
        after = await rig.call("session/stateAt", sessionId=session, seq=update)
        assert [file["changed"] for file in before["workContext"]["files"]] == [False]
        assert [file["changed"] for file in after["workContext"]["files"]] == [True]
        assert {change["path"].rpartition(".")[2] for change in after["changedBy"]["workContext"]} >= {
            "hash",
            "changed",
        }
        timed = await rig.call("session/stateAt", sessionId=session, at=events[-1]["at"])
        assert timed["seq"] == events[-1]["seq"]
        with pytest.raises(LspError) as caught:
            await rig.call("session/stateAt", sessionId=session, seq=0)
        assert caught.value.data["kind"] == "sessionNotFound"


async def test_a_fork_goes_on_from_any_point_and_leaves_the_other_alone(tmp_path: Path) -> None:
    async with Rig.open(
        tmp_path, [*EDITS, answer(text("Welcome."))], config=CONFIG, files={"config.py": "timeout = 10\n"}
    ) as rig:
        session = await worked(rig)
        before = await rig.events(session)
        prompts = [event for event in before if event["type"] == "message.received"]
        fork = await rig.call(
            "session/fork", sessionId=session, atMessageId=prompts[1]["payload"]["messageId"]
        )
        assert fork["forkedFrom"]["sessionId"] == session
        assert fork["title"] == "Set the timeout (fork)"
        messages = (await rig.call("session/messages", sessionId=fork["id"]))["messages"]
        assert [said(message) for message in messages] == [
            "Set the timeout",
            "I look at it. ",
            "",
            "The timeout is thirty seconds now.",
        ]
        assert (await rig.call("session/get", sessionId=fork["id"]))["usage"]["input"] == 0
        assert (await rig.call("session/diff", sessionId=fork["id"]))["files"] == []
        rig.fake.add(answer(text("Sixty, then.")))
        assert (await rig.prompt(fork["id"], "Make it sixty"))["finish"] == "stop"
        sent = json.dumps(rig.fake.bodies[-1]["messages"])
        assert "The timeout is thirty seconds now." in sent
        assert "Thank you" not in sent
        assert await rig.events(session) == before
        await rig.verified()
        again = await rig.call("session/fork", sessionId=fork["id"])
        assert (
            said((await rig.call("session/messages", sessionId=again["id"]))["messages"][-1])
            == "Sixty, then."
        )
        await rig.restart()
        assert (
            said((await rig.call("session/messages", sessionId=again["id"]))["messages"][-1])
            == "Sixty, then."
        )
        await rig.verified()


async def test_an_export_is_taken_in_elsewhere_and_goes_on(tmp_path: Path) -> None:
    files = {"config.py": "timeout = 10\n"}
    async with Rig.open(
        tmp_path / "a", [*EDITS, answer(text("Wel\u2028come.\x85 ", size=3))], config=CONFIG, files=files
    ) as rig:
        session = await worked(rig)
        messages = (await rig.call("session/messages", sessionId=session))["messages"]
        exported = await rig.call("session/export", sessionId=session)
        markdown = (await rig.call("session/export", sessionId=session, format="markdown"))["data"]
    assert markdown.startswith("# Set the timeout\n")
    assert "+timeout = 30" in markdown
    async with Rig.open(tmp_path / "b", [answer(text("Here too."))], config=CONFIG) as rig:
        taken = await rig.call("session/import", data=exported["data"])
        assert taken["id"] != session
        assert taken["folder"] == (tmp_path / "b" / "work").as_uri()
        there = (await rig.call("session/messages", sessionId=taken["id"]))["messages"]
        assert [said(message) for message in there] == [said(message) for message in messages]
        assert [message["createdAt"] for message in there] == [message["createdAt"] for message in messages]
        assert (await rig.prompt(taken["id"], "And here?"))["finish"] == "stop"
        await rig.verified()
        lines = exported["data"].splitlines()
        lines[5] = lines[5].replace('"at":1', '"at":2', 1)
        with pytest.raises(LspError) as caught:
            await rig.call("session/import", data="\n".join(lines))
        assert caught.value.data["kind"] == "logCorrupt"
        assert "line 6" in caught.value.message


async def test_an_export_without_secrets_still_proves_its_chain(tmp_path: Path) -> None:
    async with Rig.open(tmp_path / "a", [answer(text("The key is hunter2-hunter2, yes."))]) as rig:
        session = await rig.create()
        await rig.prompt(session, "What is the key?")
        target = (tmp_path / "out.jsonl").as_uri()
        told = await rig.call("session/export", sessionId=session, redact=["hunter2-hunter2"], toUri=target)
        assert told["uri"] == target
        written = (tmp_path / "out.jsonl").read_text()
        assert "hunter2" not in written
        assert (tmp_path / "out.jsonl").stat().st_mode & 0o077 == 0
    async with Rig.open(tmp_path / "b") as rig:
        taken = await rig.call("session/import", fromUri=target)
        assert [said(m) for m in (await rig.call("session/messages", sessionId=taken["id"]))["messages"]] == [
            "What is the key?",
            "",
        ]
        await rig.verified()
