"""Every fact names the event that led to it, back to the prompt."""

from deskmate_session.core.causes import Causes
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, ToolDetail
from tests.core.support import (
    call_part,
    completed,
    constructed,
    ended,
    event,
    ran,
    received,
    responded,
    started,
)

ASK = Ask(
    id="ask_1",
    call_id="c1",
    kind="permission",
    title="t",
    detail=ToolDetail(tool="t", input={}),
    created_at=1,
)


def test_the_chain_of_causes_leads_back_to_the_prompt() -> None:
    chain: list[tuple[e.EventPayload, str | None]] = [
        (received(), None),
        (started(), "message.received"),
        (constructed(), "turn.started"),
        (call_part("c1"), "context.constructed"),
        (responded(("c1", "bash", {})), "context.constructed"),
        (e.AskOpened(ask=ASK), "model.responded"),
        (e.AskReplied(ask_id="ask_1", reply="once", by="person"), "ask.opened"),
        (ran("c1"), "model.responded"),
        (e.ChangeStarted(call_id="c1", uri="u", via="disk"), "call.started"),
        (e.ChangeObserved(call_id="c1", uri="u", via="disk", by="recovery"), "change.started"),
        (e.ChangeStarted(call_id="c1", uri="v", via="disk"), "call.started"),
        (e.ChangeRefused(call_id="c1", uri="v", via="disk", reason="r"), "call.started"),
        (e.WorkContextUpdated(uri="u", change="created", by="c1"), "call.started"),
        (completed("c1"), "call.started"),
        (e.InterruptRequested(turn_id="turn_1"), "turn.started"),
        (ended("interrupted"), "interrupt.requested"),
        (e.QueueHeld(reason="interrupted"), None),
        (e.QueueReleased(), None),
        (e.LogSalvaged(kept_as="x", events=1, lost=(), sessions=()), None),
    ]
    causes, types = Causes(), {}
    for seq, (payload, wanted) in enumerate(chain, 1):
        cause = causes.of(payload)
        assert types.get(cause) == wanted, payload
        logged = event(seq, payload)
        types[logged.id] = logged.type
        causes.apply(logged)


def test_without_a_turn_a_request_is_led_back_to_its_prompt() -> None:
    causes = Causes()
    causes.apply(event(1, received()))
    assert causes.of(constructed()) == "evt_1"


def test_what_is_over_is_forgotten_and_what_waits_is_not() -> None:
    causes = Causes()
    facts = [
        received(),
        received("msg_q"),
        received("msg_back"),
        started(),
        constructed(),
        responded(("c1", "bash", {})),
        ran("c1"),
        e.AskOpened(ask=ASK),
        e.AskReplied(ask_id="ask_1", reply="once", by="person"),
        e.ChangeStarted(call_id="c1", uri="u", via="applyEdit"),
        e.MessageUnqueued(message_id="msg_back"),
        e.MessageUnqueued(message_id="msg_p"),
        ended("error"),
        e.InterruptRequested(turn_id="turn_1"),
        e.ChangeRefused(call_id="c9", uri="u", via="disk", reason="another call's"),
    ]
    for seq, fact in enumerate(facts, 1):
        assert fact.type != "turn.ended" or "ask_1" not in causes.turn
        causes.apply(event(seq, fact))
    assert (causes.waiting, causes.turn) == ({"msg_q": "evt_2"}, {})
    late = e.ChangeObserved(call_id="c1", uri="u", via="applyEdit", by="editor")
    assert causes.of(late) == "evt_10"
    causes.apply(event(20, late))
    assert causes.changes == {}
    assert causes.of(late) is None
