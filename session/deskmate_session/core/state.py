"""A session's state: its two kernels, its lifecycle and its queue, folded from one stream of events."""

from dataclasses import dataclass, field
from typing import assert_never

from deskmate_session.core.causes import Causes
from deskmate_session.core.context import work_block
from deskmate_session.core.conversation import CallState, Conversation
from deskmate_session.core.work_context import WorkContextFold
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, Finish, ForkedFrom, Session, Usage
from deskmate_session.model.permissions import Rule


@dataclass(slots=True)
class TurnState:
    """The turn that runs."""

    turn_id: str
    message_id: str
    owner: str
    started_seq: int
    context: str | None = None
    """The work-context block that was sent with its prompt; made once, when the turn began."""
    steps: int = 0
    answer_ids: list[str] = field(default_factory=list[str])
    """Its answers, oldest first."""
    idle_answers: int = 0
    """Answers in a row that asked for nothing and did not end the turn."""
    denied: bool = False
    """An ask was rejected without a remark."""
    interrupted: bool = False
    usage: Usage = field(default_factory=Usage)
    cost: int = 0

    @property
    def answer_id(self) -> str | None:
        """The newest answer of the turn."""
        return self.answer_ids[-1] if self.answer_ids else None


class SessionState:
    """The fold of a session's events. `apply` is the only place that changes it.

    A state that was opened from a checkpoint has a *partial* conversation: the open turn, what waits, and
    what came since. All else in it is as if it had been folded from the first event. Facts that come from
    processes which did not know of each other yet (a late reply, a prompt that was taken back when its turn
    had begun) change nothing.
    """

    __slots__ = (
        "asks",
        "causes",
        "conversation",
        "cost",
        "deleted",
        "grants",
        "held",
        "inherited",
        "last_finish",
        "made_changes",
        "open_changes",
        "queue",
        "seq",
        "session",
        "turn",
        "usage",
        "whole",
        "work_context",
    )

    def __init__(self) -> None:
        self.session: Session | None = None
        self.deleted = False
        self.seq = 0
        self.conversation = Conversation()
        self.causes = Causes()
        self.work_context = WorkContextFold()
        self.turn: TurnState | None = None
        self.queue: list[str] = []
        """Prompts that wait, by message id."""
        self.held = False
        self.asks: dict[str, Ask] = {}
        """Open asks by id."""
        self.grants: list[Rule] = []
        """What the person allowed for this session."""
        self.open_changes: dict[str, list[e.ChangeStarted]] = {}
        """Started changes whose end is not known, by call, oldest first."""
        self.made_changes: dict[str, list[e.ChangeApplied]] = {}
        """Changes that calls of the running turn made and did not report yet, by call."""
        self.last_finish: Finish | None = None
        """How the newest turn that is over ended."""
        self.inherited = 0
        """Index of the last event that came from another session; its usage was counted there."""
        self.usage = Usage()
        self.cost = 0
        self.whole = True
        """The conversation is all there, from the first event."""

    @property
    def info(self) -> Session:
        """The session's own fields; only after its first event."""
        if self.session is None:
            raise LookupError("a session's state was used before its first event")
        return self.session

    def unsettled_calls(self) -> list[CallState]:
        """The calls of the open turn that have no result yet, in order."""
        if self.turn is None:
            return []
        answers = (self.conversation.messages.get(answer_id) for answer_id in self.turn.answer_ids)
        return [call for answer in answers if answer for call in answer.calls if not call.settled]

    def adopt(self, full: "SessionState") -> None:
        """Take the whole conversation of a state that was folded from the first event to the same `seq`.

        Raises `ValueError` for any other state.
        """
        if not full.whole or full.seq != self.seq:
            raise ValueError(f"a state at {self.seq} can't adopt a conversation folded to {full.seq}")
        self.conversation, self.whole = full.conversation, True

    def apply(self, event: e.Event) -> None:
        """Fold one event."""
        self.seq = event.seq
        self.conversation.apply(event)
        self.work_context.apply(event)
        self.causes.apply(event)
        self._apply(event)
        if self.session is not None:
            self.session = self.session.model_copy(update={"seq": event.seq, "updated_at": event.at})

    def _apply(self, event: e.Event) -> None:
        payload = event.payload
        match payload:
            case e.SessionCreated():
                self._create(event, payload)
            case e.SessionUpdated():
                self._update(event, payload)
            case e.SessionDeleted():
                self.deleted = True
            case e.MessageReceived():
                # After an interrupt the queue is held: a new prompt goes first, then the queue goes on.
                self.queue.insert(0 if self.held else len(self.queue), payload.message_id)
                self.held = False
            case e.MessageUnqueued():
                self._dequeue(payload.message_id)
            case e.QueueHeld():
                self.held = bool(self.queue)
            case e.QueueReleased():
                self.held = False
            case e.TurnStarted():
                self._start(event, payload)
            case e.ContextConstructed():
                if self.turn:
                    self.turn.steps = payload.step
                    if payload.message_id != self.turn.answer_id:
                        self.turn.answer_ids.append(payload.message_id)
            case e.ModelResponded():
                self._respond(event, payload)
            case e.AskOpened():
                self.asks[payload.ask.id] = payload.ask
            case e.AskReplied():
                self._reply(payload)
            case e.InterruptRequested():
                if self.turn and self.turn.turn_id == payload.turn_id:
                    # What waits at this moment is held; a prompt that comes after it lets the queue go on.
                    self.turn.interrupted, self.held = True, bool(self.queue)
            case e.TurnEnded():
                self._end(payload)
            case e.ChangeStarted():
                self.open_changes.setdefault(payload.call_id, []).append(payload)
            case e.ChangeApplied():
                self._close_changes(payload.uri)
                if self.turn:
                    self.made_changes.setdefault(payload.call_id, []).append(payload)
            case e.ChangeObserved():
                self._close_changes(payload.uri)
            case e.ChangeRefused():
                self._close_changes(payload.uri, payload.call_id)
            case e.CallCompleted() | e.CallFailed():
                self.made_changes.pop(payload.call_id, None)
            case (
                e.PartStarted()
                | e.PartAppended()
                | e.PartEnded()
                | e.ModelFailed()
                | e.CallStarted()
                | e.WorkContextUpdated()
                | e.LogSalvaged()
                | e.UnknownPayload()
                | e.ErasedPayload()
            ):
                pass
            case _:
                assert_never(payload)

    def _create(self, event: e.Event, fact: e.SessionCreated) -> None:
        origin = fact.origin
        self.inherited = 0 if origin is None else origin.events
        forked = None
        if origin is not None and origin.kind == "fork":
            forked = ForkedFrom(session_id=origin.session_id, seq=origin.seq)
        self.session = Session(
            id=event.session or "",
            folder=fact.folder,
            title=fact.title,
            agent=fact.agent,
            model=fact.model,
            variant=fact.variant,
            mode=fact.mode,
            parent_id=fact.parent_id,
            forked_from=forked,
            created_at=event.at,
            updated_at=event.at,
            seq=event.seq,
        )

    def _update(self, event: e.Event, fact: e.SessionUpdated) -> None:
        named = {
            name: value
            for name in ("title", "agent", "model", "variant", "mode")
            if (value := getattr(fact, name)) is not None
        }
        if fact.archived is not None:
            named["archived_at"] = event.at if fact.archived else None
        self.session = self.info.model_copy(update=named)

    def _dequeue(self, message_id: str) -> None:
        if message_id in self.queue:
            self.queue.remove(message_id)

    def _start(self, event: e.Event, fact: e.TurnStarted) -> None:
        self._dequeue(fact.message_id)
        context = work_block.render(self.work_context)
        self.turn = TurnState(fact.turn_id, fact.message_id, fact.owner, event.seq, context)
        if prompt := self.conversation.messages.get(fact.message_id):
            prompt.context = context

    def _end(self, fact: e.TurnEnded) -> None:
        self.last_finish = fact.finish
        self.asks.clear()
        if self.turn and self.turn.turn_id == fact.turn_id:
            self.turn = None
            self.made_changes.clear()

    def _close_changes(self, uri: str, of_call: str | None = None) -> None:
        """What became of the changes of a file is known: of all of them, or of one call's."""
        for call_id in [of_call] if of_call is not None else list(self.open_changes):
            left = [change for change in self.open_changes.get(call_id, ()) if change.uri != uri]
            if left:
                self.open_changes[call_id] = left
            else:
                self.open_changes.pop(call_id, None)

    def _respond(self, event: e.Event, fact: e.ModelResponded) -> None:
        if event.index <= self.inherited:
            return
        self.usage = self.usage.plus(fact.usage)
        self.cost += fact.cost or 0
        if self.turn:
            self.turn.usage = self.turn.usage.plus(fact.usage)
            self.turn.cost += fact.cost or 0
            self.turn.idle_answers = 0 if fact.calls else self.turn.idle_answers + 1

    def _reply(self, fact: e.AskReplied) -> None:
        ask = self.asks.pop(fact.ask_id, None)
        if ask is None:
            return
        if fact.reply in ("session", "always") and ask.permission is not None:
            given = (Rule(ask.permission, always.pattern, "allow") for always in ask.always or ())
            self.grants += [rule for rule in given if rule not in self.grants]
        if (
            fact.reply == "reject"
            and not fact.message
            and fact.by in ("person", "timeout", "unattended")
            and self.turn
        ):
            self.turn.denied = True
