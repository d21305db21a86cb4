"""Messages as the model sees them. A message is projected once, when it can't change any more.

Every call of a complete answer is followed directly by exactly one result; no block is blank; failed
attempts and calls that were never complete are left out.
"""

from typing import Any, cast
from urllib.parse import unquote, urlsplit

from deskmate_session.core.conversation import CallState, Conversation, MessageState, TextState
from deskmate_session.model.messages import FilePart
from deskmate_session.model.ports import (
    ModelBlock,
    ModelCall,
    ModelMessage,
    ModelReasoning,
    ModelResult,
    ModelText,
)

NO_OUTPUT = "(no output)"


def project(conversation: Conversation) -> tuple[ModelMessage, ...]:
    """The history for the next request: everything that was delivered, oldest first."""
    history: list[ModelMessage] = []
    for message in conversation.messages.values():
        if message.projected is None:
            projected = _prompt(message) if message.role == "user" else _answer(message)
            if not _final(message):
                history += projected
                continue
            message.projected = projected
        history += message.projected
    return tuple(history)


def _final(message: MessageState) -> bool:
    if message.role == "user":
        return not message.queued
    return message.completed_at is not None and all(call.settled for call in message.calls)


def _prompt(message: MessageState) -> tuple[ModelMessage, ...]:
    if message.queued:
        return ()
    blocks: list[ModelBlock] = []
    for part in message.parts:
        match part:
            case TextState() if part.text.strip():
                blocks.append(ModelText(part.text))
            case FilePart():
                blocks.append(ModelText(f"The user points to the file {_path(part)}."))
            case _:
                pass
    if message.context is not None:
        blocks.append(ModelText(message.context))
    return (ModelMessage("user", tuple(blocks)),) if blocks else ()


def _path(part: FilePart) -> str:
    path = unquote(urlsplit(part.uri).path) or part.uri
    if part.range is None:
        return path
    return f"{path}, lines {part.range.start.line + 1} to {part.range.end.line + 1}"


def _answer(message: MessageState) -> tuple[ModelMessage, ...]:
    if message.error is not None or message.completed_at is None:
        return ()
    blocks: list[ModelBlock] = []
    results: list[ModelBlock] = []
    for part in message.parts:
        match part:
            case TextState(kind="reasoning"):
                if part.signature or part.redacted:
                    blocks.append(ModelReasoning(part.text, message.model, part.signature, part.redacted))
            case TextState() if part.text.strip():
                blocks.append(ModelText(part.text))
            case CallState(requested=True):
                blocks.append(ModelCall(part.call_id, part.tool, _arguments(part.args)))
                results.append(_result(part))
            case _:
                pass
    if not any(isinstance(block, ModelText | ModelCall) for block in blocks):
        return ()  # reasoning alone is no message for any provider
    answer = ModelMessage("assistant", tuple(blocks))
    return (answer, ModelMessage("tool", tuple(results))) if results else (answer,)


def _arguments(args: Any) -> dict[str, Any]:
    if isinstance(args, dict):
        return cast("dict[str, Any]", args)
    return {}


def _result(call: CallState) -> ModelResult:
    if call.status == "completed":
        output = call.output if call.output and call.output.strip() else NO_OUTPUT
        return ModelResult(call.call_id, call.tool, output, is_error=call.success is False)
    text = call.error or (
        "the outcome is unknown; look before you repeat it"
        if call.status == "running"
        else "the call was not run"
    )
    if call.output and call.output.strip():
        text = f"{text}\nOutput until then:\n{call.output}"
    return ModelResult(call.call_id, call.tool, text, is_error=True)
