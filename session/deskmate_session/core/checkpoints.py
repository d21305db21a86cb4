"""Checkpoints: what a session's state is at a `seq`, so that opening it costs no history.

A checkpoint holds lifecycle, queue, work context and counters, and no text of messages: what is still open
is folded again from its own events. The one exception is the work-context block of the open turn's prompt,
which is made from the work context as it was when the turn began.
"""

import json
from collections.abc import Iterable

from deskmate_session.core.state import SessionState, TurnState
from deskmate_session.model import events as e
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Ask, CommandEntry, FileEntry, Finish, Session, Usage
from deskmate_session.model.permissions import Rule

SCHEMA = 2
"""Of the body. A checkpoint of another schema is passed over, never converted: the events are there."""


class _Turn(Wire):
    turn_id: str
    message_id: str
    owner: str
    started_seq: int
    context: str | None = None
    steps: int
    answer_ids: tuple[str, ...]
    idle_answers: int
    denied: bool
    interrupted: bool
    usage: Usage
    cost: int


class _Causes(Wire):
    waiting: dict[str, str]
    turn: dict[str, str]
    changes: dict[str, dict[str, str]]


class _Body(Wire):
    """Lists where order matters: the keys of objects are sorted."""

    schema_version: int
    seq: int
    session: Session
    deleted: bool
    turn: _Turn | None = None
    last_finish: Finish | None = None
    queue: tuple[str, ...]
    held: bool
    asks: tuple[Ask, ...]
    grants: tuple[Rule, ...]
    inherited: int
    usage: Usage
    cost: int
    files: tuple[FileEntry, ...]
    commands: tuple[CommandEntry, ...]
    open_changes: tuple[tuple[str, tuple[e.ChangeStarted, ...]], ...]
    made_changes: tuple[tuple[str, tuple[e.ChangeApplied, ...]], ...]
    causes: _Causes


def dump(state: SessionState) -> bytes:
    """The checkpoint of a state, as canonical JSON: equal states give equal bytes.

    Raises `LookupError` for a state before its first event.
    """
    body = _Body(
        schema_version=SCHEMA,
        seq=state.seq,
        session=state.info,
        deleted=state.deleted,
        turn=None if state.turn is None else _turn_body(state.turn),
        last_finish=state.last_finish,
        queue=tuple(state.queue),
        held=state.held,
        asks=tuple(state.asks.values()),
        grants=tuple(state.grants),
        inherited=state.inherited,
        usage=state.usage,
        cost=state.cost,
        files=tuple(state.work_context.files.values()),
        commands=tuple(state.work_context.commands),
        open_changes=tuple((call_id, tuple(changes)) for call_id, changes in state.open_changes.items()),
        made_changes=tuple((call_id, tuple(changes)) for call_id, changes in state.made_changes.items()),
        causes=_Causes(waiting=state.causes.waiting, turn=state.causes.turn, changes=state.causes.changes),
    )
    text = json.dumps(body.dump(), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:  # lone surrogates of live facts: in the log they are U+FFFD too
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def load(body: bytes) -> SessionState:
    """The state of a checkpoint, with none of its conversation. Raises `ValueError` for what is none."""
    held = _Body.parse(json.loads(body))
    if held.schema_version != SCHEMA:
        raise ValueError(f"a checkpoint of schema {held.schema_version}, where {SCHEMA} is known")
    state = SessionState()
    state.whole = False
    state.seq, state.session, state.deleted = held.seq, held.session, held.deleted
    state.turn = None if held.turn is None else _turn_state(held.turn)
    state.last_finish = held.last_finish
    state.queue, state.held = list(held.queue), held.held
    state.asks = {ask.id: ask for ask in held.asks}
    state.grants = list(held.grants)
    state.inherited = held.inherited
    state.usage, state.cost = held.usage, held.cost
    state.work_context.files = {file.uri: file for file in held.files}
    state.work_context.commands = list(held.commands)
    state.open_changes = {call_id: list(changes) for call_id, changes in held.open_changes}
    state.made_changes = {call_id: list(changes) for call_id, changes in held.made_changes}
    state.causes.waiting = held.causes.waiting
    state.causes.turn = held.causes.turn
    state.causes.changes = held.causes.changes
    return state


def messages_needed(state: SessionState) -> list[str]:
    """Ids of the messages whose events a checkpoint's state still needs: the open turn's, and what waits."""
    running = [] if state.turn is None else [state.turn.message_id, *state.turn.answer_ids]
    return [*running, *state.queue]


def open_partial(body: bytes | None, needed: Iterable[e.Event], tail: Iterable[e.Event]) -> SessionState:
    """A session's state from its checkpoint and the events after it; without one, from all its events.

    `needed` are the events of `messages_needed` up to the checkpoint, in order of `seq`. What comes out
    equals a full replay in everything but the older part of the conversation. Raises `ValueError` as `load`
    does.
    """
    state = SessionState() if body is None else load(body)
    for event in needed:
        if event.seq <= state.seq:
            state.conversation.apply(event)
    if state.turn and (prompt := state.conversation.messages.get(state.turn.message_id)):
        prompt.context = state.turn.context
    for event in tail:
        if event.seq > state.seq:
            state.apply(event)
    return state


def due(events_since: int, bytes_since: int, last_size: int | None, interval: int) -> bool:
    """Whether a session wants a checkpoint now: the first after `interval` events, later ones at least as
    many events apart and at least the size of the last one in event bytes, so that checkpoints never
    outweigh the log. `last_size` is in bytes; absent: there is none yet."""
    return events_since >= interval and (last_size is None or bytes_since >= last_size)


def _turn_body(turn: TurnState) -> _Turn:
    return _Turn(
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        owner=turn.owner,
        started_seq=turn.started_seq,
        context=turn.context,
        steps=turn.steps,
        answer_ids=tuple(turn.answer_ids),
        idle_answers=turn.idle_answers,
        denied=turn.denied,
        interrupted=turn.interrupted,
        usage=turn.usage,
        cost=turn.cost,
    )


def _turn_state(turn: _Turn) -> TurnState:
    return TurnState(
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        owner=turn.owner,
        started_seq=turn.started_seq,
        context=turn.context,
        steps=turn.steps,
        answer_ids=list(turn.answer_ids),
        idle_answers=turn.idle_answers,
        denied=turn.denied,
        interrupted=turn.interrupted,
        usage=turn.usage,
        cost=turn.cost,
    )
