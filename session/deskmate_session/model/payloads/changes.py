"""What became of files."""

from typing import ClassVar, Literal

from deskmate_session.model.edits import Via
from deskmate_session.model.payloads.base import WORK_CONTEXT, Fold, Payload


class ChangeStarted(Payload):
    """A file is about to be changed; logged durably before the write."""

    type: ClassVar[str] = "change.started"

    call_id: str
    uri: str
    before: str | None = None
    """Object hash of the content before; absent: the file does not exist."""
    after: str | None = None
    """Object hash of the content to be."""
    via: Via


class ChangeApplied(Payload):
    """A file was changed."""

    type: ClassVar[str] = "change.applied"

    call_id: str
    uri: str
    before: str | None = None
    after: str | None = None
    """Object hash of what the file or buffer holds afterwards."""
    via: Via
    client_answer: str | None = None
    verified: bool
    """The synced text or the disk was seen to hold the change."""
    saved: bool


class ChangeRefused(Payload):
    """A started change was not made: the editor refused it, or the write failed."""

    type: ClassVar[str] = "change.refused"

    call_id: str
    uri: str
    via: Via
    reason: str


class ChangeObserved(Payload):
    """A started change whose end was not logged was seen later: the file or buffer holds `after`."""

    type: ClassVar[str] = "change.observed"

    call_id: str
    uri: str
    before: str | None = None
    after: str | None = None
    """Object hash of what was seen."""
    via: Via
    by: Literal["recovery", "editor"]
    """Who saw it: recovery on the disk, or an editor's document."""


class WorkContextUpdated(Payload):
    """A file of the work context changed."""

    type: ClassVar[str] = "workContext.updated"
    folds: ClassVar[frozenset[Fold]] = WORK_CONTEXT

    uri: str
    change: Literal["created", "modified", "deleted"]
    before: str | None = None
    """SHA-256 of the text before."""
    after: str | None = None
    by: str
    """The call that changed it."""
