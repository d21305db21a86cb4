"""Short hands for states: events in, a fold out."""

from typing import Any

from deskmate_session.core.state import SessionState
from deskmate_session.model import events as e
from deskmate_session.model.messages import Part, ReasoningPart, TextPart, ToolPart, ToolState, Usage


class Ids:
    """Ids that count, over all prefixes."""

    def __init__(self) -> None:
        self.count = 0

    def new(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}_{self.count}"


def event(seq: int, payload: e.EventPayload, session: str = "ses_1") -> e.Event:
    """An event at a position."""
    return e.Event(seq, f"evt_{seq}", session, seq - 1, payload.type, 1, 1_000 + seq, payload, None, "0", "0")


def fold(*payloads: e.EventPayload) -> SessionState:
    """A session's state after its creation and these facts."""
    state = SessionState()
    for seq, payload in enumerate((CREATED, *payloads), 1):
        state.apply(event(seq, payload))
    return state


CREATED = e.SessionCreated(folder="file:///w", title="New session", agent="build", model="mock/test")


def received(message_id: str = "msg_p", words: str = "go", *parts: Part) -> e.MessageReceived:
    given = parts or (TextPart(id=f"prt_{message_id}", text=words),)
    return e.MessageReceived(
        message_id=message_id, delivery="queue", parts=given, agent="build", model="mock/test"
    )


def started(message_id: str = "msg_p", turn_id: str = "turn_1") -> e.TurnStarted:
    return e.TurnStarted(turn_id=turn_id, message_id=message_id, owner="own_1")


def constructed(message_id: str = "msg_a", step: int = 1, parent_id: str = "msg_p") -> e.ContextConstructed:
    return e.ContextConstructed(
        message_id=message_id,
        parent_id=parent_id,
        step=step,
        agent="build",
        model="mock/test",
        policy="full",
        history_rounds=1,
        work_context_files=(),
        tool_results=0,
        token_count=1,
        request_hash="0",
        versions={},
    )


def text_part(
    text: str, message_id: str = "msg_a", part_id: str = "prt_t", kind: str = "text"
) -> list[e.EventPayload]:
    """A streamed part with its text and its end."""
    part = TextPart(id=part_id, text="") if kind == "text" else ReasoningPart(id=part_id, text="")
    return [
        e.PartStarted(message_id=message_id, part=part),
        e.PartAppended(message_id=message_id, part_id=part_id, offset=0, text=text),
        e.PartEnded(message_id=message_id, part_id=part_id, length=len(text), hash="0"),
    ]


def call_part(call_id: str, tool: str = "read", message_id: str = "msg_a") -> e.PartStarted:
    part = ToolPart(
        id=f"prt_{call_id}", call_id=call_id, tool=tool, summary=tool, state=ToolState(status="pending")
    )
    return e.PartStarted(message_id=message_id, part=part)


def responded(
    *calls: tuple[str, str, Any], message_id: str = "msg_a", step: int = 1, finish: Any = None
) -> e.ModelResponded:
    """A complete answer with calls of (id, tool, args)."""
    return e.ModelResponded(
        message_id=message_id,
        step=step,
        kind="toolCalls" if calls else "text",
        calls=tuple(e.CallRequested(call_id=i, tool=t, args=a) for i, t, a in calls),
        finish=finish or ("toolCalls" if calls else "stop"),
        usage=Usage(input=1, output=2),
        cost=3,
        confidence="deterministic" if calls else "nonDeterministic",
    )


def completed(call_id: str, tool: str = "read", output: str = "out", **fields: Any) -> e.CallCompleted:
    return e.CallCompleted(call_id=call_id, tool=tool, success=True, output=output, **fields)


def failed(
    call_id: str, tool: str = "read", kind: Any = "failed", error: str = "no", **fields: Any
) -> e.CallFailed:
    return e.CallFailed(call_id=call_id, tool=tool, kind=kind, error=error, **fields)


def ran(call_id: str, tool: str = "read") -> e.CallStarted:
    return e.CallStarted(call_id=call_id, tool=tool, args={})


def ended(finish: Any = "stop", message_id: str = "msg_p", turn_id: str = "turn_1") -> e.TurnEnded:
    return e.TurnEnded(turn_id=turn_id, message_id=message_id, finish=finish, usage=Usage(), cost=0, steps=1)
