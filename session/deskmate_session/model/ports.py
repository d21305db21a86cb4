"""What the kernel needs from outside: a model, tools, an editor, a clock, ids.

Each port has two implementations in the tree: the real one and a scripted one.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from deskmate_session.model.base import Wire
from deskmate_session.model.edits import ApplyOutcome, FileText, OpenDocument, TextChange, Written
from deskmate_session.model.events import ReadFile
from deskmate_session.model.messages import AnswerFinish, Usage
from deskmate_session.model.permissions import Action, PermissionRequest


class Clock(Protocol):
    """Wall time."""

    def now(self) -> int:
        """Milliseconds since the epoch."""
        ...


class Ids(Protocol):
    """Fresh identifiers."""

    def new(self, prefix: str) -> str:
        """An id such as `msg_4kX…`; `prefix` comes without the underscore."""
        ...


# ── The model ────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ModelText:
    """Text of either side; never blank."""

    text: str


@dataclass(frozen=True, slots=True)
class ModelReasoning:
    """Reasoning that the same model wrote earlier; `model` is `provider/model`."""

    text: str
    model: str
    signature: str | None
    redacted: str | None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call in an answer."""

    call_id: str
    tool: str
    args: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelResult:
    """What a call gave."""

    call_id: str
    tool: str
    output: str
    """Never blank."""
    is_error: bool


ModelBlock = ModelText | ModelReasoning | ModelCall | ModelResult


@dataclass(frozen=True, slots=True, eq=False)
class ModelMessage:
    """One message of a request. Compared by identity: adapters keep its encoded bytes beside it.

    `tool` messages hold the results of the answer directly before them, one for each call.
    """

    role: Literal["user", "assistant", "tool"]
    blocks: tuple[ModelBlock, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: dict[str, Any]
    """JSON schema of the arguments: an object."""


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request in no provider's dialect."""

    model: str
    """The model's name at the provider."""
    system: tuple[str, ...]
    messages: tuple[ModelMessage, ...]
    tools: tuple[ToolSpec, ...]
    max_output: int


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """A block of the answer began. `index` is unique in the answer, in order of appearance."""

    index: int
    kind: Literal["text", "reasoning", "tool"]
    provider_id: str | None = None
    """The provider's id of a call."""
    name: str | None = None
    """The tool's name."""


@dataclass(frozen=True, slots=True)
class BlockDelta:
    """Text for a block: text, reasoning, or the raw JSON of a call's arguments. Well-formed Unicode."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class BlockEnded:
    """A block is complete."""

    index: int
    signature: str | None = None
    redacted: str | None = None


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """The provider closed the answer properly. Always the last event of a good stream."""

    finish: AnswerFinish
    usage: Usage | None
    """Absent when the provider told nothing."""
    raw_finish: str | None = None
    """The provider's own word, for the debugger."""


StreamEvent = BlockStarted | BlockDelta | BlockEnded | AnswerEnded


class Provider(Protocol):
    """One way to reach models."""

    @property
    def name(self) -> str:
        """The name under `[providers]`."""
        ...

    async def load(self) -> None:
        """Import what is heavy and make the client, off the loop; called at `session/create`."""
        ...

    def encode(self, request: ModelRequest) -> bytes:
        """The body as it will be sent. A message that was encoded before costs nothing again."""
        ...

    def stream(self, body: bytes) -> AsyncGenerator[list[StreamEvent]]:
        """Send a body; yield the events of each network chunk as it comes.

        Raises `ProviderError`. Closing the iterator closes the connection. A stream that ends without
        the provider's own end raises `badResponse`, retryable.
        """
        ...

    async def close(self) -> None:
        """Release connections."""
        ...


# ── Tools ────────────────────────────────────────────────────────────────────────────────────

Effect = Literal["none", "idempotent", "effect"]


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The limits of one call."""

    file_timeout_ms: int = 5_000
    search_timeout_ms: int = 30_000
    command_timeout_ms: int = 120_000
    command_timeout_max_ms: int = 600_000
    output_max_lines: int = 2_000
    output_max_bytes: int = 50_000


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gave, for its three readers: `output` for the model, `title` for the person,
    `metadata` for the debugger."""

    output: str
    title: str
    success: bool = True
    exit_code: int | None = None
    truncated: bool = False
    output_file: str | None = None
    reads: tuple[ReadFile, ...] = ()
    command: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ToolContext(Protocol):
    """What the host gives to a call, apart from the model's arguments."""

    @property
    def session_id(self) -> str: ...
    @property
    def call_id(self) -> str: ...
    @property
    def folder(self) -> str:
        """Real path of the session's folder."""
        ...

    @property
    def roots(self) -> tuple[str, ...]:
        """Real paths that count as inside, the folder first."""
        ...

    @property
    def state_dir(self) -> str:
        """The workspace's state folder; long outputs go to `outputs/` below it."""
        ...

    @property
    def limits(self) -> ToolLimits: ...

    def environment(self) -> dict[str, str]:
        """The environment for a child: without provider keys, with `DESKMATE_CALL`."""
        ...

    def seen(self, uri: str) -> str | None:
        """Hash of the file as this session last read or wrote it."""
        ...

    def may_read(self, path: str) -> Action:
        """What the rules say of reading a file; `path` as rules see it: relative inside, else absolute."""
        ...

    def progress(self, text: str) -> None:
        """Show output while the call runs."""
        ...

    async def read(self, path: str) -> FileText:
        """The file as it stands, the editor's buffer first. Raises `ToolFailure` (`notFound`, `failed`)."""
        ...

    async def write(self, path: str, text: str, basis: FileText | None) -> Written:
        """Change or create a text file: through the editor where open, else atomically on disk.

        `basis` is the file as it was read (its encoding is kept; a change since then is a `conflict`), or
        None for a file that must not exist yet. The facts of the change are logged around the write.
        """
        ...


class Prepared(Protocol):
    """A call whose arguments are good: what it asks for, and the way to run it."""

    @property
    def requests(self) -> tuple[PermissionRequest, ...]:
        """Permissions that it needs, in order."""
        ...

    async def run(self) -> ToolResult:
        """Do it. Raises `ToolFailure`. Cancelling the task must end every child."""
        ...


class Tool(Protocol):
    """A tool. `Args` is its arguments' model; unknown fields are ignored, wrong ones refused before."""

    @property
    def name(self) -> str: ...
    @property
    def effect(self) -> Effect: ...
    @property
    def description(self) -> str:
        """The prompt from the `.md` beside the tool."""
        ...

    @property
    def args(self) -> type[Wire]: ...

    def summary(self, args: Wire) -> str:
        """One line for a person: the command, the path."""
        ...

    async def prepare(self, args: Wire, context: ToolContext) -> Prepared:
        """Look at the world without changing it. Raises `ToolFailure`."""
        ...


# ── The editor ───────────────────────────────────────────────────────────────────────────────


class Host(Protocol):
    """The editor that the kernel works through; a headless one has no open documents."""

    def document(self, path: str) -> OpenDocument | None:
        """The open document of a real path."""
        ...

    def can_apply(self) -> bool:
        """The editor offers `workspace/applyEdit`."""
        ...

    async def apply(
        self, path: str, before: str, changes: Sequence[TextChange], after: str, label: str
    ) -> ApplyOutcome:
        """Change an open document from `before` to `after`, and save it if it was clean.

        Waits for the synced text to hold the change. Never raises for a refusal.
        """
        ...
