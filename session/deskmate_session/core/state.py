"""A session's state: its two kernels, its lifecycle and its queue, folded from one stream of events."""

from dataclasses import dataclass, field
from typing import assert_never

from deskmate_session.core.causes import Causes
from deskmate_session.core.context import work_block
from deskmate_session.core.conversation import Conversation
from deskmate_session.core.work_context import WorkContextFold
from deskmate_session.model import events as e
from deskmate_session.model.messages import Ask, Session, Usage
from deskmate_session.model.permissions import Rule


@dataclass(slots=True)
class TurnState:
    """The turn that runs."""

    turn_id: str
    message_id: str
    owner: str
    started_seq: int
    steps: int = 0
    answer_id: str | None = None
    """The newest answer of the turn."""
    idle_answers: int = 0
    """Answers in a row that asked for nothing and did not end the turn."""
    denied: bool = False
    """An ask was rejected without a remark."""
    interrupted: bool = False
    usage: Usage = field(default_factory=Usage)
    cost: int = 0


class SessionState:
    """The fold of a session's events. `apply` is the only place that changes it."""

    __slots__ = (
        "asks",
        "causes",
        "conversation",
        "cost",
        "deleted",
        "grants",
        "held",
        "queue",
        "results",
        "seq",
        "session",
        "turn",
        "usage",
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
        self.results: dict[str, tuple[e.TurnEnded, int]] = {}
        """How turns ended, by prompt, with the `seq` of their end."""
        self.usage = Usage()
        self.cost = 0

    @property
    def info(self) -> Session:
        """The session's own fields; only after its first event."""
        if self.session is None:
            raise LookupError("a session's state was used before its first event")
        return self.session

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
            case e.TurnStarted():
                self._dequeue(payload.message_id)
                self.turn = TurnState(payload.turn_id, payload.message_id, payload.owner, event.seq)
                if prompt := self.conversation.messages.get(payload.message_id):
                    prompt.context = work_block.render(self.work_context)
            case e.ContextConstructed():
                if self.turn:
                    self.turn.steps, self.turn.answer_id = payload.step, payload.message_id
            case e.ModelResponded():
                self._respond(payload)
            case e.AskOpened():
                self.asks[payload.ask.id] = payload.ask
            case e.AskReplied():
                self._reply(payload)
            case e.InterruptRequested():
                if self.turn and self.turn.turn_id == payload.turn_id:
                    self.turn.interrupted = True
            case e.TurnEnded():
                self.results[payload.message_id] = (payload, event.seq)
                self.turn = None
                self.asks.clear()
            case (
                e.PartStarted()
                | e.PartAppended()
                | e.PartEnded()
                | e.ModelFailed()
                | e.CallStarted()
                | e.CallCompleted()
                | e.CallFailed()
                | e.ChangeStarted()
                | e.ChangeApplied()
                | e.ChangeRefused()
                | e.WorkContextUpdated()
                | e.UnknownPayload()
            ):
                pass
            case _:
                assert_never(payload)

    def _create(self, event: e.Event, fact: e.SessionCreated) -> None:
        self.session = Session(
            id=event.session or "",
            folder=fact.folder,
            title=fact.title,
            agent=fact.agent,
            model=fact.model,
            variant=fact.variant,
            mode=fact.mode,
            parent_id=fact.parent_id,
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

    def _respond(self, fact: e.ModelResponded) -> None:
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
            self.grants += [Rule(ask.permission, always.pattern, "allow") for always in ask.always or ()]
        if (
            fact.reply == "reject"
            and not fact.message
            and fact.by in ("person", "timeout", "unattended")
            and self.turn
        ):
            self.turn.denied = True
