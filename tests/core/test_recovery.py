"""What settles a turn whose process is gone."""

from typing import Any

import pytest

from deskmate_session.core import recovery
from deskmate_session.core.recovery import Seen, settling_facts
from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, ToolDetail, Usage
from deskmate_session.model.ports import Effect
from tests.core.support import (
    call_part,
    completed,
    constructed,
    ended,
    event,
    fold,
    ran,
    received,
    responded,
    started,
    text_part,
)

BEGUN = (received(), started(), constructed())
URI = "file:///w/a%20b"
CHANGE = e.ChangeStarted(call_id="c1", uri=URI, before="o1", after="o2", via="disk")
APPLIED = e.ChangeApplied(
    call_id="c1", uri=URI, before="o1", after="o2", via="disk", verified=True, saved=True
)
OBSERVED = e.ChangeObserved(call_id="c1", uri=URI, before="o1", after="o2", via="disk", by="recovery")
REFUSED = e.ChangeRefused(call_id="c1", uri=URI, via="disk", reason="the server stopped before it was made")
UPDATED = e.WorkContextUpdated(uri=URI, change="modified", before=None, after="t2", by="c1")
ASK = Ask(id="ask_1", kind="permission", title="t", detail=ToolDetail(tool="t", input={}), created_at=1)

EFFECTS: dict[str, Effect] = {"bash": "effect", "edit": "effect", "write": "idempotent"}


def effect(tool: str) -> Effect:
    return EFFECTS.get(tool, "none")


def running(tool: str, *facts: e.EventPayload) -> SessionState:
    """A turn whose call runs."""
    return fold(*BEGUN, call_part("c1", tool), responded(("c1", tool, {})), ran("c1", tool), *facts)


def facts(state: SessionState, seen: dict[tuple[str, str], Seen] | None = None) -> list[e.EventPayload]:
    """The settling facts, but for the turn's end."""
    *settled, end = settling_facts(state, effect, seen or {})
    assert isinstance(end, e.TurnEnded) and end.finish == "interrupted"
    return settled


def cut(tool: str, error: str, *, unknown: bool | None = None) -> e.CallFailed:
    return e.CallFailed(
        call_id="c1", tool=tool, kind="interrupted", error=error, interrupted=True, outcome_unknown=unknown
    )


def test_a_settled_session_has_nothing_to_settle() -> None:
    assert settling_facts(fold(), effect, {}) == []
    assert settling_facts(fold(*BEGUN, responded(), ended()), effect, {}) == []


def test_an_answer_that_streamed_keeps_its_text_and_its_calls_never_ran() -> None:
    state = fold(*BEGUN, *text_part("half")[:2], call_part("c1", "bash"), e.AskOpened(ask=ASK))
    assert facts(state) == [
        e.ModelResponded(
            message_id="msg_a",
            step=1,
            kind="text",
            calls=(),
            finish="interrupted",
            usage=Usage(),
            confidence="nonDeterministic",
        ),
        cut("bash", recovery.NOT_RUN),
        e.AskReplied(ask_id="ask_1", reply="reject", by="recovery"),
    ]


def test_only_a_call_that_may_have_acted_has_an_unknown_outcome() -> None:
    pending = fold(*BEGUN, call_part("c1", "bash"), responded(("c1", "bash", {})))
    assert facts(pending) == [cut("bash", recovery.NOT_RUN)]
    assert facts(running("read")) == [cut("read", recovery.NO_EFFECT)]
    assert facts(running("bash")) == [cut("bash", recovery.UNKNOWN, unknown=True)]
    assert facts(running("bash", completed("c1", "bash"))) == []


@pytest.mark.parametrize("tool", ["edit", "write"])
def test_files_tell_what_became_of_a_change(tool: str) -> None:
    at = ("c1", URI)
    assert facts(running(tool)) == [cut(tool, recovery.NO_CHANGE)]
    made = cut(
        tool,
        "the server stopped before this call could report; the change was made, so don't repeat it: /w/a b",
    )
    assert facts(running(tool, CHANGE), {at: Seen("applied", "t2")}) == [OBSERVED, made, UPDATED]
    assert facts(running(tool, CHANGE), {at: Seen("applied")}) == [OBSERVED, made]
    refused = cut(
        tool,
        "the server stopped before this call could report; "
        "the change was not made, the file is as it was before: /w/a b",
    )
    assert facts(running(tool, CHANGE), {at: Seen("refused")}) == [REFUSED, refused]
    unknown = [cut(tool, recovery.UNKNOWN, unknown=True)]
    assert facts(running(tool, CHANGE), {at: Seen("unknown")}) == facts(running(tool, CHANGE)) == unknown


def test_a_file_does_not_tell_what_an_unsaved_buffer_holds() -> None:
    state = running("edit", CHANGE.model_copy(update={"via": "applyEdit"}))
    assert facts(state, {("c1", URI): Seen("refused")}) == [cut("edit", recovery.UNKNOWN, unknown=True)]
    assert facts(state, {("c1", URI): Seen("applied", "t2")})[0] == OBSERVED.model_copy(
        update={"via": "applyEdit"}
    )


def test_a_change_that_was_logged_and_not_reported_is_told_too() -> None:
    state = running("edit", CHANGE, APPLIED)
    [told] = facts(state)
    assert isinstance(told, e.CallFailed) and told.outcome_unknown is None and "was made" in told.error
    assert facts(state, {("c1", URI): Seen("applied", "t2")}) == [told, UPDATED]
    other = CHANGE.model_copy(update={"uri": "file:///w/other"})
    [_, both] = facts(running("edit", CHANGE, APPLIED, other), {("c1", other.uri): Seen("refused")})
    assert isinstance(both, e.CallFailed)
    assert "repeat it: /w/a b;" in both.error and both.error.endswith("as it was before: /w/other")


def test_a_change_of_an_earlier_turn_is_settled_when_it_is_seen() -> None:
    state = running("edit", CHANGE)
    late = e.CallFailed(call_id="c1", tool="edit", kind="failed", error="no answer", outcome_unknown=True)
    for seq, fact in enumerate((late, ended("error")), 50):
        state.apply(event(seq, fact))
    assert settling_facts(state, effect, {("c1", URI): Seen("applied", "t2")}) == [OBSERVED, UPDATED]
    assert settling_facts(state, effect, {}) == []


@pytest.mark.parametrize(
    ("before", "after", "text", "change"),
    [("o1", "o2", "t2", "modified"), (None, "o2", "t2", "created"), ("o1", None, None, "deleted")],
)
def test_the_work_context_follows_what_was_seen(
    before: str | None, after: str | None, text: str | None, change: Any
) -> None:
    read = completed("c0", reads=(e.ReadFile(uri=URI, hash="t1"),))
    begun = CHANGE.model_copy(update={"before": before, "after": after})
    state = running("edit", read, begun)
    assert facts(state, {("c1", URI): Seen("applied", text)})[-1] == e.WorkContextUpdated(
        uri=URI, change=change, before="t1" if before else None, after=text, by="c1"
    )


def test_what_waits_is_held_unless_it_shall_go_on() -> None:
    waiting = fold(*BEGUN, responded(), received("msg_q"))
    assert settling_facts(waiting, effect, {})[-1] == e.QueueHeld(reason="crash")
    assert settling_facts(waiting, effect, {}, hold=False)[-1].type == "turn.ended"
    held = fold(*BEGUN, responded(), received("msg_q"), e.InterruptRequested(turn_id="turn_1"))
    assert settling_facts(held, effect, {})[-1].type == "turn.ended"
    assert settling_facts(fold(received("msg_q")), effect, {}) == [e.QueueHeld(reason="crash")]


def test_after_recovery_nothing_is_open() -> None:
    state = running("edit", CHANGE, e.AskOpened(ask=ASK), received("msg_q"))
    for seq, fact in enumerate(settling_facts(state, effect, {("c1", URI): Seen("applied", "t2")}), 50):
        state.apply(event(seq, fact))
    assert (state.turn, state.asks, state.open_changes, state.held) == (None, {}, {}, True)
    assert state.last_finish == "interrupted"
    assert all(call.settled for call in state.conversation.calls.values())
    assert settling_facts(state, effect, {}) == []
