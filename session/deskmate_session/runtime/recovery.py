"""At start: what dead processes left open is settled by facts. No turn stays open, no call running."""

import asyncio

from deskmate_session.core.conversation import CallState
from deskmate_session.core.state import SessionState
from deskmate_session.log.store import EventLog
from deskmate_session.model import events as e
from deskmate_session.model.messages import Usage
from deskmate_session.workspace.descendants import end_children


async def settle(log: EventLog, session_id: str) -> None:
    """Settle a session whose turn's owner is gone: its children are ended first."""
    state = SessionState()
    for event in await log.read(session=session_id):
        state.apply(event)
    for call in _open_calls(state):
        if call.status == "running":
            await asyncio.to_thread(end_children, call.call_id)
    if drafts := [e.Draft(fact, state.causes.of(fact)) for fact in settling_facts(state)]:
        await log.append(session_id, drafts, durable=True)


def settling_facts(state: SessionState) -> list[e.EventPayload]:
    """The facts that end what a dead process left: its turn, and the queue is held."""
    facts = turn_facts(state)
    if state.queue and not state.held:
        facts.append(e.QueueHeld(reason="crash"))
    return facts


def turn_facts(state: SessionState) -> list[e.EventPayload]:
    """The facts that end an abandoned turn as interrupted: partial text stays, calls and asks are settled."""
    turn = state.turn
    if turn is None:
        return []
    facts: list[e.EventPayload] = []
    answer = state.conversation.messages.get(turn.answer_id or "")
    if answer is not None and answer.completed_at is None:
        facts.append(
            e.ModelResponded(
                message_id=answer.id,
                step=answer.step,
                kind="text",
                calls=(),
                finish="interrupted",
                usage=Usage(),
                confidence="nonDeterministic",
            )
        )
    facts += [_cut(call.call_id, call.tool, ran=call.status == "running") for call in _open_calls(state)]
    facts += [e.AskReplied(ask_id=ask_id, reply="reject", by="recovery") for ask_id in state.asks]
    facts.append(
        e.TurnEnded(
            turn_id=turn.turn_id,
            message_id=turn.message_id,
            finish="interrupted",
            usage=turn.usage,
            cost=turn.cost,
            steps=turn.steps,
        )
    )
    return facts


def _open_calls(state: SessionState) -> list[CallState]:
    return [call for call in state.conversation.calls.values() if not call.settled]


def _cut(call_id: str, tool: str, *, ran: bool) -> e.CallFailed:
    why = "the server stopped while it ran; look at the state of things before you repeat it"
    return e.CallFailed(
        call_id=call_id,
        tool=tool,
        kind="interrupted",
        error=why if ran else "the server stopped before it ran",
        interrupted=True,
        outcome_unknown=True if ran else None,
    )
