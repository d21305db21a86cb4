"""A state opened from any checkpoint is the state of a full replay, whatever happened in the session."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import example, given, strategies as st

from deskmate_session.core import plan
from deskmate_session.core.checkpoints import dump, load, messages_needed, open_partial
from deskmate_session.core.context.project import project
from deskmate_session.core.conversation import CallState, MessageState, TextState
from deskmate_session.core.recovery import Seen, settling_facts
from deskmate_session.core.state import SessionState
from deskmate_session.core.views.session import queue_view, status_view
from deskmate_session.core.views.timeline import message_view
from deskmate_session.core.views.updates import text_delta, updates_for
from deskmate_session.model import events as e
from deskmate_session.model.messages import AlwaysPattern, Ask, ToolDetail, ToolPart, TurnError
from deskmate_session.model.ports import Effect
from tests.core.support import (
    CREATED,
    call_part,
    completed,
    constructed,
    ended,
    event,
    failed,
    received,
    responded,
    started,
)

EFFECTS: dict[str, Effect] = {"read": "none", "edit": "effect", "bash": "effect"}
SEEN = ("applied", "refused", "unknown")


class Life:
    """A session to which plausible things happen: each method does its thing where it makes sense."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.events: list[e.Event] = []
        self.count = 0
        self.parts: dict[str, int] = {}
        """Length of each streaming text part."""
        self.log(CREATED)

    def log(self, *facts: e.EventPayload) -> None:
        for fact in facts:
            self.events.append(event(len(self.events) + 1, fact))
            self.state.apply(self.events[-1])

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"

    @property
    def streaming(self) -> MessageState | None:
        turn = self.state.turn
        answer = self.state.conversation.messages.get((turn and turn.answer_id) or "")
        return None if answer is None or answer.completed_at is not None else answer

    def calls(self, status: str, tool: str | None = None) -> list[CallState]:
        return [
            call
            for call in self.state.unsettled_calls()
            if call.status == status and (tool is None or call.tool == tool)
        ]

    def prompt(self) -> None:
        message_id = self.new("msg")
        self.log(received(message_id, f"words of {message_id}"))

    def unqueue(self) -> None:
        if self.state.queue:
            self.log(e.MessageUnqueued(message_id=self.state.queue[-1]))

    def unqueue_too_late(self) -> None:
        if self.state.turn:
            self.log(e.MessageUnqueued(message_id=self.state.turn.message_id))

    def start(self) -> None:
        if self.state.turn is None and self.state.queue and not self.state.held:
            self.log(started(self.state.queue[0], self.new("turn")))

    def ask_model(self) -> None:
        self.start()
        turn = self.state.turn
        if turn and not self.streaming and not self.state.unsettled_calls():
            self.log(constructed(self.new("msg"), turn.steps + 1, turn.message_id))

    def say(self) -> None:
        if answer := self.streaming:
            part = next((part.id for part in answer.parts if isinstance(part, TextState)), None)
            if part is None:
                part = self.new("prt")
                text = {"id": part, "type": "text", "text": ""}
                self.log(e.PartStarted.parse({"messageId": answer.id, "part": text}))
            offset = self.parts.get(part, 0)
            self.parts[part] = offset + 5
            self.log(e.PartAppended(message_id=answer.id, part_id=part, offset=offset, text="text "))

    def call(self, tool: str) -> None:
        self.ask_model()
        if answer := self.streaming:
            self.log(call_part(self.new("call"), tool, answer.id))

    def respond(self) -> None:
        if answer := self.streaming:
            calls = [(call.call_id, call.tool, {"of": call.call_id}) for call in answer.calls]
            self.log(responded(*calls, message_id=answer.id, step=answer.step))

    def respond_emptily(self) -> None:
        self.ask_model()
        if (answer := self.streaming) and not answer.calls:
            self.log(responded(message_id=answer.id, step=answer.step, finish="unknown"))

    def break_off(self) -> None:
        if answer := self.streaming:
            error = TurnError(kind="badResponse", message="broke")
            self.log(e.ModelFailed(message_id=answer.id, step=answer.step, error=error))
            self.log(*(failed(call.call_id, call.tool) for call in answer.calls))

    def ask_person(self) -> None:
        if calls := self.calls("pending"):
            ask = Ask(
                id=self.new("ask"),
                call_id=calls[0].call_id,
                kind="permission",
                permission=calls[0].tool,
                always=(AlwaysPattern(pattern=f"{self.count}*"),),
                title="may it?",
                detail=ToolDetail(tool=calls[0].tool, input={"n": None, "half": 0.5}),
                created_at=1,
            )
            self.log(e.AskOpened(ask=ask))

    def reply(self, reply: str) -> None:
        ask_id = next(iter(self.state.asks), "ask_settled")
        self.log(e.AskReplied.parse({"askId": ask_id, "reply": reply, "by": "person"}))

    def run(self) -> None:
        self.respond()
        if calls := self.calls("pending"):
            self.log(e.CallStarted(call_id=calls[0].call_id, tool=calls[0].tool, args={"ran": True}))

    def change(self) -> None:
        if calls := self.calls("running", "edit"):
            uri = f"file:///w/{self.count % 3}"
            begun = e.ChangeStarted(call_id=calls[0].call_id, uri=uri, before="o1", after="o2", via="disk")
            self.log(begun)

    def end_change(self, how: str) -> None:
        for change in [change for changes in self.state.open_changes.values() for change in changes][:1]:
            base = {"callId": change.call_id, "uri": change.uri, "via": change.via, "after": "o2"}
            if how == "applied":
                self.log(e.ChangeApplied.parse({**base, "verified": True, "saved": True}))
            elif how == "observed":
                self.log(e.ChangeObserved.parse({**base, "by": "editor"}))
            else:
                self.log(e.ChangeRefused.parse({**base, "reason": "no"}))

    def complete(self) -> None:
        if calls := self.calls("running"):
            call = calls[0]
            reads = (e.ReadFile(uri=f"file:///w/{self.count % 4}", hash=f"h{self.count}"),)
            command = f"make {self.count}" if call.tool == "bash" else None
            self.log(completed(call.call_id, call.tool, reads=reads, command=command))
            if call.tool == "edit":
                changed = f"file:///w/{self.count % 3}"
                self.log(e.WorkContextUpdated(uri=changed, change="modified", after="h", by=call.call_id))

    def fail(self) -> None:
        if calls := self.state.unsettled_calls():
            self.log(failed(calls[0].call_id, calls[0].tool))

    def come_late(self) -> None:
        """A result of a call that is settled, of any turn."""
        if settled := [call for call in self.state.conversation.calls.values() if call.settled]:
            self.log(completed(settled[0].call_id, settled[0].tool, command="late"))

    def interrupt(self) -> None:
        turn_id = self.state.turn.turn_id if self.state.turn else "turn_over"
        self.log(e.InterruptRequested(turn_id=turn_id))

    def end(self, finish: str) -> None:
        turn = self.state.turn
        if turn and not self.streaming:
            self.log(*(failed(call.call_id, call.tool) for call in self.state.unsettled_calls()))
            self.log(ended(finish, turn.message_id, turn.turn_id))
            if finish == "error":
                self.log(e.QueueHeld(reason="error"))

    def crash(self, how: int) -> None:
        changes = [change for changes in self.state.open_changes.values() for change in changes]
        seen = {
            (change.call_id, change.uri): Seen(SEEN[(how + n) % 3], "t") for n, change in enumerate(changes)
        }
        self.log(*settling_facts(self.state, EFFECTS.__getitem__, seen, hold=how < 2))

    def release(self) -> None:
        self.log(e.QueueReleased())

    def rename(self) -> None:
        self.log(e.SessionUpdated(title=f"title {self.count}", archived=self.count % 2 == 0))

    def unknown(self) -> None:
        self.log(e.UnknownPayload(tag="future.thing", data={"x": 1}))


ACTIONS: dict[str, Callable[[Life], None]] = {
    "prompt": Life.prompt,
    "unqueue": Life.unqueue,
    "unqueue too late": Life.unqueue_too_late,
    "start": Life.start,
    "ask the model": Life.ask_model,
    "say": Life.say,
    "call read": lambda life: life.call("read"),
    "call edit": lambda life: life.call("edit"),
    "call bash": lambda life: life.call("bash"),
    "respond": Life.respond,
    "respond emptily": Life.respond_emptily,
    "break off": Life.break_off,
    "ask the person": Life.ask_person,
    "reply once": lambda life: life.reply("once"),
    "reply session": lambda life: life.reply("session"),
    "reply reject": lambda life: life.reply("reject"),
    "run": Life.run,
    "change": Life.change,
    "change applied": lambda life: life.end_change("applied"),
    "change observed": lambda life: life.end_change("observed"),
    "change refused": lambda life: life.end_change("refused"),
    "complete": Life.complete,
    "fail": Life.fail,
    "come late": Life.come_late,
    "interrupt": Life.interrupt,
    "end": lambda life: life.end("stop"),
    "end in error": lambda life: life.end("error"),
    "crash, applied": lambda life: life.crash(0),
    "crash, refused": lambda life: life.crash(1),
    "crash, unknown": lambda life: life.crash(2),
    "release": Life.release,
    "rename": Life.rename,
    "unknown": Life.unknown,
}
_TURN = ("prompt", "start", "ask the model", "say", "call edit", "call bash", "respond")
_WORK = ("ask the person", "reply session", "run", "change", "prompt", "change applied", "complete", "run")
_STEP = ("ask the model", "say", "call bash", "run", "complete")
SCENES: tuple[tuple[str, ...], ...] = (
    _TURN,
    (*_TURN, *_WORK),
    (*_TURN, *_STEP, *_STEP),
    ("prompt", *("respond emptily",) * 3),
    (*_TURN, "run", "change", "complete", "end"),
    (*_TURN, "run", "change", "interrupt", "crash, unknown"),
    *((name,) for name in ACTIONS),
)
LIVES = st.lists(st.sampled_from(SCENES), min_size=1, max_size=14).map(
    lambda scenes: [name for scene in scenes for name in scene]
)


def live(names: list[str]) -> Life:
    life = Life()
    for name in names:
        ACTIONS[name](life)
    return life


@dataclass
class Shown:
    """Everything that a state says, at one `seq`."""

    checkpoint: bytes
    messages: list[tuple[str, str]]
    updates: list[str]
    next: tuple[object, ...]

    @classmethod
    def of(cls, state: SessionState, event: e.Event) -> "Shown":
        messages = [(message.id, _whole(message)) for message in state.conversation.messages.values()]
        updates = [repr(update) for update in updates_for(state, event)]
        step = plan.next_step(state, EFFECTS.__getitem__) if state.turn else None
        settled = [repr(fact) for fact in settling_facts(state, EFFECTS.__getitem__, {})]
        asked = (step, settled, queue_view(state), status_view(state), text_delta(state, event))
        return cls(dump(state), messages, updates, asked)


def _whole(message: MessageState) -> str:
    for part in message.parts:
        if isinstance(part, TextState):
            assert part.text is not None  # joins its batches
    return repr(message)


def replay(events: list[e.Event]) -> list[Shown]:
    state, shown = SessionState(), list[Shown]()
    for logged in events:
        state.apply(logged)
        shown.append(Shown.of(state, logged))
    return shown


def messages_of(events: list[e.Event]) -> list[str | None]:
    """Which message each event belongs to, as the read model keeps it."""
    call_of: dict[str, str] = {}
    found: list[str | None] = []
    for logged in events:
        fact = logged.payload
        match fact:
            case e.PartStarted(part=ToolPart() as part):
                call_of[part.call_id] = fact.message_id
            case e.ModelResponded():
                call_of |= {call.call_id: fact.message_id for call in fact.calls}
            case _:
                pass
        match fact:
            case e.CallStarted() | e.CallCompleted() | e.CallFailed():
                found.append(call_of.get(fact.call_id))
            case _:
                found.append(getattr(fact, "message_id", None))
    return found


def check(events: list[e.Event], checkpoint: bytes, upto: int, full: list[Shown]) -> None:
    """What is opened from the checkpoint at event `upto` goes on as the full replay does."""
    wanted = set(messages_needed(load(checkpoint)))
    needed = [
        logged
        for logged, owner in zip(events[:upto], messages_of(events[:upto]), strict=True)
        if owner in wanted
    ]
    partial = open_partial(checkpoint, needed, ())
    assert not partial.whole
    assert dump(partial) == checkpoint
    for logged, expected in zip(events[upto:], full[upto:], strict=True):
        partial.apply(logged)
        shown = Shown.of(partial, logged)
        assert shown.checkpoint == expected.checkpoint
        assert shown.next == expected.next
        at_hand = set(partial.conversation.messages)
        assert set(messages_needed(partial)) <= at_hand
        assert shown.messages == [(id, text) for id, text in expected.messages if id in at_hand]
        late = isinstance(logged.payload, e.CallCompleted) and (
            logged.payload.call_id not in partial.conversation.calls
        )
        assert shown.updates == expected.updates or late


@example([*_TURN, "run", "complete", "run", "complete", *_STEP, "ask the model"])
@example(["prompt", *["respond emptily"] * 4])
@example([*_TURN, *_WORK, "crash, applied", "start", "ask the model"])
@example([*_TURN, "run", "change", "change applied", "interrupt", "crash, applied"])
@example([*_TURN, "end", *_TURN, "run", "complete", "end", *_TURN, "come late"])
@given(LIVES)
def test_any_checkpoint_and_what_follows_equal_a_full_replay(names: list[str]) -> None:
    events = live(names).events
    full = replay(events)
    for upto in range(1, len(events)):
        check(events, full[upto - 1].checkpoint, upto, full)


@given(LIVES)
def test_folding_is_deterministic_and_each_event_has_its_one_update(names: list[str]) -> None:
    life = live(names)
    first, again = replay(life.events), replay(life.events)
    assert first == again
    opened = open_partial(None, (), life.events)
    assert opened.whole and dump(opened) == dump(life.state) == first[-1].checkpoint
    assert dump(load(first[-1].checkpoint)) == first[-1].checkpoint
    state = SessionState()
    for logged in life.events:
        state.apply(logged)
        with_seq = [update.seq for update in updates_for(state, logged) if update.seq is not None]
        assert with_seq == ([] if logged.type == "part.appended" else [logged.seq])


@given(LIVES, st.integers(min_value=0, max_value=200))
def test_nothing_fails_on_a_state_without_its_conversation(names: list[str], at: int) -> None:
    events = live(names).events
    upto = 1 + at % len(events)
    state = load(replay(events)[upto - 1].checkpoint)
    for logged in events[upto:]:
        state.apply(logged)
        with_seq = [update.seq for update in updates_for(state, logged) if update.seq is not None]
        assert with_seq == ([] if logged.type == "part.appended" else [logged.seq])
        queue_view(state), status_view(state), project(state.conversation)
        [message_view("ses_1", message) for message in state.conversation.messages.values()]
        settling_facts(state, EFFECTS.__getitem__, {})


@given(LIVES)
def test_recovery_leaves_nothing_open_and_a_partial_state_can_be_completed(names: list[str]) -> None:
    life = live([*names, "crash, applied"])
    assert (life.state.turn, life.state.asks, life.streaming) == (None, {}, None)
    assert life.state.unsettled_calls() == []
    assert all(call.settled for call in life.state.conversation.calls.values())
    assert not life.state.queue or life.state.held
    partial = load(dump(life.state))
    partial.adopt(life.state)
    assert project(partial.conversation) == project(life.state.conversation)
