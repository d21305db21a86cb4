"""Kernel one, the conversation: messages, their parts and calls, folded from events.

It answers what was said, asked and done; which bytes a file holds now is kernel two's matter.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from deskmate_session.core import lifecycle
from deskmate_session.errors import FailureKind
from deskmate_session.model import events as e
from deskmate_session.model.messages import (
    AnswerFinish,
    CallStatus,
    FilePart,
    ReasoningPart,
    TextPart,
    ToolPart,
    TurnError,
    Usage,
)
from deskmate_session.model.ports import ModelMessage


@dataclass(slots=True)
class TextState:
    """Text or reasoning; `chunks` joined are its text as far as it is logged."""

    id: str
    kind: Literal["text", "reasoning"]
    chunks: list[str] = field(default_factory=list[str])
    label: str | None = None
    synthetic: bool | None = None
    signature: str | None = None
    redacted: str | None = None

    @property
    def text(self) -> str:
        """The whole text; joined once and kept."""
        if len(self.chunks) > 1:
            self.chunks = ["".join(self.chunks)]
        return self.chunks[0] if self.chunks else ""


@dataclass(slots=True)
class CallState:
    """One tool call."""

    id: str
    call_id: str
    tool: str
    message_id: str
    status: CallStatus = "pending"
    requested: bool = False
    """The answer that holds it is complete, so the model is owed a result."""
    args: Any = None
    """As the model gave them."""
    ran_args: Any = None
    """As they ran, where that is logged whole."""
    output: str | None = None
    title: str | None = None
    success: bool | None = None
    exit_code: int | None = None
    truncated: bool | None = None
    output_file: str | None = None
    error: str | None = None
    error_kind: FailureKind | None = None
    interrupted: bool | None = None
    timed_out: bool | None = None
    outcome_unknown: bool | None = None
    rejected_by: Literal["person", "rule", "hook"] | None = None
    metadata: dict[str, Any] | None = None
    started_at: int | None = None
    ended_at: int | None = None

    @property
    def settled(self) -> bool:
        """It has its result."""
        return self.status in lifecycle.SETTLED


PartState = TextState | CallState | FilePart


@dataclass(slots=True)
class MessageState:
    """A prompt or an answer."""

    id: str
    role: Literal["user", "assistant"]
    seq: int
    agent: str
    model: str
    created_at: int
    parent_id: str | None = None
    step: int = 0
    parts: list[PartState] = field(default_factory=list[PartState])
    completed_at: int | None = None
    finish: AnswerFinish | None = None
    error: TurnError | None = None
    usage: Usage | None = None
    cost: int | None = None
    queued: bool = False
    context: str | None = None
    """The work-context block that was sent with this prompt."""
    projected: tuple[ModelMessage, ...] | None = None
    """How the model sees it, once it can't change any more; kept so that no step pays for history."""

    @property
    def calls(self) -> list[CallState]:
        """Its calls, in order."""
        return [part for part in self.parts if isinstance(part, CallState)]


class Conversation:
    """The fold. Events that it does not read leave it alone.

    It may be partial: the older messages of a session that was opened from a checkpoint are not at hand.
    """

    __slots__ = ("calls", "messages")

    def __init__(self) -> None:
        self.messages: dict[str, MessageState] = {}
        """By id, in the order in which they were delivered; those that wait are last."""
        self.calls: dict[str, CallState] = {}

    def apply(self, event: e.Event) -> None:
        """Fold one event. Facts about unknown messages or illegal moves change nothing."""
        match event.payload:
            case e.MessageReceived() as fact:
                self._receive(event, fact)
            case e.ContextConstructed() as fact:
                self.messages[fact.message_id] = MessageState(
                    id=fact.message_id,
                    role="assistant",
                    seq=event.seq,
                    agent=fact.agent,
                    model=fact.model,
                    created_at=event.at,
                    parent_id=fact.parent_id,
                    step=fact.step,
                )
            case e.PartStarted() as fact:
                self._start_part(fact)
            case e.PartAppended() as fact:
                if isinstance(part := self.part(fact.message_id, fact.part_id), TextState):
                    part.chunks.append(fact.text)
            case e.PartEnded() as fact:
                if isinstance(part := self.part(fact.message_id, fact.part_id), TextState):
                    part.signature, part.redacted = fact.signature, fact.redacted
            case e.ModelResponded() as fact:
                self._respond(event, fact)
            case e.ModelFailed() as fact:
                if message := self.messages.get(fact.message_id):
                    message.error, message.completed_at = fact.error, event.at
            case e.CallStarted() as fact:
                if call := self._move(fact.call_id, "start"):
                    call.started_at = event.at
                    call.ran_args = None if _is_hash(fact.args) else fact.args
            case e.CallCompleted() as fact:
                self._complete(event, fact)
            case e.CallFailed() as fact:
                self._fail(event, fact)
            case e.TurnStarted() as fact:
                if message := self.messages.pop(fact.message_id, None):
                    # A prompt that waited is answered after those before it: it stands where it is delivered.
                    message.queued = False
                    self.messages[message.id] = message
            case e.MessageUnqueued() as fact:
                # A prompt that is being answered can't be taken back, whoever asked for it and when.
                if (message := self.messages.get(fact.message_id)) and message.queued:
                    del self.messages[fact.message_id]
            case _:
                pass

    def part(self, message_id: str, part_id: str) -> PartState | None:
        """A part by its ids; the newest first, since that is the one that streams."""
        message = self.messages.get(message_id)
        if message is None:
            return None
        return next((part for part in reversed(message.parts) if part.id == part_id), None)

    def answers(self, prompt_id: str) -> list[MessageState]:
        """The answers to a prompt, in order. Walks back from the newest message."""
        found: list[MessageState] = []
        for message in reversed(self.messages.values()):
            if message.parent_id == prompt_id:
                found.append(message)
            elif message.id == prompt_id:
                break
        return found[::-1]

    def _receive(self, event: e.Event, fact: e.MessageReceived) -> None:
        message = MessageState(
            id=fact.message_id,
            role="user",
            seq=event.seq,
            agent=fact.agent,
            model=fact.model,
            created_at=event.at,
            completed_at=event.at,
            queued=True,
        )
        for part in fact.parts:
            match part:
                case TextPart():
                    message.parts.append(
                        TextState(part.id, "text", [part.text], label=part.label, synthetic=part.synthetic)
                    )
                case FilePart():
                    message.parts.append(part)
                case ReasoningPart() | ToolPart():
                    pass  # a prompt never holds these
        self.messages[fact.message_id] = message

    def _start_part(self, fact: e.PartStarted) -> None:
        message = self.messages.get(fact.message_id)
        if message is None:
            return
        match fact.part:
            case TextPart() as part:
                message.parts.append(
                    TextState(part.id, "text", [part.text] if part.text else [], synthetic=part.synthetic)
                )
            case ReasoningPart() as part:
                message.parts.append(TextState(part.id, "reasoning", [part.text] if part.text else []))
            case ToolPart() as part:
                call = CallState(part.id, part.call_id, part.tool, fact.message_id)
                message.parts.append(call)
                self.calls[part.call_id] = call
            case FilePart() as part:
                message.parts.append(part)

    def _respond(self, event: e.Event, fact: e.ModelResponded) -> None:
        message = self.messages.get(fact.message_id)
        if message is None:
            return
        message.finish, message.usage, message.cost = fact.finish, fact.usage, fact.cost
        message.completed_at = event.at
        for requested in fact.calls:
            if call := self.calls.get(requested.call_id):
                call.requested, call.args = True, requested.args

    def _move(self, call_id: str, by: lifecycle.CallMove) -> CallState | None:
        call = self.calls.get(call_id)
        status = call and lifecycle.move(call.status, by)
        if call is None or status is None:
            return None
        call.status = status
        return call

    def _complete(self, event: e.Event, fact: e.CallCompleted) -> None:
        if call := self._move(fact.call_id, "complete"):
            call.output, call.title, call.success = fact.output, fact.title, fact.success
            call.exit_code, call.truncated, call.output_file = (
                fact.exit_code,
                fact.truncated,
                fact.output_file,
            )
            call.metadata, call.ended_at = fact.metadata, event.at

    def _fail(self, event: e.Event, fact: e.CallFailed) -> None:
        if call := self._move(fact.call_id, "fail"):
            call.success, call.error, call.error_kind, call.output = False, fact.error, fact.kind, fact.output
            call.interrupted, call.timed_out = fact.interrupted, fact.timed_out
            call.outcome_unknown, call.rejected_by = fact.outcome_unknown, fact.rejected_by
            call.ended_at = event.at


def _is_hash(args: Any) -> bool:
    """Large arguments stand once, in the answer; where they run only their hash is logged."""
    return isinstance(args, dict) and args.keys() == {"sha256"}
