"""What clients ask the kernel to do; the params of the wire's methods."""

from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from deskmate_session.model.base import Wire
from deskmate_session.model.limits import MAX_PROMPT_BYTES, shallow
from deskmate_session.model.messages import Delivery, FileDiff, Mode, PartInput, Session
from deskmate_session.model.permissions import Reply

ClientSessionId = Field(default=None, pattern=r"^ses_[A-Za-z0-9]{4,40}$")
ClientMessageId = Field(default=None, pattern=r"^msg_[A-Za-z0-9]{4,40}$")


class CreateSession(Wire):
    """`deskmate/session/create`. `id` makes it idempotent."""

    id: str | None = ClientSessionId
    folder: str | None = None
    title: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mode: Mode | None = None
    parent_id: str | None = None


class UpdateSession(Wire):
    """`deskmate/session/update`. Absent fields stay."""

    session_id: str
    title: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mode: Mode | None = None
    archived: bool | None = None


class DeleteSession(Wire):
    """`deskmate/session/delete`."""

    session_id: str


def _without_blank_texts(parts: Any) -> Any:
    """Blank text beside other parts says nothing and is left out; a prompt of blank text alone is refused."""
    if not isinstance(parts, list | tuple) or len(cast("list[Any]", parts)) < 2:
        return cast("Any", parts)
    given = cast("list[Any]", parts)
    return [part for part in given if not _is_blank_text(part)] or given[:1]


def _within_limit(parts: tuple[PartInput, ...]) -> tuple[PartInput, ...]:
    texts = (text for part in parts for text in part.model_dump().values() if isinstance(text, str))
    size = sum(len(text.encode("utf-8", "replace")) for text in texts)
    if size > MAX_PROMPT_BYTES:
        raise ValueError(
            f"{size:,} bytes are more than a prompt can hold ({MAX_PROMPT_BYTES:,}); point to a file"
        )
    return parts


def _is_blank_text(part: Any) -> bool:
    if not isinstance(part, dict):
        return False
    text = cast("dict[str, Any]", part)
    return text.get("type") == "text" and isinstance(text.get("text"), str) and not text["text"].strip()


class Prompt(Wire):
    """`deskmate/session/prompt`."""

    session_id: str
    message_id: str | None = ClientMessageId
    parts: Annotated[
        tuple[PartInput, ...], BeforeValidator(_without_blank_texts), AfterValidator(_within_limit)
    ] = Field(min_length=1, max_length=1_000)
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    delivery: Delivery = "queue"
    partial_result_token: str | int | None = None
    work_done_token: str | int | None = None


class Resume(Wire):
    """`deskmate/session/resume`: goes on with the interrupted turn, else starts a held queue."""

    session_id: str
    partial_result_token: str | int | None = None
    work_done_token: str | int | None = None


class ForkSession(Wire):
    """`deskmate/session/fork`: up to the event `atSeq`, up to before a message, or all there is."""

    session_id: str
    at_seq: int | None = Field(default=None, ge=0)
    """The last event that counts; of a step that is not complete then, nothing does."""
    at_message_id: str | None = None
    """Everything before this message counts."""

    @model_validator(mode="after")
    def _one_point(self) -> "ForkSession":
        if self.at_seq is not None and self.at_message_id is not None:
            raise ValueError("give atSeq or atMessageId, not both")
        return self


class ImportSession(Wire):
    """`deskmate/session/import`: an exported session, from a file or as text."""

    from_uri: str | None = None
    """A file of JSON lines, at most 64 MB."""
    data: str | None = None
    """The JSON lines themselves."""
    folder: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "ImportSession":
        if (self.from_uri is None) == (self.data is None):
            raise ValueError("give either fromUri or data")
        return self


class Interrupt(Wire):
    """`deskmate/session/interrupt`."""

    session_id: str


class Interrupted(Wire):
    """`interrupted`: a turn was running. `left` names what could not be ended in time."""

    interrupted: bool
    left: tuple[str, ...] | None = None


class Unqueue(Wire):
    """`deskmate/session/unqueue`."""

    session_id: str
    message_id: str


class Unqueued(Wire):
    """`removed`: it was still waiting."""

    removed: bool


class ReplyAsk(Wire):
    """`deskmate/ask/reply`. The first answer wins."""

    ask_id: str
    reply: Reply
    input: Annotated[dict[str, Any], AfterValidator(shallow)] | None = None
    message: str | None = None


class AskAnswer(Wire):
    """What a client answers to `deskmate/ask`."""

    reply: Reply
    input: Annotated[dict[str, Any], AfterValidator(shallow)] | None = None
    message: str | None = None


class Replied(Wire):
    """`accepted`: this was the answer that counts."""

    accepted: bool


class Nothing(Wire):
    """`{}`."""


class SessionPage(Wire):
    """`deskmate/session/list`: newest activity first."""

    sessions: tuple[Session, ...]
    next_cursor: str | None = None


class DiffResult(Wire):
    """`deskmate/session/diff`: what the session authored."""

    files: tuple[FileDiff, ...]


class Problem(Wire):
    """Something that `verify` found."""

    seq: int
    kind: Literal["link", "gap", "orphan", "digest", "object", "readModel", "payload", "checkpoint"]
    detail: str


class Verified(Wire):
    """`deskmate/session/verify`."""

    ok: bool
    events: int
    problems: tuple[Problem, ...]
