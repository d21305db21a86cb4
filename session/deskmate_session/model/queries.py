"""What clients ask the kernel to tell; params and results of the wire's methods."""

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
