"""Facts about a session as a whole."""

from typing import ClassVar, Literal

from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Mode
from deskmate_session.model.payloads.base import Payload

OriginKind = Literal["fork", "import"]


class Origin(Wire):
    """Where a session's first events come from."""

    kind: OriginKind
    session_id: str
    """The session there."""
    seq: int
    """Its last event that counts."""
    hash: str
    """The chain's hash at that event (hex)."""
    events: int
    """Inherited events: so many follow the first one."""


class SessionCreated(Payload):
    """A session began."""

    type: ClassVar[str] = "session.created"

    folder: str
    """File URI of the workspace folder."""
    title: str
    agent: str
    model: str
    """`provider/model`."""
    variant: str | None = None
    mode: Mode = "ask"
    parent_id: str | None = None
    origin: Origin | None = None
    """Of a fork or an import; absent: it began empty."""


class SessionUpdated(Payload):
    """Fields of the session changed; absent ones did not."""

    type: ClassVar[str] = "session.updated"

    title: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mode: Mode | None = None
    archived: bool | None = None


class SessionDeleted(Payload):
    """The session is gone from lists and can't be opened; its events stay in the log."""

    type: ClassVar[str] = "session.deleted"
