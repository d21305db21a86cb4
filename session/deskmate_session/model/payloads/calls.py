"""What calls did, and what the person was asked about them."""

from typing import Any, ClassVar, Literal

from deskmate_session.errors import FailureKind
from deskmate_session.model.base import Wire
from deskmate_session.model.messages import Ask
from deskmate_session.model.payloads.base import BOTH, CONVERSATION, Fold, Payload


class CallStarted(Payload):
    """A call runs from here on."""

    type: ClassVar[str] = "call.started"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    call_id: str
    tool: str
    args: Any
    """As they run; `{"sha256": …}` of their canonical JSON when over 2 KB."""


class ReadFile(Wire):
    """A file that a call read."""

    uri: str
    hash: str
    """SHA-256 of the text in UTF-8."""


class CallCompleted(Payload):
    """A call returned."""

    type: ClassVar[str] = "call.completed"
    folds: ClassVar[frozenset[Fold]] = BOTH

    call_id: str
    tool: str
    success: bool
    """False for a command that ended with another exit code than 0."""
    output: str
    """What the model is told."""
    title: str | None = None
    exit_code: int | None = None
    truncated: bool | None = None
    output_file: str | None = None
    reads: tuple[ReadFile, ...] = ()
    command: str | None = None
    """The command, where the call ran one."""
    metadata: dict[str, Any] | None = None


class CallFailed(Payload):
    """A call did not return a result."""

    type: ClassVar[str] = "call.failed"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    call_id: str
    tool: str
    success: Literal[False] = False
    kind: FailureKind
    error: str
    """What the model is told."""
    output: str | None = None
    """What the call had printed before it was cut."""
    interrupted: bool | None = None
    timed_out: bool | None = None
    outcome_unknown: bool | None = None
    rejected_by: Literal["person", "rule", "hook"] | None = None


class AskOpened(Payload):
    """The person is asked something."""

    type: ClassVar[str] = "ask.opened"

    ask: Ask


class AskReplied(Payload):
    """An ask is settled."""

    type: ClassVar[str] = "ask.replied"

    ask_id: str
    reply: Literal["once", "session", "always", "reject"]
    by: Literal["person", "timeout", "unattended", "interrupt", "recovery"]
    """*unattended*: nobody can be asked where this ran."""
    message: str | None = None
    """A remark for the model."""
    input: dict[str, Any] | None = None
    """The arguments to run in place of the model's."""
