"""The log as a story: a pure function from events to lines."""

from typing import Any

from deskmate_server.cli.story import in_short, printed, story
from deskmate_session.model.events import LoggedEvent
from deskmate_session.model.messages import FileDiff

FOLDER = "file:///home/me/shop"
USAGE = {"input": 1200, "output": 34}


def events(*facts: tuple[str, dict[str, Any]]) -> list[LoggedEvent]:
    """Facts as logged events, a second apart."""
    return [
        LoggedEvent(
            seq=number,
            id=f"evt_{number}",
            session_id="ses_1",
            index=number - 1,
            type=kind,
            version=1,
            at=1_000 * number,
            payload=payload,
            prev="0" * 64,
            hash="0" * 64,
        )
        for number, (kind, payload) in enumerate(facts, 1)
    ]


CREATED = ("session.created", {"folder": FOLDER, "title": "Shop", "agent": "build", "model": "m/x"})
PROMPT = (
    "message.received",
    {
        "messageId": "msg_1",
        "delivery": "queue",
        "parts": [{"id": "prt_1", "type": "text", "text": "mend it"}],
        "agent": "build",
        "model": "m/x",
    },
)
ASKED = (
    "context.constructed",
    {
        "messageId": "msg_2",
        "parentId": "msg_1",
        "step": 1,
        "agent": "build",
        "model": "m/x",
        "policy": "full",
        "historyRounds": 1,
        "workContextFiles": [],
        "toolResults": 0,
        "tokenCount": 1234,
        "requestHash": "",
        "versions": {},
    },
)


def text(part: str, *pieces: str, kind: str = "text") -> list[tuple[str, dict[str, Any]]]:
    """A streamed part of the answer."""
    begun = {"messageId": "msg_2", "part": {"id": part, "type": kind, "text": ""}}
    facts = [("part.started", begun)]
    offset = 0
    for piece in pieces:
        facts.append(
            ("part.appended", {"messageId": "msg_2", "partId": part, "offset": offset, "text": piece})
        )
        offset += len(piece)
    return [*facts, ("part.ended", {"messageId": "msg_2", "partId": part, "length": offset, "hash": ""})]


def answer(*calls: tuple[str, str, dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    """The end of the answer, with its calls."""
    return (
        "model.responded",
        {
            "messageId": "msg_2",
            "step": 1,
            "kind": "toolCalls" if calls else "text",
            "calls": [{"callId": call_id, "tool": tool, "args": args} for call_id, tool, args in calls],
            "finish": "toolCalls" if calls else "stop",
            "usage": USAGE,
            "confidence": "deterministic" if calls else "nonDeterministic",
        },
    )


def ended(finish: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """The end of the turn."""
    fact = {"turnId": "turn_1", "messageId": "msg_1", "finish": finish, "usage": USAGE, "cost": 0, "steps": 1}
    return ("turn.ended", {**fact, **more})


def told(given: list[LoggedEvent], diffs: dict[int, FileDiff] | None = None) -> list[tuple[int, str]]:
    """Cause, label and text of every line."""
    return [(line.cause or 0, f"{line.label}: {line.text}") for line in story(given, diffs)]


def test_a_turn_of_text_names_what_led_to_what() -> None:
    assert told(
        events(CREATED, PROMPT, ASKED, *text("prt_2", "It ", "is mended."), answer(), ended("stop"))
    ) == [
        (0, "session: 'Shop' with m/x, agent build, mode ask"),
        (0, "prompt: mend it"),
        (2, "step 1: m/x is asked, with about 1,234 tokens"),
        (3, "says: It is mended."),
        (2, "end: stop; 1 step, 1,200 tokens in, 34 out"),
    ]


def test_an_edit_is_told_with_its_ask_its_change_and_its_result() -> None:
    ask = {
        "id": "ask_1",
        "sessionId": "ses_1",
        "callId": "call_1",
        "kind": "permission",
        "permission": "edit",
        "title": "Edit pricing.py",
        "detail": {"uri": f"{FOLDER}/pricing.py", "diff": "…"},
        "createdAt": 0,
    }
    change = {"callId": "call_1", "uri": f"{FOLDER}/pricing.py", "before": "a", "after": "b"}
    given = events(
        CREATED,
        PROMPT,
        ASKED,
        answer(("call_1", "edit", {"path": "pricing.py"})),
        ("ask.opened", {"ask": ask}),
        ("ask.replied", {"askId": "ask_1", "reply": "once", "by": "person"}),
        ("call.started", {"callId": "call_1", "tool": "edit", "args": {}}),
        ("change.started", {**change, "via": "applyEdit"}),
        ("change.applied", {**change, "via": "applyEdit", "verified": True, "saved": True}),
        ("call.completed", {"callId": "call_1", "tool": "edit", "success": True, "output": "edited it"}),
    )
    diff = FileDiff(uri="", status="modified", additions=2, deletions=1, patch="")
    assert told(given, {9: diff})[3:] == [
        (3, "calls: edit pricing.py"),
        (4, "asks: may it edit pricing.py?"),
        (5, "reply: once (person)"),
        (4, "changes: pricing.py +2 -1 (through the editor)"),
        (4, "done: edit pricing.py: edited it"),
    ]


def test_failures_and_interrupts_are_told() -> None:
    failed = {"callId": "call_1", "tool": "bash", "kind": "timeout", "error": "after 5 s"}
    error = {"kind": "badResponse", "message": "the script has nothing"}
    given = events(
        CREATED,
        PROMPT,
        ASKED,
        answer(("call_1", "bash", {"command": "make\ntest"})),
        ("interrupt.requested", {"turnId": "turn_1"}),
        ("call.failed", failed),
        ("queue.held", {"reason": "interrupted"}),
        ended("error", error=error),
    )
    assert told(given)[3:] == [
        (3, "calls: bash make test"),
        (0, "interrupt: the turn was to stop"),
        (4, "failed: bash make test: timeout: after 5 s"),
        (0, "queue: held (interrupted)"),
        (2, "end: error: badResponse: the script has nothing; 1 step, 1,200 tokens in, 34 out"),
    ]


def test_an_event_that_this_version_does_not_know_keeps_its_place() -> None:
    lines = told(events(CREATED, ("moon.landed", {"by": "eagle"}), ("turn.ended", {"finish": 7})))
    assert [line for _, line in lines[1:]] == [
        "other: moon.landed (this Deskmate does not know it)",
        "other: turn.ended (this Deskmate does not know it)",
    ]


def test_what_the_model_writes_can_not_reach_the_terminal() -> None:
    given = events(
        CREATED, PROMPT, ASKED, *text("prt_2", "\x1b[2Jgone"), answer(("c", "bash", {"command": "\x1b[H"}))
    )
    assert [line for _, line in told(given)[3:]] == ["says: ␛[2Jgone", "calls: bash ␛[H"]


def test_reasoning_is_told_apart_from_text() -> None:
    assert told(events(CREATED, PROMPT, ASKED, *text("prt_2", "hm", kind="reasoning")))[-1] == (
        3,
        "thinks: hm",
    )


def test_lines_are_printed_in_columns_and_wrapped() -> None:
    lines = story(events(CREATED, PROMPT, ASKED, *text("prt_2", "a long answer that has to be broken")))
    assert [text for text, _ in printed(lines, 60)] == [
        "#1         0.00s  session   'Shop' with m/x, agent build,",
        "                            mode ask",
        "#2         1.00s  prompt    mend it",
        "#3 ← #2    2.00s  step 1    m/x is asked, with about 1,234",
        "                            tokens",
        "#6 ← #3    5.00s  says      a long answer that has to be",
        "                            broken",
    ]


def test_on_a_narrow_terminal_the_text_stands_below() -> None:
    lines = story(events(CREATED, PROMPT, ASKED, *text("prt_2", "a long answer that has to be broken")))
    assert [text for text, _ in printed(lines, 40)] == [
        "#1 session",
        "  'Shop' with m/x, agent build, mode ask",
        "#2 prompt",
        "  mend it",
        "#3 ← #2 step 1",
        "  m/x is asked, with about 1,234 tokens",
        "#6 ← #3 says",
        "  a long answer that has to be broken",
    ]


def test_nothing_is_a_story_too() -> None:
    assert list(printed(story([]), 80)) == []


def test_results_in_short() -> None:
    assert in_short("bash", "..\nOK\n", 0) == "exit code 0, OK"
    assert in_short("bash", "boom\n[exit code 2]", 2) == "exit code 2, boom"
    assert in_short("read", "1|a", None) == "1 line"
    assert in_short("read", "1|a\n2|b", None) == "2 lines"
    assert in_short("edit", "edited a.py", None) == "edited a.py"
    assert in_short("bash", "", None) == "no output"
