"""What a fork takes over, and what it leaves."""

import pytest

from deskmate_session.core import forking
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, ForkedFrom, ToolDetail
from tests.core import support


def log(*payloads: e.EventPayload) -> list[e.Event]:
    return [support.event(seq, payload) for seq, payload in enumerate((support.CREATED, *payloads), 1)]


TURN = (
    support.received(),  # 2
    support.started(),  # 3
    support.constructed(),  # 4
    support.call_part("call_1"),  # 5
    support.responded(("call_1", "read", {"path": "a"})),  # 6
    support.ran("call_1"),  # 7
    support.completed("call_1"),  # 8
    support.constructed("msg_b", 2),  # 9
    *support.text_part("done", "msg_b"),  # 10 to 12
    support.responded(message_id="msg_b", step=2),  # 13
    support.ended(),  # 14
)


def types(found: forking.Inherited) -> list[str]:
    return [event.type for event in found.events]


def folded(found: forking.Inherited) -> object:
    """The state of a session that begins with what is inherited."""
    facts = [found.created, *(event.payload for event in found.events), *found.closing]
    state = support.SessionState()
    for seq, fact in enumerate(facts, 101):
        shape = e.Event(seq, f"evt_{seq}", "ses_2", seq - 101, fact.type, 1, seq, fact, None, "0", "0")
        state.apply(shape)
    return state


def test_all_of_a_session_is_taken_over() -> None:
    found = forking.inherit(log(*TURN), None, "fork")
    assert [event.seq for event in found.events] == list(range(2, 15))
    assert found.closing == ()
    assert found.created.origin == e.Origin(kind="fork", session_id="ses_1", seq=14, hash="0", events=13)


@pytest.mark.parametrize(
    ("upto", "last"),
    [(1, 1), (2, 2), (3, 3), (4, 3), (5, 3), (6, 3), (7, 3), (8, 8), (9, 8), (12, 8), (13, 13), (14, 14)],
)
def test_a_step_is_taken_whole_or_not_at_all(upto: int, last: int) -> None:
    found = forking.inherit(log(*TURN), upto, "fork")
    assert found.seq == last
    state = folded(found)
    assert isinstance(state, support.SessionState)
    assert state.turn is None
    assert all(call.settled for call in state.conversation.calls.values())


def test_a_turn_that_was_open_is_closed_as_interrupted() -> None:
    found = forking.inherit(log(*TURN), 8, "fork")
    assert [fact.type for fact in found.closing] == ["turn.ended"]
    state = folded(found)
    assert isinstance(state, support.SessionState)
    assert state.last_finish == "interrupted"


def test_prompts_that_wait_stay_behind() -> None:
    found = forking.inherit(log(*TURN[:7], support.received("msg_q", "later"), *TURN[7:]), None, "fork")
    assert "msg_q" not in [
        event.payload.message_id for event in found.events if isinstance(event.payload, e.MessageReceived)
    ]


def test_authority_stays_behind() -> None:
    ask = Ask(
        id="ask_1",
        session_id="ses_1",
        call_id="call_1",
        kind="permission",
        permission="bash",
        patterns=("ls",),
        always=(),
        title="ls",
        detail=ToolDetail(tool="bash", input={}),
        created_at=1,
    )
    change = e.ChangeStarted(call_id="call_1", uri="file:///w/a", before=None, after="x", via="disk")
    facts = (
        *TURN[:5],
        e.AskOpened(ask=ask),
        e.AskReplied(ask_id="ask_1", reply="session", by="person"),
        TURN[5],
        change,
        *TURN[6:],
        e.SessionUpdated(mode="auto", title="changed"),
    )
    found = forking.inherit(log(*facts), None, "fork")
    assert not {"ask.opened", "ask.replied", "change.started"} & set(types(found))
    assert (found.created.mode, found.created.title) == ("ask", "changed")


def test_inherited_usage_is_not_counted_again() -> None:
    state = folded(forking.inherit(log(*TURN), None, "fork"))
    assert isinstance(state, support.SessionState)
    assert (state.usage.input, state.cost) == (0, 0)
    assert state.info.forked_from == ForkedFrom(session_id="ses_1", seq=14)
    fresh = [
        support.received("msg_n"),
        support.started("msg_n", "turn_2"),
        support.constructed("msg_c", 1, "msg_n"),
    ]
    for seq, fact in enumerate([*fresh, support.responded(message_id="msg_c")], state.seq + 1):
        state.apply(e.Event(seq, f"evt_{seq}", "ses_2", seq - 101, fact.type, 1, seq, fact, None, "0", "0"))
    assert (state.usage.input, state.cost) == (1, 3)


def test_the_running_step_can_not_be_forked() -> None:
    with pytest.raises(forking.Cut):
        forking.inherit(log(*TURN[:6]), None, "fork", running=True)
    assert forking.inherit(log(*TURN[:6]), 3, "fork", running=True).seq == 3
    assert forking.inherit(log(*TURN[:7]), None, "fork", running=True).seq == 8


def test_before_a_message_is_where_the_conversation_had_it() -> None:
    events = log(*TURN[:7], support.received("msg_q", "later"), *TURN[7:], support.started("msg_q", "turn_2"))
    assert forking.cut_before(events, "msg_p") == 2
    assert forking.cut_before(events, "msg_b") == 9
    assert forking.cut_before(events, "msg_q") == 15
    assert forking.cut_before(events, "msg_x") is None


def test_before_the_first_event_there_is_nothing() -> None:
    with pytest.raises(LookupError):
        forking.inherit(log(*TURN), 0, "fork")
