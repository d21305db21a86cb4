"""The closed union of facts: what the log holds. The payloads themselves stand in `payloads/`."""

from dataclasses import dataclass
from typing import Any

from deskmate_session.model.base import Wire
from deskmate_session.model.payloads.answers import (
    CallRequested as CallRequested,
    ModelFailed as ModelFailed,
    ModelResponded as ModelResponded,
    PartAppended as PartAppended,
    PartEnded as PartEnded,
    PartStarted as PartStarted,
)
from deskmate_session.model.payloads.base import (
    ErasedPayload as ErasedPayload,
    Fold as Fold,
    Payload as Payload,
    UnknownPayload as UnknownPayload,
)
from deskmate_session.model.payloads.calls import (
    AskOpened as AskOpened,
    AskReplied as AskReplied,
    CallCompleted as CallCompleted,
    CallFailed as CallFailed,
    CallStarted as CallStarted,
    ReadFile as ReadFile,
)
from deskmate_session.model.payloads.changes import (
    ChangeApplied as ChangeApplied,
    ChangeObserved as ChangeObserved,
    ChangeRefused as ChangeRefused,
    ChangeStarted as ChangeStarted,
    WorkContextUpdated as WorkContextUpdated,
)
from deskmate_session.model.payloads.log import (
    LogSalvaged as LogSalvaged,
    LostEvents as LostEvents,
)
from deskmate_session.model.payloads.sessions import (
    Origin as Origin,
    OriginKind as OriginKind,
    SessionCreated as SessionCreated,
    SessionDeleted as SessionDeleted,
    SessionUpdated as SessionUpdated,
)
from deskmate_session.model.payloads.turns import (
    ContextConstructed as ContextConstructed,
    InterruptRequested as InterruptRequested,
    LeftOut as LeftOut,
    MessageReceived as MessageReceived,
    MessageUnqueued as MessageUnqueued,
    QueueHeld as QueueHeld,
    QueueReleased as QueueReleased,
    TurnEnded as TurnEnded,
    TurnStarted as TurnStarted,
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
    | ErasedPayload
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
    id: str | None = None
    """Where another fact of the same append names it; else the log gives one."""
    at: int | None = None
    """When it was, for what was logged elsewhere before; else now."""


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
