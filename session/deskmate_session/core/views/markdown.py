"""A session as Markdown, for people to read and keep. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from deskmate_session.model.messages import (
    FileDiff,
    FilePart,
    Message,
    ReasoningPart,
    Session,
    TextPart,
    ToolPart,
)

MAX_OUTPUT = 2_000
"""Code points of a call's output that are told; the log has it whole."""

_TICKS = re.compile(r"`{3,}")


def markdown(
    session: Session,
    messages: Iterable[Message],
    time: Callable[[int], str],
    diffs: Mapping[str, Iterable[FileDiff]] | None = None,
) -> str:
    """The whole session. `time` writes a moment in words; `diffs`: what an answer changed, by message id."""
    parts = [f"# {_line(session.title)}", _head(session, time)]
    for message in messages:
        parts += _message(message, time)
        parts += [_fenced(diff.patch, "diff") for diff in (diffs or {}).get(message.id, ())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(session: Session, time: Callable[[int], str]) -> str:
    facts = [f"Session `{session.id}`", f"begun {time(session.created_at)}", f"model `{session.model}`"]
    if session.forked_from is not None:
        facts.append(f"forked from `{session.forked_from.session_id}` at {session.forked_from.seq}")
    return ", ".join(facts)


def _message(message: Message, time: Callable[[int], str]) -> Iterator[str]:
    who = "Person" if message.role == "user" else "Answer"
    waits = ", waits" if message.queued else ""
    yield f"## {who} ({time(message.created_at)}{waits})"
    for part in message.parts:
        match part:
            case TextPart():
                yield part.text.strip() if not part.voided else ""
            case ReasoningPart():
                thought = part.text.strip()
                yield _quoted(thought) if thought and not part.voided else ""
            case FilePart():
                yield f"File: `{part.uri}`"
            case ToolPart():
                yield from _call(part)
    if message.error is not None:
        yield f"**{message.error.kind}**: {message.error.message}"
    elif message.finish not in (None, "stop", "toolCalls"):
        yield f"*The answer ended: {message.finish}.*"


def _call(part: ToolPart) -> Iterator[str]:
    state = part.state
    end = state.status if state.success is not False else "failed"
    code = "" if state.exit_code is None else f", exit code {state.exit_code}"
    yield f"**{_line(part.summary)}** ({end}{code})"
    said = state.error or state.output or ""
    if said.strip():
        cut = said if len(said) <= MAX_OUTPUT else f"{said[:MAX_OUTPUT]}\n[… {len(said)} characters]"
        yield _fenced(cut, "")


def _fenced(text: str, language: str) -> str:
    """A code block whose fence is longer than any in the text."""
    longest = max((len(found) for found in _TICKS.findall(text)), default=2)
    fence = "`" * (longest + 1)
    end = "" if text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _line(text: str) -> str:
    return " ".join(text.split())
