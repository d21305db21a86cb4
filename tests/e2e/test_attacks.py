"""Attacks that once worked: hostile models, files, editors and clients, full disks, races."""

import asyncio
import json
import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.support.editor import APPLY, Editor
from tests.support.fake_provider import FakeProvider, answer, call, text
from tests.support.lsp_client import LspClient, LspError, as_uri
from tests.support.rig import ALLOW_ALL, CLEAN_ENV, SERVER, Rig

OK = answer(text("ok"))
CFG = {"permission": ALLOW_ALL}
SLOW = answer(text("hello " * 200), delta_delay_ms=100)


async def soon(future, seconds=5.0):
    return await asyncio.wait_for(asyncio.shield(future), seconds)


async def test_nested_arguments_do_not_make_the_session_unreadable(tmp_path: Path) -> None:
    deep = answer(call("read", raw='{"path":' + "[" * 300 + "]" * 300 + "}"))
    async with Rig.open(tmp_path, [deep], default=OK, config=CFG) as rig:
        session = await rig.create()
        assert (await soon(rig.start(session, "go", "t")))["finish"] == "stop"
        await rig.verified()
        await rig.events(session)


async def test_more_than_32_sessions_all_run_their_prompts(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        sessions = [await rig.create() for _ in range(60)]
        await rig.restart()
        for session in sessions:
            await rig.call("session/get", sessionId=session)
        prompts = [rig.start(session, "x", f"t{i}") for i, session in enumerate(sessions)]
        _, left = await asyncio.wait(prompts, timeout=10)
        assert not left, f"{len(left)} accepted prompts never ran"


async def test_calls_end_even_if_the_log_was_full_meanwhile(tmp_path: Path) -> None:
    calls = answer(call("bash", {"command": "sleep 1; echo done"}), call("bash", {"command": "echo 2"}))
    async with Rig.open(tmp_path, [OK, calls], default=OK, config=CFG) as rig:
        session = await rig.create()
        await rig.prompt(session, "hi")
        future = rig.start(session, "go", "t")
        await rig.client.progress(
            "t", lambda v: v["kind"] == "part" and v["part"].get("state", {}).get("status") == "running"
        )
        limit = ["prlimit", "--pid", str(rig.client.process.pid)]
        subprocess.run([*limit, "--fsize=1000:"], check=True)
        await asyncio.wait([future], timeout=8)
        subprocess.run([*limit, "--fsize=unlimited:"], check=True)
        await rig.prompt(session, "there is room again")
        await rig.restart()
        states = [part["state"]["status"] for part in await rig.calls(session)]
        assert "running" not in states and "pending" not in states, states
        assert "the call was not run" not in json.dumps(rig.fake.bodies[-1]), "it did run"


async def test_nan_is_never_sent_to_a_provider(tmp_path: Path) -> None:
    answers = [answer(call("read", raw='{"path":"a","offset":NaN}')), OK]
    async with Rig.open(tmp_path, answers, config=CFG) as rig:
        await rig.prompt(await rig.create(), "go")
        assert b"NaN" not in rig.fake.requests[-1].content


async def test_a_token_in_use_is_refused_and_its_first_owner_goes_on(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=answer(text("ok" * 50), delta_delay_ms=50), config=CFG) as rig:
        first = rig.start(await rig.create(), "x", "same")
        await rig.client.progress("same", lambda v: v["kind"] == "delta")
        with pytest.raises(LspError) as caught:
            await soon(rig.start(await rig.create(), "y", "same"))
        assert caught.value.data["path"] == "partialResultToken"
        assert (await soon(first))["finish"] == "stop"


async def test_unsubscribe_of_a_prompts_token_does_not_lose_its_answer(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=answer(text("ok" * 50), delta_delay_ms=50), config=CFG) as rig:
        first = rig.start(await rig.create(), "x", "same")
        await rig.client.progress("same", lambda v: v["kind"] == "delta")
        await rig.call("session/unsubscribe", token="same")
        assert (await soon(first))["finish"] == "stop"


async def test_a_prompt_does_not_end_a_subscription_with_its_token(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        session = await rig.create()
        await rig.call("session/subscribe", sessionId=session, partialResultToken="same")
        try:
            await rig.prompt(session, "x", partialResultToken="same")
        except Exception:
            return  # refusing the token is fine too
        before = len(rig.client.values("same"))
        await rig.prompt(session, "y", partialResultToken="other")
        await rig.call("session/get", sessionId=session)
        assert len(rig.client.values("same")) > before


async def test_deleting_a_session_answers_its_queued_prompts(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=SLOW, config=CFG) as rig:
        session = await rig.create()
        rig.start(session, "1", "t1")
        await rig.client.progress("t1", lambda v: v["kind"] == "delta")
        queued = rig.start(session, "2", "t2")
        await rig.client.progress("t2", lambda v: v["kind"] == "accepted")
        await rig.call("session/delete", sessionId=session)
        await asyncio.wait([queued], timeout=4)
        assert queued.done()


async def test_an_applied_edit_that_is_not_in_the_text_is_no_change(tmp_path: Path) -> None:
    answers = [answer(call("edit", {"path": "f", "old": "a=1", "new": "a=9"})), OK]
    async with Rig.open(
        tmp_path,
        answers,
        files={"f": "a=1\n"},
        config=CFG,
        capabilities=APPLY,
        experimental={"ask": True, "save": True},
    ) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f")

        def lies(params):
            editor.type(buffer, buffer.text + "# typed by the person\n")
            return {"applied": True}

        rig.client.on_request("workspace/applyEdit", lies)
        session = await rig.create()
        await rig.prompt(session, "go")
        assert "a=9" not in (rig.folder / "f").read_text()
        assert (await rig.calls(session))[0]["state"]["status"] == "error"
        assert "change.applied" not in await rig.types(session)


async def test_a_stale_clean_buffer_does_not_overwrite_a_newer_disk(tmp_path: Path) -> None:
    answers = [answer(call("edit", {"path": "f", "old": "a=1", "new": "a=9"})), OK]
    async with Rig.open(
        tmp_path,
        answers,
        files={"f": "a=1\n"},
        config=CFG,
        capabilities=APPLY,
        experimental={"ask": True, "save": True},
    ) as rig:
        Editor(rig.client).open(rig.folder / "f")
        session = await rig.create()
        (rig.folder / "f").write_text("a=1\nfrom git pull\n")
        await rig.prompt(session, "go")
        assert "from git pull" in (rig.folder / "f").read_text()


async def test_grep_does_not_read_secrets_through_a_link(tmp_path: Path) -> None:
    answers = [answer(call("grep", {"pattern": "TOPSECRET"})), OK]
    async with Rig.open(tmp_path, answers, files={".env": "K=TOPSECRET\n"}) as rig:
        rig.ask = "reject"
        (rig.folder / "notes").symlink_to(rig.folder / ".env")
        await rig.prompt(await rig.create(), "go")
        assert "K=TOPSECRET" not in json.dumps(rig.fake.bodies[-1])


async def test_a_key_of_a_provider_header_does_not_reach_commands(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("GATEWAY_TOKEN", "tok-4711-abcdef")
    answers = [answer(call("bash", {"command": "echo $GATEWAY_TOKEN"})), OK]
    async with Rig.open(tmp_path, answers, config=CFG) as rig:
        rig.config["providers"]["mock"]["headers"] = {"x-auth": "Bearer {env:GATEWAY_TOKEN}"}
        await rig.restart()
        await rig.prompt(await rig.create(), "go")
        assert b"tok-4711" not in rig.fake.requests[-1].content


async def test_recovery_ends_the_children_of_a_killed_server(tmp_path: Path) -> None:
    answers = [answer(call("bash", {"command": "echo $$ > pid; sleep 91"}))]
    async with Rig.open(tmp_path, answers, default=OK, config=CFG) as rig:
        session = await rig.create()
        rig.start(session, "go", "t")
        while not (rig.folder / "pid").exists() or not (rig.folder / "pid").read_text().strip():
            await asyncio.sleep(0.05)
        group = int((rig.folder / "pid").read_text())
        await rig.restart()
        await rig.prompt(session, "again")
        living = [
            process
            for process in psutil.process_iter()
            if process.status() != psutil.STATUS_ZOMBIE and os.getpgid(process.pid) == group
        ]
        assert not living, "the command of the dead server still runs"


async def test_prompts_run_in_the_order_in_which_they_were_sent(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        for _ in range(4):
            session = await rig.create()
            await asyncio.gather(*(rig.start(session, str(i), f"{session}{i}") for i in range(25)))
            got = [
                int(e["payload"]["parts"][0]["text"])
                for e in await rig.events(session, limit=1000)
                if e["type"] == "message.received"
            ]
            assert got == sorted(got), got


async def test_an_interrupt_sent_right_after_a_prompt_stops_it(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=answer(text("x" * 200), delta_delay_ms=40), config=CFG) as rig:
        session = await rig.create()
        prompt = rig.start(session, "go", "t")
        assert await rig.call("session/interrupt", sessionId=session) == {"interrupted": True}
        assert (await prompt)["finish"] == "interrupted"


async def test_a_damaged_folder_does_not_block_the_others(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with FakeProvider(default=OK) as fake:
        provider = {"kind": "anthropic", "base_url": fake.base_url, "api_key": "k"}
        options = {
            "stateDir": str(tmp_path / "state"),
            "config": {"model": "mock/test", "providers": {"mock": provider}},
        }
        async with await LspClient.start(SERVER, env=CLEAN_ENV) as client:
            await client.initialize(folders=[tmp_path / "a", tmp_path / "b"], options=options)
            session = (await client.request("deskmate/session/create", {"folder": as_uri(tmp_path / "a")}))[
                "id"
            ]
            await client.request("deskmate/session/create", {"folder": as_uri(tmp_path / "b")})
            await client.shutdown()
        [database] = (tmp_path / "state").glob("b-*/events.db")
        database.write_bytes(b"garbage" * 4000)
        async with await LspClient.start(SERVER, env=CLEAN_ENV) as client:
            await client.initialize(folders=[tmp_path / "a", tmp_path / "b"], options=options)
            parts = [{"type": "text", "text": "x"}]
            result = await client.request("deskmate/session/prompt", {"sessionId": session, "parts": parts})
            assert result["finish"] == "stop"


async def test_an_answer_with_a_change_is_asked_once_more_at_most(tmp_path: Path) -> None:
    answers = [OK, answer(call("bash", {"command": "echo hi"})), OK]
    async with Rig.open(tmp_path, answers) as rig:
        rig.ask = {"reply": "once", "input": {"command": "echo other"}}
        session = await rig.create()
        await rig.prompt(session, "warm up")
        await asyncio.wait([rig.start(session, "go", "t")], timeout=3)
        assert len(rig.asked) <= 2, len(rig.asked)
        assert "echo other" in json.dumps(rig.fake.bodies[-1]), "the model is told what ran"


async def test_odd_documents_do_not_stop_the_server(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG, files={"a": "x"}) as rig:
        session = await rig.create()
        await rig.prompt(session, "hi")
        for i in range(12):
            os.mkfifo(rig.folder / f"fifo{i}")
            rig.client.did_open(as_uri(rig.folder / f"fifo{i}"), "")
        await asyncio.sleep(0.2)
        rig.fake.add(answer(call("read", {"path": "a"})))
        assert (await soon(rig.start(session, "still there?", "t")))["finish"] == "stop"


async def test_a_rule_for_names_does_not_open_what_runs_later(tmp_path: Path) -> None:
    answers = [answer(call("write", {"path": ".git/hooks/x.py", "content": "evil"})), OK]
    config = {"permission": {"edit": {"*.py": "allow"}}}
    async with Rig.open(tmp_path, answers, config=config, files={".git/HEAD": ""}) as rig:
        rig.ask = "reject"
        await rig.prompt(await rig.create(), "go")
        assert rig.asked, "asked in every mode"


async def test_odd_arguments_fail_the_call_not_the_turn(tmp_path: Path) -> None:
    answers = [answer(call("grep", {"pattern": "a\0b", "path": "."})), OK]
    async with Rig.open(tmp_path, answers, config=CFG, files={"a": "hello\n"}) as rig:
        assert (await rig.prompt(await rig.create(), "go"))["finish"] == "stop"


async def test_a_turn_that_fails_inside_closes_its_answer(tmp_path: Path) -> None:
    deep = answer(text("hi"), call("read", raw='{"path":' + "[" * 100_000 + "]" * 100_000 + "}"))
    async with Rig.open(tmp_path, [deep], default=OK, config=CFG) as rig:
        session = await rig.create()
        assert (await rig.prompt(session, "go"))["finish"] == "stop"
        page = await rig.call("session/messages", sessionId=session)
        assert all(m.get("completedAt") for m in page["messages"] if m["role"] == "assistant")


async def test_create_with_an_id_is_idempotent_at_once_too(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        both = [rig.client.send("deskmate/session/create", {"id": "ses_abcdef12"}) for _ in range(3)]
        assert {session["id"] for session in await asyncio.gather(*both)} == {"ses_abcdef12"}


async def test_always_never_offers_what_runs_anything(tmp_path: Path) -> None:
    from deskmate_session.tools.bash import suggested_rules

    wide = [
        c
        for c in (
            "git -c a.b=c status",
            "setsid echo",
            "npx x",
            "uv run x",
            "tar -cf a b",
            "busybox ls",
            "stdbuf -o0 ls",
            "git config user.name x",
        )
        if suggested_rules(c) != (c,)
    ]
    assert not wide, {c: suggested_rules(c) for c in wide}


async def test_a_clean_document_that_is_not_utf8_is_saved(tmp_path: Path) -> None:
    answers = [answer(call("edit", {"path": "f", "old": "a=1", "new": "a=9"})), OK]
    async with Rig.open(
        tmp_path,
        answers,
        files={"f": "a=1\né\n".encode("latin-1")},
        config=CFG,
        capabilities=APPLY,
        experimental={"ask": True, "save": True},
    ) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f", text="a=1\né\n")

        def save(params):
            buffer.path.write_bytes(buffer.text.encode("latin-1"))
            rig.client.did_save(buffer.uri)
            return {"saved": params["uris"]}

        rig.client.on_request("deskmate/document/save", save)
        await asyncio.sleep(0.3)
        await rig.prompt(await rig.create(), "go")
        assert (rig.folder / "f").read_bytes() == "a=9\né\n".encode("latin-1")


async def test_nested_input_of_a_reply_does_not_either(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, [answer(call("bash", {"command": "echo hi"}))], default=OK) as rig:
        rig.ask = lambda ask: asyncio.sleep(100, "once")
        session = await rig.create()
        rig.start(session, "go", "t")
        shown = await rig.client.progress("t", lambda v: v["kind"] == "ask")
        deep: object = 1
        for _ in range(300):
            deep = [deep]
        reply = {"askId": shown[-1]["ask"]["id"], "reply": "once", "input": {"command": deep}}
        with pytest.raises(LspError) as caught:
            await rig.client.request("deskmate/ask/reply", reply)
        assert caught.value.data["kind"] == "invalidParams"
        await rig.verified()


async def test_what_the_person_typed_meanwhile_is_not_the_agents(tmp_path: Path) -> None:
    answers = [answer(call("edit", {"path": "f", "old": "a=1", "new": "a=9"})), OK]
    async with Rig.open(
        tmp_path,
        answers,
        files={"f": "a=1\n"},
        config=CFG,
        capabilities=APPLY,
        experimental={"ask": True, "save": True},
    ) as rig:
        editor = Editor(rig.client)
        buffer = editor.open(rig.folder / "f")
        apply = editor._apply

        def typed(params):
            result = apply(params)
            editor.type(buffer, buffer.text + "# typed by the person\n")
            return result

        rig.client.on_request("workspace/applyEdit", typed)
        session = await rig.create()
        await rig.prompt(session, "go")
        patch = (await rig.call("session/diff", sessionId=session))["files"][0]["patch"]
        assert "+# typed by the person" not in patch


async def test_events_db_removed_while_running_is_told(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        session = await rig.create()
        await rig.prompt(session, "one")
        for path in (tmp_path / "state").glob("*/events.db*"):
            path.unlink()
        try:
            await rig.prompt(session, "two")
        except Exception:
            return
        await rig.restart()
        assert (await rig.call("session/list"))["sessions"], "an acknowledged turn is gone without a word"


async def test_an_unsubscribe_right_after_its_subscribe_ends_it(tmp_path: Path) -> None:
    async with Rig.open(tmp_path, default=OK, config=CFG) as rig:
        session = await rig.create()
        await rig.prompt(session, "hi")
        given = {"sessionId": session, "partialResultToken": "z"}
        both = [
            rig.client.send("deskmate/session/subscribe", given),
            rig.client.send("deskmate/session/unsubscribe", {"token": "z"}),
        ]
        await asyncio.gather(*both)
        before = len(rig.client.values("z"))
        await rig.prompt(session, "more")
        assert len(rig.client.values("z")) == before
