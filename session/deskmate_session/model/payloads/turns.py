"""From a prompt to the end of its turn."""

from typing import ClassVar, Literal

from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Delivery, Finish, Part, TurnError, Usage
from deskmate_session.model.payloads.base import BOTH, CONVERSATION, Fold, Payload


class MessageReceived(Payload):
    """A prompt was accepted; from here on it is never lost."""

    type: ClassVar[str] = "message.received"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    delivery: Delivery
    parts: tuple[Part, ...]
    agent: str
    model: str
    variant: str | None = None


class MessageUnqueued(Payload):
    """A waiting prompt was taken back."""

    type: ClassVar[str] = "message.unqueued"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str


class QueueHeld(Payload):
    """Waiting prompts stay until a new prompt comes."""

    type: ClassVar[str] = "queue.held"

    reason: Literal["interrupted", "error", "crash"]


class QueueReleased(Payload):
    """The person let a held queue go on."""

    type: ClassVar[str] = "queue.released"


class TurnStarted(Payload):
    """A prompt was delivered: its turn began."""

    type: ClassVar[str] = "turn.started"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    turn_id: str
    message_id: str
    owner: str
    """The process that runs it; recovery settles it once that process is gone."""


class LeftOut(Wire):
    """Something that a request does not hold."""

    what: str
    why: str


class ContextConstructed(Payload):
    """A request to the model was built; its answer is message `messageId`."""

    type: ClassVar[str] = "context.constructed"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    parent_id: str
    """The prompt that is being answered."""
    step: int
    """1 for the first request of a turn."""
    agent: str
    model: str
    policy: Literal["full", "window"]
    history_rounds: int
    """Turns that the request holds."""
    work_context_files: tuple[str, ...]
    tool_results: int
    """Results that the request holds."""
    token_count: int
    """Estimated tokens of the request."""
    left_out: tuple[LeftOut, ...] = ()
    request_hash: str
    """SHA-256 of the request's bytes as they were sent."""
    transforms: tuple[str, ...] = ()
    versions: dict[str, str]
    """Versions or hashes of what shaped the request: prompt, tools, configuration."""


class InterruptRequested(Payload):
    """The person stopped a turn."""

    type: ClassVar[str] = "interrupt.requested"

    turn_id: str


class TurnEnded(Payload):
    """A turn is over."""

    type: ClassVar[str] = "turn.ended"
    folds: ClassVar[frozenset[Fold]] = BOTH

    turn_id: str
    message_id: str
    """The prompt's id."""
    finish: Finish
    error: TurnError | None = None
    usage: Usage
    cost: int
    """Micro-dollars."""
    steps: int
