"""Messages and parts in the wire's shape, from the conversation's fold."""

from collections.abc import Iterable
from typing import Any, cast

from deskmate_session.core.conversation import CallState, Conversation, MessageState, PartState, TextState
from deskmate_session.model.events import Event
from deskmate_session.model.messages import (
    FilePart,
    Message,
    Part,
    ReasoningPart,
    TextPart,
    ToolPart,
    ToolState,
)

_SUMMARY_KEYS = ("command", "path", "pattern", "url", "query", "name", "description")
MAX_SUMMARY = 120


def fold(events: Iterable[Event]) -> Conversation:
    """The conversation that these events make; enough for a page of messages."""
    conversation = Conversation()
    for event in events:
        conversation.apply(event)
    return conversation


def message_view(session_id: str, message: MessageState) -> Message:
    """A message with all its parts as they are logged."""
    return Message(
        id=message.id,
        session_id=session_id,
        role=message.role,
        seq=message.seq,
        parent_id=message.parent_id,
        agent=message.agent,
        model=message.model,
        created_at=message.created_at,
        completed_at=message.completed_at,
        parts=tuple(part_view(part, voided=message.error is not None) for part in message.parts),
        finish=message.finish,
        error=message.error,
        usage=message.usage,
        cost=message.cost,
        queued=message.queued or None,
    )


def part_view(part: PartState, *, voided: bool = False) -> Part:
    """A part as it is logged; `voided` marks parts of a failed attempt."""
    void = True if voided else None
    match part:
        case TextState(kind="reasoning"):
            return ReasoningPart(id=part.id, text=part.text, voided=void)
        case TextState():
            return TextPart(
                id=part.id, text=part.text, label=part.label, synthetic=part.synthetic, voided=void
            )
        case CallState():
            return _tool(part, void)
        case FilePart():
            return part


def _tool(call: CallState, voided: bool | None) -> ToolPart:
    return ToolPart(
        id=call.id,
        call_id=call.call_id,
        tool=call.tool,
        summary=summary(call.tool, _args(call)),
        voided=voided,
        state=ToolState(
            status=call.status,
            input=_args(call),
            title=call.title,
            output=call.output,
            success=call.success,
            exit_code=call.exit_code,
            truncated=call.truncated,
            output_file=call.output_file,
            error=call.error,
            error_kind=call.error_kind,
            interrupted=call.interrupted,
            timed_out=call.timed_out,
            outcome_unknown=call.outcome_unknown,
            rejected_by=call.rejected_by,
            metadata=call.metadata,
            started_at=call.started_at,
            ended_at=call.ended_at,
        ),
    )


def _args(call: CallState) -> Any:
    return call.args if call.ran_args is None else call.ran_args


def summary(tool: str, args: Any) -> str:
    """One line that tells a person what a call is about: the command, the path, the pattern."""
    if not isinstance(args, dict):
        return tool
    named = cast("dict[str, Any]", args)
    subject = next((named[key] for key in _SUMMARY_KEYS if isinstance(named.get(key), str)), "")
    line = " ".join(subject.split())
    line = line if len(line) <= MAX_SUMMARY else line[: MAX_SUMMARY - 1] + "…"
    return f"{tool} {line}".rstrip()
