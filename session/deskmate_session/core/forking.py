"""What a fork or an import takes over of another chain. Pure: events in, facts out.

What is taken over tells the conversation and the work context as they were; it gives no authority: grants,
asks and changes stay behind, so nothing that was allowed or done there can be used or undone here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.messages import Mode, Usage

INHERITED = (
    e.MessageReceived,
    e.TurnStarted,
    e.ContextConstructed,
    e.PartStarted,
    e.PartAppended,
    e.PartEnded,
    e.ModelResponded,
    e.ModelFailed,
    e.CallStarted,
    e.CallCompleted,
    e.CallFailed,
    e.WorkContextUpdated,
    e.TurnEnded,
    e.UnknownPayload,
)
"""Facts that are copied, of prompts whose turn has begun."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """The facts of a new session that goes on where another one stood."""

    created: e.SessionCreated
    events: tuple[e.Event, ...]
    """Copied with payload and order kept; their ids, causes and hashes are the other session's."""
    closing: tuple[e.EventPayload, ...]
    """Our own facts after them: the end of a turn that was open."""
    seq: int
    """The last event of the other session that counts."""


class Cut(Exception):
    """The point lies in a step that runs: a call there has no result yet."""


def cut_before(events: Iterable[e.Event], message_id: str) -> int | None:
    """Return the `seq` of the last event before a message in the order of the conversation; None where
    there is no such message.

    A prompt stands where its turn began, an answer where its request was built.
    """
    waiting: int | None = None
    for event in events:
        match event.payload:
            case e.MessageReceived() as fact if fact.message_id == message_id:
                waiting = event.seq
            case (e.TurnStarted() | e.ContextConstructed()) as fact if fact.message_id == message_id:
                return event.seq - 1
            case _:
                pass
    return None if waiting is None else waiting - 1


def inherit(
    events: Sequence[e.Event], upto: int | None, kind: e.OriginKind, *, running: bool = False
) -> Inherited:
    """Return what a new session takes over of the state at `upto`; None: of all.

    No causal unit is split: of a step whose answer or calls are not complete nothing is taken. `running`: the
    open turn of the last event is going on; then a point in its step raises `Cut`. Raises `LookupError`
    where there is no session before that point.
    """
    state = SessionState()
    at = count = 0
    turns: set[str] = set()
    for number, event in enumerate(events):
        if upto is not None and event.seq > upto:
            break
        state.apply(event)
        if isinstance(event.payload, e.TurnStarted):
            turns.add(event.payload.message_id)
        if _is_clean(state):
            at, count = event.seq, number + 1
    if state.session is None:
        raise LookupError("there is no session at this point")
    if running and state.turn is not None and at < state.seq:
        raise Cut
    taken = [event for event in events[:count] if _is_taken(event, turns)]
    clean = state if at == state.seq else _folded(events[:count])
    return Inherited(
        created=_created(clean, events[0], kind, at, len(taken), events[count - 1].hash),
        events=tuple(taken),
        closing=_closing(clean),
        seq=at,
    )


def _is_clean(state: SessionState) -> bool:
    """Nothing is half said and no call waits for its result."""
    if state.turn is None:
        return True
    answer = state.conversation.messages.get(state.turn.answer_id or "")
    return (answer is None or answer.completed_at is not None) and not state.unsettled_calls()


def _is_taken(event: e.Event, turns: set[str]) -> bool:
    if isinstance(event.payload, e.MessageReceived):
        return event.payload.message_id in turns
    return isinstance(event.payload, INHERITED)


def _folded(events: Sequence[e.Event]) -> SessionState:
    state = SessionState()
    for event in events:
        state.apply(event)
    return state


def _created(
    state: SessionState, first: e.Event, kind: e.OriginKind, seq: int, count: int, hash: str
) -> e.SessionCreated:
    info = state.info
    mode: Mode = "plan" if info.mode == "plan" else "ask"  # a wider one was allowed there, not here
    return e.SessionCreated(
        folder=info.folder,
        title=info.title,
        agent=info.agent,
        model=info.model,
        variant=info.variant,
        mode=mode,
        origin=e.Origin(kind=kind, session_id=first.session or "", seq=seq, hash=hash, events=count),
    )


def _closing(state: SessionState) -> tuple[e.EventPayload, ...]:
    if state.turn is None:
        return ()
    return (
        e.TurnEnded(
            turn_id=state.turn.turn_id,
            message_id=state.turn.message_id,
            finish="interrupted",
            usage=Usage(),
            cost=0,
            steps=state.turn.steps,
        ),
    )
