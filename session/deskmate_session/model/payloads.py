"""The payloads of the log's facts, one class each.

Past tense, frozen, a stable tag (`type`), a version. `folds` names the kernels that read the fact:
`conversation`, `workContext`, both or none. Our own fields hold no floats.
"""

from typing import Any, ClassVar, Literal

from deskmate_session.errors import FailureKind
from deskmate_session.model.base import Wire
from deskmate_session.model.edits import Via
from deskmate_session.model.messages import (
    AnswerFinish,
    Ask,
    Delivery,
    Finish,
    Mode,
    Part,
    TurnError,
    Usage,
)

Fold = Literal["conversation", "workContext"]
CONVERSATION: frozenset[Fold] = frozenset({"conversation"})
WORK_CONTEXT: frozenset[Fold] = frozenset({"workContext"})
BOTH: frozenset[Fold] = CONVERSATION | WORK_CONTEXT
NONE: frozenset[Fold] = frozenset()


class Payload(Wire):
    """The base of every event's payload."""

    type: ClassVar[str]
    version: ClassVar[int] = 1
    folds: ClassVar[frozenset[Fold]] = NONE


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


class PartStarted(Payload):
    """A part of an answer began; streamed parts are announced empty."""

    type: ClassVar[str] = "part.started"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part: Part


class PartAppended(Payload):
    """A batch of streamed text."""

    type: ClassVar[str] = "part.appended"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part_id: str
    offset: int
    """Where the text begins, in Unicode code points."""
    text: str


class PartEnded(Payload):
    """A streamed part is complete; its text stands in the batches."""

    type: ClassVar[str] = "part.ended"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    part_id: str
    length: int
    """Code points."""
    hash: str
    """SHA-256 of the text in UTF-8."""
    signature: str | None = None
    """The provider's signature of a reasoning part; goes back byte-identical to the same model."""
    redacted: str | None = None
    """Reasoning that the provider shows only encrypted."""


class CallRequested(Wire):
    """A call as the model asked for it."""

    call_id: str
    tool: str
    args: Any
    """The parsed object; the raw text where it was no JSON object."""
    provider_id: str | None = None
    """The provider's id of the call; it may repeat, ours does not."""


class ModelResponded(Payload):
    """An answer is complete; its calls are pending from here on."""

    type: ClassVar[str] = "model.responded"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    step: int
    kind: Literal["toolCalls", "text"]
    calls: tuple[CallRequested, ...]
    finish: AnswerFinish
    usage: Usage
    cost: int | None = None
    """Micro-dollars; absent when the price is unknown."""
    confidence: Literal["deterministic", "nonDeterministic"]
    """*deterministic*: it holds a call."""


class ModelFailed(Payload):
    """A request failed; its parts are voided and never sent again."""

    type: ClassVar[str] = "model.failed"
    folds: ClassVar[frozenset[Fold]] = CONVERSATION

    message_id: str
    step: int
    error: TurnError


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


class InterruptRequested(Payload):
    """The person stopped a turn."""

    type: ClassVar[str] = "interrupt.requested"

    turn_id: str


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


class UnknownPayload(Payload):
    """An event of a newer version, kept whole."""

    type: ClassVar[str] = ""

    tag: str
    data: dict[str, Any]
