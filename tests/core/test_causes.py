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
        (e.WorkContextUpdated(uri="u", change="created", by="c1"), "call.started"),
        (completed("c1"), "call.started"),
        (e.InterruptRequested(turn_id="turn_1"), "turn.started"),
        (ended("interrupted"), "interrupt.requested"),
        (e.QueueHeld(reason="interrupted"), None),
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
