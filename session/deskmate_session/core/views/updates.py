"""From an event to what a client is shown. Exactly one update of an event carries its `seq`; a text
batch gives none, since its text was streamed.
"""

from collections.abc import Sequence
from typing import assert_never

from deskmate_session.core.conversation import MessageState
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.session import queue_view, status_view
from deskmate_session.core.views.timeline import message_view, part_view
from deskmate_session.model import events as e, updates as u
from deskmate_session.model.messages import FileDiff, SessionStatus


def updates_for(state: SessionState, event: e.Event, diffs: Sequence[FileDiff] = ()) -> list[u.Updated]:
    """The updates of an event that `state` already holds; the first one carries `seq`.

    `diffs` is what a `change.applied` made of its file since the session began.
    """
    sid, seq = state.info.id, event.seq
    payload = event.payload
    match payload:
        case e.SessionCreated() | e.SessionUpdated():
            return [u.SessionUpdate(session_id=sid, seq=seq, session=state.info)]
        case e.SessionDeleted():
            return [u.SessionUpdate(session_id=sid, seq=seq, session=state.info, deleted=True)]
        case e.MessageReceived():
            shown = _message(state, payload.message_id, seq) or _logged(sid, event)
            waiting = state.turn is not None
            return [shown, u.QueueUpdate(session_id=sid, queue=queue_view(state))] if waiting else [shown]
        case e.TurnStarted():
            out: list[u.Updated] = [_status(sid, seq, status_view(state))]
            if prompt := _message(state, payload.message_id, None):
                out.append(prompt)
            return [*out, u.QueueUpdate(session_id=sid, queue=queue_view(state))]
        case e.ContextConstructed() | e.ModelFailed():
            return [_message(state, payload.message_id, seq) or _logged(sid, event)]
        case e.ModelResponded():
            return _responded(state, payload, event)
        case e.PartStarted():
            part = payload.part
            return [u.PartUpdate(session_id=sid, seq=seq, message_id=payload.message_id, part=part)]
        case e.PartAppended():
            return []
        case e.CallStarted() | e.CallCompleted() | e.CallFailed():
            return [_call(state, payload.call_id, seq) or _logged(sid, event)]
        case e.ChangeApplied() if diffs:
            return [u.ChangesUpdate(session_id=sid, seq=seq, files=tuple(diffs))]
        case e.WorkContextUpdated():
            context = state.work_context.view(state.info.folder)
            return [u.WorkContextUpdate(session_id=sid, seq=seq, work_context=context)]
        case e.AskOpened():
            return [
                u.AskUpdate(session_id=sid, seq=seq, ask=payload.ask),
                _status(sid, None, status_view(state)),
            ]
        case e.AskReplied():
            return [
                u.AskResolvedUpdate(
                    session_id=sid, seq=seq, ask_id=payload.ask_id, reply=payload.reply, by=payload.by
                ),
                _status(sid, None, status_view(state)),
            ]
        case e.InterruptRequested():
            stopping = _status(sid, seq, status_view(state))
            held = u.QueueUpdate(session_id=sid, queue=queue_view(state))
            return [stopping, held] if state.queue else [stopping]
        case e.MessageUnqueued() | e.QueueHeld() | e.QueueReleased():
            return [u.QueueUpdate(session_id=sid, seq=seq, queue=queue_view(state))]
        case e.TurnEnded():
            return [
                _status(sid, seq, status_view(state)),
                u.UsageUpdate(session_id=sid, usage=state.usage),
            ]
        case (
            e.PartEnded()
            | e.ChangeStarted()
            | e.ChangeApplied()
            | e.ChangeRefused()
            | e.ChangeObserved()
            | e.LogSalvaged()
            | e.UnknownPayload()
            | e.ErasedPayload()
        ):
            return [_logged(sid, event)]
        case _:
            assert_never(payload)


def text_delta(state: SessionState, event: e.Event) -> u.Delta | None:
    """The text batch of an answer that streams in another process; here it is the only sight of its text."""
    fact = event.payload
    if not isinstance(fact, e.PartAppended):
        return None
    return u.Delta(state.info.id, fact.message_id, fact.part_id, "text", fact.offset, fact.text)


def _message(state: SessionState, message_id: str, seq: int | None) -> u.MessageUpdate | None:
    message = state.conversation.messages.get(message_id)
    if message is None:
        return None
    view = message_view(state.info.id, message)
    return u.MessageUpdate(session_id=state.info.id, seq=seq, message=view)


def _responded(state: SessionState, fact: e.ModelResponded, event: e.Event) -> list[u.Updated]:
    """The answer, then its calls once more: their input is the parsed object from here on."""
    message: MessageState | None = state.conversation.messages.get(fact.message_id)
    if message is None:
        return [_logged(state.info.id, event)]
    view = message_view(state.info.id, message)
    out: list[u.Updated] = [u.MessageUpdate(session_id=state.info.id, seq=event.seq, message=view)]
    out += [
        u.PartUpdate(session_id=state.info.id, message_id=message.id, part=part_view(call))
        for call in message.calls
    ]
    return out


def _call(state: SessionState, call_id: str, seq: int) -> u.PartUpdate | None:
    call = state.conversation.calls.get(call_id)
    if call is None:
        return None
    part = part_view(call)
    return u.PartUpdate(session_id=state.info.id, seq=seq, message_id=call.message_id, part=part)


def _status(session_id: str, seq: int | None, status: SessionStatus) -> u.StatusUpdate:
    return u.StatusUpdate(session_id=session_id, seq=seq, status=status.status)


def _logged(session_id: str, event: e.Event) -> u.LoggedUpdate:
    return u.LoggedUpdate(session_id=session_id, seq=event.seq, type=event.type)
