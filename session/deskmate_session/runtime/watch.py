"""Looking at a session: replay of what was, then what comes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from deskmate_session.core.processor import AnswerProcessor
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.timeline import message_view, part_view
from deskmate_session.core.views.updates import updates_for
from deskmate_session.errors import DeskmateError, Rejected
from deskmate_session.log.store import ALL, EventLog
from deskmate_session.model import events as e, updates as u
from deskmate_session.model.messages import FileDiff, Message, Part, ReasoningPart, TextPart, ToolPart
from deskmate_session.model.queries import Subscribe
from deskmate_session.runtime.bus import Bus, Item, Sink
from deskmate_session.runtime.sessions import Sessions


class _Waiting:
    """Keeps live items until the replay is out."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.sink: Sink | None = None

    def push(self, item: Item) -> None:
        if self.sink is None:
            self.items.append(item)
        else:
            self.sink.push(item)


class PromptSink:
    """What a prompt's own token is shown: its acceptance, then its turn and nothing else."""

    def __init__(self, sink: Sink, state: SessionState, message_id: str) -> None:
        self._sink = sink
        self._state = state
        self._message_id = message_id
        self._accepted = False
        self._begun = False

    def push(self, item: Item) -> None:
        """Pass what belongs to this prompt."""
        if isinstance(item, u.MessageUpdate) and item.message.id == self._message_id:
            if item.seq is not None and not self._accepted:
                self._accepted = True
                # The prompt's fact has one update with its seq: here that is the acceptance.
                self._sink.push(
                    u.AcceptedUpdate(session_id=item.session_id, seq=item.seq, message_id=self._message_id)
                )
            self._sink.push(item.model_copy(update={"seq": None}))
            return
        turn = self._state.turn
        if turn is not None and turn.message_id == self._message_id:
            self._begun = True
        elif turn is not None or not (self._begun or self._is_its_own(item)):
            return  # another prompt's turn
        self._sink.push(item)

    def _is_its_own(self, item: Item) -> bool:
        """Between acceptance and start: the session's new title, its place in the queue."""
        return self._accepted and isinstance(item, u.SessionUpdate | u.QueueUpdate)


def catch_up(state: SessionState, live: AnswerProcessor | None) -> list[Item]:
    """The answer that is being given, as it stands: whoever looks from now on knows its parts."""
    answer = state.conversation.messages.get(state.turn.answer_id or "") if state.turn else None
    if answer is None:
        return []
    parts = {part.id: part for part in _live_parts(live)}
    message = overlay(message_view(state.info.id, answer), parts)
    shown: list[Item] = [u.MessageUpdate(session_id=state.info.id, message=message)]
    shown += [
        u.PartUpdate(session_id=state.info.id, message_id=answer.id, part=part) for part in message.parts
    ]
    return shown


async def subscribe(
    log: EventLog,
    sessions: Sessions,
    bus: Bus,
    live: Mapping[str, AnswerProcessor],
    command: Subscribe,
    sink: Sink,
) -> tuple[int, Callable[[], None]]:
    """Attach a sink: replay after `fromSeq`, then live. Returns the newest covered `seq` and a detach."""
    if command.session_id is not None:
        await sessions.get(command.session_id)
    start = await _start(log, command)
    if start is None:
        # From here to the end nothing awaits: what is shown and what follows leave no gap.
        head = sessions.told
        for state in sessions.all_live():
            if command.session_id in (None, state.info.id):
                for item in catch_up(state, live.get(state.info.id)):
                    sink.push(item)
        return head, bus.attach(command.session_id, sink)
    waiting = _Waiting()
    detach = bus.attach(command.session_id, waiting)
    try:
        head = sessions.told
        session = ALL if command.session_id is None else command.session_id
        read = await log.read(session=session, after=start, upto=head)
        states = {
            session_id: await sessions.whole(session_id)
            for session_id in dict.fromkeys(event.session for event in read)
            if session_id is not None and not await _gone(sessions, session_id)
        }
        diffs = await _diffs(sessions, read, states)
        replay = _replay(read, states, live, diffs)
    except BaseException:
        detach()
        raise
    for item in replay:
        sink.push(item)
    shown = {item.part.id: _length(item.part) for item in replay if isinstance(item, u.PartUpdate)}
    for item in waiting.items:
        if (kept := _after(item, head, shown)) is not None:
            sink.push(kept)
    waiting.sink = sink
    return head, detach


async def _start(log: EventLog, command: Subscribe) -> int | None:
    if command.from_event_id is None:
        return command.from_seq
    seq = await log.seq_of(command.from_event_id)
    if seq is None:
        raise Rejected(
            "notSupported", f"there is no event {command.from_event_id!r}", "subscribe with fromSeq"
        )
    return seq


async def _gone(sessions: Sessions, session_id: str) -> bool:
    try:
        await sessions.get(session_id)
    except Rejected:
        return True
    return False


async def _diffs(
    sessions: Sessions, events: Sequence[e.Event], states: Mapping[str, SessionState]
) -> dict[int, Sequence[FileDiff]]:
    """What each file comes to with its newest change, by the `seq` of that."""
    newest: dict[tuple[str, str], tuple[int, e.ChangeApplied]] = {}
    for event in events:
        if isinstance(event.payload, e.ChangeApplied) and event.session in states:
            newest[event.session or "", event.payload.uri] = event.seq, event.payload
    found: dict[int, Sequence[FileDiff]] = {}
    for (session_id, _), (seq, fact) in newest.items():
        with suppress(DeskmateError, KeyError, OSError, ValueError):  # its contents are gone or damaged
            found[seq] = await sessions.find_diffs(session_id, states[session_id].info.folder, fact)
    return found


def _replay(
    events: Sequence[e.Event],
    states: Mapping[str, SessionState],
    live: Mapping[str, AnswerProcessor],
    diffs: Mapping[int, Sequence[FileDiff]],
) -> list[Item]:
    """Each message and part once, as it stands now, where its first event stands; all else as it came."""
    out: list[Item] = []
    seen: set[tuple[str, str]] = set()
    for event in events:
        state = states.get(event.session or "")
        if state is None:
            continue
        parts = {part.id: part for part in _live_parts(live.get(state.info.id))}
        for item in updates_for(state, event, diffs.get(event.seq, ())):
            key = _key(item)
            if key is not None and key in seen:
                continue
            if key is not None:
                seen.add(key)
            out.append(_as_it_stands(item, state, parts))
    return out


def _live_parts(processor: AnswerProcessor | None) -> Iterable[Part]:
    return () if processor is None else processor.live_parts()


def _key(item: u.Updated) -> tuple[str, str] | None:
    match item:
        case u.MessageUpdate():
            return ("message", item.message.id)
        case u.PartUpdate():
            return ("part", item.part.id)
        case _:
            return None


def _as_it_stands(item: u.Updated, state: SessionState, live: Mapping[str, Part]) -> u.Updated:
    match item:
        case u.MessageUpdate():
            return item.model_copy(update={"message": overlay(item.message, live)})
        case u.PartUpdate() if item.part.id in live:
            return item.model_copy(update={"part": live[item.part.id]})
        case u.PartUpdate():
            part = state.conversation.part(item.message_id, item.part.id)
            return item if part is None else item.model_copy(update={"part": part_view(part)})
        case _:
            return item


def overlay(message: Message, live: Mapping[str, Part]) -> Message:
    """A message whose streaming parts are whole, their unlogged tail included."""
    if not live or not any(part.id in live for part in message.parts):
        return message
    parts = tuple(
        live[part.id] if part.id in live and _length(live[part.id]) >= _length(part) else part
        for part in message.parts
    )
    return message.model_copy(update={"parts": parts})


def _length(part: Part) -> int:
    match part:
        case TextPart() | ReasoningPart():
            return len(part.text)
        case ToolPart():
            return len(part.state.input) if isinstance(part.state.input, str) else 0
        case _:
            return 0


def _after(item: Item, head: int, shown: Mapping[str, int]) -> Item | None:
    """An item that came during the replay, less what the replay has shown."""
    if not isinstance(item, u.Delta):
        return None if item.seq is not None and item.seq <= head else item
    if item.field == "output" or item.part_id not in shown:
        return item
    known = shown[item.part_id] - item.offset
    if known >= len(item.text):
        return None
    if known <= 0:
        return item
    return u.Delta(
        item.session_id, item.message_id, item.part_id, item.field, shown[item.part_id], item.text[known:]
    )
