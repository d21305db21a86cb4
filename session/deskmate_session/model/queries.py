"""What clients ask the kernel to tell; params and results of the wire's methods."""

from typing import Any, Literal

from pydantic import Field

from deskmate_session.model.base import Wire
from deskmate_session.model.events import LoggedEvent
from deskmate_session.model.messages import Ask, Message, Queue, Session, SessionStatus, Usage, WorkContext


class ListSessions(Wire):
    """`deskmate/session/list`."""

    folder: str | None = None
    archived: bool | None = None
    query: str | None = None
    cursor: str | None = Field(default=None, pattern=r"^(\d{1,18}|x)(\.(\d{1,18}|x))*$")
    """`nextCursor` of the page before."""
    limit: int = Field(default=50, ge=1, le=500)


class GetSession(Wire):
    """`deskmate/session/get`."""

    session_id: str


class SessionDetails(Wire):
    """A session with everything that is not messages."""

    session: Session
    status: SessionStatus
    queue: Queue
    asks: tuple[Ask, ...]
    todos: tuple[str, ...] = ()
    usage: Usage
    work_context: WorkContext


class ListMessages(Wire):
    """`deskmate/session/messages`: without bounds the newest page; oldest first inside a page."""

    session_id: str
    before: int | None = None
    after: int | None = None
    limit: int = Field(default=50, ge=1, le=500)


class MessagePage(Wire):
    """A page of messages; `has_more`: there are further ones in the direction that was read."""

    messages: tuple[Message, ...]
    has_more: bool


class ListEvents(Wire):
    """`deskmate/session/events`."""

    session_id: str | None = None
    folder: str | None = None
    after_seq: int = Field(default=0, ge=0)
    limit: int = Field(default=1000, ge=1, le=1000)
    types: tuple[str, ...] | None = None


class EventPage(Wire):
    """A page of events; `next_seq`: pass it as `afterSeq` for more."""

    events: tuple[LoggedEvent, ...]
    next_seq: int | None = None


class StateAt(Wire):
    """`deskmate/session/stateAt`: at `seq`, or at a time; without either as it stands now."""

    session_id: str
    seq: int | None = Field(default=None, ge=0)
    at: int | None = Field(default=None, ge=0)
    """Milliseconds since the epoch."""
    before: int | None = None
    """Messages before this `seq`; the newest ones without it."""
    limit: int = Field(default=50, ge=1, le=500)


class Difference(Wire):
    """A value that an event changed; an absent side was not there."""

    path: str
    """Such as `messages[msg_1].parts[prt_2].state.status`."""
    before: Any = None
    after: Any = None


class ChangedBy(Wire):
    """What an event changed in each fold."""

    type: str
    """The event's."""
    conversation: tuple[Difference, ...]
    """The messages."""
    work_context: tuple[Difference, ...]
    """The files and commands."""
    lifecycle: tuple[Difference, ...]
    """The session's own fields, its turn, queue, asks, grants and counters."""


class SessionAt(Wire):
    """A session as it stood after the event `seq`."""

    seq: int
    messages: tuple[Message, ...]
    has_more: bool
    """There are messages before the first one."""
    work_context: WorkContext
    todos: tuple[str, ...] = ()
    changed_by: ChangedBy
    """What that event changed."""


class Export(Wire):
    """`deskmate/session/export`."""

    session_id: str
    format: Literal["jsonl", "markdown"] = "jsonl"
    """JSON lines can be taken in elsewhere; Markdown is for people."""
    to_uri: str | None = None
    """A file to write; needed for more than 4 MB."""
    redact: tuple[str, ...] = ()
    """Texts that must not go out: an event that holds one goes without its payload (JSON lines only)."""


class Exported(Wire):
    """`data`, or the file that was written."""

    data: str | None = None
    """The session; absent where it went to a file."""
    uri: str | None = None
    bytes: int
    """Of the session as it was written."""


class Subscribe(Wire):
    """`deskmate/session/subscribe`."""

    session_id: str | None = None
    folder: str | None = None
    from_seq: int | None = Field(default=None, ge=0)
    from_event_id: str | None = None
    partial_result_token: str | int


class Subscribed(Wire):
    """`seq`: the newest event that the replay covers."""

    seq: int


class Unsubscribe(Wire):
    """`deskmate/session/unsubscribe`."""

    token: str | int


class Diff(Wire):
    """`deskmate/session/diff`."""

    session_id: str
    message_id: str | None = None
    from_seq: int | None = None
    to_seq: int | None = None


class Verify(Wire):
    """`deskmate/session/verify`."""

    session_id: str | None = None
    folder: str | None = None


class ListAsks(Wire):
    """`deskmate/ask/list`."""

    session_id: str | None = None


class AskList(Wire):
    """The open asks."""

    asks: tuple[Ask, ...]


class GetCatalog(Wire):
    """`deskmate/catalog`."""

    folder: str | None = None


class CatalogAgent(Wire):
    """An agent that a session can use."""

    name: str
    description: str


class CatalogModel(Wire):
    """A model that a session can use."""

    id: str
    """`provider/model`."""
    variants: tuple[str, ...] = ()
    context_window: int | None = None


class CatalogTool(Wire):
    """A tool that the model is offered."""

    name: str
    description: str


class Catalog(Wire):
    """What there is in a folder."""

    agents: tuple[CatalogAgent, ...]
    models: tuple[CatalogModel, ...]
    commands: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    tools: tuple[CatalogTool, ...]
    mcp: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
