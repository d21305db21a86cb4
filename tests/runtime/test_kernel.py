"""The kernel through its front door: what it refuses, keeps, recovers, and shows."""

import asyncio
from pathlib import Path

import pytest

from deskmate_session.errors import Rejected
from deskmate_session.model import commands as c, queries as q
from deskmate_session.model.messages import FileInput, TextInput, TextPart, ToolPart, ToolState, Usage
from deskmate_session.model.updates import AcceptedUpdate, Delta, MessageUpdate
from tests.runtime.support import Seen, create, folded, kernel, logged, prompt, read_log

HELLO = "say: Hello there."


async def test_the_live_state_equals_a_replay_of_the_log(tmp_path: Path) -> None:
    script = """
# turn
## answer
say: Looking.
call read {"path": "a.txt"}
call glob {"pattern": "*.txt"}
## answer
call bash {"command": "exit 3"}
## answer
call nothing {}
call read {"wrong": 1}
## answer
say: Done.
"""
    async with kernel(tmp_path, script, files={"a.txt": "a\n"}) as opened:
        session = await create(opened)
        result = await prompt(opened, session, "go")
        details = await opened.query(q.GetSession(session_id=session))
        page = await opened.query(q.ListMessages(session_id=session))
        state_dir = opened.state_dir
    assert (result.finish, result.steps) == ("stop", 4)
    assert isinstance(details, q.SessionDetails)
    assert isinstance(page, q.MessagePage)
    state = folded(await read_log(state_dir, session))
    assert state.info == details.session
    assert state.work_context.view(state.info.folder) == details.work_context
    calls = [part.state for message in page.messages for part in message.parts if part.type == "tool"]
    assert [(s.status, s.error_kind, s.exit_code) for s in calls] == [
        ("completed", None, None),
        ("completed", None, None),
        ("completed", None, 3),
        ("error", "unknownTool", None),
        ("error", "badArguments", None),
    ]


async def test_calls_that_only_read_run_side_by_side_and_their_results_keep_their_order(
    tmp_path: Path,
) -> None:
    script = """
# turn
## answer
call read {"path": "a"}
call read {"path": "b"}
call bash {"command": "cat a b"}
call read {"path": "b"}
## answer
say: Done.
"""
    async with kernel(tmp_path, script, files={"a": "A", "b": "B"}) as opened:
        session = await create(opened)
        await prompt(opened, session, "go")
        events = await logged(opened, session)
    told = [(e["type"], e["payload"]["callId"]) for e in events if e["type"].startswith("call.")]
    assert sorted(told[:4]) == sorted(
        [
            ("call.started", "call_1"),
            ("call.started", "call_2"),
            ("call.completed", "call_1"),
            ("call.completed", "call_2"),
        ]
    )
    assert told[4:] == [
        ("call.started", "call_3"),
        ("call.completed", "call_3"),
        ("call.started", "call_4"),
        ("call.completed", "call_4"),
    ]


async def test_a_command_s_exit_code_is_a_result_not_an_error(tmp_path: Path) -> None:
    script = '# turn\n## answer\ncall bash {"command": "echo out; exit 7"}\n## answer\nsay: It failed.'
    async with kernel(tmp_path, script) as opened:
        session = await create(opened)
        assert (await prompt(opened, session, "go")).finish == "stop"
        events = await logged(opened, session)
    done = next(e["payload"] for e in events if e["type"] == "call.completed")
    assert (done["success"], done["exitCode"], done["command"]) == (False, 7, "echo out; exit 7")


async def test_a_write_needs_a_current_read(tmp_path: Path) -> None:
    script = """
# turn
## answer
call read {"path": "f"}
## answer
call bash {"command": "echo mine >> f"}
## answer
call write {"path": "f", "content": "all new"}
## answer
say: Refused.
"""
    async with kernel(tmp_path, script, files={"f": "old\n"}) as opened:
        session = await create(opened)
        await prompt(opened, session, "go")
        events = await logged(opened, session)
    failed = next(e["payload"] for e in events if e["type"] == "call.failed")
    assert failed["kind"] == "conflict"
    assert (tmp_path / "work" / "f").read_text() == "old\nmine\n"


async def test_a_broken_answer_is_a_failed_turn_that_leaves_no_trace_for_the_model(tmp_path: Path) -> None:
    script = """
# turn
when: first
say: half an answer
fail badResponse: the stream broke
# turn
when: second
say: whole
"""
    async with kernel(tmp_path, script) as opened:
        session = await create(opened)
        result = await prompt(opened, session, "first")
        assert (result.finish, result.error and result.error.kind) == ("error", "badResponse")
        assert (await prompt(opened, session, "second")).finish == "stop"
        page = await opened.query(q.ListMessages(session_id=session))
    assert isinstance(page, q.MessagePage)
    parts = [part for message in page.messages for part in message.parts if part.type == "text"]
    assert [(part.text, part.voided) for part in parts] == [
        ("first", None),
        ("half an answer", True),
        ("second", None),
        ("whole", None),
    ]


async def test_the_first_update_of_a_prompt_is_its_acceptance(tmp_path: Path) -> None:
    async with kernel(tmp_path, HELLO) as opened:
        session = await create(opened)
        seen = Seen()
        turn = await opened.prompt(c.Prompt(session_id=session, parts=(TextInput(text="hi"),)), seen)
        await turn.result
    first, second = seen.items[:2]
    assert isinstance(first, AcceptedUpdate)
    assert (first.message_id, first.seq) == (turn.accepted.message_id, turn.accepted.seq)
    assert isinstance(second, MessageUpdate)
    assert "".join(i.text for i in seen.items if isinstance(i, Delta)) == "Hello there."


async def test_a_session_is_named_after_its_first_prompt(tmp_path: Path) -> None:
    async with kernel(tmp_path, HELLO) as opened:
        session = await create(opened)
        await prompt(opened, session, "  Fix the\n build ")
        details = await opened.query(q.GetSession(session_id=session))
    assert isinstance(details, q.SessionDetails)
    assert details.session.title == "Fix the"


async def test_a_file_that_is_pointed_to_is_told_to_the_model(tmp_path: Path) -> None:
    async with kernel(tmp_path, HELLO) as opened:
        session = await create(opened)
        parts = (TextInput(text="explain"), FileInput(uri=f"{opened.folder_uri}/a%20b.py"))
        turn = await opened.prompt(c.Prompt(session_id=session, parts=parts))
        assert (await turn.result).finish == "stop"


async def test_unknown_agents_and_models_are_refused_before_anything_is_logged(tmp_path: Path) -> None:
    async with kernel(tmp_path, HELLO) as opened:
        session = await create(opened)
        before = await logged(opened, session)
        for fields, kind in (({"agent": "nobody"}, "notSupported"), ({"model": "no/where"}, "noModel")):
            with pytest.raises(Rejected) as caught:
                await prompt(opened, session, "hi", **fields)
            assert caught.value.kind == kind
            assert caught.value.hint
        assert await logged(opened, session) == before


async def test_two_sessions_run_side_by_side_and_only_one_is_stopped(tmp_path: Path) -> None:
    script = """
# turn
when: slow
say: started
wait 20s
# turn
when: quick
say: quick answer
"""
    async with kernel(tmp_path, script) as opened:
        slow, quick = await create(opened, "ses_slow"), await create(opened, "ses_quick")
        seen = Seen()
        turn = await opened.prompt(c.Prompt(session_id=slow, parts=(TextInput(text="slow"),)), seen)
        while not any(isinstance(item, Delta) for item in seen.items):
            await asyncio.sleep(0)
        assert (await prompt(opened, quick, "quick")).finish == "stop"
        interrupted = await opened.submit(c.Interrupt(session_id=slow))
        assert interrupted == c.Interrupted(interrupted=True)
        assert (await turn.result).finish == "interrupted"


async def test_what_a_dead_process_left_is_settled_at_the_next_start(tmp_path: Path) -> None:
    from deskmate_session.log.store import EventLog
    from deskmate_session.model import events as e
    from tests.runtime.support import CountingIds, StillClock

    async with kernel(tmp_path, HELLO) as opened:
        session = await create(opened)
        state_dir = opened.state_dir
    ids = CountingIds()
    log = await EventLog.open(
        state_dir, StillClock(), type("Fresh", (), {"new": lambda self, p: ids.new(f"{p}_x")})()
    )
    tool = ToolPart(
        id="prt_2", call_id="call_1", tool="bash", summary="bash", state=ToolState(status="pending")
    )
    received = e.MessageReceived(
        message_id="msg_a1b2",
        delivery="queue",
        parts=(TextPart(id="prt_1", text="go"),),
        agent="build",
        model="mock/test",
    )
    waiting = received.model_copy(update={"message_id": "msg_wait"})
    constructed = e.ContextConstructed(
        message_id="msg_b1b2",
        parent_id="msg_a1b2",
        step=1,
        agent="build",
        model="mock/test",
        policy="full",
        history_rounds=1,
        work_context_files=(),
        tool_results=0,
        token_count=1,
        request_hash="0",
        versions={},
    )
    responded = e.ModelResponded(
        message_id="msg_b1b2",
        step=1,
        kind="toolCalls",
        finish="toolCalls",
        confidence="deterministic",
        calls=(e.CallRequested(call_id="call_1", tool="bash", args={"command": "x"}),),
        usage=Usage(),
    )
    facts = [
        received,
        e.TurnStarted(turn_id="turn_1", message_id="msg_a1b2", owner="own_of_a_dead_process"),
        waiting,
        constructed,
        e.PartStarted(message_id="msg_b1b2", part=tool),
        responded,
        e.CallStarted(call_id="call_1", tool="bash", args={"command": "x"}),
    ]
    lease = await log.take(session)  # it goes with its process
    await log.append(session, [e.Draft(fact) for fact in facts], lease=lease)
    await log.close()
    async with kernel(
        tmp_path, HELLO, ids=type("Fresh", (), {"new": lambda self, p: ids.new(f"{p}_y")})()
    ) as opened:
        events = await logged(opened, session)
        assert [event["type"] for event in events[-3:]] == ["call.failed", "turn.ended", "queue.held"]
        assert events[-3]["payload"]["outcomeUnknown"] is True
        details = await opened.query(q.GetSession(session_id=session))
        assert isinstance(details, q.SessionDetails)
        assert (details.status.status, details.queue.held, len(details.queue.prompts)) == ("idle", True, 1)
        verified = await opened.query(q.Verify())
        assert isinstance(verified, c.Verified) and verified.ok
