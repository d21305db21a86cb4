"""What a person sees: sessions, messages, parts, asks, results. Shapes of the wire contract."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from deskmate_session.errors import FailureKind
from deskmate_session.model.base import Wire

Mode = Literal["ask", "acceptEdits", "plan", "auto"]
Finish = Literal["stop", "interrupted", "length", "refused", "denied", "stepLimit", "budget", "error"]
AnswerFinish = Literal["stop", "toolCalls", "length", "refusal", "interrupted", "unknown"]
CallStatus = Literal["pending", "running", "completed", "error"]
Delivery = Literal["queue", "steer", "interrupt"]


class Usage(Wire):
    """Tokens of one step or summed over a turn or session."""

    input: int = 0
    """Prompt tokens that came from no cache."""
    output: int = 0
    """Tokens the model wrote, reasoning included."""
    reasoning: int = 0
    """Reasoning tokens, where the provider tells."""
    cache_read: int = 0
    """Prompt tokens read from the provider's cache."""
    cache_write: int = 0
    """Prompt tokens written to the provider's cache."""
    context_window: int | None = None
    """The model's window in tokens; absent when unknown."""
    context_used: int | None = None
    """Tokens of the last request and its answer; absent when the provider told nothing."""

    def plus(self, other: "Usage") -> "Usage":
        """Sum of the counters; window and use are those of `other`, the later one."""
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            reasoning=self.reasoning + other.reasoning,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            context_window=other.context_window or self.context_window,
            context_used=other.context_used if other.context_used is not None else self.context_used,
        )


class TurnError(Wire):
    """Why a turn or an answer failed."""

    kind: Literal["providerAuth", "providerUnavailable", "contextOverflow", "badResponse", "internal"]
    message: str
    hint: str | None = None
    """What the person can do next."""


class Position(Wire):
    """A place in a document, in the position encoding that was negotiated."""

    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Range(Wire):
    """A half-open range in a document."""

    start: Position
    end: Position


class TextInput(Wire):
    """Text that the person wrote."""

    type: Literal["text"] = "text"
    text: str = Field(pattern=r"\S")
    """Not blank."""
    label: str | None = None
    """What to show in place of a long text."""


class FileInput(Wire):
    """A file that the person points to; the model is told its path and reads it when needed."""

    type: Literal["file"] = "file"
    uri: str
    range: Range | None = None
    mime: str | None = None


PartInput = Annotated[TextInput | FileInput, Discriminator("type")]
"""A part of a prompt as a client sends it."""


class TextPart(Wire):
    """Text of the person or the model."""

    id: str
    type: Literal["text"] = "text"
    text: str
    label: str | None = None
    synthetic: bool | None = None
    """Written by Deskmate, not by the person or the model."""
    voided: bool | None = None
    """Part of an attempt that failed; never sent to the model again."""


class ReasoningPart(Wire):
    """The model's reasoning, as far as the provider shows it."""

    id: str
    type: Literal["reasoning"] = "reasoning"
    text: str
    voided: bool | None = None


class FilePart(Wire):
    """A file that the person pointed to."""

    id: str
    type: Literal["file"] = "file"
    uri: str
    range: Range | None = None
    mime: str | None = None


class ToolState(Wire):
    """Where a call stands."""

    status: CallStatus
    input: Any = None
    """The arguments: an object once complete, the raw text while they stream."""
    title: str | None = None
    output: str | None = None
    success: bool | None = None
    exit_code: int | None = None
    truncated: bool | None = None
    output_file: str | None = None
    """Where the full output lies when `truncated`."""
    error: str | None = None
    error_kind: FailureKind | None = None
    interrupted: bool | None = None
    timed_out: bool | None = None
    outcome_unknown: bool | None = None
    """The call was cut after it may have acted."""
    rejected_by: Literal["person", "rule", "hook"] | None = None
    metadata: dict[str, Any] | None = None
    started_at: int | None = None
    ended_at: int | None = None


class ToolPart(Wire):
    """One tool call."""

    id: str
    type: Literal["tool"] = "tool"
    call_id: str
    tool: str
    summary: str
    """One line for a person: the command, the path."""
    state: ToolState
    voided: bool | None = None


Part = Annotated[TextPart | ReasoningPart | FilePart | ToolPart, Discriminator("type")]


class ForkedFrom(Wire):
    """The point of another session from which a session goes on."""

    session_id: str
    seq: int


class Session(Wire):
    """One conversation with its work context, in one workspace folder."""

    id: str
    folder: str
    """File URI of the workspace folder."""
    title: str
    agent: str
    model: str
    """`provider/model`."""
    variant: str | None = None
    mode: Mode = "ask"
    parent_id: str | None = None
    forked_from: ForkedFrom | None = None
    """The point of another session that it goes on from."""
    created_at: int
    updated_at: int
    archived_at: int | None = None
    seq: int
    """The last event of the session."""


class Message(Wire):
    """A prompt, or one step's answer."""

    id: str
    session_id: str
    role: Literal["user", "assistant"]
    seq: int
    parent_id: str | None = None
    """The prompt that an answer belongs to."""
    agent: str
    model: str
    created_at: int
    completed_at: int | None = None
    parts: tuple[Part, ...]
    finish: AnswerFinish | None = None
    error: TurnError | None = None
    usage: Usage | None = None
    cost: int | None = None
    """Micro-dollars; absent when the price is unknown."""
    queued: bool | None = None


class FileDiff(Wire):
    """How one file differs between two points of a session."""

    uri: str
    status: Literal["added", "modified", "deleted", "renamed"]
    old_uri: str | None = None
    additions: int
    deletions: int
    patch: str
    """Unified diff, three lines of context."""
    binary: bool | None = None


class CommandDetail(Wire):
    """A shell command that wants to run."""

    command: str
    workdir: str


class DiffDetail(Wire):
    """A file change that wants to happen."""

    uri: str
    diff: str


class ToolDetail(Wire):
    """Any other call that wants to run."""

    tool: str
    input: dict[str, Any]


AskDetail = CommandDetail | DiffDetail | ToolDetail


class AlwaysPattern(Wire):
    """A rule that answering *session* or *always* would add."""

    pattern: str
    stored: bool = False
    """True when *always* would keep it beyond this session."""


class Ask(Wire):
    """An open question to the person."""

    id: str
    session_id: str | None = None
    call_id: str | None = None
    kind: Literal["permission", "question", "trust"]
    permission: str | None = None
    patterns: tuple[str, ...] | None = None
    always: tuple[AlwaysPattern, ...] | None = None
    title: str
    detail: AskDetail
    created_at: int


class Evidence(Wire):
    """A command of the turn that shows something about the work."""

    kind: Literal["test", "build", "lint", "other"]
    command: str
    exit_code: int
    seq: int
    state: Literal["backed", "stale", "failed"]


class TurnResult(Wire):
    """How a turn ended."""

    session_id: str
    message_id: str
    """The prompt's id."""
    seq: int
    finish: Finish
    error: TurnError | None = None
    usage: Usage
    cost: int = 0
    """Micro-dollars."""
    steps: int
    evidence: tuple[Evidence, ...] = ()


class Accepted(Wire):
    """A prompt is durable in the log."""

    session_id: str
    message_id: str
    seq: int


class QueuedPrompt(Wire):
    """A prompt that waits for its turn."""

    message_id: str
    text: str
    """Its first text, shortened to 200 characters."""


class Queue(Wire):
    """The prompts that wait, in order; `held` after an interrupt, an error or a crash."""

    held: bool = False
    prompts: tuple[QueuedPrompt, ...] = ()


class FileEntry(Wire):
    """A file as the work context knows it."""

    uri: str
    hash: str | None = None
    """SHA-256 of the text in UTF-8 as last read or written by the agent; absent: deleted."""
    seq: int
    """The event that it is known from."""
    changed: bool = False
    """The session changed it."""
    by: str
    """The call that read or changed it last."""


class CommandEntry(Wire):
    """A command that ran lately."""

    call_id: str
    command: str
    exit_code: int | None = None
    tail: str
    """The last lines of its output."""
    seq: int


class WorkContext(Wire):
    """The exact state of the work: kernel two, as it goes over the wire."""

    files: tuple[FileEntry, ...] = ()
    commands: tuple[CommandEntry, ...] = ()
    folder: str = ""


class SessionStatus(Wire):
    """What a session is doing now."""

    status: Literal["idle", "busy", "waiting", "retrying", "compacting", "stopping"]
    attempt: int | None = None
    message: str | None = None
    next_at: int | None = None
