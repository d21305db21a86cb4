"""The session's fold: queue, asks, grants, usage, and facts that make no sense."""

import pytest

from deskmate_session.core.checkpoints import dump, load
from deskmate_session.core.conversation import Conversation, TextState
from deskmate_session.core.state import SessionState
from deskmate_session.core.work_context import MAX_COMMANDS, tail
from deskmate_session.model import events as e
from deskmate_session.model.messages import AlwaysPattern, Ask, FilePart, TextPart, ToolDetail, Usage
from deskmate_session.model.permissions import Rule
from tests.core.support import (
    call_part,
    completed,
    constructed,
    ended,
    event,
    failed,
    fold,
    ran,
    received,
    responded,
    started,
    text_part,
)

ASK = Ask(
    id="ask_1",
    kind="permission",
    permission="bash",
    always=(AlwaysPattern(pattern="ls*"),),
    title="t",
    detail=ToolDetail(tool="t", input={}),
    created_at=1,
)


def test_prompts_wait_in_order_and_a_new_one_goes_before_a_held_queue() -> None:
    state = fold(received("msg_1"), received("msg_2"), received("msg_3"), started("msg_1"))
    assert (state.queue, state.held) == (["msg_2", "msg_3"], False)
    interrupted = [received("msg_1"), started("msg_1"), received("msg_2"), ended(message_id="msg_1")]
    later = [received("msg_new"), received("msg_late"), e.MessageUnqueued(message_id="msg_2")]
    held = fold(*interrupted, e.QueueHeld(reason="interrupted"), *later)
    assert (held.queue, held.held) == (["msg_new", "msg_late"], False)
    assert "msg_2" not in held.conversation.messages
    assert fold(e.QueueHeld(reason="crash")).held is False
    assert fold(received(), e.QueueHeld(reason="crash")).held is True


def test_a_prompt_that_is_being_answered_can_t_be_taken_back() -> None:
    begun = [received(), received("msg_q"), started()]
    late = e.MessageUnqueued(message_id="msg_p")
    state = fold(*begun, late)
    assert (state.queue, list(state.conversation.messages)) == (["msg_q"], ["msg_q", "msg_p"])
    assert "msg_p" in fold(*begun, ended(), late).conversation.messages


def test_an_interrupt_holds_what_waits_and_what_comes_after_it_goes_first() -> None:
    cut = e.InterruptRequested(turn_id="turn_1")
    waiting = fold(received(), started(), received("msg_q"), cut)
    assert (waiting.held, waiting.queue) == (True, ["msg_q"])
    assert fold(received(), started(), cut).held is False
    assert (
        fold(received(), started(), cut.model_copy(update={"turn_id": "other"}), received("m")).held is False
    )
    later = fold(received(), started(), received("msg_q"), cut, received("msg_new"))
    assert (later.held, later.queue) == (False, ["msg_new", "msg_q"])
    released = fold(received(), started(), received("msg_q"), cut, ended("interrupted"), e.QueueReleased())
    assert (released.held, released.queue) == (False, ["msg_q"])


def test_only_its_own_end_ends_a_turn() -> None:
    state = fold(received(), started(), ended(turn_id="turn_other"))
    assert state.turn is not None
    over = fold(received(), started(), e.AskOpened(ask=ASK), ended("error"))
    assert (over.turn, over.asks, over.last_finish) == (None, {}, "error")


def test_a_reply_to_a_settled_ask_changes_nothing() -> None:
    opened, reply = e.AskOpened(ask=ASK), e.AskReplied(ask_id="ask_1", reply="session", by="person")
    late = e.AskReplied(ask_id="ask_1", reply="reject", by="timeout")
    state = fold(received(), started(), opened, reply, late, opened, reply)
    assert state.grants == [Rule("bash", "ls*", "allow")]
    assert state.turn is not None and not state.turn.denied


def test_only_calls_of_the_open_turn_are_unsettled() -> None:
    begun = [received(), started(), constructed(), call_part("c1"), call_part("c2"), call_part("c3")]
    begun += [responded(("c1", "bash", {}), ("c2", "read", {}), ("c3", "read", {})), ran("c1"), failed("c2")]
    assert [call.call_id for call in fold(*begun).unsettled_calls()] == ["c1", "c3"]
    assert fold(*begun, ended("error")).unsettled_calls() == []


def test_a_change_is_open_until_something_tells_what_the_file_holds() -> None:
    def begin(call_id: str, uri: str = "u") -> e.ChangeStarted:
        return e.ChangeStarted(call_id=call_id, uri=uri, via="disk")

    applied = e.ChangeApplied(call_id="c2", uri="u", via="disk", verified=True, saved=True)
    observed = e.ChangeObserved(call_id="c1", uri="u", via="disk", by="editor")
    refused = e.ChangeRefused(call_id="c1", uri="u", via="disk", reason="r")
    begun = [received(), started(), begin("c1"), begin("c1", "v"), begin("c2")]
    assert fold(*begun).open_changes == {"c1": begun[2:4], "c2": [begun[4]]}
    for end in (applied, observed):
        assert fold(*begun, end).open_changes == {"c1": [begin("c1", "v")]}
    assert fold(*begun, refused).open_changes == {"c1": [begin("c1", "v")], "c2": [begin("c2")]}
    assert fold(*begun, ended("error")).open_changes == fold(*begun).open_changes
    assert fold(*begun, applied).made_changes == {"c2": [applied]}
    for end in (completed("c2"), failed("c2"), ended()):
        assert fold(*begun, applied, end).made_changes == {}


def test_a_long_life_leaves_nothing_of_what_is_settled() -> None:
    facts: list[e.EventPayload] = []
    for n in range(20):
        prompt, answer, turn, call = f"msg_{n}", f"msg_a{n}", f"turn_{n}", f"c{n}"
        facts += [received(prompt), started(prompt, turn), constructed(answer, 1, prompt)]
        facts += [call_part(call, "edit", answer), responded((call, "edit", {}), message_id=answer)]
        facts += [e.AskOpened(ask=ASK.model_copy(update={"id": f"ask_{n}"}))]
        facts += [e.AskReplied(ask_id=f"ask_{n}", reply="session", by="person"), ran(call, "edit")]
        facts += [e.ChangeStarted(call_id=call, uri="u", via="disk")]
        facts += [e.ChangeApplied(call_id=call, uri="u", via="disk", verified=True, saved=True)]
        facts += [completed(call, "edit"), ended(message_id=prompt, turn_id=turn)]
    state = fold(*facts)
    left = (state.causes.waiting, state.causes.turn, state.causes.changes, state.open_changes)
    assert (*left, state.made_changes, state.asks, state.queue) == ({}, {}, {}, {}, {}, {}, [])
    assert len(state.grants) == 1


def test_a_partial_conversation_is_replaced_by_the_whole_one() -> None:
    whole = fold(received(), started(), constructed(), ended())
    state = load(dump(whole))
    assert not state.whole and state.conversation.messages == {}
    with pytest.raises(ValueError, match="can't adopt"):
        state.adopt(fold(received()))
    with pytest.raises(ValueError, match="can't adopt"):
        whole.adopt(load(dump(whole)))
    state.adopt(whole)
    assert state.whole and state.conversation is whole.conversation


def test_an_answer_for_the_session_becomes_a_grant_and_others_do_not() -> None:
    opened = e.AskOpened(ask=ASK)
    for reply, grants in (("once", []), ("session", [Rule("bash", "ls*", "allow")]), ("reject", [])):
        state = fold(opened, e.AskReplied.model_validate({"askId": "ask_1", "reply": reply, "by": "person"}))
        assert (state.grants, state.asks) == (grants, {})
    assert fold(e.AskReplied(ask_id="ask_9", reply="session", by="person")).grants == []
    nameless = e.AskOpened(ask=ASK.model_copy(update={"permission": None, "always": None}))
    assert fold(nameless, e.AskReplied(ask_id="ask_1", reply="session", by="person")).grants == []


def test_usage_and_cost_add_up_over_steps() -> None:
    state = fold(
        received(),
        started(),
        constructed(),
        responded(),
        constructed("msg_b", 2),
        responded(message_id="msg_b", step=2),
    )
    assert (state.usage, state.cost) == (Usage(input=2, output=4), 6)
    assert state.turn is not None and (state.turn.usage, state.turn.cost) == (Usage(input=2, output=4), 6)
    assert fold(constructed(), responded()).turn is None


def test_usage_keeps_the_window_and_the_last_use() -> None:
    first = Usage(input=1, context_window=100, context_used=10)
    assert first.plus(Usage(output=2)) == Usage(input=1, output=2, context_window=100, context_used=10)
    assert first.plus(Usage(context_window=200, context_used=0)).context_used == 0


def test_updates_change_only_what_they_name() -> None:
    state = fold(e.SessionUpdated(title="named", mode="plan"))
    assert (state.info.title, state.info.mode, state.info.agent) == ("named", "plan", "build")
    state = fold(e.SessionUpdated(archived=True))
    assert state.info.archived_at == 1_002
    assert fold(e.SessionUpdated(archived=True), e.SessionUpdated(archived=False)).info.archived_at is None
    assert fold(e.SessionDeleted()).deleted


def test_a_state_before_its_first_event_says_so() -> None:
    with pytest.raises(LookupError):
        _ = SessionState().info


def test_facts_about_what_is_not_there_change_nothing() -> None:
    strange: list[e.EventPayload] = [
        *text_part("x", "msg_none"),
        call_part("c1", message_id="msg_none"),
        responded(("c9", "read", {}), message_id="msg_none"),
        e.ModelFailed.model_validate(
            {"messageId": "msg_none", "step": 1, "error": {"kind": "internal", "message": "x"}}
        ),
        ran("c9"),
        completed("c9", reads=()),
        failed("c9"),
        started("msg_none"),
        e.InterruptRequested(turn_id="turn_other"),
        e.MessageUnqueued(message_id="msg_none"),
        e.UnknownPayload(tag="future.thing", data={}),
        e.ChangeStarted(call_id="c", uri="u", via="disk"),
        e.PartAppended(message_id="msg_none", part_id="p", offset=0, text="x"),
    ]
    state = fold(*strange)
    assert state.conversation.messages == {}
    assert state.conversation.calls == {}
    assert state.turn is not None and not state.turn.interrupted


def test_a_result_that_comes_too_late_changes_no_state() -> None:
    state = fold(
        constructed(),
        call_part("c1"),
        responded(("c1", "bash", {}), ("c9", "x", {})),
        ran("c1"),
        failed("c1"),
        completed("c1"),
    )
    call = state.conversation.calls["c1"]
    assert (call.status, call.success, call.output) == ("error", False, None)


def test_a_late_batch_for_a_call_or_a_file_is_passed_over() -> None:
    file = e.PartStarted(message_id="msg_a", part=FilePart(id="prt_f", uri="file:///w/a"))
    state = fold(
        constructed(),
        call_part("c1"),
        file,
        e.PartAppended(message_id="msg_a", part_id="prt_c1", offset=0, text="x"),
        e.PartEnded(message_id="msg_a", part_id="prt_f", length=0, hash="0"),
        e.PartStarted(message_id="msg_a", part=TextPart(id="prt_s", text="given", synthetic=True)),
    )
    message = state.conversation.messages["msg_a"]
    assert [type(part).__name__ for part in message.parts] == ["CallState", "FilePart", "TextState"]
    assert isinstance(message.parts[2], TextState) and message.parts[2].text == "given"


def test_answers_of_a_prompt_are_found_from_the_newest_back() -> None:
    state = fold(received(), started(), constructed(), constructed("msg_b", 2), ended(), received("msg_q"))
    assert [m.id for m in state.conversation.answers("msg_p")] == ["msg_a", "msg_b"]
    assert Conversation().answers("msg_p") == []


def test_the_work_context_keeps_the_last_ten_commands_and_what_was_changed() -> None:
    facts: list[e.EventPayload] = [constructed()]
    for n in range(MAX_COMMANDS + 2):
        facts += [call_part(f"c{n}"), ran(f"c{n}"), completed(f"c{n}", command=f"run {n}", exit_code=n)]
    facts += [e.WorkContextUpdated(uri="u", change="modified", after="h1", by="c1")]
    facts += [completed("c0", reads=(e.ReadFile(uri="u", hash="h2"), e.ReadFile(uri="v", hash="h3")))]
    state = fold(*facts)
    view = state.work_context.view("file:///w")
    assert [command.command for command in view.commands] == [f"run {n}" for n in range(2, MAX_COMMANDS + 2)]
    assert [(f.uri, f.hash, f.changed) for f in view.files] == [("u", "h2", True), ("v", "h3", False)]
    assert tail("a\n" * 10 + "z\n\n") == "a\na\na\na\nz"


def test_time_and_seq_follow_the_last_event() -> None:
    state = fold(received())
    state.apply(event(7, e.SessionDeleted()))
    assert (state.info.seq, state.info.updated_at, state.info.created_at) == (7, 1_007, 1_001)
