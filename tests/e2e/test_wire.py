"""The wire under stress: stray output, cancels, framing, slow readers, subscriptions, commands."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_provider import answer, call, deltas, text
from tests.support.lsp_client import LspClient, LspError
from tests.support.rig import ALLOW_ALL, SERVER, Rig

NOISY = (sys.executable, "-m", "tests.support.noisy_server", "lsp")
TRICKY = "你好🦀"


async def test_L01_stray_output_never_reaches_the_protocol(tmp_path: Path) -> None:
    answers = [answer(call("noisy")), answer(text("quiet again"))]
    async with Rig.open(tmp_path, answers, command=NOISY) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "make noise"))["finish"] == "stop"
        for _ in range(100):
            assert (await rig.call("session/get", sessionId=session))["session"]["id"] == session
        assert await rig.client.shutdown() == 0
        assert b"printed noise" in rig.client.stderr
        assert b"child noise" in rig.client.stderr


async def test_L05_cancels_overtake_and_progress_flows_during_a_command(tmp_path: Path) -> None:
    script = "for i in 1 2 3 4 5 6; do echo tick $i; sleep 0.1; done"
    answers = [answer(call("bash", {"command": script})), answer(text("done"))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as rig:
        session = await rig.create()
        slow = rig.start(session, "run", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and v["field"] == "output")
        burst = [rig.client.send("deskmate/session/create", {"title": "number 0"})]
        for n in range(1, 50):
            burst.append(rig.client.send("deskmate/session/create", {"title": f"number {n}"}))
            rig.client.cancel(burst[-1])
        outcomes = await asyncio.gather(*burst, return_exceptions=True)
        cancelled = [o for o in outcomes if isinstance(o, LspError) and o.code == -32800]
        made = [o for o in outcomes if isinstance(o, dict)]
        assert len(cancelled) + len(made) == 50
        # A cancel that a read parts from its request may find that request running already.
        assert len(cancelled) >= 45
        listed = (await rig.call("session/list", limit=100))["sessions"]
        titles = [s["title"] for s in listed if s["title"].startswith("number")]
        assert sorted(titles) == sorted(s["title"] for s in made), "a cancelled request was run"
        assert "number 0" in titles
        assert (await slow)["finish"] == "stop"
        ticks = [v for v in rig.client.values("t") if v["kind"] == "delta" and v["field"] == "output"]
        assert len(ticks) >= 3


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_M03_odd_framing_gives_the_exact_text_and_arguments(tmp_path: Path, kind: str) -> None:
    odd: dict[str, Any] = {"chunk_bytes": 1, "crlf": True, "comments": True, "multiline": True}
    answers = [
        answer(text(TRICKY), call("grep", {"pattern": "杭州"}), **odd),
        answer(text(TRICKY * 2), **odd),
    ]
    async with Rig.open(tmp_path, answers, kind=kind, files={"city.txt": "杭州\n"}) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, TRICKY, partialResultToken="t"))["finish"] == "stop"
        assert rig.shown("t") == TRICKY * 3
        assert await rig.text(session) == TRICKY * 3
        started = next(e for e in await rig.events(session) if e["type"] == "call.started")
        assert started["payload"]["args"] == {"pattern": "杭州"}
        assert "\ufffd" not in str(rig.client.values("t")) + str(await rig.events(session))


async def test_a_subscription_replays_each_part_once_and_then_follows(tmp_path: Path) -> None:
    answers = [answer(text("first answer")), answer(text("a b c d e f g h", size=2), delta_delay_ms=15)]
    async with Rig.open(tmp_path, answers) as rig:
        session = await rig.create()
        await rig.prompt(session, "one")
        answering = rig.start(session, "two", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta")
        subscribed = await rig.call(
            "session/subscribe", sessionId=session, fromSeq=0, partialResultToken="replay"
        )
        assert (await answering)["finish"] == "stop"
        last = (await rig.events(session))[-1]["seq"]
        await rig.client.progress("replay", lambda v: v.get("seq") == last)
        assert subscribed["seq"] > 0
        values = rig.client.values("replay")
        texts: dict[str, str] = {}
        for value in values:
            if value["kind"] == "part" and value["part"]["type"] == "text":
                texts[value["part"]["id"]] = value["part"]["text"]
            if value["kind"] == "delta":
                assert value["offset"] == len(texts[value["partId"]])
                texts[value["partId"]] += value["text"]
        assert list(texts.values()) == ["first answer", "a b c d e f g h"]
        seqs = [value["seq"] for value in values if "seq" in value]
        assert len(seqs) == len(set(seqs))
        order = [(f.method, f.message.get("id")) for f in rig.client.frames if f.way == "<"]
        sent = next(f for f in rig.client.frames if f.way == ">" and f.method == "deskmate/session/subscribe")
        answered = order.index((None, sent.message["id"]))
        first = next(
            at
            for at, frame in enumerate(f for f in rig.client.frames if f.way == "<")
            if frame.method == "$/progress" and frame.params["token"] == "replay"
        )
        assert answered < first, "the answer goes first"


async def test_whoever_looks_later_is_told_the_parts_that_stream(tmp_path: Path) -> None:
    streaming = answer(text("a b c d e f g h i j k l", size=2), delta_delay_ms=15)
    async with Rig.open(tmp_path, [streaming]) as rig:
        session = await rig.create()
        first = rig.start(session, "go", "t", messageId="msg_same")
        await rig.client.progress("t", lambda v: v["kind"] == "delta" and v["offset"] > 3)
        again = rig.start(session, "go", "again", messageId="msg_same")
        await rig.call("session/subscribe", sessionId=session, partialResultToken="late")
        assert (await first) == (await again)
        await rig.client.progress("late", lambda v: v["kind"] == "usage")
        assert rig.client.values("again")[0]["kind"] == "accepted"
        for token in ("again", "late"):
            known: dict[str, str] = {}
            for value in rig.client.values(token):
                if value["kind"] == "part":
                    known[value["part"]["id"]] = value["part"]["text"]
                if value["kind"] == "delta":
                    assert value["offset"] == len(known[value["partId"]])
                    known[value["partId"]] += value["text"]
            assert list(known.values()) == ["a b c d e f g h i j k l"]


async def test_an_unsubscribed_token_is_silent(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("hi"))]) as rig:
        session = await rig.create()
        await rig.call("session/subscribe", sessionId=session, partialResultToken="s")
        await rig.call("session/unsubscribe", token="s")
        await rig.prompt(session, "go")
        assert rig.client.values("s") == []


async def test_a_reader_that_stands_still_stops_nobody_and_gets_the_whole_part_later(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [deltas(60_000, "0123456789" * 10)]) as rig:
        session = await rig.create()
        answering = rig.start(session, "flood", "t")
        await rig.client.progress("t", lambda v: v["kind"] == "delta")
        rig.client.pause()
        await asyncio.to_thread(rig.fake.requests[0].done.wait, 20)
        rig.client.resume()
        assert (await answering)["finish"] == "stop"
        text_now = ""
        for value in rig.client.values("t"):
            if value["kind"] == "part" and value["part"]["type"] == "text":
                text_now = value["part"]["text"]
            elif value["kind"] == "delta" and value["offset"] == len(text_now):
                text_now += value["text"]
            elif value["kind"] == "message" and value["message"]["role"] == "assistant":
                text_now = "".join(p["text"] for p in value["message"]["parts"])
        assert text_now == "0123456789" * 600_000


async def test_every_operation_is_also_a_command_and_prompt_answers_at_acceptance(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("hi"), delay_ms=200)]) as rig:
        commands = rig.client.capabilities["executeCommandProvider"]["commands"]
        methods = rig.client.capabilities["experimental"]["deskmate"]["methods"]
        assert sorted(commands) == sorted(
            "deskmate.op." + m.removeprefix("deskmate/").replace("/", ".") for m in methods
        )

        async def run(command: str, **argument: Any) -> Any:
            return await rig.client.request(
                "workspace/executeCommand", {"command": command, "arguments": [argument]}
            )

        session = (await run("deskmate.op.session.create"))["id"]
        accepted = await run(
            "deskmate.op.session.prompt", sessionId=session, parts=[{"type": "text", "text": "go"}]
        )
        assert set(accepted) == {"sessionId", "messageId", "seq"}
        await rig.call("session/subscribe", sessionId=session, fromSeq=0, partialResultToken="s")
        await rig.client.progress("s", lambda v: v["kind"] == "status" and v["status"] == "idle")
        assert await rig.text(session) == "hi"


@pytest.mark.parametrize(
    ("method", "params", "path"),
    [
        (
            "session/prompt",
            {"sessionId": "ses_x", "parts": [{"type": "text", "text": "  \n"}]},
            "parts[0].text",
        ),
        ("session/prompt", {"sessionId": "ses_x", "parts": [{"type": "video"}]}, "parts[0].type"),
        ("session/prompt", {"sessionId": "ses_x", "parts": []}, "parts"),
        ("session/prompt", {"parts": [{"type": "text", "text": "x"}]}, "sessionId"),
        ("session/create", {"id": "bad id"}, "id"),
        ("session/create", {"mode": "wild"}, "mode"),
        ("session/events", {"limit": 100_000}, "limit"),
    ],
)
async def test_bad_params_name_the_field(tmp_path: Path, method: str, params: Any, path: str) -> None:
    async with Rig.open(tmp_path) as rig:
        with pytest.raises(LspError) as caught:
            await rig.call(method, **params)
        assert (caught.value.code, caught.value.data["kind"]) == (-32602, "invalidParams")
        assert caught.value.data["path"] == path


async def test_what_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    async with Rig.open(tmp_path) as rig:
        for method in (
            "session/get",
            "session/messages",
            "session/interrupt",
            "session/diff",
            "session/delete",
        ):
            with pytest.raises(LspError) as caught:
                await rig.call(method, sessionId="ses_nowhere")
            assert (caught.value.code, caught.value.data["kind"]) == (-32803, "sessionNotFound")
            assert caught.value.data["hint"]
        with pytest.raises(LspError) as caught:
            await rig.call("session/undo", sessionId="ses_nowhere")
        assert caught.value.code == -32601


async def test_sessions_are_listed_renamed_archived_and_deleted(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("hi"))]) as rig:
        first = await rig.create(title="first")
        second = await rig.create(id="ses_given", title="second")
        assert (await rig.create(id="ses_given")) == second == "ses_given"
        listed = (await rig.call("session/list"))["sessions"]
        assert [s["id"] for s in listed] == [second, first]
        await rig.prompt(first, "wake up")
        listed = (await rig.call("session/list"))["sessions"]
        assert [s["id"] for s in listed] == [first, second]
        renamed = await rig.call("session/update", sessionId=second, title="better", archived=True)
        assert renamed["title"] == "better" and renamed["archivedAt"]
        assert [s["id"] for s in (await rig.call("session/list"))["sessions"]] == [first]
        assert [s["id"] for s in (await rig.call("session/list", archived=True))["sessions"]] == [second]
        assert await rig.call("session/delete", sessionId=first) == {}
        assert (await rig.call("session/list"))["sessions"] == []
        assert await rig.client.wait_for("deskmate/changed", lambda p: p["what"] == "sessions")
        await rig.restart()
        assert (await rig.call("session/list"))["sessions"] == []
        with pytest.raises(LspError):
            await rig.call("session/get", sessionId=first)
        with pytest.raises(LspError, match="was deleted"):
            await rig.create(id=first)
        with pytest.raises(LspError) as caught:
            await rig.create(parentId="ses_nowhere")
        assert caught.value.data["kind"] == "sessionNotFound"
        with pytest.raises(LspError) as caught:
            await rig.call("session/diff", sessionId=second, messageId="msg_nope")
        assert caught.value.data["kind"] == "messageNotFound"
        await rig.verified()


async def test_the_catalog_tells_agents_models_and_tools(tmp_path: Path) -> None:
    async with Rig.open(tmp_path) as rig:
        catalog = await rig.call("catalog")
        assert [agent["name"] for agent in catalog["agents"]] == ["build"]
        assert "mock/test" in [model["id"] for model in catalog["models"]]
        names = [tool["name"] for tool in catalog["tools"]]
        assert names == ["read", "write", "edit", "glob", "grep", "bash"]


async def test_with_several_folders_a_session_needs_one_named_and_lists_merge(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(text("hi"))]) as rig:
        other = tmp_path / "other"
        other.mkdir()
        added = {"uri": other.as_uri(), "name": "other"}
        rig.client.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [added], "removed": []}})
        with pytest.raises(LspError) as caught:
            await rig.create()
        assert (caught.value.code, caught.value.data["path"]) == (-32602, "folder")
        first = await rig.create(folder=rig.folder.as_uri())
        second = await rig.create(folder=other.as_uri())
        listed = (await rig.call("session/list"))["sessions"]
        assert {s["id"]: s["folder"] for s in listed} == {first: rig.folder.as_uri(), second: other.as_uri()}
        assert (await rig.prompt(second, "hello"))["finish"] == "stop"
        pages = [await rig.call("session/list", limit=1)]
        while cursor := pages[-1].get("nextCursor"):
            pages.append(await rig.call("session/list", limit=1, cursor=cursor))
        assert [s["id"] for page in pages for s in page["sessions"]] == [second, first]
        with pytest.raises(LspError) as caught:
            await rig.call("session/list", cursor="zzz")
        assert caught.value.data["path"] == "cursor"
        with pytest.raises(LspError) as caught:
            await rig.create(folder=tmp_path.as_uri())
        assert caught.value.data["path"] == "folder"


async def test_children_get_no_provider_key(tmp_path: Path) -> None:
    answers = [answer(call("bash", {"command": "env; echo call=$DESKMATE_CALL"})), answer(text("done"))]
    async with Rig.open(tmp_path, answers, config={"permission": ALLOW_ALL}) as rig:
        await rig.client.kill()
        secret = {"MOCK_KEY": "very-secret-1", "ANTHROPIC_API_KEY": "very-secret-2", "OTHER": "kept"}
        rig.client = await LspClient.start(SERVER, env=secret)
        rig.config["providers"]["mock"]["api_key"] = "{env:MOCK_KEY}"
        await rig.hello()
        session = await rig.create()
        await rig.prompt(session, "go")
        [part] = await rig.calls(session)
        assert "very-secret" not in part["state"]["output"]
        assert "OTHER=kept" in part["state"]["output"]
        assert f"call={part['callId']}" in part["state"]["output"]
        assert rig.fake.requests[0].headers["authorization"] == "Bearer very-secret-1"
        assert "very-secret" not in str(await rig.events(session)) + rig.client.stderr.decode()
