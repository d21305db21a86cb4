"""What people see: messages, parts, updates, diffs, titles."""

from typing import get_args

import pytest

from deskmate_session.core import decide
from deskmate_session.core.conversation import Conversation
from deskmate_session.core.guard import guard, is_secret
from deskmate_session.core.lines import one_kind_of_end
from deskmate_session.core.views.changes import authored, file_diff
from deskmate_session.core.views.session import queue_view, status_view
from deskmate_session.core.views.timeline import summary
from deskmate_session.core.views.updates import text_delta, updates_for
from deskmate_session.errors import Rejected
from deskmate_session.model import commands as c, events as e, updates as u
from deskmate_session.model.messages import (
    Ask,
    FileDiff,
    FileInput,
    QueuedPrompt,
    TextInput,
    ToolDetail,
    TurnError,
)
from tests.core.support import (
    Ids,
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

ASK = Ask(id="ask_1", kind="question", title="t", detail=ToolDetail(tool="t", input={}), created_at=1)
DIFF = FileDiff(uri="file:///w/a", status="modified", additions=1, deletions=1, patch="p")


def kinds(*facts: e.EventPayload, diffs: tuple[FileDiff, ...] = ()) -> list[tuple[str, bool]]:
    """The updates of the last fact: kind, and whether it carries the event's `seq`."""
    state = fold(*facts)
    last = event(len(facts) + 1, facts[-1])
    return [(getattr(item, "kind", ""), item.seq == last.seq) for item in updates_for(state, last, diffs)]


BEGUN = (received(), started(), constructed())
CALL = (*BEGUN, call_part("c1"), responded(("c1", "read", {"path": "a"})))
BROKEN = e.ModelFailed(message_id="msg_a", step=1, error=TurnError(kind="internal", message="x"))
APPLIED = e.ChangeApplied(call_id="c1", uri="file:///w/a", via="disk", verified=True, saved=True)
OBSERVED = e.ChangeObserved(call_id="c1", uri="file:///w/a", via="disk", by="recovery")


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ((e.SessionUpdated(title="x"),), [("session", True)]),
        ((e.SessionDeleted(),), [("session", True)]),
        ((received(),), [("message", True)]),
        ((*BEGUN, received("msg_q")), [("message", True), ("queue", False)]),
        ((received(), started()), [("status", True), ("message", False), ("queue", False)]),
        ((started("msg_none"),), [("status", True), ("queue", False)]),
        (BEGUN, [("message", True)]),
        ((*BEGUN, text_part("x")[0]), [("part", True)]),
        ((*BEGUN, *text_part("x")[:2]), []),
        ((*BEGUN, *text_part("x")), [("logged", True)]),
        (CALL, [("message", True), ("part", False)]),
        ((responded(message_id="msg_none"),), [("logged", True)]),
        ((*BEGUN, BROKEN), [("message", True)]),
        ((BROKEN,), [("logged", True)]),
        ((*CALL, ran("c1")), [("part", True)]),
        ((*CALL, ran("c1"), completed("c1")), [("part", True)]),
        ((*CALL, failed("c1")), [("part", True)]),
        ((failed("c9"),), [("logged", True)]),
        ((e.ChangeStarted(call_id="c1", uri="u", via="disk"),), [("logged", True)]),
        ((APPLIED,), [("logged", True)]),
        ((e.ChangeRefused(call_id="c1", uri="u", via="disk", reason="r"),), [("logged", True)]),
        ((e.WorkContextUpdated(uri="u", change="created", by="c1"),), [("workContext", True)]),
        ((*BEGUN, e.AskOpened(ask=ASK)), [("ask", True), ("status", False)]),
        (
            (e.AskReplied(ask_id="ask_1", reply="once", by="person"),),
            [("askResolved", True), ("status", False)],
        ),
        ((*BEGUN, e.InterruptRequested(turn_id="turn_1")), [("status", True)]),
        (
            (*BEGUN, received("msg_q"), e.InterruptRequested(turn_id="turn_1")),
            [("status", True), ("queue", False)],
        ),
        ((OBSERVED,), [("logged", True)]),
        ((received(), e.QueueHeld(reason="crash"), e.QueueReleased()), [("queue", True)]),
        ((e.LogSalvaged(kept_as="x", events=1, lost=(), sessions=()),), [("logged", True)]),
        ((received(), e.MessageUnqueued(message_id="msg_p")), [("queue", True)]),
        ((e.QueueHeld(reason="error"),), [("queue", True)]),
        ((*BEGUN, ended()), [("status", True), ("usage", False)]),
        ((e.UnknownPayload(tag="x", data={}),), [("logged", True)]),
    ],
)
def test_each_event_has_one_update_with_its_seq(
    facts: tuple[e.EventPayload, ...], wanted: list[tuple[str, bool]]
) -> None:
    assert kinds(*facts) == wanted


def test_a_change_shows_its_diff_where_there_is_one() -> None:
    assert kinds(APPLIED, diffs=(DIFF,)) == [("changes", True)]


def test_text_that_streams_elsewhere_is_shown_as_a_delta() -> None:
    batch = e.PartAppended(message_id="msg_a", part_id="prt_t", offset=4, text="more")
    state = fold(*BEGUN, batch)
    shown = text_delta(state, event(5, batch))
    assert shown == u.Delta("ses_1", "msg_a", "prt_t", "text", 4, "more")
    assert text_delta(state, event(5, ended())) is None


def test_a_waiting_prompt_that_is_not_at_hand_is_shown_without_its_text() -> None:
    state = fold(received())
    state.conversation = Conversation()
    assert queue_view(state).prompts == (QueuedPrompt(message_id="msg_p", text=""),)


def test_every_kind_of_update_is_made_somewhere() -> None:
    assert len(get_args(get_args(u.Update)[0])) == 12


def test_the_status_follows_turn_asks_and_interrupt() -> None:
    begun = (received(), started())
    assert status_view(fold()).status == "idle"
    assert status_view(fold(*begun)).status == "busy"
    assert status_view(fold(*begun, e.AskOpened(ask=ASK))).status == "waiting"
    assert status_view(fold(*begun, e.InterruptRequested(turn_id="turn_1"))).status == "stopping"


def test_waiting_prompts_are_shown_in_short() -> None:
    view = queue_view(fold(received("msg_1", "a  b\n" + "c" * 300)))
    assert len(view.prompts[0].text) == 200
    assert view.prompts[0].text.startswith("a b c")


def test_a_call_is_summed_up_in_one_line() -> None:
    assert summary("bash", {"command": "make\n  test"}) == "bash make test"
    assert summary("read", {"path": "a"}) == "read a"
    assert summary("odd", {"x": 1}) == summary("odd", "raw") == "odd"
    assert len(summary("bash", {"command": "x" * 500})) == len("bash ") + 120


def test_what_a_session_authored_is_its_first_before_and_last_after() -> None:
    def change(before: str | None, after: str | None, uri: str = "u") -> e.ChangeApplied:
        return APPLIED.model_copy(update={"uri": uri, "before": before, "after": after})

    assert authored([change(None, "1"), change("1", "2"), change("x", "y", "v")]) == {
        "u": (None, "2"),
        "v": ("x", "y"),
    }
    assert authored([change("1", "2"), change("2", "1")]) == {}
    observed = OBSERVED.model_copy(update={"uri": "u", "before": "2", "after": "3"})
    assert authored([change("1", "2"), observed]) == {"u": ("1", "3")}


def test_a_file_s_diff_tells_added_deleted_binary_and_legacy_text() -> None:
    assert file_diff("u", "a", None, b"x\n").status == "added"
    assert file_diff("u", "a", b"x\n", None).deletions == 1
    assert file_diff("u", "a", b"\0\xff", b"x").binary is True
    latin = file_diff("u", "a", "é\n".encode("latin-1"), "è\n".encode("latin-1"))
    assert (latin.status, latin.additions, latin.deletions) == ("modified", 1, 1)


def test_a_title_is_the_first_line_of_the_first_prompt() -> None:
    def title(words: str) -> str | None:
        return decide.title_of((TextInput.model_construct(text=words),))

    assert title("\n  Fix   it \nplease") == "Fix it"
    assert title("word " * 30) == ("word " * 30)[:59].rstrip() + "…"
    assert title("   ") is None
    assert decide.title_of((FileInput(uri="file:///a"),)) is None


def test_a_prompt_names_the_session_only_once() -> None:
    prompt = c.Prompt(session_id="ses_1", parts=(TextInput(text="hello"), FileInput(uri="file:///a")))
    first = decide.receive(fold(), prompt, "msg_1", Ids())
    assert [fact.type for fact in first] == ["message.received", "session.updated"]
    again = decide.receive(fold(e.SessionUpdated(title="mine")), prompt, "msg_1", Ids())
    assert [fact.type for fact in again] == ["message.received"]


def test_steering_is_refused_only_while_a_turn_runs() -> None:
    prompt = c.Prompt(session_id="ses_1", parts=(TextInput(text="hello"),), delivery="steer")
    assert decide.receive(fold(), prompt, "msg_1", Ids())
    with pytest.raises(Rejected) as caught:
        decide.receive(fold(received(), started()), prompt, "msg_1", Ids())
    assert caught.value.kind == "notSupported"


def test_a_known_prompt_is_recognised_by_its_parts() -> None:
    ids = Ids()
    parts = (TextInput(text="hello", label="l"), FileInput(uri="file:///a"))
    prompt = c.Prompt(session_id="ses_1", message_id="msg_same", parts=parts)
    [fact, _] = decide.receive(fold(), prompt, "msg_same", ids)
    state = fold(fact, constructed("msg_answer"))
    known, answer = (state.conversation.messages[id] for id in ("msg_same", "msg_answer"))
    assert decide.repeated(known, prompt) is known
    for message, given in ((known, parts[:1]), (answer, parts)):
        with pytest.raises(Rejected) as caught:
            decide.repeated(message, prompt.model_copy(update={"parts": given}))
        assert caught.value.kind == "conflict"


def test_an_update_without_fields_is_no_fact() -> None:
    assert decide.update(c.UpdateSession(session_id="ses_1")) is None
    assert decide.update(c.UpdateSession(session_id="ses_1", archived=False)) == e.SessionUpdated(
        archived=False
    )


def test_a_new_session_takes_what_is_given_and_else_the_defaults() -> None:
    fact = decide.create(c.CreateSession(title="t", mode="plan"), "file:///w", "build", "mock/test")
    assert (fact.title, fact.mode, fact.agent, fact.model) == ("t", "plan", "build", "mock/test")
    assert decide.create(c.CreateSession(), "file:///w", "build", "m/t").title == decide.DEFAULT_TITLE


def test_guarded_files_are_known_by_name_and_folder() -> None:
    assert guard("a/.ENV") == "secret" and guard("src/a.py") is None
    assert guard("/x/y", own=("/x/",)) == "runsLater"
    assert guard(".git/config") == "runsLater"
    assert is_secret("id_rsa") and not is_secret("id_rsa.pub")


def test_line_ends_of_one_kind() -> None:
    assert all(one_kind_of_end(text) for text in ("", "a", "a\nb\n", "a\r\nb\r\n", "a\r\nb"))
    assert not any(one_kind_of_end(text) for text in ("a\r\nb\n", "a\rb", "a\r\nb\rc\r\n"))
