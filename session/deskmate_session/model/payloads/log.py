"""Facts about the log itself."""

from typing import ClassVar

from deskmate_session.model.base import Wire
from deskmate_session.model.payloads.base import Payload


class LostEvents(Wire):
    """Events that are gone, by `seq`."""

    first: int
    """The first `seq` that is gone."""
    last: int
    """The last one."""


class LogSalvaged(Payload):
    """A fact of the folder: the log was damaged, was set aside, and this one holds what could be kept."""

    type: ClassVar[str] = "log.salvaged"

    kept_as: str
    """File name of the damaged log, in the state folder."""
    events: int
    """Events that were kept."""
    lost: tuple[LostEvents, ...]
    """What is gone; empty where nothing was numbered."""
    sessions: tuple[str, ...]
    """Sessions that lost events."""
