"""The closed union of facts: what the log holds. The payloads themselves stand in `payloads.py`."""

from dataclasses import dataclass
from typing import Any

from deskmate_session.model.base import Wire
from deskmate_session.model.payloads import (
    AskOpened as AskOpened,
)
from deskmate_session.model.payloads import (
    AskReplied as AskReplied,
)
from deskmate_session.model.payloads import (
    CallCompleted as CallCompleted,
)
from deskmate_session.model.payloads import (
    CallFailed as CallFailed,
)
from deskmate_session.model.payloads import (
    CallRequested as CallRequested,
)
from deskmate_session.model.payloads import (
    CallStarted as CallStarted,
)
from deskmate_session.model.payloads import (
    ChangeApplied as ChangeApplied,
)
from deskmate_session.model.payloads import (
    ChangeObserved as ChangeObserved,
)
from deskmate_session.model.payloads import (
    ChangeRefused as ChangeRefused,
)
from deskmate_session.model.payloads import (
    ChangeStarted as ChangeStarted,
)
from deskmate_session.model.payloads import (
    ContextConstructed as ContextConstructed,
)
from deskmate_session.model.payloads import (
    Fold as Fold,
)
from deskmate_session.model.payloads import (
    InterruptRequested as InterruptRequested,
)
from deskmate_session.model.payloads import (
    LeftOut as LeftOut,
)
from deskmate_session.model.payloads import (
    LogSalvaged as LogSalvaged,
)
from deskmate_session.model.payloads import (
    LostEvents as LostEvents,
)
from deskmate_session.model.payloads import (
    MessageReceived as MessageReceived,
)
from deskmate_session.model.payloads import (
    MessageUnqueued as MessageUnqueued,
)
from deskmate_session.model.payloads import (
    ModelFailed as ModelFailed,
)
from deskmate_session.model.payloads import (
    ModelResponded as ModelResponded,
)
from deskmate_session.model.payloads import (
    PartAppended as PartAppended,
)
from deskmate_session.model.payloads import (
    PartEnded as PartEnded,
)
from deskmate_session.model.payloads import (
    PartStarted as PartStarted,
)
from deskmate_session.model.payloads import (
    Payload as Payload,
)
from deskmate_session.model.payloads import (
    QueueHeld as QueueHeld,
)
from deskmate_session.model.payloads import (
    QueueReleased as QueueReleased,
)
from deskmate_session.model.payloads import (
    ReadFile as ReadFile,
)
from deskmate_session.model.payloads import (
    SessionCreated as SessionCreated,
)
from deskmate_session.model.payloads import (
    SessionDeleted as SessionDeleted,
)
from deskmate_session.model.payloads import (
    SessionUpdated as SessionUpdated,
)
from deskmate_session.model.payloads import (
    TurnEnded as TurnEnded,
)
from deskmate_session.model.payloads import (
    TurnStarted as TurnStarted,
)
from deskmate_session.model.payloads import (
    UnknownPayload as UnknownPayload,
)
from deskmate_session.model.payloads import (
    WorkContextUpdated as WorkContextUpdated,
)

EventPayload = (
    SessionCreated
    | SessionUpdated
    | SessionDeleted
    | MessageReceived
    | TurnStarted
    | ContextConstructed
    | PartStarted
    | PartAppended
    | PartEnded
    | ModelResponded
    | ModelFailed
    | CallStarted
    | CallCompleted
    | CallFailed
    | ChangeStarted
    | ChangeApplied
    | ChangeRefused
    | ChangeObserved
    | WorkContextUpdated
    | AskOpened
    | AskReplied
    | InterruptRequested
    | MessageUnqueued
    | QueueHeld
    | QueueReleased
    | TurnEnded
    | LogSalvaged
    | UnknownPayload
)
"""Every fact there is. `match` over it ends in `assert_never`."""

EVENT_TYPES: dict[str, type[EventPayload]] = {
    cls.type: cls
    for cls in (
        SessionCreated,
        SessionUpdated,
        SessionDeleted,
        MessageReceived,
        TurnStarted,
        ContextConstructed,
        PartStarted,
        PartAppended,
        PartEnded,
        ModelResponded,
        ModelFailed,
        CallStarted,
        CallCompleted,
        CallFailed,
        ChangeStarted,
        ChangeApplied,
        ChangeRefused,
        ChangeObserved,
        WorkContextUpdated,
        AskOpened,
        AskReplied,
        InterruptRequested,
        MessageUnqueued,
        QueueHeld,
        QueueReleased,
        TurnEnded,
        LogSalvaged,
    )
}
"""Tag → payload class; a test compares it with `EventPayload`."""

REQUESTS = (
    SessionCreated,
    SessionUpdated,
    SessionDeleted,
    MessageReceived,
    MessageUnqueued,
    InterruptRequested,
    AskReplied,
    QueueReleased,
)
"""What the person asks for. Any process may append these; all other facts of a session are its lease
holder's."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A fact that is not in the log yet."""

    payload: EventPayload
    cause: str | None = None
    """Id of the event that led to it."""
    debug_tag: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """A fact in the log."""

    seq: int
    """Position in the folder's log; the only order there is."""
    id: str
    session: str | None
    """Absent for a fact of the folder."""
    index: int
    """Position in the session, from 0, without a gap."""
    type: str
    version: int
    at: int
    """Milliseconds since the epoch."""
    payload: EventPayload
    cause: str | None
    prev: str
    """The session's previous hash (hex); 64 zeros at first."""
    hash: str
    debug_tag: str | None = None


class LoggedEvent(Wire):
    """An event as it goes over the wire."""

    seq: int
    id: str
    session_id: str | None = None
    index: int
    type: str
    version: int
    at: int
    payload: dict[str, Any]
    cause: str | None = None
    prev: str
    hash: str
    debug_tag: str | None = None
