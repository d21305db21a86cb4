"""The facts that settle what a dead process left open. Pure: whoever recovers ends its children first and
looks at the files.

A call that may have acted is told as such, unless what it changes is logged before it is done: then the files
say what became of it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from deskmate_session.core.conversation import CallState
from deskmate_session.core.state import SessionState, TurnState
from deskmate_session.model import events as e
from deskmate_session.model.messages import Usage
from deskmate_session.model.ports import Effect

FILE_TOOLS = frozenset({"edit", "write"})
"""Tools whose every effect is a change that is logged, durably, before it is made."""

NOT_RUN = "the server stopped before it ran"
NO_EFFECT = "the server stopped while it ran"
NO_CHANGE = "the server stopped before it changed anything"
UNKNOWN = "the server stopped while it ran; look at the state of things before you repeat it"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a file on disk tells of a change whose end was not logged."""

    end: Literal["applied", "refused", "unknown"]
    """*applied*: it holds the content after the change; *refused*: the content before it."""
    text: str | None = None
    """SHA-256 of its text in UTF-8, where the change was applied; absent: deleted, or no text."""


Looked = Mapping[tuple[str, str], Seen]
"""By call id and URI; what is left out is unknown."""


def settling_facts(
    state: SessionState, effect: Callable[[str], Effect], seen: Looked, *, hold: bool = True
) -> list[e.EventPayload]:
    """The facts that end what a dead process left: its changes and its turn, and the queue is held.

    `effect` tells a tool's by its name. `seen` says what became of `state.open_changes`; what it says of
    `state.made_changes` brings the work context up to them. Without `hold` the queue goes on.
    """
    facts = _answer(state)
    facts += _changes(state, seen)
    if state.turn is not None:
        for call in state.unsettled_calls():
            facts += _call(state, call, effect(call.tool), seen)
        facts += [e.AskReplied(ask_id=ask_id, reply="reject", by="recovery") for ask_id in state.asks]
        facts.append(_turn(state.turn))
    if hold and state.queue and not state.held:
        facts.append(e.QueueHeld(reason="crash"))
    return facts


def _answer(state: SessionState) -> list[e.EventPayload]:
    """The end of an answer that still streamed; its text stays."""
    answer_id = state.turn and state.turn.answer_id
    answer = state.conversation.messages.get(answer_id or "")
    if answer is None or answer.completed_at is not None:
        return []
    return [
        e.ModelResponded(
            message_id=answer.id,
            step=answer.step,
            kind="text",
            calls=(),
            finish="interrupted",
            usage=Usage(),
            confidence="nonDeterministic",
        )
    ]


def _changes(state: SessionState, seen: Looked) -> list[e.EventPayload]:
    """The ends of started changes, of earlier turns too, as far as they were seen."""
    facts: list[e.EventPayload] = []
    for changes in state.open_changes.values():
        for change in changes:
            match _end(change, seen):
                case "applied":
                    facts.append(
                        e.ChangeObserved(
                            call_id=change.call_id,
                            uri=change.uri,
                            before=change.before,
                            after=change.after,
                            via=change.via,
                            by="recovery",
                        )
                    )
                case "refused":
                    facts.append(
                        e.ChangeRefused(
                            call_id=change.call_id,
                            uri=change.uri,
                            via=change.via,
                            reason="the server stopped before it was made",
                        )
                    )
                case "unknown":
                    pass
    running = {call.call_id for call in state.unsettled_calls()}
    for call_id, changes in state.open_changes.items():
        if call_id not in running:
            facts += _updates(state, changes, seen)
    return facts


def _end(change: e.ChangeStarted, seen: Looked) -> Literal["applied", "refused", "unknown"]:
    found = seen.get((change.call_id, change.uri))
    if found is None:
        return "unknown"
    if found.end == "refused" and change.via != "disk":
        return "unknown"  # it may stand in an editor's buffer that is not saved
    return found.end


def _call(state: SessionState, call: CallState, effect: Effect, seen: Looked) -> list[e.EventPayload]:
    """The end of one call, then what its changes mean for the work context."""
    if call.status == "pending":
        return [_cut(call, NOT_RUN)]
    if effect == "none":
        return [_cut(call, NO_EFFECT)]
    opened = state.open_changes.get(call.call_id, [])
    made = state.made_changes.get(call.call_id, [])
    ends = {change.uri: "applied" for change in made} | {change.uri: _end(change, seen) for change in opened}
    if call.tool in FILE_TOOLS and "unknown" not in ends.values():
        cut = _cut(call, _told(ends))
    else:
        cut = _cut(call, UNKNOWN, unknown=True)
    return [cut, *_updates(state, [*made, *opened], seen)]


def _told(ends: Mapping[str, str]) -> str:
    if not ends:
        return NO_CHANGE
    applied = ", ".join(_path(uri) for uri, end in ends.items() if end == "applied")
    refused = ", ".join(_path(uri) for uri, end in ends.items() if end == "refused")
    told = ["the server stopped before this call could report"]
    if applied:
        told.append(f"the change was made, so don't repeat it: {applied}")
    if refused:
        told.append(f"the change was not made, the file is as it was before: {refused}")
    return "; ".join(told)


def _updates(
    state: SessionState, changes: Sequence[e.ChangeStarted | e.ChangeApplied], seen: Looked
) -> list[e.EventPayload]:
    facts: list[e.EventPayload] = []
    for change in changes:
        found = seen.get((change.call_id, change.uri))
        if found is None or found.end != "applied" or (found.text is None and change.after is not None):
            continue  # the file is to be read again before it is changed
        known = state.work_context.files.get(change.uri)
        facts.append(
            e.WorkContextUpdated(
                uri=change.uri,
                change="created"
                if change.before is None
                else "deleted"
                if change.after is None
                else "modified",
                before=None if known is None or change.before is None else known.hash,
                after=found.text,
                by=change.call_id,
            )
        )
    return facts


def _cut(call: CallState, error: str, *, unknown: bool = False) -> e.CallFailed:
    return e.CallFailed(
        call_id=call.call_id,
        tool=call.tool,
        kind="interrupted",
        error=error,
        interrupted=True,
        outcome_unknown=True if unknown else None,
    )


def _turn(turn: TurnState) -> e.TurnEnded:
    return e.TurnEnded(
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        finish="interrupted",
        usage=turn.usage,
        cost=turn.cost,
        steps=turn.steps,
    )


def _path(uri: str) -> str:
    return unquote(urlsplit(uri).path) or uri
