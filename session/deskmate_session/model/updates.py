"""`Update`: what a client is shown while work goes on. One for each logged event, plus deltas."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator

from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Ask, FileDiff, Message, Part, Queue, Session, Usage, WorkContext


class Updated(Wire):
    """The base: `seq` is there where the update comes from a logged event."""

    session_id: str | None = None
    seq: int | None = None


class AcceptedUpdate(Updated):
    """The prompt is durable in the log; the first update of a prompt."""

    kind: Literal["accepted"] = "accepted"
    message_id: str


class MessageUpdate(Updated):
    """A message was created or its own fields changed."""

    kind: Literal["message"] = "message"
    message: Message


class PartUpdate(Updated):
    """A part was created or changed; the whole part."""

    kind: Literal["part"] = "part"
    message_id: str
    part: Part


class StatusUpdate(Updated):
    """What the session is doing now."""

    kind: Literal["status"] = "status"
    status: Literal["idle", "busy", "waiting", "retrying", "compacting", "stopping"]
    attempt: int | None = None
    message: str | None = None
    next_at: int | None = None


class AskUpdate(Updated):
    """The person is asked something."""

    kind: Literal["ask"] = "ask"
    ask: Ask


class AskResolvedUpdate(Updated):
    """An ask is settled."""

    kind: Literal["askResolved"] = "askResolved"
    ask_id: str
    reply: str
    by: str


class QueueUpdate(Updated):
    """The prompts that wait."""

    kind: Literal["queue"] = "queue"
    queue: Queue


class ChangesUpdate(Updated):
    """Files that the session changed."""

    kind: Literal["changes"] = "changes"
    files: tuple[FileDiff, ...]


class UsageUpdate(Updated):
    """The session's usage so far."""

    kind: Literal["usage"] = "usage"
    usage: Usage


class SessionUpdate(Updated):
    """The session's own fields changed, or it was deleted."""

    kind: Literal["session"] = "session"
    session: Session
    deleted: bool | None = None


class WorkContextUpdate(Updated):
    """The work context changed."""

    kind: Literal["workContext"] = "workContext"
    work_context: WorkContext


class LoggedUpdate(Updated):
    """A logged event that no other kind shows."""

    kind: Literal["logged"] = "logged"
    type: str


Update = Annotated[
    AcceptedUpdate
    | MessageUpdate
    | PartUpdate
    | StatusUpdate
    | AskUpdate
    | AskResolvedUpdate
    | QueueUpdate
    | ChangesUpdate
    | UsageUpdate
    | SessionUpdate
    | WorkContextUpdate
    | LoggedUpdate,
    Discriminator("kind"),
]


@dataclass(slots=True)
class Delta:
    """`{kind:"delta"}`: text to append to a part. For the eyes only, never logged, no `seq`."""

    session_id: str
    message_id: str
    part_id: str
    field: Literal["text", "input", "output"]
    offset: int
    """Where the text begins, in Unicode code points."""
    text: str

    def dump(self) -> dict[str, Any]:
        """The JSON object as it goes over the wire."""
        return {
            "kind": "delta",
            "sessionId": self.session_id,
            "messageId": self.message_id,
            "partId": self.part_id,
            "field": self.field,
            "offset": self.offset,
            "text": self.text,
        }
